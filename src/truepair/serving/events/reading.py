"""StoreReader: what can be asked of a store, whichever engine it has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import pyarrow as pa

from truepair.serving.events.records import Record, Row, read_record, what_of

Values = Sequence[object]  # of the placeholders of a query
LARGEST = 2**63 - 1
_BATCH = 65_536  # events that are read at a time
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

    def table(self, after: int = 0, until: int | None = None) -> pa.Table:
        """Events in order of arrival: those with a number above `after`, up to `until`."""
        return pa.Table.from_batches(self.batches(after, until), SCHEMA)

    def batches(self, after: int = 0, until: int | None = None) -> Iterator[pa.RecordBatch]:
        """The same, some thousand at a time."""
        columns = ", ".join(f'"{name}"' for name in SCHEMA.names)
        query = (
            f"SELECT {columns} FROM events WHERE number > ? AND number <= ? ORDER BY number LIMIT {_BATCH}"
        )
        while rows := self.rows(query, (after, LARGEST if until is None else until)):
            arrays = zip(zip(*rows, strict=True), SCHEMA, strict=True)
            yield pa.record_batch([pa.array(values, one.type) for values, one in arrays], schema=SCHEMA)
            after = rows[-1][0]

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

    def forgotten_users(self) -> set[str]:
        """All users who were deleted once."""
        return {user for (user,) in self.rows('SELECT "user" FROM users WHERE forgotten = 1')}


def like(text: str) -> str:
    """A pattern for LIKE ... ESCAPE '!' that finds the text anywhere, in any case."""
    for character in "!%_":
        text = text.replace(character, f"!{character}")
    return f"%{text.lower()}%"
