"""The application: a model and a store behind the routes."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from truepair.errors import InputError, StorageError
from truepair.recommender.estimator import Recommender
from truepair.serving.events.event import Event, Kinds, event_of
from truepair.serving.events.opening import open_store
from truepair.serving.events.reading import StoreReader
from truepair.serving.id_texts import escaped
from truepair.serving.limits import Limits
from truepair.serving.lists.gathering import Gathering
from truepair.serving.lists.index_choice import EXACT, IndexChoice
from truepair.serving.lists.served_model import Asked, PlainList, ServedModel
from truepair.serving.refusals import RefusalError
from truepair.serving.web import answers
from truepair.serving.web.gorse.answers import Gorse
from truepair.serving.web.gorse.routes import GORSE_ROUTES
from truepair.serving.web.guard import Guard
from truepair.serving.web.logs import Log
from truepair.serving.web.metrics import Metrics
from truepair.serving.web.model_facts import shown_facts
from truepair.serving.web.rates import RateLimit
from truepair.serving.web.requests import checked, parsed, query_number
from truepair.serving.web.routes import ROUTES, Route, documented
from truepair.serving.web.tokens import Tokens, credentials
from truepair.storage.versions import package_version

_TELEMETRY = ("tracing", "metrics", "logs", "operation_spans", "auto_configure")  # nothing is sent anywhere
DECISIONS = "/v1/model/decisions"
"""Where the log of decisions is, in a service that retrains its model."""
GATHERED, GATHER_SECONDS = 64, 0.001
"""Requests in one product at most, and how long the first one waits for others."""


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
        log: Log | None = None,
        gathered: int = GATHERED,
        index: IndexChoice | None = None,
        rate: float | None = None,
        name: str = "model",
    ) -> None:
        self.name = name
        self.limits, self.tokens, self.kinds = limits or Limits(), tokens or Tokens(), kinds or Kinds()
        self.log = log or Log()
        self.items, self.index = items, index
        self.store = open_store(store)
        self.reader = self.store.reader()
        self.served = self.prepared(recommender)
        """The model that answers. It may be replaced at any time: a request takes it once."""
        self.metrics = Metrics(lambda: self.served.people)
        self.metrics.show_index(lambda: self.served.indexing)
        self.rates = None if rate is None else RateLimit(rate)
        self.lists_together: Gathering[Asked, PlainList] = Gathering(
            lambda asked: self.served.plain_lists(asked), GATHER_SECONDS, gathered
        )
        self.lists_together.sizes = self.metrics.gathered
        self.events_together: Gathering[Sequence[Event], int] = Gathering(
            self.store.add, GATHER_SECONDS, 1024
        )
        self.parts: list[tuple[Sequence[Route], object]] = [(ROUTES, self), (GORSE_ROUTES, Gorse(self))]
        """Routes, and the object whose `answer_NAME` answers the route NAME."""
        self.closing: list[Callable[[], object]] = []
        """What is called first when the service ends."""

    def prepared(
        self, recommender: Recommender, former: ServedModel | None = None, with_index: bool = True
    ) -> ServedModel:
        """A model made ready to be served, which takes seconds, or minutes with an index."""
        index = self.index if with_index else IndexChoice(EXACT)
        made = ServedModel(recommender, self.limits, self.kinds, self.items, index)
        people, facts = self.store.reader(), self.store.reader()  # each hears of every change once
        weakref.finalize(made, _close, people, facts).atexit = False
        made.people.reader = people
        made.facts.attach(facts, None if former is None else former.facts)
        return made

    def swap(self, recommender: Recommender, version: int) -> None:
        """Serve another model from the next request on; those that run end with the model they have."""
        former = self.served
        coming = self.prepared(recommender, former)
        coming.version = version
        coming.people.fold_ins = former.people.fold_ins
        coming.people.store_failures = former.people.store_failures
        self.served = coming

    def application(self) -> Any:
        """The ASGI application."""

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            self.close()

        app = FastAPI(
            title="truepair", version=package_version("truepair") or "", lifespan=lifespan,
            docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
            telemetry=cast(Any, dict.fromkeys(_TELEMETRY, False)),
        )  # fmt: skip
        user, item = (
            ids.ids[0].as_py() for ids in (self.served.model.seen.user_ids, self.served.model.seen.item_ids)
        )
        ids = [one if isinstance(one, int) else str(one) for one in (user, item)]
        every = [(route, answering) for routes, answering in self.parts for route in routes]
        # an id may hold anything, even a slash, so an address that ends with one comes after all others
        for route, answering in sorted(every, key=lambda one: one[0].path.endswith("{id:path}")):
            answer = self._answering(route, getattr(answering, f"answer_{route.name}"))
            app.add_api_route(
                route.path, answer, methods=[route.method], name=route.name, response_model=None,
                openapi_extra=documented(route, *ids), response_class=Response,
                include_in_schema=route.listed,
            )  # fmt: skip
        self._add_document(app)
        for error, handler in ((HTTPException, _refused), (RefusalError, _refused), (Exception, _failed)):
            app.add_exception_handler(error, handler)
        return Guard(
            app, self.limits, self.metrics, self.log,
            loopback_only=not self.tokens, rates=self.rates, tokens=self.tokens,
        )  # fmt: skip

    def _add_document(self, app: FastAPI) -> None:
        document: dict[str, Any] = app.openapi()
        if self.tokens:
            document["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        for methods in document["paths"].values():
            for method in methods.values():
                if not self.tokens:
                    method.pop("security", None)
                method["responses"].pop("422", None)
                if isinstance(method["responses"].get("200"), dict):
                    method["responses"]["200"]["content"].pop("", None)
        text = escaped(document)

        async def openapi(request: Request) -> Response:
            self.tokens.check(credentials(request.headers), "read")
            return Response(text, media_type=answers.JSON)

        app.add_api_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)

    def _answering(
        self, route: Route, answer: Callable[[Request, dict[str, Any]], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The route's function, after the checks that all routes share."""

        async def endpoint(request: Request) -> Response:
            try:
                if route.right is not None:
                    self.tokens.check(credentials(request.headers), route.right)
                for name in request.query_params:
                    if name not in route.query and not route.any_query:
                        raise InputError(
                            f"{name!r:.60} is no parameter of this address; allowed: {[*route.query]}."
                        )
                body: dict[str, Any] = {}
                if route.fields is not None:
                    body = parsed(await self.raw_body(request))
                    body = checked(body, route.fields, route.needed, self.limits)
                return await answer(request, body)
            except InputError as error:
                raise RefusalError(route.refused, str(error)[:1000]) from None
            except RecursionError:
                raise RefusalError(422, "the request is nested too deeply; send it flat.") from None
            except StorageError as error:
                self.log.failed(request.state.request, error)
                raise RefusalError(503, "the store cannot be used now; try again later.") from None

        return endpoint

    async def raw_body(self, request: Request) -> bytes:
        """The body of a request in JSON, no larger and no slower than the limits."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != answers.JSON:
            raise RefusalError(415, f"content-type = {kind[:60]!r} is not known; send application/json.")
        size, parts = 0, []
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.limits.body:
                        raise RefusalError(
                            413, f"the body has more than {self.limits.body:,} bytes; send several requests."
                        )
                    parts.append(part)
        except ClientDisconnect:
            raise RefusalError(400, "the connection was closed before the body was complete.") from None
        except TimeoutError:
            raise RefusalError(
                408, f"the body did not arrive within {self.limits.body_seconds:g} s."
            ) from None
        return b"".join(parts)

    def close(self) -> None:
        """Finish what is running, and close the store."""
        for close in self.closing:
            close()
        self.lists_together.close()
        self.events_together.close()
        self.served.facts.close()
        if self.served.people.reader is not None:
            self.served.people.reader.close()
        self.reader.close()
        self.store.close()

    # --- answers -----------------------------------------------------------------------------------------

    async def answer_user_list(self, request: Request, body: dict[str, Any]) -> Response:
        """The best items for a person."""
        user, k = self.served.users.text(request.path_params["id"]), self._k(request)
        found = await self.lists_together.ask(Asked(user, k))
        if answers.wants_arrow(request.headers.get("accept")):
            return _arrow(answers.plain_table(found))
        return Response(answers.plain_json(found), media_type=answers.JSON)

    async def answer_lists(self, request: Request, body: dict[str, Any]) -> Response:
        """Lists for several people."""
        users = body.pop("users")
        table = await self.in_thread(self.served.recommend, users, body)
        return self._table(request, table, partial(answers.grouped_json, by="user"))

    async def answer_session(self, request: Request, body: dict[str, Any]) -> Response:
        """A list for somebody with this history."""
        liked, disliked = body.pop("liked", []), body.pop("disliked", [])
        table = await self.in_thread(self.served.session, liked, disliked, body)
        return self._table(request, table, partial(answers.rows_json, name="items"))

    async def answer_similar(self, request: Request, body: dict[str, Any]) -> Response:
        """The items that are most like this one."""
        served = self.served
        item = served.items.text(request.path_params["id"])
        table = await self.in_thread(served.similar, item, self._k(request))
        if answers.wants_arrow(request.headers.get("accept")):
            return _arrow(table)
        rows = answers.rows_json(table.drop_columns(["item"]), "items").decode()
        return Response(f'{{"item":{served.items.json(item)},{rows[1:]}', media_type=answers.JSON)

    async def answer_scores(self, request: Request, body: dict[str, Any]) -> Response:
        """Scores of pairs."""
        table = await self.in_thread(self.served.scores, body["pairs"])
        return self._table(request, table, partial(answers.rows_json, name="scores"))

    async def answer_events(self, request: Request, body: dict[str, Any]) -> Response:
        """Store what people did; when this is answered, it is on the disk."""
        served = self.served
        users, items = served.users, served.items
        found = [event_of(event, users, items, self.kinds) for event in body["events"]]
        stored = await self.events_together.ask(found)
        self.metrics.events.labels("stored").inc(stored)
        self.metrics.events.labels("repeated").inc(len(found) - stored)
        return _json({"stored": stored, "repeated": len(found) - stored})

    async def answer_model(self, request: Request, body: dict[str, Any]) -> Response:
        """Facts about the model."""
        served = self.served
        seen, facts = served.model.seen, served.model.facts
        return _json(
            {
                "truepair": package_version("truepair"),
                "name": self.name,
                "version": served.version,
                "users": seen.n_users,
                "items": seen.n_items,
                "pairs": len(seen),
                "user_ids": str(seen.user_ids.ids.type),
                "item_ids": str(seen.item_ids.ids.type),
                "parameters": answers.plain_value(facts.get("parameters")),
                "facts": shown_facts(facts),
                "kinds": dict(self.kinds.numbers),
                "index": {"kind": served.indexing.kind, "recall": served.indexing.recall},
                "decisions": any(route.path == DECISIONS for routes, _ in self.parts for route in routes),
                "item_columns": None if served.item_table is None else served.item_table.column_names,
            }
        )

    async def answer_live(self, request: Request, body: dict[str, Any]) -> Response:
        """The process runs."""
        return _json({"status": "live"})

    async def answer_ready(self, request: Request, body: dict[str, Any]) -> Response:
        """Model and store can be used."""
        await self.in_thread(self.reader.count)
        return _json({"status": "ready"})

    async def answer_metrics(self, request: Request, body: dict[str, Any]) -> Response:
        """Counters and times for Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    def _k(self, request: Request) -> int:
        return query_number(request.query_params.get("k"), "k", 10, self.limits.k)

    def _table(self, request: Request, table: pa.Table, to_json: Callable[[pa.Table], bytes]) -> Response:
        if answers.wants_arrow(request.headers.get("accept")):
            return _arrow(table)
        return Response(to_json(table), media_type=answers.JSON)

    @staticmethod
    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function gives that may take some time."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _close(*readers: StoreReader) -> None:
    for reader in readers:
        reader.close()


def _json(value: Any) -> Response:
    return Response(escaped(value), media_type=answers.JSON)


def _arrow(table: pa.Table) -> Response:
    return Response(answers.arrow_stream(table), media_type=answers.ARROW)


async def _refused(request: Request, error: Exception) -> Response:
    """A request that is not served: by a check, or an unknown address or method."""
    if isinstance(error, RefusalError):
        return refusal(error.status, str(error), request.state.request, error.headers)
    assert isinstance(error, HTTPException)
    text = f"{error.detail}; GET /openapi.json lists what there is."
    return refusal(error.status_code, text, request.state.request, dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    """An error of the service itself; the guard logs it."""
    return refusal(500, "the service failed; its log has the reason.", request.state.request)


def refusal(status: int, text: str, request: str, headers: dict[str, str] | None = None) -> Response:
    """An error as JSON, with the id of the request."""
    return Response(escaped({"error": text, "request": request}), status, headers, answers.JSON)
