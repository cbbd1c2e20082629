"""Columns: which one is the user, the item, the rating …, and what their cells mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import canonical_ids, is_text, to_arrow
from truepair.data.interactions import Step
from truepair.errors import InputError, check_whole, did_you_mean

Column = str | int | None
"""A column's name or position, None to find it by habit, or False for a column to leave out."""

HABITS = {
    "user": "user users userid uid useridx userindex usercode customer customerid client clientid visitor "
    "visitorid member memberid reviewer reviewerid account accountid person personid buyer buyerid "
    "listener listenerid reader readerid",
    "item": "item items itemid iid itemidx itemindex itemcode movie movieid film filmid product productid "
    "track trackid song songid artist artistid album albumid book bookid isbn asin business businessid "
    "article articleid news newsid video videoid game gameid app appid poi poiid venue venueid place "
    "placeid locationid recipe recipeid joke jokeid anime animeid sku",
    "rating": "rating ratings score stars overall bookrating reviewrating reviewscore",
    "weight": "weight weights count counts plays playcount quantity frequency freq",
    "time": "time timestamp timestamps ts date datetime unixtime unixtimestamp unixreviewtime reviewtime "
    "eventtime createdat ratedat ratingtime",
}
"""The names each role goes by, in lower case and without `_`, `-` and spaces."""

NOTHING = ("NULL", "null", "NaN", "nan", "NA", "N/A", "None", "<NA>")
"""How files of text spell a missing value."""

BY_POSITION = ("user", "item", "rating", "time")
"""What columns without a name are."""


def _row_number(row: int) -> str:
    return f"row {row + 1} (counting from 1)"


@dataclass(frozen=True)
class Raw:
    """Columns whose meaning is not known yet, and how to speak of them."""

    source: str
    """What messages call it: a path, or "the table"."""
    names: Sequence[str]
    read: Callable[[Sequence[int]], Sequence[Any]]
    """Column positions -> those columns, as anything that `to_arrow` takes."""
    place: Callable[[int], str] = _row_number
    """A row's index -> where a person finds it."""
    typed: bool = True
    """False where every cell is text because the format knows nothing else."""
    note: str = ""
    """What else to try when the columns are not the expected ones."""
    steps: tuple[Step, ...] = ()
    """What opening it removed already."""


def role_of(name: str) -> str | None:
    """The role that a column of this name has by habit.

    >>> role_of("User-ID"), role_of("4.5")
    ('user', None)
    """
    plain = re.sub(r"[\W_]+", "", str(name)).lower()
    return next((role for role, names in HABITS.items() if plain in names.split()), None)


def find_columns(raw: Raw, given: Mapping[str, Column]) -> dict[str, int]:
    """Role -> column position: as `given`, else by habit; user and item must be found."""
    found = {
        role: _position(raw, role, column)
        for role, column in given.items()
        if column is not None and column is not False
    }
    if shared := [role for role, at in found.items() if list(found.values()).count(at) > 1]:
        raise InputError(f"{raw.source}: {' and '.join(shared)} are given as one column; give one each.")
    taken = set(found.values())
    for role in HABITS:
        if given.get(role) is None and (at := _by_habit(raw, role, taken)) is not None:
            found[role] = at
    for role in ("user", "item"):
        if role not in found:
            raise InputError(
                f"{raw.source} has no column that looks like the {role}; {_listed(raw)}. "
                f"Say which one it is: {role}=name or position.{did_you_mean(role, raw.names)}{raw.note}"
            )
    return {role: found[role] for role in HABITS if role in found}


def identifiers(raw: Raw, role: str, values: Any) -> pa.Array:
    """Canonical ids with null for the empty string; text becomes integers if the source has only text."""
    ids = canonical_ids(values, role)
    if not is_text(ids.type):
        return ids
    if not raw.typed:  # a file has no other way to say that there is nothing
        ids = pc.utf8_trim_whitespace(ids)
    absent = pc.is_in(ids, pa.array([""] if raw.typed else ["", *NOTHING], ids.type))
    if pc.any(absent).as_py():
        ids = pc.if_else(absent, None, ids)
    return ids if raw.typed else _exact_integers(ids)


def numbers(raw: Raw, role: str, values: Any) -> pa.Array:
    """Ratings or weights as float64; null where missing."""
    array = to_arrow(values, role)
    if is_text(array.type):
        return _parsed(raw, role, array, [pa.float64()], "a number")
    return _converted(raw, role, array, pa.float64())


def moments(raw: Raw, role: str, values: Any) -> pa.Array:
    """Times: integers as int64, floats as float64, dates and ISO text as int64 microseconds since 1970."""
    array = to_arrow(values, role)
    if is_text(array.type):
        kinds = [pa.int64(), pa.float64()]
        kinds += [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]
        array = _parsed(raw, role, array, kinds, "a number or an ISO date such as 2024-05-31 23:59:00")
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        # UTC stays UTC: Arrow stores zoned times as UTC, the zone is for display only
        return array.cast(pa.timestamp("us", getattr(array.type, "tz", None)), safe=False).cast(pa.int64())
    whole = pa.types.is_integer(array.type) or pa.types.is_null(array.type)
    return _converted(raw, role, array, pa.int64() if whole else pa.float64())


def _listed(raw: Raw) -> str:
    return f"its columns are {', '.join(map(repr, raw.names)) or 'none'}"


def _position(raw: Raw, role: str, column: str | int) -> int:
    if not isinstance(column, str):
        return check_whole(role, column, 0, len(raw.names) - 1, f"{raw.source}: {_listed(raw)}.")
    places = [at for at, name in enumerate(raw.names) if name == column]
    if len(places) > 1:
        raise InputError(f"{raw.source} has {len(places)} columns {column!r}; give a position: {places}.")
    if not places:
        hint = did_you_mean(column, raw.names)
        raise InputError(
            f"{role} = {column!r}: {raw.source} has no such column; {_listed(raw)}.{hint}{raw.note}"
        )
    return places[0]


def _by_habit(raw: Raw, role: str, taken: set[int]) -> int | None:
    places = [at for at, name in enumerate(raw.names) if at not in taken and role_of(name) == role]
    if len(places) > 1:
        both = " and ".join(repr(raw.names[at]) for at in places)
        raise InputError(
            f"{raw.source}: {both} both look like the {role}; "
            f"say which one it is: {role}={raw.names[places[0]]!r} (or a position)."
        )
    return places[0] if places else None


def _exact_integers(text: pa.Array) -> pa.Array:
    """Integers if every one is written back as the same text ("007" is not), else the text itself."""
    for kind in (pa.int64(), pa.uint64()):
        try:
            whole = text.cast(kind)
        except pa.ArrowInvalid:
            continue
        if whole.cast(text.type).equals(text):
            return whole
    return text


def _converted(raw: Raw, role: str, array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{raw.source}: {role} of type {array.type} cannot be used: {error}.") from error


def _parsed(raw: Raw, role: str, text: pa.Array, kinds: list[pa.DataType], expected: str) -> pa.Array:
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(text, ""), None, text)
    for kind in kinds:
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    row = max(_first_failure(text, kind) for kind in kinds)
    raise InputError(
        f"{raw.source}: {role} {text[row].as_py()!r} at {raw.place(row)} is not {expected}; correct it, "
        f"name another column ({role}=…), or leave the column out ({role}=False)."
    )


def _first_failure(text: pa.Array, kind: pa.DataType) -> int:
    """The first row that cannot be cast, by halving."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            text.slice(low, middle - low).cast(kind)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low
