"""Records: what a store keeps about an item and a user, and the item table that lists are filtered by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

TITLE, PICTURE = "title", "picture"
"""Labels, and columns of item tables, with an item's title and the address of its picture."""
Row = tuple[Any, ...]  # of a table of a store


class ItemRecord(NamedTuple):
    """Facts about an item."""

    item: str
    hidden: bool = False
    categories: tuple[str, ...] = ()
    time: int | None = None  # µs since 1970
    labels: object = None  # any value of JSON
    comment: str = ""

    @property
    def title(self) -> str | None:
        """The label `title`, else the comment."""
        return _label(self.labels, TITLE) or self.comment or None

    @property
    def picture(self) -> str | None:
        """The address of the picture: the label `picture`."""
        return _label(self.labels, PICTURE)


class UserRecord(NamedTuple):
    """Facts about a user."""

    user: str
    labels: object = None
    comment: str = ""


Record = TypeVar("Record", ItemRecord, UserRecord)


def _label(labels: object, name: str) -> str | None:
    found = labels.get(name) if isinstance(labels, dict) else None
    return found if isinstance(found, str) and found else None


def what_of(kind: type[ItemRecord] | type[UserRecord]) -> str:
    """`item` or `user`: the name of a record's id; its table is `items` or `users`."""
    return kind._fields[0]


def stored(record: ItemRecord | UserRecord) -> dict[str, object]:
    """Column -> value in the table of a record; the id comes first."""
    values = {name: _WRITTEN.get(name, _same)(value) for name, value in record._asdict().items()}
    return values | {"deleted": 0}


def read_record(kind: type[Record], row: Row) -> Record:
    """The record of a row with the columns of its fields."""
    return kind(*(_READ.get(name, _same)(value) for name, value in zip(kind._fields, row, strict=True)))


def _same(value: Any) -> Any:
    return value


def compact(value: object) -> str:
    """JSON in ASCII without spaces; keys keep their order."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


_Columns = dict[str, Callable[[Any], Any]]
_WRITTEN: _Columns = {"hidden": int, "categories": compact, "labels": compact}
_READ: _Columns = {"hidden": bool, "categories": lambda text: tuple(json.loads(text)), "labels": json.loads}


def item_table(records: Iterable[ItemRecord]) -> pa.Table:
    """A table of items: item, title, picture, categories, time, comment, and a column for each label.

    A label is a column if its values are text, numbers or truth values; numbers and truth values stay so if
    all are.
    """
    rows = list(records)
    columns: dict[str, pa.Array] = {
        "item": pa.array([row.item for row in rows], pa.large_string()),
        "title": pa.array([row.title for row in rows], pa.large_string()),
        "picture": pa.array([row.picture for row in rows], pa.large_string()),
        "categories": pa.array([list(row.categories) for row in rows], pa.list_(pa.large_string())),
        "time": pa.array([row.time for row in rows], pa.timestamp("us", "UTC")),
        "comment": pa.array([row.comment for row in rows], pa.large_string()),
    }
    labels = [row.labels if isinstance(row.labels, dict) else {} for row in rows]
    for name in sorted({name for found in labels for name in found} - set(columns)):
        column = _column([found.get(name) for found in labels])
        if column is not None:
            columns[name] = column
    return pa.table(columns)


def _column(values: list[Any]) -> pa.Array | None:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds and kinds <= {int, float}:
        whole = kinds == {int} and all(value is None or abs(value) < 2**63 for value in values)
        numbers = [None if value is None else value if whole else float(value) for value in values]
        return pa.array(numbers, pa.int64() if whole else pa.float64())
    if kinds and kinds <= {str, int, float, bool}:
        return pa.array([None if value is None else str(value) for value in values], pa.large_string())
    return None
