"""Browsing: people and items to look at, with titles, reasons and places, for the page and other programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fastapi import Request
from fastapi.responses import Response

from truepair.errors import InputError, StorageError
from truepair.recommender.estimator import Recommender
from truepair.serving.events.reading import History
from truepair.serving.id_texts import escaped
from truepair.serving.lists.served_model import Asked, ServedModel
from truepair.serving.page.catalogue import Catalogue
from truepair.serving.page.figures import Figures
from truepair.serving.refusals import RefusalError
from truepair.serving.web.answers import JSON, plain_value, table_rows
from truepair.serving.web.app import Service
from truepair.serving.web.requests import Field, Fields, query_number
from truepair.serving.web.routes import Route

SHOWN = 200
"""Items of a history, or events of a person, in one answer."""
_FOUND, _MOST_FOUND = 20, 100
_NEIGHBOURS, _PEOPLE, _ALSO, _REASONS = 12, 12, 12, 3
_ID = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_COUNT = {"type": "integer"}
_TEXT = {"type": ["string", "null"]}
_CARD = {
    "type": "object",
    "properties": {"item": _ID, "title": _TEXT, "picture": _TEXT},
    "required": ["item", "title", "picture"],
}
_CARDS = {"type": "array", "items": _CARD}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list_of(what: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": what}


def _items(name: str, value: Any, limits: Any) -> list[Any]:
    if not isinstance(value, list) or not len(value) <= limits.k:
        raise InputError(f"{name} is no list of at most {limits.k:,} ids; send several requests.")
    return value


_QUERY = {
    "query": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_FOUND, "default": _FOUND},
}
_K = {"k": {"type": "integer", "minimum": 1, "default": 10}}
_TITLES: Fields = {"items": Field(_items, {"type": "array", "items": _ID}, "the ids of the items")}
_MAP = _object(
    items=_list_of(_ID), titles=_list_of(_TEXT), people=_list_of(_COUNT), x=_list_of({"type": "number"}),
    y=_list_of({"type": "number"}), of=_COUNT,
)  # fmt: skip
ROUTES = [
    Route(
        "GET", "/v1/users", "find_users", "read", "People whose id begins with the query.",
        _object(users=_list_of(_object(user=_ID, items=_COUNT)), of=_COUNT), query=_QUERY,
    ),
    Route(
        "GET", "/v1/items", "find_items", "read", "Items by the beginning of the id, or words of the title.",
        _object(items=_CARDS, of=_COUNT), query=_QUERY,
    ),
    Route(
        "POST", "/v1/titles", "titles", "read", "Titles and pictures of items.", _object(items=_CARDS),
        _TITLES, ("items",), {"items": ["ITEM"]},
    ),
    Route(
        "GET", "/v1/users/{id:path}/lists", "compared", "read",
        "A person's list of each model, with titles and reasons.",
        _object(user=_ID, lists=_list_of(_object(model={"type": "string"}, basis=_TEXT, items=_CARDS))),
        query=_K,
    ),
    Route(
        "GET", "/v1/users/{id:path}", "user", "read", "What a person has, and their events.",
        _object(user=_ID, known={"type": "boolean"}, n_items=_COUNT, items=_CARDS, events=_CARDS),
    ),
    Route(
        "GET", "/v1/items/{id:path}", "item", "read", "An item: its facts, its neighbours, its audience.",
        _object(item=_ID, title=_TEXT, picture=_TEXT, people=_COUNT, facts={"type": "object"},
                neighbours=_CARDS, audience={"type": "object"}),
    ),
    Route("GET", "/v1/map", "map", "read", "The most popular items as points of a map.", _MAP),
    Route(
        "GET", "/v1/service", "service", "read", "Requests, times and events since the start.",
        _object(seconds={"type": "number"}, requests=_COUNT, routes=_list_of({"type": "object"})),
    ),
]  # fmt: skip


class Beside(NamedTuple):
    """A second model, whose lists are shown beside those of the first."""

    name: str
    served: ServedModel


class Browsing:
    """The answers to these routes."""

    def __init__(self, service: Service, beside: tuple[str, Recommender] | None = None) -> None:
        self.service, self.figures = service, Figures(service.metrics.registry)
        self._catalogues: WeakKeyDictionary[ServedModel, Catalogue] = WeakKeyDictionary()
        self.beside = None if beside is None else self._second(*beside)

    def _second(self, name: str, recommender: Recommender) -> Beside:
        first, second = self.service.served, recommender.model_.seen
        for what, ids in (("user", second.user_ids), ("item", second.item_ids)):
            kind = (first.users if what == "user" else first.items).kind
            if ids.ids.type != kind:
                raise InputError(
                    f"the {what} ids of {name} are {ids.ids.type}, and those of {self.service.name} {kind}; "
                    "fit both models from the same data."
                )
        served = self.service.prepared(recommender, with_index=False)  # it is looked at, not asked often
        self.service.closing.append(served.facts.close)
        if served.people.reader is not None:
            self.service.closing.append(served.people.reader.close)
        return Beside(name, served)

    def catalogue(self, served: ServedModel) -> Catalogue:
        """That of a model, with the titles of this moment; freed with the model."""
        first = self.service.served
        table = first.item_table if first.item_table is not None else first.facts.table()
        found = self._catalogues.get(served)
        if found is None:
            found = self._catalogues.setdefault(served, Catalogue(served, table))
        if found.table is not table:
            self._catalogues[served] = found = found.with_table(table)
        return found

    # --- answers -----------------------------------------------------------------------------------------

    async def answer_find_users(self, request: Request, body: dict[str, Any]) -> Response:
        """People by the beginning of their id."""
        served, (query, limit) = self.service.served, _search(request)

        def found() -> dict[str, Any]:
            catalogue, counts = self.catalogue(served), served.model.seen.user_counts
            codes = catalogue.find("users", query, limit).tolist()
            people = {catalogue.user(code): int(counts[code]) for code in codes}
            rows = [{"user": user, "items": people[user]} for user in self._remembered(list(people))]
            return {"users": rows, "of": served.model.seen.n_users}

        return await _in_thread(found)

    async def answer_find_items(self, request: Request, body: dict[str, Any]) -> Response:
        """Items by id or title."""
        served, (query, limit) = self.service.served, _search(request)

        def found() -> dict[str, Any]:
            catalogue = self.catalogue(served)
            codes = catalogue.find("items", query, limit).tolist()
            return {"items": catalogue.cards(codes), "of": served.model.seen.n_items}

        return await _in_thread(found)

    async def answer_titles(self, request: Request, body: dict[str, Any]) -> Response:
        """Titles of items."""
        served = self.service.served
        texts = served.items.texts(body["items"])
        return await _in_thread(lambda: {"items": [self.catalogue(served).card(text) for text in texts]})

    async def answer_user(self, request: Request, body: dict[str, Any]) -> Response:
        """What a person has."""
        served = self.service.served
        user = served.users.text(request.path_params["id"])

        def found() -> dict[str, Any]:
            catalogue, code = self.catalogue(served), served.users.codes.get(user)
            events, is_forgotten = self._stored([user]).get(user, History([]))
            code = None if is_forgotten else code
            codes = [] if code is None else self._history(served, code)
            newest = [
                catalogue.card(item, kind=kind, weight=weight)
                for item, kind, weight in events[::-1][:SHOWN]
            ]  # fmt: skip
            return {
                "user": served.users.value(user),
                "known": code is not None,
                "n_items": len(codes),
                "items": catalogue.cards(codes[:SHOWN]),
                "n_events": len(events),
                "events": newest,
            }

        return await _in_thread(found)

    def _stored(self, users: Sequence[str]) -> dict[str, History]:
        """What the store knows about people; without a store that answers, nothing."""
        try:
            return self.service.reader.of_users(users)
        except StorageError:  # the history of training is still there
            return {}

    def _remembered(self, users: list[Any]) -> list[Any]:
        """These people without those who asked to be forgotten."""
        known = self._stored([str(user) for user in users])
        return [user for user in users if not known.get(str(user), History([])).is_forgotten]

    @staticmethod
    def _history(served: ServedModel, code: int) -> list[int]:
        """The items of training: the heaviest first, of the same weight the most popular."""
        history, popularity = served.people.history(code), served.model.popularity
        liked = [item for item, weight in history.items() if weight > 0]
        return sorted(liked, key=lambda item: (-history[item], -int(popularity[item]), item))

    async def answer_compared(self, request: Request, body: dict[str, Any]) -> Response:
        """Lists of both models, with reasons."""
        first = self.service.served
        user = first.users.text(request.path_params["id"])
        k = query_number(request.query_params.get("k"), "k", 10, self.service.limits.k)
        models = [Beside(self.service.name, first), *([] if self.beside is None else [self.beside])]

        def found() -> dict[str, Any]:
            lists = [self._explained(name, served, user, k) for name, served in models]
            return {"user": first.users.value(user), "lists": lists}

        return await _in_thread(found)

    def _explained(self, name: str, served: ServedModel, user: str, k: int) -> dict[str, Any]:
        catalogue = self.catalogue(served)
        basis = served.plain_lists([Asked(user, 1)])[0].basis
        rows = table_rows(served.recommend([user], {"k": k, "explain": _REASONS}))
        return {
            "model": name,
            "basis": basis,
            "items": [
                catalogue.card(
                    str(row["item"]),
                    score=row["score"],
                    rank=row["rank"],
                    because=[
                        catalogue.card(str(one["item"]), weight=one["weight"]) for one in row["because"]
                    ],
                )
                for row in rows
            ],
        }

    async def answer_item(self, request: Request, body: dict[str, Any]) -> Response:
        """Everything about an item."""
        served = self.service.served
        text = served.items.text(request.path_params["id"])
        code = served.items.codes.get(text)
        if code is None:
            raise RefusalError(404, f"unknown item: {text!r:.60}; ask for an item of the training data.")

        def found() -> dict[str, Any]:
            catalogue, popularity = self.catalogue(served), served.model.popularity
            audience = catalogue.audience(code, _PEOPLE, _ALSO)
            return {
                **catalogue.cards([code])[0],
                "more_popular": int((popularity > popularity[code]).sum()),
                "of": len(popularity),
                "facts": catalogue.titles.facts(code),
                "neighbours": self._neighbours(served, catalogue, text),
                "audience": {**audience, "some": self._remembered(audience["some"])},
                "hidden": code in served.facts.hidden,
            }

        return await _in_thread(found)

    @staticmethod
    def _neighbours(served: ServedModel, catalogue: Catalogue, text: str) -> list[dict[str, Any]]:
        """None where the model cannot say: an item without a trained pair, or a model without vectors."""
        try:
            rows = served.similar(text, _NEIGHBOURS).to_pylist()
        except InputError:
            return []
        return [catalogue.card(str(row["similar"]), score=plain_value(row["score"])) for row in rows]

    async def answer_map(self, request: Request, body: dict[str, Any]) -> Response:
        """The map; the first request computes it."""
        served = self.service.served
        return await _in_thread(lambda: self.catalogue(served).map_json)

    async def answer_service(self, request: Request, body: dict[str, Any]) -> Response:
        """Figures of this moment."""
        return await _in_thread(self.figures.now)


def _search(request: Request) -> tuple[str, int]:
    query = request.query_params.get("query", "")
    if len(query) > 256:
        raise InputError(f"query has {len(query):,} characters; at most 256 are allowed.")
    return query, query_number(request.query_params.get("limit"), "limit", _FOUND, _MOST_FOUND)


async def _in_thread(function: Callable[[], Any]) -> Response:
    found = await asyncio.get_running_loop().run_in_executor(None, function)
    return Response(found if isinstance(found, str) else escaped(plain_value(found)), media_type=JSON)
