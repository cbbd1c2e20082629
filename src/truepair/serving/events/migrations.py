"""Migrations: the statements from each version of a store's tables to the next, for each engine."""

from __future__ import annotations

from truepair.errors import StorageError

_ITEMS = """
    CREATE TABLE items (
        item TEXT PRIMARY KEY,
        hidden SMALLINT NOT NULL DEFAULT 0,  -- 1: not recommended
        deleted SMALLINT NOT NULL DEFAULT 0,  -- 1: no longer there; models may still know it
        categories TEXT NOT NULL DEFAULT '[]',  -- JSON
        time BIGINT,  -- microseconds since 1970
        labels TEXT NOT NULL DEFAULT 'null',  -- JSON
        comment TEXT NOT NULL DEFAULT ''
    )
"""
_USERS = """
    CREATE TABLE users (
        "user" TEXT PRIMARY KEY,
        deleted SMALLINT NOT NULL DEFAULT 0,
        forgotten SMALLINT NOT NULL DEFAULT 0,  -- 1: was deleted once; what models know does not count
        labels TEXT NOT NULL DEFAULT 'null',  -- JSON
        comment TEXT NOT NULL DEFAULT ''
    )
"""
_VALUE = "ALTER TABLE events ADD COLUMN value DOUBLE PRECISION NOT NULL DEFAULT 0"
_COMMENT = "ALTER TABLE events ADD COLUMN comment TEXT NOT NULL DEFAULT ''"
_BY_ITEM = "CREATE INDEX events_of_item ON events (item)"
_CHANGES = """
    CREATE TABLE changes (  -- besides new events: what a service must read again, each id once
        number {number},
        what TEXT NOT NULL,  -- user, item
        id TEXT NOT NULL,
        UNIQUE (what, id)
    )
"""
_EVENTS = """
    CREATE TABLE events (
        number {number},  -- the order of arrival
        "user" TEXT NOT NULL, item TEXT NOT NULL, kind TEXT NOT NULL, weight DOUBLE PRECISION NOT NULL,
        time BIGINT NOT NULL,  -- microseconds since 1970
        id TEXT UNIQUE,
        UNIQUE ("user", item, kind, time)
    )
"""


def _versions(number: str) -> list[list[str]]:
    return [
        [_EVENTS.format(number=number)],
        [_ITEMS, _USERS, _VALUE, _COMMENT, _BY_ITEM, _CHANGES.format(number=number)],
    ]


SQLITE = _versions("INTEGER PRIMARY KEY AUTOINCREMENT")
POSTGRESQL = _versions("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
"""Statements by version; the version of a store is the number of those done."""


def newer_version(name: str, found: int, known: int) -> StorageError:
    """The error about a store of a newer truepair."""
    return StorageError(
        f"{name} has version {found} of the store, and this truepair knows {known}; install a newer truepair."
    )
