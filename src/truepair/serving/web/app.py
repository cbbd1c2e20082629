"""The application: a model and a store behind the routes."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from truepair.errors import check_whole
from truepair.ranking.approximate.indexing import EXACT, IndexChoice
from truepair.recommender.estimator import Recommender
from truepair.serving.events.event import Event, Kinds
from truepair.serving.events.store import open_store
from truepair.serving.limits import Limits
from truepair.serving.lists.micro_batching import MicroBatcher
from truepair.serving.lists.served_model import ListRequest, PlainList, ServedModel
from truepair.serving.web import bodies, routing
from truepair.serving.web.guard import Metrics, RateLimit, RequestLog
from truepair.serving.web.routing import CheckedRouter, Gate, json_response, table_response
from truepair.serving.web.tokens import Tokens
from truepair.storage.types import Json
from truepair.storage.versions import package_version

K = Annotated[int, Query(ge=1)]
"""How many items a list has."""
_PAUSE = 1.0  # seconds between two looks at what is popular now
GATHERED, GATHER_SECONDS = 64, 0.001
"""Requests in one product at most, and how long the first one waits for others."""
_SHOWN = (
    *("epoch", "engine", "training loss", "training curve", "clamped share", "automatic"),
    *("prior", "reading", "weights", "dislikes", "updates", "versions"),
)
"""The facts of a model file that its page shows: how it was trained, what was chosen automatically."""


class Service:
    """A model, a store, and an answer for each route."""

    def __init__(
        self,
        recommender: Recommender,
        store: Path | str,
        *,
        items: pa.Table | None = None,
        kinds: Kinds | None = None,
        tokens: Tokens | None = None,
        limits: Limits | None = None,
        log: RequestLog | None = None,
        gathered: int = GATHERED,
        index: IndexChoice | None = None,
        rate: float | None = None,
        name: str = "model",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name, self.clock = name, clock
        self._models: weakref.WeakSet[ServedModel] = weakref.WeakSet()
        feedback = recommender.reading_.get("feedback")
        self.kinds = kinds or (Kinds(feedback) if feedback else Kinds())
        self.limits, self.tokens = limits or Limits(), tokens or Tokens()
        self.log = log or RequestLog()
        self.items, self.index = items, index
        self.store = open_store(store)
        self.reader = self.store.reader()
        self.served = self.prepared(recommender)
        """The model that answers. It may be replaced at any time: a request takes it once."""
        self.metrics = Metrics(lambda: self.served)
        self.rates = None if rate is None else RateLimit(rate)
        self.lists_together: MicroBatcher[ListRequest, PlainList] = MicroBatcher(
            lambda asked: self.served.plain_lists(asked), GATHER_SECONDS, gathered
        )
        self.lists_together.sizes = self.metrics.gathered.observe
        self.events_together: MicroBatcher[Sequence[Event], int] = MicroBatcher(
            self.store.add, GATHER_SECONDS, 1024
        )
        self.gate = Gate(self.tokens, self.limits)
        self.routers: list[APIRouter] = [self._router()]
        """The routes of each part."""
        self.has_decisions = False
        """Whether there is a log of decisions: in a service that retrains its model."""
        self.closing: list[Callable[[], object]] = []
        """What is called first when the service ends."""
        self._ending = threading.Event()
        self._following = threading.Thread(target=self._follow, name="trend", daemon=True)
        self._following.start()

    def prepared(
        self, recommender: Recommender, former: ServedModel | None = None, with_index: bool = True
    ) -> ServedModel:
        """A model made ready to be served, which takes seconds, or minutes with an index."""
        index = self.index if with_index else IndexChoice(EXACT)
        made = ServedModel(recommender, self.limits, self.kinds, self.items, index, self.clock)
        reader = self.store.reader()
        weakref.finalize(made, reader.close).atexit = False
        made.attach(reader, former)
        self._models.add(made)
        return made

    def _follow(self) -> None:
        """Keep the trends of all models those of now, in a twentieth of the time at most."""
        pause = _PAUSE
        while not self._ending.wait(pause):
            started = time.monotonic()
            try:
                self.follow()
            except Exception as error:  # no memory: the service goes on
                self.log.failed("trend", error)
            pause = max(_PAUSE, 20 * (time.monotonic() - started))

    def follow(self) -> None:
        """Move the trend of all models on to now."""
        for served in list(self._models):
            served.follow()

    def swap(self, recommender: Recommender, version: int) -> None:
        """Serve another model from the next request on; those that run end with the model they have."""
        former = self.served
        coming = self.prepared(recommender, former)
        coming.version = version
        coming.histories.fold_ins = former.histories.fold_ins
        coming.histories.store_failures = former.histories.store_failures
        self.served = coming

    def close(self) -> None:
        """Finish what is running, and close the store."""
        self._ending.set()
        self._following.join()
        for close in self.closing:
            close()
        self.lists_together.close()
        self.events_together.close()
        self.served.close()
        self.reader.close()
        self.store.close()

    # --- answers -----------------------------------------------------------------------------------------

    def _router(self) -> CheckedRouter:
        router, users = CheckedRouter(self.gate), "/v1/users/{id:path}/recommendations"
        some = {"users": ["USER"], "k": 3, "exclude_items": ["ITEM"], "diversify": 0.3}
        liked = {"liked": ["ITEM"], "disliked": [], "k": 3}
        pairs = {"pairs": [{"user": "USER", "item": "ITEM"}]}
        done = {"events": [{"user": "USER", "item": "ITEM", "id": "order-1"}]}
        lists, session = "/v1/recommendations", "/v1/session/recommendations"
        router.add("GET", users, self.user_list, "read", bodies.UserListAnswer, arrow=True)
        router.add("POST", lists, self.lists, "read", bodies.ListsAnswer, arrow=True, example=some)
        router.add("POST", session, self.session, "read", bodies.SessionAnswer, arrow=True, example=liked)
        similar = "/v1/items/{id:path}/similar"
        router.add("GET", similar, self.similar, "read", bodies.SimilarAnswer, arrow=True)
        router.add("POST", "/v1/scores", self.scores, "read", bodies.ScoresAnswer, arrow=True, example=pairs)
        router.add("POST", "/v1/events", self.events, "write", bodies.EventsAnswer, example=done)
        router.add("GET", "/v1/model", self.model, "read", Json)
        router.add("GET", "/health/live", self.live, None, bodies.StatusAnswer)
        router.add("GET", "/health/ready", self.ready, None, bodies.StatusAnswer)
        router.add("GET", "/metrics", self.prometheus, "read")
        return router

    async def user_list(self, request: Request, id: str, k: K = 10) -> Response:
        """The best items for a user."""
        question = ListRequest(self.served.users.text(id), check_whole("k", k, 1, self.limits.k))
        found = await self.lists_together.ask(question)
        if routing.wants_arrow(request):
            return routing.arrow_response(found.table())
        return Response(found.json(), media_type=routing.JSON)

    def lists(self, request: Request, body: bodies.ListsBody) -> Response:
        """Lists for several users, with all options."""
        table = self.served.recommend(body.users, body.given("users"))
        return table_response(request, table, "lists")

    def session(self, request: Request, body: bodies.SessionBody) -> Response:
        """A list by the history of a session, which is not stored."""
        table = self.served.session(body.liked, body.disliked, body.given("liked", "disliked"))
        return table_response(request, table, "items")

    def similar(self, request: Request, id: str, k: K = 10) -> Response:
        """The items that are most like this one."""
        served = self.served
        item = served.items.text(id)
        table = served.similar(item, check_whole("k", k, 1, self.limits.k))
        return table_response(request, table, "items", {"item": served.items.value(item)})

    def scores(self, request: Request, body: bodies.ScoresBody) -> Response:
        """Scores of pairs."""
        table = self.served.scores([vars(pair) for pair in body.pairs])
        return table_response(request, table, "scores")

    async def events(self, body: bodies.EventsBody) -> Response:
        """Store what users did; it is on the disk when this is answered, and counts in their next list."""
        users, items = self.served.users, self.served.items
        found = [event.event(users, items, self.kinds) for event in body.events]
        stored = await self.events_together.ask(found)
        self.metrics.stored(stored, len(found))
        return json_response({"stored": stored, "repeated": len(found) - stored})

    async def model(self) -> Response:
        """Facts about the model."""
        served = self.served
        seen, facts = served.model.seen, served.model.facts
        return json_response(
            {
                "truepair": package_version("truepair"),
                "name": self.name,
                "version": served.version,
                "users": seen.n_users,
                "items": seen.n_items,
                "pairs": len(seen),
                "user_ids": str(seen.user_ids.ids.type),
                "item_ids": str(seen.item_ids.ids.type),
                "parameters": served.model.parameters_json(),
                "facts": _shown_facts(facts),
                "kinds": dict(self.kinds.numbers),
                "index": {"kind": served.indexing.kind, "recall": served.indexing.recall},
                "decisions": self.has_decisions,
                "item_columns": None if served.item_table is None else served.item_table.column_names,
            }
        )

    async def live(self) -> Response:
        """The process runs."""
        return json_response({"status": "live"})

    def ready(self) -> Response:
        """Model and store can be used."""
        self.reader.count()
        return json_response({"status": "ready"})

    async def prometheus(self) -> Response:
        """Counters and times for Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")


def _shown_facts(facts: Mapping[str, Any]) -> Json:
    """The facts to show, without those that have a value for each user or item.

    `metrics` is a list of name, value and interval (null where none was computed).
    """
    metrics, intervals = (facts.get(name) or {} for name in ("metrics", "intervals"))
    rows = [
        {"name": name, "value": value, "interval": intervals.get(name)} for name, value in metrics.items()
    ]
    return {"metrics": rows} | {name: facts[name] for name in _SHOWN if facts.get(name) is not None}
