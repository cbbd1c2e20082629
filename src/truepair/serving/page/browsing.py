"""Browsing: users and items to look at, with titles, reasons and places, for the page and other programs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated
from weakref import WeakKeyDictionary

from fastapi import Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from truepair.errors import InputError, StorageError, check_whole
from truepair.recommender.estimator import Recommender
from truepair.serving.events.reading import StoredHistory
from truepair.serving.lists.served_model import ListRequest, ServedModel
from truepair.serving.page.catalogue import Catalogue
from truepair.serving.page.figures import Figures
from truepair.serving.refusals import RefusalError
from truepair.serving.web.app import K, Service
from truepair.serving.web.bodies import Id, Ids, RequestBody
from truepair.serving.web.routing import JSON, CheckedRouter, Gate, json_response
from truepair.storage.types import Json

SHOWN = 200
"""Items of a history, or events of a user, in one answer."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Scripts and styles of the page's own files alone; pictures from elsewhere, as item tables name them."""
_HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_NEIGHBOURS, _USERS, _ALSO, _REASONS = 12, 12, 12, 3
Text = Annotated[str, Query(max_length=256)]
Limit = Annotated[int, Query(ge=1, le=100)]


class Card(BaseModel):
    """An item to look at."""

    item: Id
    title: str | None
    picture: str | None


class _FoundUser(BaseModel):
    user: Id
    items: int


class UsersAnswer(BaseModel):
    """Users that were found."""

    users: list[_FoundUser]
    of: int


class CardsAnswer(BaseModel):
    """Items."""

    items: list[Card]


class ItemsAnswer(CardsAnswer):
    """Items that were found."""

    of: int


class TrendingAnswer(CardsAnswer):
    """Items that are more popular lately than over all time."""

    half_life: str | float | None


class TitlesBody(RequestBody):
    """Items whose titles are asked for."""

    items: Ids = Field(description="the ids of the items")


class _ModelList(BaseModel):
    model: str
    basis: str | None
    items: list[Card]


class ComparedAnswer(BaseModel):
    """The lists of a user, one of each model."""

    user: Id
    lists: list[_ModelList]


class UserAnswer(BaseModel):
    """What a user has."""

    user: Id
    known: bool
    n_items: int
    items: list[Card]
    events: list[Card]


class ItemAnswer(Card):
    """Everything about an item."""

    people: int
    facts: Json
    neighbours: list[Card]
    audience: Json


class MapAnswer(BaseModel):
    """Points of the map."""

    items: list[Id]
    titles: list[str | None]
    people: list[int]
    x: list[float]
    y: list[float]
    of: int


class FiguresAnswer(BaseModel):
    """Figures of the service."""

    seconds: float
    requests: int
    routes: list[Json]


class Browsing:
    """The answers to these routes."""

    def __init__(self, service: Service, beside: tuple[str, Recommender] | None = None) -> None:
        self.service, self.figures = service, Figures(service.metrics.registry)
        self._catalogues: WeakKeyDictionary[ServedModel, Catalogue] = WeakKeyDictionary()
        self.beside = None if beside is None else self._second(*beside)

    def _second(self, name: str, recommender: Recommender) -> tuple[str, ServedModel]:
        """A second model, whose lists are shown beside those of the first."""
        first, second = self.service.served, recommender.model_.seen
        for what, ids in (("user", second.user_ids), ("item", second.item_ids)):
            kind = (first.users if what == "user" else first.items).kind
            if ids.ids.type != kind:
                raise InputError(
                    f"the {what} ids of {name} are {ids.ids.type}, and those of {self.service.name} {kind}; "
                    "fit both models from the same data."
                )
        served = self.service.prepared(recommender, with_index=False)  # it is looked at, not asked often
        self.service.closing.append(served.close)
        return name, served

    def catalogue(self, served: ServedModel) -> Catalogue:
        """That of a model, with the titles of this moment; freed with the model."""
        table = self.service.served.table()
        found = self._catalogues.get(served)
        if found is None:
            found = self._catalogues.setdefault(served, Catalogue(served, table))
        if found.table is not table:
            self._catalogues[served] = found = found.with_table(table)
        return found

    # --- answers -----------------------------------------------------------------------------------------

    def router(self) -> CheckedRouter:
        """The routes."""
        router = CheckedRouter(self.service.gate)
        router.add("GET", "/v1/users", self.find_users, "read", UsersAnswer)
        router.add("GET", "/v1/items", self.find_items, "read", ItemsAnswer)
        router.add("GET", "/v1/trending", self.trending, "read", TrendingAnswer)
        router.add("POST", "/v1/titles", self.titles, "read", CardsAnswer, example={"items": ["ITEM"]})
        router.add("GET", "/v1/users/{id:path}/lists", self.compared, "read", ComparedAnswer)
        router.add("GET", "/v1/users/{id:path}", self.user, "read", UserAnswer)
        router.add("GET", "/v1/items/{id:path}", self.item, "read", ItemAnswer)
        router.add("GET", "/v1/map", self.map, "read", MapAnswer)
        router.add("GET", "/v1/service", self.figures_now, "read", FiguresAnswer)
        return router

    def find_users(self, query: Text = "", limit: Limit = 20) -> Response:
        """Users whose id begins with the query."""
        served = self.service.served
        catalogue, counts = self.catalogue(served), served.model.seen.user_counts
        codes = catalogue.find("users", query, limit).tolist()
        counted = {catalogue.user(code): int(counts[code]) for code in codes}
        rows = [{"user": user, "items": counted[user]} for user in self._remembered(list(counted))]
        return json_response({"users": rows, "of": served.model.seen.n_users})

    def find_items(self, query: Text = "", limit: Limit = 20) -> Response:
        """Items by the beginning of the id, or words of the title."""
        served = self.service.served
        catalogue = self.catalogue(served)
        codes = catalogue.find("items", query, limit).tolist()
        return json_response({"items": catalogue.cards(codes), "of": served.model.seen.n_items})

    def trending(self, k: K = 10) -> Response:
        """What trends now: items whose share of the events has grown most, and how many times."""
        served = self.service.served
        half_life, found = served.trending(check_whole("k", k, 1, self.service.limits.k))
        catalogue, names = self.catalogue(served), served.items.names
        items = [catalogue.card(names[code], times=round(times, 2)) for code, times in found]
        return json_response({"half_life": half_life, "items": items})

    def titles(self, body: TitlesBody) -> Response:
        """Titles and pictures of items."""
        served = self.service.served
        texts = served.items.texts(body.items)
        return json_response({"items": list(map(self.catalogue(served).card, texts))})

    def user(self, id: str) -> Response:
        """What a user has, and their events."""
        served = self.service.served
        user = served.users.text(id)
        catalogue, code = self.catalogue(served), served.users.codes.get(user)
        events, is_forgotten = self._stored([user]).get(user, StoredHistory([]))
        code = None if is_forgotten else code
        codes = [] if code is None else self._history(served, code)
        newest = events[::-1][:SHOWN]
        return json_response(
            {
                "user": served.users.value(user),
                "known": code is not None,
                "n_items": len(codes),
                "items": catalogue.cards(codes[:SHOWN]),
                "n_events": len(events),
                "events": [catalogue.card(item, kind=kind, weight=weight) for item, kind, weight in newest],
            }
        )

    def _stored(self, users: Sequence[str]) -> dict[str, StoredHistory]:
        """What the store knows about users; without a store that answers, nothing."""
        try:
            return self.service.reader.of_users(users)
        except StorageError:  # the history of training is still there
            return {}

    def _remembered(self, users: list[str | int]) -> list[str | int]:
        """These users without those who asked to be forgotten."""
        known = self._stored([str(user) for user in users])
        return [user for user in users if not known.get(str(user), StoredHistory([])).is_forgotten]

    @staticmethod
    def _history(served: ServedModel, code: int) -> list[int]:
        """The items of training: the heaviest first, of the same weight the most popular."""
        history, popularity = served.histories.history(code), served.model.popularity
        liked = [item for item, weight in history.items() if weight > 0]
        return sorted(liked, key=lambda item: (-history[item], -int(popularity[item]), item))

    def compared(self, id: str, k: K = 10) -> Response:
        """A user's list of each model, with titles and reasons."""
        first = self.service.served
        user = first.users.text(id)
        k = check_whole("k", k, 1, self.service.limits.k)
        models = [(self.service.name, first), *([] if self.beside is None else [self.beside])]
        lists = [self._explained(name, served, user, k) for name, served in models]
        return json_response({"user": first.users.value(user), "lists": lists})

    def _explained(self, name: str, served: ServedModel, user: str, k: int) -> Json:
        catalogue = self.catalogue(served)
        basis = served.plain_lists([ListRequest(user, 1)])[0].basis
        items = []
        for row in served.recommend([user], {"k": k, "explain": _REASONS}).to_pylist():
            because = [catalogue.card(str(one["item"]), weight=one["weight"]) for one in row["because"]]
            facts = {"score": row["score"], "rank": row["rank"], "because": because}
            items.append(catalogue.card(str(row["item"]), **facts))
        return {"model": name, "basis": basis, "items": items}

    def item(self, id: str) -> Response:
        """An item: its facts, its neighbours, its audience."""
        served = self.service.served
        text = served.items.text(id)
        code = served.items.codes.get(text)
        if code is None:
            raise RefusalError(404, f"unknown item: {text!r:.60}; ask for an item of the training data.")
        catalogue, popularity = self.catalogue(served), served.model.popularity
        audience = catalogue.audience(code, _USERS, _ALSO)
        return json_response(
            {
                **catalogue.cards([code])[0],
                "more_popular": int((popularity > popularity[code]).sum()),
                "of": len(popularity),
                "facts": catalogue.titles.facts(code),
                "neighbours": self._neighbours(served, catalogue, text),
                "audience": {**audience, "some": self._remembered(audience["some"])},
                "hidden": code in served.facts.hidden,
            }
        )

    @staticmethod
    def _neighbours(served: ServedModel, catalogue: Catalogue, text: str) -> list[Json]:
        """None where the model cannot say: an item without a trained pair, or a model without vectors."""
        try:
            rows = served.similar(text, _NEIGHBOURS).to_pylist()
        except InputError:
            return []
        return [catalogue.card(str(row["similar"]), score=row["score"]) for row in rows]

    def map(self) -> Response:
        """The most popular items as points of a map; the first request computes it."""
        return Response(self.catalogue(self.service.served).map_json, media_type=JSON)

    def figures_now(self) -> Response:
        """Requests, times and events since the start."""
        return json_response(self.figures.now())


# --- files -----------------------------------------------------------------------------------------------


def files_router(gate: Gate) -> CheckedRouter:
    """The routes of the files, which need no token. They are read once; no other name is served."""
    folder = files("truepair.serving.page") / "static"
    contents = {one.name: one.read_bytes() for one in folder.iterdir() if Path(one.name).suffix in _KINDS}

    async def file(name: str) -> Response:
        """A script, a style, the icon."""
        if name not in contents:
            raise RefusalError(404, f"the page has no file {name!r:.60}.")
        return Response(contents[name], headers=_HEADERS, media_type=_KINDS[Path(name).suffix])

    async def page() -> Response:
        """The page itself."""
        return await file("index.html")

    router = CheckedRouter(gate)
    router.add("GET", "/", page, None, listed=False)
    router.add("GET", "/page/{name}", file, None, listed=False)
    return router


def add_page(service: Service, beside: tuple[str, Recommender] | None = None) -> None:
    """Add the page to a service; `beside` is the name and the model of a second list for each user."""
    service.routers += [Browsing(service, beside).router(), files_router(service.gate)]
