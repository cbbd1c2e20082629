"""Gorse: an answer for each route of Gorse's API, from the same model and store as all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa
from fastapi import Request
from fastapi.responses import Response

from truepair.errors import InputError, StorageError
from truepair.recommender import lists
from truepair.serving.events.event import Event, Kinds
from truepair.serving.events.reading import StoreReader
from truepair.serving.events.records import ItemRecord
from truepair.serving.events.writing import StoreWriter
from truepair.serving.id_texts import IdTexts, escaped
from truepair.serving.limits import Limits
from truepair.serving.lists.gathering import Gathering
from truepair.serving.lists.served_model import Asked, PlainList, ServedModel
from truepair.serving.refusals import RefusalError
from truepair.serving.web.answers import JSON
from truepair.serving.web.gorse import fields
from truepair.serving.web.metrics import Metrics
from truepair.serving.web.requests import query_number
from truepair.serving.web.tokens import Tokens, credentials

Scored = Sequence[tuple[str, float]]


class Host(Protocol):
    """What of the service is used here."""

    served: ServedModel
    store: StoreWriter
    reader: StoreReader
    tokens: Tokens
    limits: Limits
    kinds: Kinds
    metrics: Metrics
    lists_together: Gathering[Asked, PlainList]

    async def raw_body(self, request: Request) -> bytes:
        """The body of a request in JSON."""
        ...

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function gives that may take some time."""
        ...


class Gorse:
    """Answers as Gorse does.

    A feedback is an event. Any feedback excludes its item from the user's recommendations; whether it is a
    like follows from `--feedback`, as everywhere.
    """

    def __init__(self, service: Host) -> None:
        self.service = service

    # --- recommendations ---------------------------------------------------------------------------------

    async def answer_gorse_recommend(self, request: Request, body: dict[str, Any]) -> Response:
        """Items for a user."""
        categories = [text for text in request.query_params.getlist("category") if text]
        if not categories and request.path_params.get("category"):
            categories = [request.path_params["category"]]
        kind = request.query_params.get("write-back-type")
        delay = fields.duration(request.query_params.get("write-back-delay"))
        if kind:
            self.service.tokens.check(credentials(request.headers), "write")
            fields.feedback_type(kind)
        served = self.service.served
        user = served.users.text(request.path_params["user"])
        scored = self._page(request, await self._recommended(served, user, categories, self._end(request)))
        if kind:
            moment = fields.now() + delay
            events = [Event(user, item, kind, 1.0, moment, None) for item, _ in scored]
            await self.service.in_thread(self.service.store.add_feedback, events, False)
        if request.headers.get("x-api-version") == "2":
            return _scores(scored)
        return _json([item for item, _ in scored])

    answer_gorse_recommend_in = answer_gorse_recommend

    async def _recommended(
        self, served: ServedModel, user: str, categories: Sequence[str], end: int
    ) -> Scored:
        """The first `end` items, without those that the user gave any feedback on."""
        seen = await self.service.in_thread(self._seen, user)
        if not categories:
            k = min(end + len(seen), served.model.seen.n_items)
            found = await self.service.lists_together.ask(Asked(user, max(k, 1)))
            names = _names(found.served.items, found.items.tolist())
            return [pair for pair in zip(names, found.scores.tolist(), strict=True) if pair[0] not in seen][
                :end
            ]
        items = await self.service.in_thread(self._listed_in, served, categories)
        options = {"k": max(end, 1), "only_items": sorted(items - seen)}
        return list(await self.service.in_thread(self._table, served.recommend, options, [user]))

    def _seen(self, user: str) -> set[str]:
        try:
            return {found.item for found in self.service.reader.feedback(user, until=fields.now())}
        except StorageError:  # reads go on without the store
            return set()

    def _listed_in(self, served: ServedModel, categories: Iterable[str]) -> set[str]:
        hidden = set(_names(served.items, served.facts.hidden.tolist()))
        return set(served.facts.in_categories(categories)) - hidden

    def _table(self, ask: Callable[..., pa.Table], options: dict[str, Any], *people: Any) -> Scored:
        """The list that is asked for; an empty one if no item is left."""
        if options.get("only_items") == []:
            return []
        try:
            table = ask(*people, options)
        except InputError as error:
            if "no item is left" in str(error):
                return []
            raise
        return [(str(item), score) for item, score in zip(*_columns(table, "item"), strict=True)]

    async def answer_gorse_session(self, request: Request, body: dict[str, Any]) -> Response:
        """Items by the feedback of a session, which is not stored."""
        served, kinds = self.service.served, self.service.kinds
        found = await self._feedback(request, served)
        found.sort(key=lambda event: event.time)
        weights = kinds.merged([(event.item, event.kind, event.weight) for event in found])
        liked = [item for item, weight in weights.items() if weight > 0]
        disliked = [item for item, weight in weights.items() if weight < 0]
        seen = {event.item for event in found}
        options: dict[str, Any] = {"k": max(self._end(request), 1)}
        if category := request.path_params.get("category"):
            items = await self.service.in_thread(self._listed_in, served, [category])
            options["only_items"] = sorted(items - seen)
        else:
            options["exclude_items"] = sorted(seen & set(served.items.codes))
        scored = await self.service.in_thread(self._table, served.session, options, liked, disliked)
        return _scores(self._page(request, scored))

    answer_gorse_session_in = answer_gorse_session

    async def answer_gorse_popular(self, request: Request, body: dict[str, Any]) -> Response:
        """Popular items."""
        served = self.service.served
        options: dict[str, Any] = {"k": max(self._end(request), 1)}
        if category := request.path_params.get("category"):
            items = await self.service.in_thread(self._listed_in, served, [category])
            options["only_items"] = sorted(items)
        scored = await self.service.in_thread(self._table, served.session, options, [], [])
        return _scores(self._page(request, scored))

    answer_gorse_popular_in = answer_gorse_popular

    async def answer_gorse_neighbors(self, request: Request, body: dict[str, Any]) -> Response:
        """Items that are most like this one."""
        served, category = self.service.served, request.path_params.get("category")
        item = served.items.text(request.path_params["item"])
        end = served.model.seen.n_items if category else max(self._end(request), 1)
        try:
            table = await self.service.in_thread(served.similar, item, end)
        except (RefusalError, InputError):  # Gorse knows no neighbours of new items either
            return _json([])
        scored = [(str(other), score) for other, score in zip(*_columns(table, "similar"), strict=True)]
        if category:
            kept = await self.service.in_thread(self._listed_in, served, [category])
            scored = [pair for pair in scored if pair[0] in kept]
        return _scores(self._page(request, scored))

    answer_gorse_neighbors_in = answer_gorse_neighbors

    async def answer_gorse_user_neighbors(self, request: Request, body: dict[str, Any]) -> Response:
        """Users who are most like this one, by the model."""
        served = self.service.served
        user = served.users.text(request.path_params["user"])
        parts = served.model, served.parameters, served.users.typed([user]), max(self._end(request), 1)
        try:
            table = await self.service.in_thread(lists.similar_users, *parts)
        except InputError:
            return _json([])
        return _scores(self._page(request, list(zip(*_columns(table, "similar"), strict=True))))

    # --- items -------------------------------------------------------------------------------------------

    async def answer_gorse_put_item(self, request: Request, body: dict[str, Any]) -> Response:
        """Store an item."""
        found = fields.read_json(await self.service.raw_body(request))
        return await self._put_items([found])

    async def answer_gorse_put_items(self, request: Request, body: dict[str, Any]) -> Response:
        """Store items."""
        return await self._put_items(await self._objects(request, self.service.limits.items))

    async def _put_items(self, found: list[Any]) -> Response:
        items, limits = self.service.served.items, self.service.limits
        records = [fields.item_record(one, items, limits) for one in found]
        await self.service.in_thread(self.service.store.put_items, records)
        return _done(len(records))

    async def answer_gorse_items(self, request: Request, body: dict[str, Any]) -> Response:
        """Items, page by page."""
        after, n = self._cursor(request)
        text = request.query_params.get("q", "")[: self.service.limits.text_length]
        found = await self.service.in_thread(self.service.reader.items, after, n, text)
        cursor = fields.cursor_of(found[-1].item) if n and len(found) == n else ""
        return _json({"Cursor": cursor, "Items": [fields.item_json(one) for one in found]})

    async def answer_gorse_item(self, request: Request, body: dict[str, Any]) -> Response:
        """An item."""
        return _json(fields.item_json(await self._item(request)))

    async def _item(self, request: Request) -> ItemRecord:
        item = self.service.served.items.text(request.path_params["item"])
        found: ItemRecord | None = await self.service.in_thread(self.service.reader.item, item)
        if found is None:
            raise _not_found("item", item)
        return found

    async def answer_gorse_patch_item(self, request: Request, body: dict[str, Any]) -> Response:
        """Change some fields of an item."""
        found = fields.read_json(await self.service.raw_body(request))
        changes = fields.patch(found, fields.ITEM_FIELDS, self.service.limits)
        return await self._patch_item(self.service.served.items.text(request.path_params["item"]), changes)

    async def _patch_item(self, item: str, changes: dict[str, Any]) -> Response:
        if not await self.service.in_thread(lambda: self.service.store.patch_item(item, **changes)):
            raise _not_found("item", item)
        return _done(1)

    async def answer_gorse_delete_item(self, request: Request, body: dict[str, Any]) -> Response:
        """Delete an item and its feedback."""
        item = self.service.served.items.text(request.path_params["item"])
        await self.service.in_thread(self.service.store.delete_item, item)
        return _done(1)

    async def answer_gorse_put_category(self, request: Request, body: dict[str, Any]) -> Response:
        """Add a category to an item."""
        record, category = await self._item(request), request.path_params["category"]
        categories = tuple(dict.fromkeys([*record.categories, category]))
        return await self._patch_item(record.item, {"categories": categories})

    async def answer_gorse_delete_category(self, request: Request, body: dict[str, Any]) -> Response:
        """Remove a category from an item."""
        record, category = await self._item(request), request.path_params["category"]
        categories = tuple(one for one in record.categories if one != category)
        return await self._patch_item(record.item, {"categories": categories})

    # --- users -------------------------------------------------------------------------------------------

    async def answer_gorse_put_user(self, request: Request, body: dict[str, Any]) -> Response:
        """Store a user."""
        return await self._put_users([fields.read_json(await self.service.raw_body(request))])

    async def answer_gorse_put_users(self, request: Request, body: dict[str, Any]) -> Response:
        """Store users."""
        return await self._put_users(await self._objects(request, self.service.limits.items))

    async def _put_users(self, found: list[Any]) -> Response:
        users, limits = self.service.served.users, self.service.limits
        records = [fields.user_record(one, users, limits) for one in found]
        await self.service.in_thread(self.service.store.put_users, records)
        return _done(len(records))

    async def answer_gorse_users(self, request: Request, body: dict[str, Any]) -> Response:
        """Users, page by page."""
        after, n = self._cursor(request)
        found = await self.service.in_thread(self.service.reader.users, after, n)
        cursor = fields.cursor_of(found[-1].user) if n and len(found) == n else ""
        return _json({"Cursor": cursor, "Users": [fields.user_json(one) for one in found]})

    async def answer_gorse_user(self, request: Request, body: dict[str, Any]) -> Response:
        """A user."""
        user = self.service.served.users.text(request.path_params["user"])
        found = await self.service.in_thread(self.service.reader.user, user)
        if found is None:
            raise _not_found("user", user)
        return _json(fields.user_json(found))

    async def answer_gorse_patch_user(self, request: Request, body: dict[str, Any]) -> Response:
        """Change some fields of a user."""
        user = self.service.served.users.text(request.path_params["user"])
        found = fields.read_json(await self.service.raw_body(request))
        changes = fields.patch(found, fields.USER_FIELDS, self.service.limits)
        if not await self.service.in_thread(lambda: self.service.store.patch_user(user, **changes)):
            raise _not_found("user", user)
        return _done(1)

    async def answer_gorse_delete_user(self, request: Request, body: dict[str, Any]) -> Response:
        """Delete a user and their feedback."""
        user = self.service.served.users.text(request.path_params["user"])
        await self.service.in_thread(self.service.store.delete_user, user)
        return _done(1)

    # --- feedback ----------------------------------------------------------------------------------------

    async def answer_gorse_post_feedback(self, request: Request, body: dict[str, Any]) -> Response:
        """Store feedback; what is there stays."""
        return await self._store_feedback(request, overwrite=False)

    async def answer_gorse_put_feedback(self, request: Request, body: dict[str, Any]) -> Response:
        """Store feedback; what is there is replaced."""
        return await self._store_feedback(request, overwrite=True)

    async def _store_feedback(self, request: Request, overwrite: bool) -> Response:
        found = await self._feedback(request, self.service.served)
        stored = await self.service.in_thread(self.service.store.add_feedback, found, overwrite)
        self.service.metrics.events.labels("stored").inc(stored)
        self.service.metrics.events.labels("repeated").inc(len(found) - stored)
        return _done(len(found))

    async def _feedback(self, request: Request, served: ServedModel) -> list[Event]:
        kinds, limits = self.service.kinds, self.service.limits
        found = await self._objects(request, limits.events)
        return [fields.event(one, served.users, served.items, kinds, limits) for one in found]

    async def answer_gorse_feedback(self, request: Request, body: dict[str, Any]) -> Response:
        """Feedback, page by page."""
        after, n = self._cursor(request)
        if after is not None and not after.isdecimal():
            raise InputError("cursor is none of a list of feedback; start without one.")
        kind = request.path_params.get("kind")
        start = 0 if after is None else int(after)
        found = await self.service.in_thread(
            lambda: self.service.reader.feedback(kind=kind, until=fields.now(), after=start, limit=n)
        )
        cursor = fields.cursor_of(str(found[-1].number)) if n and len(found) == n else ""
        return _json({"Cursor": cursor, "Feedback": [fields.feedback_json(one) for one in found]})

    answer_gorse_feedback_of_kind = answer_gorse_feedback

    async def answer_gorse_of_user(self, request: Request, body: dict[str, Any]) -> Response:
        """Feedback of a user, of one type or of all; also of an item, or of both."""
        return _json([fields.feedback_json(one) for one in await self._found(request)])

    answer_gorse_of_item = answer_gorse_pair = answer_gorse_of_user

    async def answer_gorse_typed_pair(self, request: Request, body: dict[str, Any]) -> Response:
        """One feedback."""
        found = await self._found(request)
        if not found:
            raise RefusalError(404, "there is no such feedback; check the type, the user and the item.")
        return _json(fields.feedback_json(found[0]))

    async def _found(self, request: Request) -> list[Any]:
        user, item, kind = self._pair(request)
        limit = self.service.limits.items
        return list(
            await self.service.in_thread(
                lambda: self.service.reader.feedback(user, item, kind, until=fields.now(), limit=limit)
            )
        )

    async def answer_gorse_delete_pair(self, request: Request, body: dict[str, Any]) -> Response:
        """Delete the feedback of a user with an item."""
        return _done(await self.service.in_thread(self.service.store.delete_feedback, *self._pair(request)))

    answer_gorse_delete_typed_pair = answer_gorse_delete_pair

    def _pair(self, request: Request) -> tuple[str | None, str | None, str | None]:
        served, given = self.service.served, request.path_params
        user = served.users.text(given["user"]) if "user" in given else None
        item = served.items.text(given["item"]) if "item" in given else None
        return user, item, given.get("kind") or None

    # --- health ------------------------------------------------------------------------------------------

    async def answer_gorse_ready(self, request: Request, body: dict[str, Any]) -> Response:
        """The store can be used."""
        await self.service.in_thread(self.service.reader.count)
        return _health(True)

    async def answer_gorse_live(self, request: Request, body: dict[str, Any]) -> Response:
        """The process runs, with a store or without."""
        try:
            await self.service.in_thread(self.service.reader.count)
        except StorageError:
            return _health(False)
        return _health(True)

    # --- queries -----------------------------------------------------------------------------------------

    async def _objects(self, request: Request, most: int) -> list[dict[str, Any]]:
        return fields.objects(fields.read_json(await self.service.raw_body(request)), most)

    def _numbers(self, request: Request) -> tuple[int, int]:
        given, most = request.query_params, self.service.limits.k
        n = query_number(given.get("n") or None, "n", 10, most, low=0)
        return query_number(given.get("offset") or None, "offset", 0, most, low=0), n

    def _end(self, request: Request) -> int:
        return sum(self._numbers(request))

    def _page(self, request: Request, scored: Scored) -> Scored:
        offset, n = self._numbers(request)
        return scored[offset : offset + n]

    def _cursor(self, request: Request) -> tuple[str | None, int]:
        cursor, n = request.query_params.get("cursor"), request.query_params.get("n")
        n_rows = query_number(n or None, "n", 10, self.service.limits.items, low=0)
        return fields.from_cursor(cursor) if cursor else None, n_rows


def _names(ids: IdTexts, codes: Sequence[int]) -> list[str]:
    """The texts of items, by their codes."""
    return [ids.names[code] for code in codes]


def _columns(table: pa.Table, name: str) -> tuple[list[Any], list[Any]]:
    return table[name].to_pylist(), table["score"].to_pylist()


def _not_found(what: str, id: str) -> RefusalError:
    return RefusalError(404, f"{what} {id!r:.60} is not in the store; insert it first.")


def _done(n: int) -> Response:
    return _json({"RowAffected": n})


def _health(ready: bool) -> Response:
    facts = {"DataStoreError": None, "CacheStoreError": None, "CacheStoreConnected": True}
    return _json({"Ready": ready, **facts, "DataStoreConnected": ready})


def _scores(scored: Scored) -> Response:
    return _json([{"Id": str(id), "Score": score} for id, score in scored])


def _json(value: Any) -> Response:
    return Response(escaped(value), media_type=JSON)
