"""StoreWriter: what can be done to a store, whichever engine it has. What returns is on the disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from truepair.serving.events.event import Event
from truepair.serving.events.reading import DELETED, StoreReader, Values
from truepair.serving.events.records import ItemRecord, Row, UserRecord, stored, what_of

_VALUES = '("user", item, kind, weight, time, id, value, comment)'
_INSERT = f"INSERT INTO events {_VALUES} VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_INSERT_FIRST = f"""
    INSERT INTO events {_VALUES} SELECT ?, ?, ?, ?, ?, ?, ?, ?
    WHERE NOT EXISTS (SELECT 1 FROM events WHERE "user" = ? AND item = ? AND kind = ?)
    ON CONFLICT DO NOTHING
"""
_COMPARED = {'"time"': "coalesce({0}.{1}, -9000000000000000000)"}  # a null equals nothing


class Transaction:
    """Statements that are done together or not at all; each value has the placeholder ?."""

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor
        """Of the engine's own package."""
        self.touched: set[tuple[str, str]] = set()
        """("user" or "item", id) of what readers must read again."""

    @staticmethod
    def marked(query: str) -> Any:
        """The query with the placeholders of the engine."""
        return query

    def rows(self, query: str, values: Values = ()) -> list[Row]:
        """The rows of a query."""
        self.cursor.execute(self.marked(query), values)
        found: list[Row] = self.cursor.fetchall()
        return found

    def do(self, statement: str, values: Values = ()) -> int:
        """How many rows a statement changed."""
        self.cursor.execute(self.marked(statement), values)
        return int(self.cursor.rowcount)

    def do_all(self, statement: str, rows: Sequence[Values]) -> int:
        """How many rows a statement changed, done once for each of these values."""
        if not rows:
            return 0
        self.cursor.executemany(self.marked(statement), rows)
        return int(self.cursor.rowcount)

    def insert(self, events: Sequence[Event]) -> int:
        """How many of these events are new, and now stored."""
        return self.do_all(_INSERT, events)


class StoreWriter(ABC):
    """Writes to a store. Several processes may have the same one open."""

    name: str
    """The store in messages, without a password."""

    @abstractmethod
    def writing(self, limited: bool = True) -> AbstractContextManager[Transaction]:
        """A transaction; readers of any process notice what it has touched.

        One that is `limited` fails if the store does not answer within some seconds.
        """

    @abstractmethod
    def reader(self) -> StoreReader:
        """A reader of the same store; close it before this one."""

    @abstractmethod
    def close(self) -> None:
        """Finish, and release the store."""

    # --- events ------------------------------------------------------------------------------------------

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Store batches of events in one transaction: how many of each batch are new.

        When it returns, they are on the disk. An event is one from before if it has the same id, or the
        same user, item, kind and time.
        """
        with self.writing() as transaction:
            return [put_events(transaction, batch) for batch in batches]

    def add_feedback(self, events: Sequence[Event], overwrite: bool) -> int:
        """Store at most one event for each user, item and kind: how many events are stored.

        One that is there stays, or with `overwrite` is replaced. Users and items get records if they have
        none.
        """
        users, items = {event.user for event in events}, {event.item for event in events}
        with self.writing() as transaction:
            _make_known(transaction, users, items)
            if not overwrite:
                transaction.touched.update(("user", user) for user in users)
                rows = [(*event, *event[:3]) for event in events]
                return transaction.do_all(_INSERT_FIRST, rows)
            keys = {event[:3] for event in events}
            statement = 'DELETE FROM events WHERE "user" = ? AND item = ? AND kind = ?'
            if transaction.do_all(statement, sorted(keys)):
                _deleted(transaction, users)
            return put_events(transaction, list({event[:3]: event for event in events}.values()))

    def delete_feedback(self, user: str, item: str, kind: str | None = None) -> int:
        """Delete a user's events with an item, of one kind or of all: how many."""
        statement, values = 'DELETE FROM events WHERE "user" = ? AND item = ?', [user, item]
        if kind is not None:
            statement, values = f"{statement} AND kind = ?", [*values, kind]
        with self.writing() as transaction:
            done = transaction.do(statement, values)
            if done:
                _deleted(transaction, [user])
            return done

    # --- items and users ---------------------------------------------------------------------------------

    def put(self, records: Sequence[ItemRecord] | Sequence[UserRecord]) -> int:
        """Store or replace records: how many changed. A user who was forgotten stays so."""
        rows = list(map(stored, records))
        if not rows:
            return 0
        with self.writing() as transaction:
            values = [tuple(row.values()) for row in rows]
            return put_records(transaction, what_of(type(records[0])), list(rows[0]), values)

    def patch(self, kind: type[ItemRecord] | type[UserRecord], id: str, **fields: Any) -> bool:
        """Change some fields of a record; False if there is none."""
        what, row = what_of(kind), stored(kind(id, **fields))
        with self.writing() as transaction:
            known = f'{what}s WHERE "{what}" = ? AND deleted = 0'
            found = transaction.rows(f"SELECT 1 FROM {known}", (id,))
            if found and fields:
                settings = ", ".join(f"{name} = ?" for name in fields)
                update = f'UPDATE {what}s SET {settings} WHERE "{what}" = ?'
                transaction.do(update, (*(row[name] for name in fields), id))
                _log(transaction, what, [id])
            return bool(found)

    def delete_item(self, item: str) -> bool:
        """Delete an item's record and its events. It is not recommended any more; False without a record."""
        with self.writing() as transaction:
            users = transaction.rows('SELECT DISTINCT "user" FROM events WHERE item = ?', (item,))
            transaction.do("DELETE FROM events WHERE item = ?", (item,))
            found = transaction.do("DELETE FROM items WHERE item = ? AND deleted = 0", (item,))
            transaction.do("INSERT INTO items (item, deleted) VALUES (?, 1) ON CONFLICT DO NOTHING", (item,))
            _deleted(transaction, [user for (user,) in users])
            _log(transaction, "item", [item])
            return bool(found)

    def delete_user(self, user: str) -> bool:
        """Delete a user's record and events. To lists, the user is unknown; False without a record."""
        with self.writing() as transaction:
            transaction.do('DELETE FROM events WHERE "user" = ?', (user,))
            found = transaction.do('DELETE FROM users WHERE "user" = ? AND deleted = 0', (user,))
            transaction.do('DELETE FROM users WHERE "user" = ?', (user,))
            transaction.do('INSERT INTO users ("user", deleted, forgotten) VALUES (?, 1, 1)', (user,))
            _deleted(transaction, [user])
            return bool(found)


def put_records(transaction: Transaction, what: str, names: Sequence[str], rows: Sequence[Row]) -> int:
    """Store or replace rows with these columns of the table of items or users: how many changed."""
    statement = _upsert(f"{what}s", names)
    changed = [row[0] for row in rows if transaction.do(statement, row)]
    _log(transaction, what, changed)
    return len(changed)


def put_events(transaction: Transaction, events: Sequence[Event]) -> int:
    """Store events: how many are new."""
    transaction.touched.update(("user", event.user) for event in events)
    return transaction.insert(events)


def _upsert(table: str, names: Sequence[str]) -> str:
    """A statement that inserts a row, or replaces one that differs; the first column is the id."""
    id, *columns = [f'"{name}"' for name in names]
    marks = ", ".join("?" * len(names))
    settings = ", ".join(f"{name} = excluded.{name}" for name in columns)
    texts = [_COMPARED.get(name, "{0}.{1}") for name in columns]
    old, new = (
        ", ".join(text.format(side, name) for text, name in zip(texts, columns, strict=True))
        for side in (table, "excluded")
    )
    return (
        f"INSERT INTO {table} ({id}, {', '.join(columns)}) VALUES ({marks}) "
        f"ON CONFLICT ({id}) DO UPDATE SET {settings} WHERE ({old}) <> ({new})"
    )


def _make_known(transaction: Transaction, users: Iterable[str], items: Iterable[str]) -> None:
    """Empty records for users and items that have none."""
    for table, id, ids in (("users", '"user"', users), ("items", "item", items)):
        statement = (
            f"INSERT INTO {table} ({id}) VALUES (?) "
            f"ON CONFLICT ({id}) DO UPDATE SET deleted = 0 WHERE {table}.deleted = 1"
        )
        made = [one for one in sorted(ids) if transaction.do(statement, (one,))]
        _log(transaction, id.strip('"'), made)


def _deleted(transaction: Transaction, users: Iterable[str]) -> None:
    """Have all readers notice that events of these users were deleted."""
    _log(transaction, "user", users)
    _log(transaction, DELETED, [""])


def _log(transaction: Transaction, what: str, ids: Iterable[str]) -> None:
    """Have all readers notice that something about these ids changed."""
    rows = [(what, id) for id in sorted(set(ids))]
    transaction.touched.update(rows)
    transaction.do_all("DELETE FROM changes WHERE what = ? AND id = ?", rows)
    transaction.do_all("INSERT INTO changes (what, id) VALUES (?, ?)", rows)
