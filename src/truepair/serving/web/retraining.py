"""AutomaticRetraining: starts trainers, serves what is promoted, and answers about both."""

from __future__ import annotations

import gc
import threading
import time
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import Response
from prometheus_client import Counter
from pydantic import BaseModel, Field

from truepair.errors import InputError, StorageError
from truepair.recommender.estimator import Recommender
from truepair.serving.refusals import RefusalError
from truepair.serving.retraining.decisions import DECISIONS, Decision
from truepair.serving.retraining.rounds import WAYS, RetrainingPlan, check_retrainable
from truepair.serving.retraining.schedule import Schedule
from truepair.serving.retraining.trainer import Child
from truepair.serving.retraining.versions import State, Versions
from truepair.serving.web.app import Service
from truepair.serving.web.bodies import RequestBody
from truepair.serving.web.routing import CheckedRouter, json_response
from truepair.storage.types import Json

TICK = 0.5
"""Seconds between two looks at what is to be served."""

_AGAIN = 30.0  # seconds until a version that could not be loaded is tried again


class RetrainBody(RequestBody):
    """How a candidate is trained."""

    by: Literal[WAYS] = Field(  # type: ignore[valid-type]
        WAYS[0], description="how it is trained; the service's way by default"
    )


class NoFields(RequestBody):
    """An empty object."""


class RunningAnswer(BaseModel):
    """What is served now, and when it is trained next."""

    version: int
    versions: list[int]
    learnt_until: int
    judged_until: int
    trainings: int
    failures: int
    training: bool
    margin: float
    next: str | None
    every_seconds: float | None
    every_events: int | None


class DecisionsAnswer(BaseModel):
    """Decisions, newest first, and what is served now."""

    decisions: list[Decision]
    running: RunningAnswer


class TrainingAnswer(BaseModel):
    """Whether a candidate is being trained."""

    training: bool


class VersionAnswer(BaseModel):
    """The version that is served."""

    version: int


class AutomaticRetraining:
    """The part of a service that retrains its model. `start` begins, `close` ends it."""

    def __init__(
        self, service: Service, versions: Versions, plan: RetrainingPlan, schedule: Schedule
    ) -> None:
        self.service, self.versions, self.plan, self.schedule = service, versions, plan, schedule
        self.child: Child | None = None
        self.trainings = self.failures = 0
        self._ending, self._started = threading.Event(), threading.Lock()
        self._following = threading.Lock()  # one model is loaded at a time
        self._unusable: tuple[int, ...] = ()  # what was to be served when its loading failed
        self._next_try = 0.0
        self._thread = threading.Thread(target=self._run, name="retraining", daemon=True)
        metrics, about = service.metrics, "Decisions about the model"
        self._decisions = Counter("truepair_decisions", about, ("decision",), registry=metrics.registry)
        for decision in DECISIONS:
            self._decisions.labels(decision)
        metrics.gauge("model_version", "The version that is served", lambda: service.served.version)
        metrics.gauge("training", "Whether this process has a trainer", lambda: self.child is not None)
        service.routers.append(self._router())
        service.has_decisions = True
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
                self.service.log.failed("retraining", error)

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

    def begin(self, plan: RetrainingPlan) -> bool:
        """Start a trainer, unless this process or another one has one."""
        with self._started:
            self.schedule.restart(self.service.reader.count)
            if self._ending.is_set() or self.child is not None or self.versions.is_training():
                return False
            self.trainings += 1
            self.child = Child(vars(plan))
            return True

    def follow(self) -> State:
        """Serve the version that `current` names, if it is another one."""
        with self._following:
            state = self.versions.state()
            failed_again = state.stack == self._unusable and time.monotonic() < self._next_try
            if state.current == self.service.served.version or failed_again:
                return state
            try:
                self.service.swap(Recommender.load(self.versions.path(state.current)), state.current)
            except Exception as error:  # the file is damaged, or there is no memory for it
                self._unusable, self._next_try = state.stack, time.monotonic() + _AGAIN
                self.failures += 1
                self.service.log.failed("retraining", error)
                return state
            self._unusable = ()
            if gc.get_freeze_count():  # as at the start: the new model is not looked through again and again
                gc.collect()
                gc.freeze()
            if state.decision is not None and state.decision.decision == "rolled back":
                self.schedule.restart(self.service.reader.count)
            self.service.log.write("model", version=state.current)
            return state

    def _note(self, found: Json) -> None:
        """Count and log how a trainer ended; a failure becomes a decision."""
        if found["decision"] == "busy":
            return
        if found["decision"] == "failed":
            self.failures += 1
            shown = found["reason"] if self.service.log.with_ids else found["reason"].partition(":")[0]
            self.service.log.write("trainer", error=shown, trace=found.get("trace", ""))
            found = Decision("failed", found["reason"], against=self.service.served.version).as_json()
            try:
                self.versions.log.append(found)
            except (StorageError, OSError) as error:
                self.service.log.failed("retraining", error)
            found = {**found, "reason": shown}
        self._count(found)

    # --- answers -----------------------------------------------------------------------------------------

    def _router(self) -> CheckedRouter:
        router = CheckedRouter(self.service.gate)
        router.add("GET", "/v1/model/decisions", self.decisions, "read", DecisionsAnswer)
        router.add("POST", "/v1/model/retrain", self.retrain, "admin", TrainingAnswer, example={})
        router.add("POST", "/v1/model/rollback", self.rollback, "admin", VersionAnswer, example={})
        return router

    def decisions(self, n: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
        """What happened to the served model, newest first, and what is served now."""
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
            "margin": self.plan.margin,
            "next": following and datetime.fromtimestamp(following, UTC).isoformat(timespec="milliseconds"),
            "every_seconds": self.schedule.seconds,
            "every_events": self.schedule.events,
        }
        return json_response({"decisions": self.versions.log.newest(n), "running": running})

    def retrain(self, body: RetrainBody) -> Response:
        """Train and judge a candidate now."""
        plan = RetrainingPlan(**{**vars(self.plan), **body.given()})
        check_retrainable(self.service.served.recommender, plan.by)
        if not self.begin(plan):
            raise RefusalError(409, "a candidate is being trained already; wait for its decision.")
        return json_response({"training": True})

    def rollback(self, body: NoFields) -> Response:
        """Return to the former model; when this is answered, it is served."""
        try:
            state = self.versions.roll_back()
        except InputError as error:
            raise RefusalError(409, str(error)) from None
        if state.decision is not None:
            self._count(state.decision.as_json())
        self.follow()
        return json_response({"version": state.current})

    def _count(self, decision: Json) -> None:
        self._decisions.labels(decision["decision"]).inc()
        self.service.log.write("decision", **{name: v for name, v in decision.items() if name != "time"})
