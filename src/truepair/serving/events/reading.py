"""StoreReader: what can be asked of a store, whichever engine it has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import pyarrow as pa

from truepair.serving.events.records import Record, Row, read_record, what_of

Values = Sequence[object]  # of the placeholders of a query
Rows = Callable[[str, Values], list[Row]]  # of a query
LARGEST = 2**63 - 1
DELETED = "deleted"
"""What a change is about if events were deleted; its id is empty."""
_BATCH = 65_536  # rows that are read at a time
_MARKS = 500  # users in one query
SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "user": pa.large_string(),
        "item": pa.large_string(),
        "kind": pa.large_string(),
        "weight": pa.float64(),
        "time": pa.timestamp("us", "UTC"),
    }
)
"""The columns of tables of events."""

_NEWEST = """
    AND NOT EXISTS (
        SELECT 1 FROM events AS other
        WHERE other."user" = events."user" AND other.item = events.item AND other.kind = events.kind
        AND other.time <= ? AND (other.time, other.number) > (events.time, events.number)
    )
"""


class StoredHistory(NamedTuple):
    """What a store knows about a user."""

    rows: list[tuple[str, str, float]]  # item, kind, weight, oldest first
    is_forgotten: bool = False  # was deleted once: what models know does not count


class Feedback(NamedTuple):
    """The newest event of a user, an item and a kind."""

    number: int
    user: str
    item: str
    kind: str
    value: float
    time: int
    comment: str


class StoreReader(ABC):
    """Reads a store. Queries have the placeholder ? for each value."""

    @abstractmethod
    def rows(self, query: str, values: Values = ()) -> list[Row]:
        """The rows of a query; StorageError if the store cannot be read."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Within this, every query sees the store as it was at the first one."""

    @abstractmethod
    def changed(self) -> dict[str, set[str]]:
        """What changed since the last call: "user": whose histories, "item": items whose records.

        A few microseconds where nothing did.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the store."""

    # --- events ------------------------------------------------------------------------------------------

    def of_users(self, users: Sequence[str]) -> dict[str, StoredHistory]:
        """The histories of those of these users whom the store knows.

        Rows are oldest first; of the same time, in order of arrival.
        """
        found: dict[str, StoredHistory] = {}
        for start in range(0, len(users), _MARKS):
            some = users[start : start + _MARKS]
            marks = ", ".join("?" * len(some))
            query = f"""
                SELECT "user", item, kind, weight, time, number FROM events WHERE "user" IN ({marks})
                UNION ALL
                SELECT "user", NULL, NULL, 0, NULL, NULL FROM users
                WHERE "user" IN ({marks}) AND forgotten = 1
                ORDER BY 5, 6
            """
            for user, item, kind, weight, _, _ in self.rows(query, (*some, *some)):
                history = found.setdefault(user, StoredHistory([]))
                if item is None:
                    found[user] = history._replace(is_forgotten=True)
                else:
                    history.rows.append((item, kind, weight))
        return found

    def count(self) -> int:
        """How many events there are."""
        return int(self.rows("SELECT count(*) FROM events")[0][0])

    def table(self) -> pa.Table:
        """All events in order of arrival."""
        return pa.Table.from_batches(self.batches("events", SCHEMA), SCHEMA)

    def batches(self, table: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Columns of a table, some thousand rows at a time: events in order of arrival, others of ids."""
        columns = [f'"{name}"' for name in schema.names]
        key, after = ("number", 0) if table == "events" else (columns[0], "")
        query = (
            f"SELECT {', '.join(columns)}, {key} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {_BATCH}"
        )
        while rows := self.rows(query, (after,)):
            *values, keys = zip(*rows, strict=True)
            arrays = [_array(column, field.type) for column, field in zip(values, schema, strict=True)]
            yield pa.record_batch(arrays, schema=schema)
            after = keys[-1]

    def feedback(
        self,
        user: str | None = None,
        item: str | None = None,
        kind: str | None = None,
        *,
        until: int = LARGEST,
        after: int = 0,
        limit: int = LARGEST,
    ) -> list[Feedback]:
        """The newest event of each user, item and kind, of those not later than `until` (µs).

        They come in order of arrival; `after` is the number of the last one of the page before.
        """
        given = [('"user"', user), ("item", item), ("kind", kind)]
        wanted = [(name, value) for name, value in given if value is not None]
        conditions = "".join(f" AND {name} = ?" for name, _ in wanted)
        query = f"""
            SELECT number, "user", item, kind, value, time, comment FROM events
            WHERE number > ? AND time <= ?{conditions} {_NEWEST} ORDER BY number LIMIT ?
        """
        values = (after, until, *(value for _, value in wanted), until, limit)
        return [Feedback(*row) for row in self.rows(query, values)]

    # --- items and users ---------------------------------------------------------------------------------

    def record(self, kind: type[Record], id: str) -> Record | None:
        """The record of an item or a user."""
        found = self._records(kind, f'"{what_of(kind)}" = ?', [id], 1)
        return found[0] if found else None

    def records(
        self, kind: type[Record], after: str | None = None, limit: int = LARGEST, text: str = ""
    ) -> list[Record]:
        """Records after this id, in the order of the ids; with `text`, items that have it."""
        conditions, values = "1 = 1", list[object]()
        if after is not None:
            conditions, values = f'"{what_of(kind)}" > ?', [after]
        if text:
            places = ("item", "categories", "labels", "comment")
            conditions += f" AND ({' OR '.join(f'lower({p}) LIKE ? ESCAPE ?' for p in places)})"
            values += [like(text), "!"] * len(places)
        return self._records(kind, conditions, values, limit)

    def _records(self, kind: type[Record], where: str, values: Sequence[object], limit: int) -> list[Record]:
        columns, what = ", ".join(f'"{name}"' for name in kind._fields), what_of(kind)
        query = f'SELECT {columns} FROM {what}s WHERE deleted = 0 AND {where} ORDER BY "{what}" LIMIT ?'
        return [read_record(kind, row) for row in self.rows(query, (*values, limit))]

    def unlisted_items(self) -> set[str]:
        """Items that are hidden or deleted."""
        return {item for (item,) in self.rows("SELECT item FROM items WHERE hidden = 1 OR deleted = 1")}

    def is_unlisted(self, item: str) -> bool:
        """Whether this item is hidden or deleted."""
        query = "SELECT 1 FROM items WHERE item = ? AND (hidden = 1 OR deleted = 1)"
        return bool(self.rows(query, (item,)))

    def marks(self) -> tuple[int, int]:
        """Numbers that grow when an event is stored, and when events are deleted."""
        queries = ("SELECT max(number) FROM events", "SELECT number FROM changes WHERE what = ? AND id = ''")
        stored, deleted = self.rows(queries[0]), self.rows(queries[1], (DELETED,))
        return int(stored[0][0] or 0), int(deleted[0][0]) if deleted else 0

    def since(self, moment: int, after: int) -> Iterator[list[Row]]:
        """Rows of (number, item, kind, weight, time) of the events not before a moment (µs) that came after
        the event of this number, in order of arrival, some thousand at a time."""
        query = f"""
            SELECT number, item, kind, weight, time FROM events
            WHERE number > ? AND time >= ? ORDER BY number LIMIT {_BATCH}
        """
        while rows := self.rows(query, (after, moment)):
            yield rows
            after = rows[-1][0]

    def forgotten_users(self) -> set[str]:
        """All users who were deleted once."""
        return {user for (user,) in self.rows('SELECT "user" FROM users WHERE forgotten = 1')}


def by_kind(touched: Collection[tuple[str, str]]) -> dict[str, set[str]]:
    """ "user" and "item" -> the ids of each in pairs of these words and an id."""
    found: dict[str, set[str]] = {"user": set(), "item": set()}
    for what, id in touched:
        if what in found:
            found[what].add(id)
    return found


def last_numbers(rows: Rows) -> dict[str, int]:
    """The numbers of the last event and of the last change."""
    query = "SELECT coalesce(max(number), 0) FROM"
    return {table: int(rows(f"{query} {table}", ())[0][0]) for table in ("events", "changes")}


def changes_after(rows: Rows, last: dict[str, int]) -> list[tuple[str, str]]:
    """("user" or "item", id) of what came after these numbers, which become those of the last of them."""
    query = """SELECT max(number), 'user', "user" FROM events WHERE number > ? GROUP BY "user" """
    events = rows(query, (last["events"],))
    changes = rows("SELECT number, what, id FROM changes WHERE number > ?", (last["changes"],))
    for table, found in (("events", events), ("changes", changes)):  # after both were read
        last[table] = max((number for number, _, _ in found), default=last[table])
    return [(what, id) for _, what, id in (*events, *changes)]


def _array(values: Row, kind: pa.DataType) -> pa.Array:
    return pa.array(map(bool, values) if kind == pa.bool_() else values, kind)


def like(text: str) -> str:
    """A pattern for LIKE ... ESCAPE '!' that finds the text anywhere, in any case."""
    for character in "!%_":
        text = text.replace(character, f"!{character}")
    return f"%{text.lower()}%"
