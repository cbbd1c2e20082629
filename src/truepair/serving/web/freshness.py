"""Freshness: starts trainers, serves what is promoted, and answers about both."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from prometheus_client import Counter, Gauge

from truepair.errors import InputError, StorageError, check_choice
from truepair.recommender.estimator import Recommender
from truepair.serving.fresh.child import Child
from truepair.serving.fresh.decisions import DECISIONS, Decision
from truepair.serving.fresh.retraining import WAYS, Plan, check_retrainable
from truepair.serving.fresh.schedule import Schedule
from truepair.serving.fresh.versions import State, Versions
from truepair.serving.id_texts import escaped
from truepair.serving.limits import Limits
from truepair.serving.refusals import RefusalError
from truepair.serving.web.answers import JSON
from truepair.serving.web.app import Service
from truepair.serving.web.requests import Field, query_number
from truepair.serving.web.routes import Route

TICK = 0.5
"""Seconds between two looks at what is to be served."""

_AGAIN = 30.0  # seconds until a version that could not be loaded is tried again
_SHOWN = 100  # decisions in an answer by default
_MOST_SHOWN = 1000


def _way(name: str, value: Any, limits: Limits) -> Any:
    return check_choice(name, value, WAYS)


_NULL = {"type": "null"}
_COUNT = {"oneOf": [{"type": "integer"}, _NULL]}
_NUMBER = {"oneOf": [{"type": "number"}, _NULL]}
_TEXT = {"oneOf": [{"type": "string"}, _NULL]}
_MEAN = {name: {"type": "number"} for name in ("mean", "low", "high")}
_INTERVAL = {"oneOf": [{"type": "object", "properties": _MEAN, "required": [*_MEAN]}, _NULL]}
_COUNTS = ("version", "against", "events", "new_events", "judged_events", "new_pairs", "people")
_DECISION: dict[str, Any] = {
    "decision": {"enum": [*DECISIONS]},
    "reason": {"type": "string"},
    **dict.fromkeys(_COUNTS, _COUNT),
    **dict.fromkeys(("by", "metric"), _TEXT),
    **dict.fromkeys(("candidate", "running", "difference"), _INTERVAL),
    **dict.fromkeys(("p", "seconds"), _NUMBER),
    "time": {"type": "string"},
    "id": {"type": "string"},
}
_RUNNING: dict[str, Any] = {
    "version": {"type": "integer"},
    "versions": {"type": "array", "items": {"type": "integer"}},
    **{name: {"type": "integer"} for name in ("learnt_until", "judged_until", "trainings", "failures")},
    "training": {"type": "boolean"},
    "next": _TEXT,
    "every_seconds": _NUMBER,
    "every_events": _COUNT,
}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


ROUTES = [
    Route(
        "GET", "/v1/model/decisions", "decisions", "read",
        "What happened to the served model, newest first, and what is served now.",
        _object({"decisions": {"type": "array", "items": _object(_DECISION)}, "running": _object(_RUNNING)}),
        query={"n": {"type": "integer", "minimum": 1, "maximum": _MOST_SHOWN, "default": _SHOWN}},
    ),
    Route(
        "POST", "/v1/model/retrain", "retrain", "admin", "Train and judge a candidate now.",
        _object({"training": {"type": "boolean"}}),
        {"by": Field(_way, {"enum": [*WAYS]}, "how it is trained; the service's way by default")}, (), {},
    ),
    Route(
        "POST", "/v1/model/rollback", "rollback", "admin", "Return to the former model.",
        _object({"version": {"type": "integer"}}), {}, (), {},
    ),
]  # fmt: skip


class Freshness:
    """The part of a service that keeps its model fresh. `start` begins, `close` ends it."""

    def __init__(self, service: Service, versions: Versions, plan: Plan, schedule: Schedule) -> None:
        self.service, self.versions, self.plan, self.schedule = service, versions, plan, schedule
        self.child: Child | None = None
        self.trainings = self.failures = 0
        self._ending, self._started = threading.Event(), threading.Lock()
        self._following = threading.Lock()  # one model is loaded at a time
        self._unusable: tuple[State, float] | None = None
        self._thread = threading.Thread(target=self._run, name="freshness", daemon=True)
        registry = service.metrics.registry
        self._decisions = Counter(
            "truepair_decisions", "Decisions about the model", ("decision",), registry=registry
        )
        for decision in DECISIONS:
            self._decisions.labels(decision)
        version = Gauge("truepair_model_version", "The version that is served", registry=registry)
        version.set_function(lambda: service.served.version)
        training = Gauge("truepair_training", "Whether this process has a trainer", registry=registry)
        training.set_function(lambda: self.child is not None)
        service.parts.append((ROUTES, self))
        service.closing.append(self.close)

    def start(self) -> None:
        """Look after the model from now on."""
        self._thread.start()

    def close(self) -> None:
        """End the trainer, and look after nothing any more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._started:
            if self.child is not None:
                self.child.stop()

    # --- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending.wait(TICK):
            try:
                self.tick()
            except Exception as error:  # a full disk, or no memory: the service goes on
                self.service.log.failed("freshness", error)

    def tick(self) -> None:
        """Serve what is promoted; note the end of a trainer; start one that is due."""
        state = self.follow()
        if (child := self.child) is not None and not child.is_running:
            self._note(child.outcome())
            with self._started:
                self.child = None
            state = self.follow()
        if self.child is None and self.schedule.is_due(state, self.service.reader.count):
            self.begin(self.plan)

    def begin(self, plan: Plan) -> bool:
        """Start a trainer, unless this process or another one has one."""
        with self._started:
            if self._ending.is_set() or self.child is not None or self.versions.is_training():
                self.schedule.restart(self.service.reader.count)
                return False
            self.schedule.restart(self.service.reader.count)
            self.trainings += 1
            self.child = Child(vars(plan))
            return True

    def follow(self) -> State:
        """Serve the version that `current` names, if it is another one."""
        with self._following:
            state = self.versions.state()
            if state.current == self.service.served.version or self._is_unusable(state):
                return state
            try:
                self.service.swap(Recommender.load(self.versions.path(state.current)), state.current)
            except Exception as error:  # the file is damaged, or there is no memory for it
                self._unusable = state, time.monotonic()
                self.failures += 1
                self.service.log.failed("freshness", error)
                return state
            self._unusable = None
            if gc.get_freeze_count():  # as at the start: the new model is not looked through again and again
                gc.collect()
                gc.freeze()
            if (state.decision or {}).get("decision") == "rolled back":
                self.schedule.restart(self.service.reader.count)
            self.service.log.write("model", version=state.current)
            return state

    def _is_unusable(self, state: State) -> bool:
        """Whether this version could not be loaded a moment ago."""
        if self._unusable is None:
            return False
        failed, when = self._unusable
        return failed.stack == state.stack and time.monotonic() - when < _AGAIN

    def _note(self, found: dict[str, Any]) -> None:
        """Count and log how a trainer ended; a failure becomes a decision."""
        if found["decision"] == "busy":
            return
        if found["decision"] == "failed":
            self.failures += 1
            shown = found["reason"] if self.service.log.people else found["reason"].partition(":")[0]
            self.service.log.write("trainer", error=shown, trace=found.get("trace", ""))
            found = Decision("failed", found["reason"], against=self.service.served.version).as_json()
            try:
                self.versions.log.append(found)
            except (StorageError, OSError) as error:
                self.service.log.failed("freshness", error)
            found = {**found, "reason": shown}
        self._count(found)

    # --- answers -----------------------------------------------------------------------------------------

    async def answer_decisions(self, request: Request, body: dict[str, Any]) -> Response:
        """What happened to the served model."""
        n = query_number(request.query_params.get("n"), "n", _SHOWN, _MOST_SHOWN)
        return _json(await _in_thread(self._decided, n))

    def _decided(self, n: int) -> dict[str, Any]:
        state = self.versions.state()
        following = self.schedule.next_time(state)
        running = {
            "version": self.service.served.version,
            "versions": list(state.stack),
            "learnt_until": state.until[state.current],
            "judged_until": state.judged,
            "trainings": self.trainings,
            "failures": self.failures,
            "training": self.child is not None or self.versions.is_training(),
            "next": following and datetime.fromtimestamp(following, UTC).isoformat(timespec="milliseconds"),
            "every_seconds": self.schedule.seconds,
            "every_events": self.schedule.events,
        }
        return {"decisions": self.versions.log.newest(n), "running": running}

    async def answer_retrain(self, request: Request, body: dict[str, Any]) -> Response:
        """Train a candidate now."""
        check_retrainable(self.service.served.recommender)
        if not await _in_thread(self.begin, Plan(**{**vars(self.plan), **body})):
            raise RefusalError(409, "a candidate is being trained already; wait for its decision.")
        return _json({"training": True})

    async def answer_rollback(self, request: Request, body: dict[str, Any]) -> Response:
        """Return to the former model; when this is answered, it is served."""
        return _json({"version": await _in_thread(self._roll_back)})

    def _roll_back(self) -> int:
        try:
            state = self.versions.roll_back()
        except InputError as error:
            raise RefusalError(409, str(error)) from None
        self._count(state.decision or {})
        self.follow()
        return state.current

    def _count(self, decision: dict[str, Any]) -> None:
        self._decisions.labels(decision["decision"]).inc()
        self.service.log.write("decision", **{name: v for name, v in decision.items() if name != "time"})


def _json(value: Any) -> Response:
    return Response(escaped(value), media_type=JSON)


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
