"""Records: what a store keeps about an item and a user, and the item table that lists are filtered by."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

TITLE, PICTURE = "title", "picture"
"""Labels with an item's title, and the address of its picture."""
Row = tuple[Any, ...]  # of a table of a store
ITEM_ROW = ("item", "deleted", "hidden", "categories", "time", "labels", "comment")
USER_ROW = ("user", "deleted", "labels", "comment")
"""The columns of the tables `items` and `users`, the latter without `forgotten`."""
_COLUMNS = ("item", "title", "picture", "categories", "time", "comment")


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


def _label(labels: object, name: str) -> str | None:
    found = labels.get(name) if isinstance(labels, dict) else None
    return found if isinstance(found, str) and found else None


def item_row(record: ItemRecord) -> Row:
    """The values of ITEM_ROW."""
    item, hidden, categories, time, labels, comment = record
    return item, 0, int(hidden), compact(list(categories)), time, compact(labels), comment


def item_record(row: Row) -> ItemRecord:
    """The record of such values, without `deleted`."""
    item, hidden, categories, time, labels, comment = row
    return ItemRecord(item, bool(hidden), tuple(json.loads(categories)), time, json.loads(labels), comment)


def user_row(record: UserRecord) -> Row:
    """The values of USER_ROW."""
    return record.user, 0, compact(record.labels), record.comment


def user_record(row: Row) -> UserRecord:
    """The record of such values, without `deleted`."""
    return UserRecord(row[0], json.loads(row[1]), row[2])


def compact(value: object) -> str:
    """JSON in ASCII without spaces; keys keep their order."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


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
    for name in sorted({name for found in labels for name in found} - set(_COLUMNS)):
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
