"""Columns: which one holds the user, the item, the rating …, and how their cells are parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import canonical_ids, cast_or_none, is_text, to_arrow
from truepair.data.interactions import Step
from truepair.errors import InputError, check_whole, did_you_mean

Column = str | int | None
"""A column's name or position; None finds the column by its name, False ignores it."""

COLUMN_NAMES = {
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
"""Column names that are recognised for each role: lower case, without `_`, `-` and spaces."""

KIND_NAMES = (
    "kind kinds event events eventtype action actions actiontype behavior behaviors behaviortype behaviour "
    "behaviours feedback feedbacktype type"
)
"""Column names that are recognised as kinds of feedback; only looked for where feedback is given."""

MISSING_TEXT = ("NULL", "null", "NaN", "nan", "NA", "N/A", "None", "<NA>")
"""Spellings of a missing value in text files."""

BY_POSITION = ("user", "item", "rating", "time")
"""The roles of columns without a header, in order."""


INTEGER_TYPES = (pa.int64(), pa.uint64())
"""What ids of text files become, if they can."""

TIME_TYPES = (
    pa.int64(),
    pa.float64(),
    *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")),
)
"""What times of text become: the first type that fits all of a column."""


@dataclass(frozen=True)
class Raw:
    """Columns whose roles are not known yet, with what messages need to describe them."""

    source: str
    """The source's name in messages: a path, or "the table"."""
    names: Sequence[str]
    read: Callable[[Sequence[int]], Sequence[object]]
    """Column positions -> those columns, as anything that `to_arrow` takes."""
    place: Callable[[int], str] = lambda row: f"row {row + 1} (counting from 1)"
    """A row's index -> its location for a reader of a message, such as "line 7"."""
    typed: bool = True
    """False if every cell is text because the format has no other type."""
    note: str = ""
    """A hint for messages about columns that were not found."""
    steps: tuple[Step, ...] = ()
    """What was removed when the source was opened."""
    order: Literal["rows", "user", "none"] = "rows"
    """What the order of the rows may mean: an order of all rows, of each user's rows, or nothing."""
    batches: Callable[[Sequence[int]], Iterator[Sequence[pa.Array]]] | None = None
    """Column positions -> those columns, a batch of rows at a time; None if they come at once only."""
    close: Callable[[], None] = lambda: None
    """Ends the connection to a database."""


def role_of(name: str) -> str | None:
    """The role of a column with this name, or None.

    >>> role_of("User-ID"), role_of("4.5")
    ('user', None)
    """
    plain = re.sub(r"[\W_]+", "", str(name)).lower()
    return next((role for role, names in COLUMN_NAMES.items() if plain in names.split()), None)


def is_kind(name: str) -> bool:
    """Whether a column with this name holds kinds of feedback.

    >>> is_kind("Event_Type"), is_kind("user")
    (True, False)
    """
    return re.sub(r"[\W_]+", "", str(name)).lower() in KIND_NAMES.split()


def is_row_number(name: str) -> bool:
    """Whether a column with this name is the index of a pandas table, as files have it.

    >>> is_row_number("__index_level_0__"), is_row_number("Unnamed: 0"), is_row_number("index")
    (True, True, False)
    """
    return bool(re.fullmatch(r"__index_level_\d+__|Unnamed: \d+|", name))


def find_columns(raw: Raw, given: Mapping[str, Column]) -> dict[str, int]:
    """Role -> column position: as `given`, else by name. User and item are required; kind, if asked for."""
    found = {
        role: _position(raw, role, column)
        for role, column in given.items()
        if column is not None and column is not False
    }
    if shared := [role for role, at in found.items() if list(found.values()).count(at) > 1]:
        raise InputError(f"{raw.source}: {' and '.join(shared)} are the same column; give each its own.")
    taken = set(found.values())
    for role in COLUMN_NAMES:
        if given.get(role) is None and (at := _by_name(raw, role, taken)) is not None:
            found[role] = at
    if "kind" in given and given["kind"] is None:
        kinds = [at for at, name in enumerate(raw.names) if at not in found.values() and is_kind(name)]
        found |= {"kind": kinds[0]} if len(kinds) == 1 else {}
    for role in ("user", "item", *(["kind"] if "kind" in given else [])):
        if role not in found:
            raise InputError(
                f"{raw.source} has no column that is recognised as the {role}; {_list_columns(raw)}. "
                f"Pass {role}=<name or position>.{did_you_mean(role, raw.names)}{raw.note}"
            )
    return {role: found[role] for role in (*COLUMN_NAMES, "kind") if role in found}


def identifiers(raw: Raw, role: str, values: object) -> pa.Array:
    """Canonical ids; the empty string is null. Text becomes integers where the source has text only."""
    ids = cleaned_ids(raw, role, values)
    return ids if raw.typed or not is_text(ids.type) else _as_integers(ids)


def cleaned_ids(raw: Raw, role: str, values: object) -> pa.Array:
    """Canonical ids; the empty string is null. Text stays text."""
    ids = canonical_ids(values, role)
    if not is_text(ids.type):
        return ids
    if not raw.typed:  # text files have no other way to mark a missing value
        ids = pc.utf8_trim_whitespace(ids)
    absent = pc.is_in(ids, pa.array([""] if raw.typed else ["", *MISSING_TEXT], ids.type))
    if pc.any(absent).as_py():
        ids = pc.if_else(absent, None, ids)
    return ids


def numbers(raw: Raw, role: str, values: object) -> pa.Array:
    """Ratings or weights as float64; missing values are null."""
    array = to_arrow(values, role)
    if is_text(array.type):
        return _parse(raw, role, array, [pa.float64()], "a number")
    return converted(raw, role, array, pa.float64())


def timestamps(raw: Raw, role: str, values: object) -> pa.Array:
    """Times: integers as int64, floats as float64, dates and ISO text as int64 microseconds since 1970."""
    if getattr(values, "dtype", None) == "datetime64[D]":
        most = np.datetime64(2**36, "D")  # far beyond the range of microseconds; Arrow takes days for 32 bits
        values = np.clip(np.asarray(values), np.datetime64(-(2**36), "D"), most).astype("datetime64[s]")
    array = to_arrow(values, role)
    if is_text(array.type):
        array = parse_times(raw, role, array, TIME_TYPES)
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        return _microseconds(raw, role, array)
    whole = pa.types.is_integer(array.type) or pa.types.is_null(array.type)
    return converted(raw, role, array, pa.int64() if whole else pa.float64())


def parse_times(raw: Raw, role: str, text: pa.Array, kinds: Sequence[pa.DataType]) -> pa.Array:
    """Text as the first of these types that all of it can be cast to."""
    return _parse(raw, role, text, kinds, "a number or an ISO date such as 2024-05-31 23:59:00")


def _microseconds(raw: Raw, role: str, array: pa.Array) -> pa.Array:
    """Dates and timestamps as int64 microseconds since 1970; nanoseconds are cut off.

    UTC stays UTC: Arrow stores zoned times as UTC, the zone is for display only.
    """
    kind = pa.timestamp("us", getattr(array.type, "tz", None))
    try:
        return array.cast(kind, safe=array.type != pa.timestamp("ns", kind.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        row = _first_failure(array, kind)
        raise InputError(
            f"{raw.source}: {role} {array[row].value} ({array.type}) at {raw.place(row)} is beyond the years "
            f"-290,308 to 294,247; correct it, name another column ({role}=…), or use {role}=False."
        ) from error


def _list_columns(raw: Raw) -> str:
    return f"its columns are {', '.join(map(repr, raw.names)) or 'none'}"


def _position(raw: Raw, role: str, column: str | int) -> int:
    if not isinstance(column, str):
        return check_whole(role, column, 0, len(raw.names) - 1, f"{raw.source}: {_list_columns(raw)}.")
    places = [at for at, name in enumerate(raw.names) if name == column]
    if len(places) > 1:
        raise InputError(f"{raw.source} has {len(places)} columns {column!r}; pass a position: {places}.")
    if not places:
        hint = did_you_mean(column, raw.names)
        raise InputError(
            f"{role} = {column!r}: {raw.source} has no such column; {_list_columns(raw)}.{hint}{raw.note}"
        )
    return places[0]


def _by_name(raw: Raw, role: str, taken: set[int]) -> int | None:
    places = [at for at, name in enumerate(raw.names) if at not in taken and role_of(name) == role]
    if len(places) > 1:
        both = " and ".join(repr(raw.names[at]) for at in places)
        raise InputError(
            f"{raw.source}: {both} are both recognised as {role}; pass one: {role}={raw.names[places[0]]!r}."
        )
    return places[0] if places else None


def _as_integers(text: pa.Array) -> pa.Array:
    """Integers if each of them prints as the same text again ("007" does not), else the text."""
    return next((text.cast(kind) for kind in INTEGER_TYPES if prints_again(text, kind)), text)


def prints_again(text: pa.Array, kind: pa.DataType) -> bool:
    """Whether all of the text are integers of this type that print as the same text."""
    found = cast_or_none(text, kind)
    return found is not None and found.cast(text.type).equals(text)


def converted(raw: Raw, role: str, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as this type; an error if they cannot be."""
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{raw.source}: {role} of type {array.type} cannot be used: {error}.") from error


def _parse(raw: Raw, role: str, text: pa.Array, kinds: Sequence[pa.DataType], expected: str) -> pa.Array:
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.equal(text, ""), None, text)
    for kind in kinds:
        if (found := cast_or_none(text, kind)) is not None:
            return found
    row = max(_first_failure(text, kind) for kind in kinds)
    raise InputError(
        f"{raw.source}: {role} {text[row].as_py()!r} at {raw.place(row)} is not {expected}; correct it, "
        f"name another column ({role}=…), or leave the column out ({role}=False)."
    )


def _first_failure(text: pa.Array, kind: pa.DataType) -> int:
    """The first row that cannot be cast, by binary search."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        fails = cast_or_none(text.slice(low, middle - low), kind) is None
        low, high = (low, middle) if fails else (middle, high)
    return low
