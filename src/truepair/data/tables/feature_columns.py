"""Columns of a feature table as numbers: categories, tags, numbers, given vectors.

A column learns its statistics (which values exist, mean, scale) from the rows of the training, and encodes
any rows with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple, Self, SupportsInt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from truepair.data.columns import TIME_TYPES
from truepair.data.ids import cast_or_none, is_text, to_arrow
from truepair.data.log import Floats, Mask
from truepair.errors import InputError, check_number
from truepair.storage.types import Json

MIN_COUNT = 2  # rows of the training that must have a value for it to become a feature
MOST = 5.0  # standard deviations: a new row may lie far outside of what was trained
TAG_SEPARATOR = "|"  # of text files, which have no lists


class Place(NamedTuple):
    """Where rows come from, for messages."""

    source: str
    ids: pa.Array
    role: str

    def row(self, number: SupportsInt) -> str:
        """The item or user of a row."""
        return f"{self.role} {self.ids[int(number)].as_py()!r}"


@dataclass(frozen=True)
class _Column:
    kind: ClassVar[str]
    name: str

    def as_json(self) -> Json:
        """Plain values."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Category(_Column):
    """One text or whole number a row: a feature for each value. Unknown values and nulls have none."""

    kind: ClassVar[str] = "category"
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if list(self.values) != sorted(set(self.values)):
            raise InputError(f"the values of the feature column {self.name!r} are not sorted.")

    @property
    def features(self) -> list[str]:
        """A name for each feature."""
        return [f"{self.name}={value}" for value in self.values]

    @classmethod
    def fitted(cls, name: str, column: pa.Array, where: Place) -> Self:
        """The values that at least MIN_COUNT rows have, in order."""
        counts = Counter(value for row in _lists(column) for value in set(row))
        return cls(name, tuple(sorted(value for value, n in counts.items() if n >= MIN_COUNT)))

    def encode(self, column: pa.Array, where: Place) -> sp.csr_array:
        """[n, features]: the known values of a row, scaled to length 1."""
        place = {value: at for at, value in enumerate(self.values)}
        rows = [sorted({place[value] for value in row if value in place}) for row in _lists(column)]
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        starts = np.concatenate([[0], counts.cumsum()])
        columns = np.fromiter((at for row in rows for at in row), np.int64, int(starts[-1]))
        values = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts)
        return sp.csr_array((values, columns, starts), shape=(len(rows), len(self.values)))


@dataclass(frozen=True)
class Tags(Category):
    """A list of texts or whole numbers a row, such as genres or tokens: a feature for each value."""

    kind: ClassVar[str] = "tags"


@dataclass(frozen=True)
class Vector(_Column):
    """A list of numbers a row, all of one length: (x - mean) / scale, at most ±MOST; null: 0.

    A column of numbers is the case of length 1. `missing` adds a feature that is 1 for rows without a value.
    """

    kind: ClassVar[str] = "vector"
    mean: tuple[float, ...]
    scale: float
    missing: bool

    def __post_init__(self) -> None:
        check_number(f"the scale of the feature column {self.name!r}", self.scale, 0, open_low=True)

    @property
    def features(self) -> list[str]:
        """A name for each feature."""
        one = len(self.mean) == 1
        names = [self.name if one else f"{self.name}[{at}]" for at in range(len(self.mean))]
        return names + ([f"{self.name} is missing"] if self.missing else [])

    @classmethod
    def fitted(cls, name: str, column: pa.Array, where: Place) -> Self:
        """The mean and the scale of the rows that have a value; no features if all are equal."""
        values, present = _vectors(name, column, where, None)
        known = values[present]
        if not len(known):
            return cls(name, (), 1.0, False)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = known.mean(axis=0)
            scale = math.sqrt(float(((known - mean) ** 2).mean(axis=0).sum()))
        if not math.isfinite(scale) or not np.isfinite(mean).all():
            raise InputError(f"{where.source}: the numbers of {name!r} are too large; rescale them.")
        missing = bool((~present).sum() >= MIN_COUNT)
        if scale <= 1e-12 * max(1.0, float(np.abs(mean).max())):
            mean, scale = mean[:0], 1.0  # all are equal
        return cls(name, tuple(mean.tolist()), scale, missing)

    def encode(self, column: pa.Array, where: Place) -> sp.csr_array:
        """[n, features]"""
        values, present = _vectors(self.name, column, where, len(self.mean) or None)
        found = values[:, : len(self.mean)]
        with np.errstate(over="ignore"):
            found = ((found - np.array(self.mean)) / self.scale).clip(-MOST, MOST)
        found[~present] = 0.0
        parts = [found, (~present)[:, None].astype(np.float64)] if self.missing else [found]
        return sp.csr_array(np.hstack(parts))


@dataclass(frozen=True)
class Number(Vector):
    """One number a row."""

    kind: ClassVar[str] = "number"


@dataclass(frozen=True)
class Time(Number):
    """One date or time a row, in seconds since 1970."""

    kind: ClassVar[str] = "time"


FeatureColumn = Category | Vector
KINDS: dict[str, type[Category] | type[Vector]] = {
    kind.kind: kind for kind in (Category, Tags, Number, Time, Vector)
}


def kind_of(column: pa.Array, is_typed: bool) -> type[Category] | type[Vector] | None:
    """What a column is by its type; None: it cannot be used.

    Text is a category, a list of floats a vector, another list tags. In a text file, which has neither lists
    nor dates, text with a | is a list of tags, and text that is ISO dates throughout is time.
    """
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
        if pa.types.is_floating(inner) or (pa.types.is_fixed_size_list(kind) and pa.types.is_integer(inner)):
            return Vector
        plain = is_text(inner) or pa.types.is_integer(inner) or pa.types.is_null(inner)
        return Tags if plain or pa.types.is_dictionary(inner) else None
    if is_text(kind):
        if is_typed:
            return Category
        if pc.any(pc.match_substring(column, TAG_SEPARATOR)).as_py():
            return Tags
        return Category if _times_of_text(column) is None else Time
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return Time
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return Number if is_whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind) else None


def plain_column(column: pa.ChunkedArray | pa.Array, name: str, kind: str, where: Place) -> pa.Array:
    """The column in the form that a kind reads: text, lists of text, float64, lists of float64."""
    array = to_arrow(column, name)
    try:
        if kind == "category":
            return array.cast(pa.large_string())
        if kind == "tags":
            if is_text(array.type):
                array = pc.split_pattern(array, TAG_SEPARATOR)
            inner = getattr(array.type, "value_type", None)  # None: no list
            if inner is not None and pa.types.is_dictionary(inner):  # categories become their values
                array = array.cast(pa.large_list(inner.value_type))
            return array.cast(pa.large_list(pa.large_string()))
        if kind == "vector":
            return array.cast(pa.large_list(pa.float64()))
        if kind == "time":
            return _seconds(array)
        return array.cast(pa.float64(), safe=False)
    except (pa.ArrowException, NotImplementedError) as error:
        raise InputError(
            f"{where.source}: {name!r} is of type {array.type}, and as a {kind} it cannot be read: "
            f"{str(error).splitlines()[0]:.200}. Give it in the form that the model was fitted with."
        ) from error


def _times_of_text(text: pa.Array) -> pa.Array | None:
    """ISO dates and times as timestamps; None if some text is not one."""
    found = (cast_or_none(text, kind) for kind in TIME_TYPES if pa.types.is_timestamp(kind))
    return next((times for times in found if times is not None), None)


def _seconds(array: pa.Array) -> pa.Array:
    """Dates and times of any unit as seconds since 1970."""
    if is_text(array.type) and (times := _times_of_text(array)) is not None:
        array = times
    if array.null_count < len(array) and (
        pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    ):
        raise pa.ArrowInvalid("a number has no unit of time")
    kind = pa.timestamp("us", getattr(array.type, "tz", None))
    whole = array.cast(kind, safe=array.type != pa.timestamp("ns", kind.tz)).cast(pa.int64())
    return pc.divide(whole.cast(pa.float64(), safe=False), 1e6)


def _lists(column: pa.Array) -> Sequence[list[str]]:
    """The values of each row; text has one. Spaces around a value do not count."""
    found = []
    for row in column.to_pylist():
        values = [row] if isinstance(row, str) else row or []
        found.append([value.strip() for value in values if value is not None and value.strip()])
    return found


def _vectors(name: str, column: pa.Array, where: Place, size: int | None) -> tuple[Floats, Mask]:
    """[n, size] with 0 for rows without a value, and which rows have one."""
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)[:, None]
        present = ~np.isnan(values[:, 0])  # pandas writes a missing number as NaN
    else:
        present = column.is_valid().to_numpy(zero_copy_only=False)
        lengths = pc.list_value_length(column).fill_null(0).to_numpy()
        size = size or (int(lengths[present.argmax()]) if present.any() else 0)
        wrong = np.flatnonzero(present & (lengths != size))
        if len(wrong):
            raise InputError(
                f"{where.source}: {name!r} has {lengths[wrong[0]]} numbers for {where.row(wrong[0])}, "
                f"not {size}; give vectors of one length, or tags as lists of text."
            )
        values = np.zeros((len(column), size))
        flat = pc.list_flatten(column).fill_null(math.nan).to_numpy()
        values[present] = flat.reshape(int(present.sum()), size)
    bad = np.flatnonzero(~np.isfinite(np.where(present[:, None], values, 0.0)).all(axis=1))
    if len(bad):
        raise InputError(
            f"{where.source}: {name!r} holds NaN or infinity for {where.row(bad[0])}; correct it or use null."
        )
    return np.where(present[:, None], values, 0.0), present
