"""Gorse: the routes of Gorse's API, answered from the same model and store as all others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

import pyarrow as pa
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from truepair.errors import InputError, NoItemLeftError, StorageError, check_whole
from truepair.serving.events.event import Event
from truepair.serving.events.reading import Feedback
from truepair.serving.events.records import ItemRecord, Record, UserRecord, what_of
from truepair.serving.lists.served_model import ListRequest, ServedModel
from truepair.serving.refusals import RefusalError
from truepair.serving.web.app import Service
from truepair.serving.web.gorse import fields
from truepair.serving.web.gorse.fields import FeedbackBody, ItemBody, N, Offset, Score, UserBody
from truepair.serving.web.routing import CheckedRouter, json_response
from truepair.serving.web.tokens import credentials
from truepair.storage.types import Json

Scored = Sequence[tuple[str, float]]
Body = TypeVar("Body")
Found = TypeVar("Found", ItemRecord, UserRecord, Feedback)
_FEEDBACK = {"FeedbackType": "like", "UserId": "USER", "ItemId": "ITEM", "Timestamp": "2024-05-31T12:00:00Z"}
_ITEM = {"ItemId": "ITEM", "Categories": ["new"], "Labels": {"title": "A title"}}
_USER = {"UserId": "USER", "Labels": {"age": 30}}


def _write_back(
    kind: Annotated[str, Query(alias="write-back-type", max_length=128)] = "",
    delay: Annotated[str, Query(alias="write-back-delay")] = "",
) -> tuple[str, int]:
    """The kind and the time of the feedback that is stored about what is recommended."""
    return kind, fields.now() + fields.duration(delay)


WriteBack = Annotated[tuple[str, int], Depends(_write_back)]


class Gorse:
    """Answers as Gorse does.

    A feedback is an event. Any feedback excludes its item from the user's recommendations; whether it is a
    like follows from `--feedback`, as everywhere. Writing needs a write token, reading a read token: a
    program that does both sends an admin token.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    def router(self) -> APIRouter:
        """The routes."""
        router = CheckedRouter(self.service.gate, "/api", any_query=True)
        get, put = partial(router.add, "GET"), partial(router.add, "PUT")
        post, patch, delete = (partial(router.add, method) for method in ("POST", "PATCH", "DELETE"))
        get("/health/live", self.live, None, fields.Health)
        get("/health/ready", self.ready, None, fields.Health)
        get("/recommend/{user}", self.recommend, "read", list[str | Score])
        get("/recommend/{user}/{category:path}", self.recommend_in, "read", list[str | Score])
        for end in ("", "/{category}"):
            post(f"/session/recommend{end}", self.session, "read", list[Score], example=[_FEEDBACK])
            get(f"/popular{end}", self.popular, "read", list[Score])
        for end in ("", "/{category:path}"):
            get(f"/item/{{item}}/neighbors{end}", self.neighbors, "read", list[Score])
        for end in ("", "/"):
            get(f"/user/{{user}}/neighbors{end}", self.user_neighbors, "read", list[Score])
        post("/item", self.put_item, "write", fields.Done, example=_ITEM)
        post("/items", self.put_items, "write", fields.Done, example=[_ITEM])
        get("/items", self.items, "read", fields.ItemsPage)
        get("/item/{item}", self.item, "read", ItemBody)
        patch("/item/{item}", self.patch_item, "write", fields.Done, example={"IsHidden": False})
        delete("/item/{item}", self.delete_item, "write", fields.Done)
        put("/item/{item}/category/{category}", self.put_category, "write", fields.Done)
        delete("/item/{item}/category/{category}", self.delete_category, "write", fields.Done)
        post("/user", self.put_user, "write", fields.Done, example=_USER)
        post("/users", self.put_users, "write", fields.Done, example=[_USER])
        get("/users", self.users, "read", fields.UsersPage)
        get("/user/{user}", self.user, "read", UserBody)
        patch("/user/{user}", self.patch_user, "write", fields.Done, example={"Comment": "a comment"})
        delete("/user/{user}", self.delete_user, "write", fields.Done)
        post("/feedback", self.post_feedback, "write", fields.Done, example=[_FEEDBACK])
        put("/feedback", self.put_feedback, "write", fields.Done, example=[_FEEDBACK])
        for end in ("", "/{kind}"):
            get(f"/feedback{end}", self.feedback, "read", fields.FeedbackPage)
        get("/feedback/{user}/{item}", self.found_feedback, "read", list[FeedbackBody])
        get("/feedback/{kind}/{user}/{item}", self.one_feedback, "read", FeedbackBody)
        for start in ("", "/{kind}"):
            delete(f"/feedback{start}/{{user}}/{{item}}", self.delete_feedback, "write", fields.Done)
        for start in ("/user/{user}/feedback", "/item/{item}/feedback"):
            for end in ("", "/{kind:path}"):
                get(start + end, self.found_feedback, "read", list[FeedbackBody])
        return router

    # --- recommendations ---------------------------------------------------------------------------------

    async def recommend(
        self,
        request: Request,
        user: str,
        category: Annotated[list[str], Query(default_factory=list)],
        back: WriteBack,
        n: N = 10,
        offset: Offset = 0,
    ) -> Response:
        """Items for a user."""
        kind, moment = back
        if kind:
            self.service.tokens.check(credentials(request.headers), "write")
        served, end = self.service.served, self._end(n, offset)
        user = served.users.text(user)
        scored = (await self._recommended(served, user, list(filter(None, category)), end))[offset:end]
        if kind:
            events = [Event(user, item, kind, 1.0, moment, None) for item, _ in scored]
            await asyncio.to_thread(self.service.store.add_feedback, events, False)
        if request.headers.get("x-api-version") == "2":
            return _scores(scored)
        return json_response([item for item, _ in scored])

    async def recommend_in(
        self, request: Request, user: str, category: str, back: WriteBack, n: N = 10, offset: Offset = 0
    ) -> Response:
        """Items of a category for a user."""
        return await self.recommend(request, user, [category], back, n, offset)

    async def _recommended(
        self, served: ServedModel, user: str, categories: Sequence[str], end: int
    ) -> Scored:
        """The first `end` items, without those that the user gave any feedback on."""
        seen = await asyncio.to_thread(self._seen, user)
        if not categories:
            k = min(end + len(seen), served.model.seen.n_items)
            found = await self.service.lists_together.ask(ListRequest(user, max(k, 1)))
            names = (found.served.items.names[code] for code in found.items.tolist())
            scored = zip(names, found.scores.tolist(), strict=True)
            return [pair for pair in scored if pair[0] not in seen][:end]
        items = await asyncio.to_thread(served.in_categories, categories)
        options = {"only_items": sorted(items - seen)}
        return await asyncio.to_thread(self._listed, end, served.recommend, [user], **options)

    def _seen(self, user: str) -> set[str]:
        try:
            return {found.item for found in self.service.reader.feedback(user, until=fields.now())}
        except StorageError:  # reads go on without the store
            return set()

    @staticmethod
    def _listed(end: int, ask: Callable[..., pa.Table], *history: Any, **options: Any) -> Scored:
        """The first `end` items; an empty list if no item is left."""
        if options.get("only_items") == []:
            return []
        try:
            table = ask(*history, {"k": max(end, 1), **options})
        except NoItemLeftError:
            return []
        return _pairs(table, "item")

    def session(
        self, body: list[FeedbackBody], category: str = "", n: N = 10, offset: Offset = 0
    ) -> Response:
        """Items by the feedback of a session, which is not stored."""
        served, end = self.service.served, self._end(n, offset)
        found = sorted(self._events(body), key=lambda event: event.time)
        weights = self.service.kinds.merged([(event.item, event.kind, event.weight) for event in found])
        liked = [item for item, weight in weights.items() if weight > 0]
        disliked = [item for item, weight in weights.items() if weight < 0]
        seen = {event.item for event in found}
        options: Json = {"exclude_items": sorted(seen & set(served.items.codes))}
        if category:
            options = {"only_items": sorted(served.in_categories([category]) - seen)}
        return _scores((self._listed(end, served.session, liked, disliked, **options))[offset:end])

    def popular(self, category: str = "", n: N = 10, offset: Offset = 0) -> Response:
        """Popular items."""
        return self.session([], category, n, offset)

    def neighbors(self, item: str, category: str = "", n: N = 10, offset: Offset = 0) -> Response:
        """Items that are most like this one."""
        served, end = self.service.served, self._end(n, offset)
        text, k = served.items.text(item), served.model.seen.n_items if category else max(end, 1)
        try:
            table = served.similar(text, k)
        except (RefusalError, InputError):  # Gorse knows no neighbours of new items either
            return json_response([])
        scored = _pairs(table, "similar")
        if category:
            kept = served.in_categories([category])
            scored = [pair for pair in scored if pair[0] in kept]
        return _scores(scored[offset:end])

    def user_neighbors(self, user: str, n: N = 10, offset: Offset = 0) -> Response:
        """Users who are most like this one, by the model."""
        served, end = self.service.served, self._end(n, offset)
        ids = served.users.typed([served.users.text(user)])
        try:
            table = served.neighbours.users(ids, max(end, 1))
        except InputError:
            return json_response([])
        return _scores(_pairs(table, "similar")[offset:end])

    # --- items -------------------------------------------------------------------------------------------

    def put_item(self, body: ItemBody) -> Response:
        """Store an item."""
        return self._put([body])

    def put_items(self, body: list[ItemBody]) -> Response:
        """Store items."""
        return self._put(body)

    def _put(self, body: list[ItemBody] | list[UserBody]) -> Response:
        served, few = self.service.served, self._few([*body], self.service.limits.items)
        self.service.store.put([one.record(served.users, served.items) for one in few])
        return _done(len(few))

    def items(self, cursor: str = "", n: N = 10, q: str = "") -> Response:
        """Items, page by page; with `q`, those that have this text."""
        return self._records(ItemRecord, cursor, n, q[: self.service.limits.text_length])

    def _records(self, kind: type[Record], cursor: str, n: int, text: str = "") -> Response:
        after, n = fields.from_cursor(cursor), check_whole("n", n, 0, self.service.limits.items)
        found = self.service.reader.records(kind, after, n, text)
        return _page(f"{what_of(kind).title()}s", found, n, lambda one: one[0])

    def item(self, item: str) -> Response:
        """An item."""
        return json_response(fields.shown(self._record(ItemRecord, item)))

    def _record(self, kind: type[Record], id: str) -> Record:
        found = self.service.reader.record(kind, text := self._text(kind, id))
        if found is None:
            raise _not_found(what_of(kind), text)
        return found

    def _text(self, kind: type[ItemRecord] | type[UserRecord], id: str) -> str:
        served = self.service.served
        return (served.items if kind is ItemRecord else served.users).text(id)

    def patch_item(self, item: str, body: fields.ItemPatch) -> Response:
        """Change some fields of an item."""
        return self._patch(ItemRecord, item, **body.given())

    def _patch(self, kind: type[ItemRecord] | type[UserRecord], id: str, **changes: Any) -> Response:
        if not self.service.store.patch(kind, text := self._text(kind, id), **changes):
            raise _not_found(what_of(kind), text)
        return _done(1)

    def delete_item(self, item: str) -> Response:
        """Delete an item and its feedback."""
        self.service.store.delete_item(self.service.served.items.text(item))
        return _done(1)

    def put_category(self, item: str, category: str) -> Response:
        """Add a category to an item."""
        categories = dict.fromkeys([*self._record(ItemRecord, item).categories, category])
        return self._patch(ItemRecord, item, categories=tuple(categories))

    def delete_category(self, item: str, category: str) -> Response:
        """Remove a category from an item."""
        categories = (one for one in self._record(ItemRecord, item).categories if one != category)
        return self._patch(ItemRecord, item, categories=tuple(categories))

    # --- users -------------------------------------------------------------------------------------------

    def put_user(self, body: UserBody) -> Response:
        """Store a user."""
        return self._put([body])

    def put_users(self, body: list[UserBody]) -> Response:
        """Store users."""
        return self._put(body)

    def users(self, cursor: str = "", n: N = 10) -> Response:
        """Users, page by page."""
        return self._records(UserRecord, cursor, n)

    def user(self, user: str) -> Response:
        """A user."""
        return json_response(fields.shown(self._record(UserRecord, user)))

    def patch_user(self, user: str, body: fields.UserPatch) -> Response:
        """Change some fields of a user."""
        return self._patch(UserRecord, user, **body.given())

    def delete_user(self, user: str) -> Response:
        """Delete a user and their feedback."""
        self.service.store.delete_user(self.service.served.users.text(user))
        return _done(1)

    # --- feedback ----------------------------------------------------------------------------------------

    def post_feedback(self, body: list[FeedbackBody]) -> Response:
        """Store feedback; what is there stays."""
        return self._store(body, overwrite=False)

    def put_feedback(self, body: list[FeedbackBody]) -> Response:
        """Store feedback; what is there is replaced."""
        return self._store(body, overwrite=True)

    def _store(self, body: list[FeedbackBody], overwrite: bool) -> Response:
        found = self._events(body)
        stored = self.service.store.add_feedback(found, overwrite)
        self.service.metrics.stored(stored, len(found))
        return _done(len(found))

    def _events(self, body: list[FeedbackBody]) -> list[Event]:
        served = self.service.served
        few = self._few(body, self.service.limits.events)
        return [one.event(served.users, served.items) for one in few]

    def feedback(self, kind: str = "", cursor: str = "", n: N = 10) -> Response:
        """Feedback, of one type or of all, page by page."""
        after, n = fields.from_cursor(cursor) or "0", check_whole("n", n, 0, self.service.limits.items)
        if not after.isdecimal():
            raise InputError("the cursor does not belong to a list of feedback; start without one.")
        ask, until = self.service.reader.feedback, fields.now()
        found = ask(kind=kind or None, until=until, after=int(after), limit=n)
        return _page("Feedback", found, n, lambda one: str(one.number))

    def found_feedback(self, user: str = "", item: str = "", kind: str = "") -> Response:
        """Feedback of a user, of an item, or of both; of one type or of all."""
        return json_response(self._found(user, item, kind))

    def one_feedback(self, kind: str, user: str, item: str) -> Response:
        """One feedback."""
        found = self._found(user, item, kind)
        if not found:
            raise RefusalError(404, "there is no such feedback; check the type, the user and the item.")
        return json_response(found[0])

    def _found(self, user: str, item: str, kind: str) -> list[Json]:
        ask, limit, ids = self.service.reader.feedback, self.service.limits.items, self._ids(user, item)
        found = ask(*ids, kind or None, until=fields.now(), limit=limit)
        return [fields.shown(one) for one in found]

    def delete_feedback(self, user: str, item: str, kind: str = "") -> Response:
        """Delete the feedback of a user with an item, of one type or of all."""
        served, delete = self.service.served, self.service.store.delete_feedback
        ids = served.users.text(user), served.items.text(item)
        return _done(delete(*ids, kind or None))

    def _ids(self, user: str, item: str) -> tuple[str | None, str | None]:
        served = self.service.served
        return served.users.text(user) if user else None, served.items.text(item) if item else None

    # --- health and limits -------------------------------------------------------------------------------

    def ready(self) -> Response:
        """The store can be used."""
        self.service.reader.count()
        return _health(True)

    def live(self) -> Response:
        """The process runs, with a store or without."""
        try:
            return self.ready()
        except StorageError:
            return _health(False)

    def _end(self, n: int, offset: int) -> int:
        most = self.service.limits.k
        return check_whole("n", n, 0, most) + check_whole("offset", offset, 0, most)

    @staticmethod
    def _few(body: list[Body], most: int) -> list[Body]:
        if len(body) > most:
            raise InputError(f"the body has {len(body):,} objects; at most {most:,} are allowed.")
        return body


def _pairs(table: pa.Table, name: str) -> Scored:
    ids, scores = table[name].to_pylist(), table["score"].to_pylist()
    return [(str(id), score) for id, score in zip(ids, scores, strict=True)]


def _page(name: str, found: list[Found], n: int, key: Callable[[Found], str]) -> Response:
    cursor = fields.cursor_of(key(found[-1])) if n and len(found) == n else ""
    return json_response({"Cursor": cursor, name: [fields.shown(one) for one in found]})


def _not_found(what: str, id: str) -> RefusalError:
    return RefusalError(404, f"{what} {id!r:.60} is not in the store; insert it first.")


def _done(n: int) -> Response:
    return json_response({"RowAffected": n})


def _health(ready: bool) -> Response:
    facts = {"DataStoreError": None, "CacheStoreError": None, "CacheStoreConnected": True}
    return json_response({"Ready": ready, **facts, "DataStoreConnected": ready})


def _scores(scored: Scored) -> Response:
    return json_response([{"Id": id, "Score": score} for id, score in scored])
