"""open_store: the store of a path or a URL."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from truepair.data.sources.sql_urls import is_url, parse_url
from truepair.errors import InputError
from truepair.serving.events.store import EventStore
from truepair.serving.events.writing import StoreWriter


def open_store(place: str | Path, *, create: bool = True) -> StoreWriter:
    """The store of an SQLite file (a path or sqlite:///…), or of PostgreSQL (postgresql://…).

    It is made or migrated if needed; with `create` False, a file that is not there is an error.
    """
    if not is_url(place):
        return _file(Path(place).expanduser(), create)
    database = parse_url(str(place))
    if database.engine == "sqlite":
        return _file(Path(database.address), create)
    if database.engine != "postgresql":
        raise InputError(
            f"{database.shown} cannot be a store; give the path of an SQLite file or postgresql://…"
        )
    if missing := [name for name in ("psycopg", "psycopg_pool") if find_spec(name) is None]:
        raise InputError(f"a store in PostgreSQL needs {', '.join(missing)}: pip install 'truepair[serve]'")
    from truepair.serving.events.postgresql import PostgresqlStore

    return PostgresqlStore(database)


def _file(path: Path, create: bool) -> EventStore:
    if not create and not path.is_file():
        raise InputError(f"there is no store {path}; give the file or the URL of one.")
    return EventStore(path)
