"""Databases: a query, or a table -> raw columns, in batches of Arrow. PostgreSQL, SQLite, DuckDB."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType
from typing import Any, TypeAlias
from urllib.parse import quote

import pyarrow as pa

from truepair.data.columns import Raw
from truepair.data.sources.sql_urls import Database, engine_of
from truepair.errors import InputError, TruepairError, check_type

Connection: TypeAlias = Any  # a cursor of ADBC, or a connection to DuckDB

_BATCH = 1 << 18  # rows; ADBC's driver of SQLite takes the types of columns from the first batch


def open_query(database: Database, query: str | None) -> Raw:
    """The raw columns of a query, or of all columns of the URL's table. The connection can only read.

    The query runs now, and its rows come when columns are read, once; `close` ends the connection.
    """
    query = _query(database, query)
    check_file(database)
    opened = ExitStack()
    try:
        with errors_of(database, "the query fails", "correct it, or try again"):
            reader = _reader(database, query, opened)
            names = reader.schema.names
        if not names:
            raise InputError(f"{database.shown}: the query has no result; give one that selects rows.")
    except BaseException:
        opened.close()
        raise

    def fetched(positions: Sequence[int]) -> Iterator[list[pa.Array]]:
        for at in positions:
            _check_type(database, reader.schema.field(at))
        while True:
            failed = errors_of(database, "reading the rows fails", "correct the query, or try again")
            with _mixed_types(database, names), failed:
                if (batch := next(reader, None)) is None:
                    return
                batch.validate(full=True)
                found = [_copied(batch.column(at)) for at in positions]
            yield found

    def batches(positions: Sequence[int]) -> Iterator[Sequence[pa.Array]]:
        for found in fetched(positions):
            yield [_plain(pa.chunked_array([column])) for column in found]

    def read(positions: Sequence[int]) -> Sequence[pa.ChunkedArray]:
        parts = list(fetched(positions))
        kinds = [reader.schema.field(at).type for at in positions]
        columns = [[part[at] for part in parts] for at in range(len(positions))]
        return [_plain(pa.chunked_array(column, kind)) for column, kind in zip(columns, kinds, strict=True)]

    source = database.shown if database.table is None else f"{database.shown}#{database.table}"
    return Raw(source, names, read, batches=batches, close=opened.close)


def _query(database: Database, query: str | None) -> str:
    example = 'query="select user_id, item_id from clicks"'
    if query is None and database.table is None:
        raise InputError(
            f"{database.shown} is a database; pass {example}, or name a table: {database.shown}#clicks."
        )
    if query is None:
        return f"select * from {quoted_name(str(database.table))}"
    if database.table is not None:
        raise InputError(f"{database.shown}: the URL has the table {database.table!r}; drop it or the query.")
    check_type("query", query, str, f"pass text: {example}")
    if not query.strip() or "\0" in query:
        raise InputError(f"query = {query!r:.60} is no query; pass {example}.")
    return query


def quoted_name(name: str) -> str:
    """The name of a table for SQL, `schema.table` or `table`: quoted, whatever it contains.

    >>> print(quoted_name('shop.my "clicks"; drop table x'))
    "shop"."my ""clicks""; drop table x"
    """
    return ".".join(map(quoted, parts_of(name)))


def quoted(name: str) -> str:
    """The name of a column for SQL."""
    return '"' + name.replace('"', '""') + '"'


def parts_of(name: str) -> list[str]:
    """The schema, if there is one, and the table; an error if a part is empty."""
    check_type("the name of a table", name, str, "pass text, such as 'clicks' or 'shop.clicks'")
    parts = name.split(".")
    if len(parts) > 2 or not all(part.strip() for part in parts) or "\0" in name:
        raise InputError(
            f"{name!r:.80} is not the name of a table: 'table' or 'schema.table'; for others, write a query."
        )
    return parts


def check_file(database: Database) -> None:
    """Raise if the file of a database does not exist, which an engine might create, or is another's."""
    if (path := database.path) is None:
        return
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{database.shown}: the file {path} {what}; correct the path.")
    try:
        engine, size = engine_of(path), path.stat().st_size
    except OSError as error:
        raise InputError(f"{database.shown} cannot be opened: {error.strerror or error}.") from error
    if size and engine != database.engine:
        hint = "" if engine is None else f"; it is one of {engine}: {engine}:///{path}"
        raise InputError(f"{path} is no database of {database.engine}{hint}.")


# --- connections -----------------------------------------------------------------------------------


def connect(database: Database, opened: ExitStack, *, write: bool = False) -> Connection:
    """A cursor of ADBC within a transaction, or a connection to a DuckDB file, which only reads unless
    `write`. `opened` closes it, and rolls back."""
    engine = database.engine
    driver = _imported("duckdb" if engine == "duckdb" else f"adbc_driver_{engine}.dbapi", database)
    remedy = "close it in other programs and connections, and check its permissions"
    if engine == "postgresql":
        remedy = "check host, port, database, user and password"
    with errors_of(database, "cannot connect", remedy):
        if engine == "duckdb":
            connection = driver.connect(database.address, read_only=not write)
        elif engine == "sqlite":
            file = quote(os.fsencode(os.path.abspath(database.address)))
            connection = driver.connect(f"file:{file}?mode={'rwc' if write else 'ro'}")
        else:
            connection = driver.connect(_with_timeout(database.address))
    opened.callback(connection.close)
    if engine == "duckdb":
        # else a name that is no table of the database may be a variable of this program
        connection.execute("set python_enable_replacements = false")
        return connection
    cursor = opened.enter_context(connection.cursor())
    if engine == "sqlite":
        cursor.execute("pragma busy_timeout = 10000")  # milliseconds to wait for a program that writes
    elif not write:
        cursor.execute("set transaction read only")
    return cursor


def _with_timeout(url: str) -> str:
    if "connect_timeout" in url or "PGCONNECT_TIMEOUT" in os.environ:
        return url
    return f"{url}{'&' if '?' in url else '?'}connect_timeout=10"


def _imported(module: str, database: Database) -> ModuleType:
    """A module of the extra `sql`; an error with the command that installs it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise InputError(f"{database.shown} needs {package}: pip install 'truepair[sql]'") from error


def _reader(database: Database, query: str, opened: ExitStack) -> pa.RecordBatchReader:
    """The batches of a query's rows; `opened` closes them."""
    connection = connect(database, opened)
    if database.engine == "duckdb":
        found = connection.sql(query)
        reader = pa.table({}).to_reader() if found is None else pa.RecordBatchReader.from_stream(found)
        return opened.enter_context(reader)
    if database.engine == "sqlite":
        connection.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH)})
    connection.execute(query)
    return opened.enter_context(connection.fetch_record_batch())


@contextmanager
def errors_of(
    database: Database, what: str, remedy: str, kind: type[TruepairError] = InputError
) -> Iterator[None]:
    """Turn whatever a driver raises into one error that names the database, the reason and the remedy.

    Drivers raise errors of every type, so all are caught; those of truepair pass.
    """
    try:
        yield
    except TruepairError:
        raise
    except Exception as error:
        raise kind(f"{database.shown}: {what} ({_reason(error)}); {remedy}.") from error


def _reason(error: Exception) -> str:
    """The driver's text in one line, without its codes and without the query, which it repeats."""
    text = re.sub(r"^[A-Z_]+: ", "", str(error) or type(error).__name__)
    text = re.sub(r"^\[\w+\] ", "", text)
    text = re.split(r"\n\s*Query was:|\nquery: |\.? ?SQLSTATE", text)[0]
    return f"{' '.join(text.split()).rstrip('.'):.500}".removeprefix("Failed to connect: ")


# --- columns ---------------------------------------------------------------------------------------


@contextmanager
def _mixed_types(database: Database, names: Sequence[str]) -> Iterator[None]:
    """The remedy where a column of SQLite changes its type after the first batch."""
    try:
        yield
    except InputError as error:
        found = re.search(r"Type mismatch in column (\d+): ([^)]*)", str(error))
        if found is None:
            raise
        name = names[int(found[1])]
        raise InputError(
            f"{database.shown}: column {name!r} has values of one type in its first {_BATCH:,} rows and of "
            f"another later ({found[2]}); write cast({name} as real) or cast({name} as text) in the query, "
            "and if it begins with nulls, sort them last."
        ) from error


def _check_type(database: Database, column: pa.Field) -> None:
    kind = column.type
    if isinstance(kind, pa.OpaqueType) and kind.type_name != "numeric":
        name = kind.type_name if "unnamed" not in kind.type_name else "the database's own"
        raise InputError(
            f"{database.shown}: column {column.name!r} has the type {name}, which cannot be read; write "
            f'cast("{column.name}" as text) in the query.'
        )


def _copied(column: pa.Array) -> pa.Array:
    """A copy: a column that a driver made keeps all columns of its batch in memory."""
    return pa.concat_arrays([column, column.slice(0, 0)])


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers of any length, which come as text or as decimals, as integers or else as floats."""
    kind = column.type
    if isinstance(kind, pa.OpaqueType):
        column = pa.chunked_array([part.storage for part in column.chunks], kind.storage_type)
    elif not pa.types.is_decimal(kind):
        return column
    with suppress(pa.ArrowInvalid):
        return column.cast(pa.int64())
    return column.cast(pa.float64())
