"""ReadOptions: the options of reading, shared by `read_interactions`, `prepare_interactions`, clusters."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, update_wrapper
from typing import Concatenate, Literal, ParamSpec, TypeVar

from truepair.data.columns import Column, Raw, find_columns, is_kind
from truepair.data.interactions import Step, check_bounds
from truepair.data.log import Policy
from truepair.data.rows.pairs import DUPLICATES
from truepair.data.rows.weighting import Weighting
from truepair.data.sources.file_opening import expanded
from truepair.data.sources.formats import FORMATS, open_path
from truepair.data.sources.in_memory import memory_source
from truepair.data.sources.sql import open_query
from truepair.data.sources.sql_urls import find_database
from truepair.errors import InputError, check_choice, check_number, check_type, check_whole, settle
from truepair.storage.types import Ids, Json, Source

MISSING = ("error", "drop")
"""Policies for rows with a missing value."""

RULES = (
    "chronological", "min_rating", "duplicates", "feedback", "half_life", "counts", "dislikes",
    "max_disliked_rating",
)  # fmt: skip
"""Options that say which rows are likes, and how much they weigh: they hold for all data of a model."""

RECIPE = ("user", "item", "rating", "weight", "time", "kind", "missing", *RULES)
"""Options that are kept with a model: its rules, and where they are found in a source."""

KINDS_REMEDY = "pass feedback={'view': 1, 'buy': 10, 'return': -1}, or kind=False if that is meant"
"""What the note of a column of kinds that is not read advises."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of `read_interactions`, which describes them, checked."""

    user: Column = None
    item: Column = None
    rating: Column = None
    weight: Column = None
    time: Column = None
    chronological: bool = False
    query: str | None = None
    format: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"
    min_rating: float | None = None
    duplicates: Literal["last", "first", "max", "strongest", "sum", "error"] | None = None
    missing: Literal["error", "drop"] = "error"
    core: int | tuple[int, int] | None = None
    items: Ids = None
    kind: Column = None
    feedback: Mapping[str, float] | None = None
    half_life: str | None = None
    now: object = None
    counts: str | None = None
    dislikes: bool = False
    max_disliked_rating: float | None = None

    def __post_init__(self) -> None:
        self.weighting  # noqa: B018, checks its options
        check_choice("duplicates", self.policy.duplicates, DUPLICATES)
        check_choice("missing", self.missing, MISSING)
        if self.min_rating is not None:
            settle(self, min_rating=check_number("min_rating", self.min_rating))
        check_bounds(self.min_rating, self.max_disliked_rating)
        if self.cores is not None and self.items is not None:
            raise InputError("core removes items, and items adds those that nobody has; use one of them.")
        if self.feedback is None and self.kind is not None and self.kind is not False:
            raise InputError(f"kind = {self.kind!r} has no effect without feedback; give both or none.")
        check_type("chronological", self.chronological, bool, "pass True or False")
        if self.chronological and self.half_life is not None:
            raise InputError("half_life needs times, and chronological = True gives only an order; use one.")
        if self.header not in (None, True, False):
            raise InputError(f"header = {self.header!r} is unknown; pass True, False, or None to detect it.")
        if self.format is not None:
            check_choice("format", self.format, FORMATS)

    @cached_property
    def weighting(self) -> Weighting:
        """What makes weights and dislikes."""
        return Weighting(self.policy, self.feedback, self.dislikes, self.max_disliked_rating)

    @property
    def policy(self) -> Policy:
        """How the rows of a pair become one interaction."""
        duplicates = self.duplicates or ("last" if self.feedback is None else "strongest")
        return Policy(duplicates, self.half_life, self.now, self.counts, self.recipe)

    @property
    def recipe(self) -> Json:
        """What is given of RECIPE, as plain JSON."""
        given = {name: getattr(self, name) for name in RECIPE}
        found = {name: value for name, value in given.items() if value != getattr(ReadOptions, name)}
        return {**found, "feedback": dict(self.feedback)} if isinstance(self.feedback, Mapping) else found

    @property
    def cores(self) -> tuple[int, int] | None:
        """The least number of items of a user and of users of an item."""
        if self.core is None:
            return None
        users, items = self.core if isinstance(self.core, tuple) and len(self.core) == 2 else [self.core] * 2
        remedy = "Pass one number, or (least items per user, least users per item)."
        return check_whole("core", users, 1, remedy=remedy), check_whole("core", items, 1, remedy=remedy)

    @property
    def _columns(self) -> dict[str, Column]:
        roles = ("user", "item", "rating", "weight", "time", *(["kind"] if self.feedback is not None else []))
        return {role: getattr(self, role) for role in roles}

    def open(self, source: Source) -> Raw:
        """The raw columns of the source, with a note on kinds that are not read; `close` them."""
        if isinstance(source, Raw):  # of a cluster
            return source
        raw, used = self._opened(source), self._columns.values()
        kinds = [n for at, n in enumerate(raw.names) if is_kind(n) and n not in used and at not in used]
        if self.feedback is not None or self.kind is False or len(kinds) != 1:
            return raw
        note = (
            f"note: column {kinds[0]!r} is not read, so that every kind of row counts as a like, returns too"
        )
        return replace(raw, steps=(*raw.steps, Step(f"{note}; {KINDS_REMEDY}", 0, note=True)))

    def _opened(self, source: Source) -> Raw:
        is_text = isinstance(source, str | os.PathLike)
        if is_text and (database := find_database(source)) is not None:
            for name in ("format", "header", "encoding"):
                if (value := getattr(self, name)) != getattr(ReadOptions, name):
                    raise InputError(
                        f"{name} = {value!r} is for files, and {database.shown} is a database; leave it out."
                    )
            return open_query(database, self.query)
        if self.query is not None:
            what = source if is_text else f"a {type(source).__name__}"
            raise InputError(f"query needs a database, not {what}; leave it out, or give a URL.")
        if not is_text:
            return memory_source(source)
        names = frozenset(column for column in self._columns.values() if isinstance(column, str))
        return open_path(expanded(source), self.format, self.header, self.encoding, names)

    def find_columns(self, raw: Raw) -> dict[str, int]:
        """Role -> column position. An error if an option needs a column that is not there."""
        at = find_columns(raw, self._columns)
        needs = {"min_rating": "rating", "max_disliked_rating": "rating"}
        needs |= {"duplicates": "rating"} if self.policy.duplicates == "max" else {}
        needs |= {"half_life": "time"} | ({"dislikes": "weight"} if self.dislikes else {})
        needs |= {"counts": "weight"} if self.policy.duplicates != "sum" else {}
        for option, role in needs.items():
            if (value := getattr(self, option)) is not None and role not in at:
                shown = f"{value:g}" if role == "rating" and option != "duplicates" else repr(value)
                raise InputError(
                    f"{option} = {shown} needs a {role} column, and {raw.source} has none among "
                    f"{', '.join(map(repr, raw.names))}. Pass {role}=<name or position>."
                )
        if self.chronological and "time" in at:
            raise InputError(
                f"chronological = True: {raw.source} has the times {raw.names[at['time']]!r}; use time=False."
            )
        if self.chronological and raw.order == "none":
            raise InputError(f"chronological = True: {raw.source} is a matrix without order; leave it out.")
        return at


_Options = ParamSpec("_Options")
_Result = TypeVar("_Result")


def with_options(
    options: Callable[_Options, ReadOptions],
) -> Callable[[Callable[[Source, ReadOptions], _Result]], Callable[Concatenate[Source, _Options], _Result]]:
    """Make `read(source, options)` a function whose keyword parameters are the fields of `ReadOptions`."""

    def decorated(
        read: Callable[[Source, ReadOptions], _Result],
    ) -> Callable[Concatenate[Source, _Options], _Result]:
        own = inspect.signature(read)
        fields = inspect.signature(options).parameters

        def called(source: Source, *args: _Options.args, **given: _Options.kwargs) -> _Result:
            if unknown := given.keys() - fields.keys():
                raise TypeError(f"{read.__name__}() got an unexpected keyword argument {min(unknown)!r}")
            return read(source, options(*args, **given))

        parameters = [own.parameters["source"], *fields.values()]
        called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        update_wrapper(called, read)
        return called  # type: ignore[return-value]  # `source` may be named, too

    return decorated
