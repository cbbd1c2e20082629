"""Tables into databases: written whole, or not at all, in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from truepair.data.sources.in_memory import without_index
from truepair.data.sources.sql import (
    Connection,
    check_file,
    connect,
    errors_of,
    parts_of,
    quoted,
    quoted_name,
)
from truepair.data.sources.sql_urls import Database, is_url, parse_url
from truepair.errors import InputError, StorageError
from truepair.storage.plain_values import as_json, as_text
from truepair.storage.types import Table


def write_table(table: Table, url: str, name: str) -> int:
    """Write `table` to the table `name` of a database, in one transaction. Returns the number of rows.

    `table` is pandas, polars, DuckDB or Arrow, a `pyarrow.RecordBatchReader`, or a dict of columns. `url` is
    `postgresql://…`, `sqlite:///file.db` or `duckdb:///file.duckdb`; such a file is created if there is none.

    A new table appears whole or not at all. An existing one must have all columns of `table`: its rows are
    replaced, and readers see the old rows or the new ones, never a mixture. Indexes, grants and further
    columns stay; further columns get their defaults. `name` may be `schema.table`; it is quoted, so that its
    case is kept.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table({"user": ["ann"], "item": [7]}, f"duckdb:///{folder}/shop.duckdb", "lists")
    1
    """
    database = target(url, name)
    rows = _Rows(table)
    with ExitStack() as opened:
        connection = connect(database, opened, write=True)
        try:
            with errors_of(database, f"table {name} is not written", "nothing has changed", StorageError):
                _write(connection, database, name, rows)
        except StorageError:
            if rows.error is not None:  # what the rows raised, an interruption for example, a driver hides
                raise rows.error from None
            raise
    return rows.count


def check_target(url: str, name: str, columns: Sequence[str]) -> Database:
    """Raise before any work if a table of these columns cannot be written there; nothing is created."""
    database = target(url, name)
    if database.path is not None and not database.path.exists():
        return database
    with ExitStack() as opened:
        connection = connect(database, opened, write=True)
        with errors_of(database, f"table {name} cannot be looked up", "check the permissions"):
            _check_columns(database, name, _columns_there(connection, database, name), columns)
    return database


def target(url: str, name: str) -> Database:
    """The database of a URL to write to; both are checked, without connecting."""
    if not is_url(url):
        raise InputError(f"{str(url)!r:.80} is not the URL of a database, such as sqlite:///shop.db.")
    database = parse_url(url)
    if database.table is not None:
        raise InputError(
            f"{database.shown}: #{database.table} is for reading; give the name apart: {database.table!r}."
        )
    parts_of(name)
    if database.path is not None and database.path.exists():
        check_file(database)
    elif database.path is not None and not database.path.parent.is_dir():
        raise InputError(f"{database.shown}: there is no folder {database.path.parent}; make it first.")
    return database


def _write(connection: Connection, database: Database, name: str, rows: _Rows) -> None:
    stage = f"truepair_{secrets.token_hex(8)}"  # a temporary table, or DuckDB's view of the rows
    if database.engine == "duckdb":
        connection.begin()
        connection.register(stage, rows.reader(database.engine))
    else:
        connection.adbc_ingest(stage, rows.reader(database.engine), mode="create", temporary=True)
    there = _columns_there(connection, database, name)
    columns = ", ".join(quoted(column) for column in rows.schema.names)
    if there:
        _check_columns(database, name, there, rows.schema.names)
        if database.engine == "postgresql":
            # another writer waits until this one has finished; readers do not
            connection.execute(f"lock table {quoted_name(name)} in share row exclusive mode")
        connection.execute(f"delete from {quoted_name(name)}")
        connection.execute(f"insert into {quoted_name(name)} ({columns}) select {columns} from {stage}")
    else:
        connection.execute(f"create table {quoted_name(name)} as select {columns} from {stage}")
    _commit(connection)


def _commit(connection: Connection) -> None:
    owner: Connection = getattr(connection, "connection", connection)  # a cursor of ADBC has its connection
    owner.commit()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- what is there ---------------------------------------------------------------------------------


def _columns_there(connection: Connection, database: Database, name: str) -> list[str]:
    """The columns of a table; empty if there is no such table."""
    *schema, table = map(_literal, parts_of(name))
    questions = {
        "postgresql": "select attname::text from pg_attribute where attnum > 0 and not attisdropped "
        f"and attrelid = to_regclass({_literal(quoted_name(name))}) order by attnum",
        "sqlite": f"select name from pragma_table_info({', '.join([table, *schema])})",
        "duckdb": "select column_name from duckdb_columns() where database_name = current_database() "
        f"and lower(schema_name) = lower({schema[0] if schema else 'current_schema()'}) "
        f"and lower(table_name) = lower({table}) order by column_index",
    }
    connection.execute(questions[database.engine])
    return [row[0] for row in connection.fetchall()]


def _check_columns(database: Database, name: str, there: Sequence[str], columns: Iterable[str]) -> None:
    if there and (lacking := [column for column in columns if column not in there]):
        raise InputError(
            f"{database.shown}: there is a table {name} without {', '.join(map(repr, lacking))}; its columns "
            f"are {', '.join(map(repr, there))}. It is left as it is: give another name, or drop it first."
        )


# --- the rows --------------------------------------------------------------------------------------


class _Rows:
    """The rows of a table as a stream that databases take: how many there were, and what they raised."""

    def __init__(self, table: Table) -> None:
        self.count = 0
        self.error: BaseException | None = None
        try:
            table = without_index(table)
            source = table if hasattr(table, "__arrow_c_stream__") else pa.table(table)
            is_reader = isinstance(source, pa.RecordBatchReader)
            self.source = source if is_reader else pa.RecordBatchReader.from_stream(source)
        except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(
                f"a {type(table).__name__} cannot be written: {error}. Give a table, or a dict of columns."
            ) from error
        self.schema = self.source.schema
        if not self.schema.names or len(set(self.schema.names)) < len(self.schema.names):
            raise InputError(
                f"the table has the columns {self.schema.names}; give one or more, each with its own name."
            )

    def reader(self, engine: str) -> pa.RecordBatchReader:
        """The rows with types that the engine has."""
        texts = {field.name: _convert(field.type, engine) for field in self.schema}
        kinds = pa.schema(
            [(field.name, pa.large_string() if texts[field.name] else field.type) for field in self.schema]
        )

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in self.source:
                    self.count += len(batch)
                    made = [
                        pa.array(
                            [v if v is None else convert(v) for v in column.to_pylist()], pa.large_string()
                        )
                        if convert
                        else column
                        for column, convert in zip(batch.columns, texts.values(), strict=True)
                    ]
                    yield pa.record_batch(made, schema=kinds)
            except BaseException as error:
                self.error = error
                raise

        return pa.RecordBatchReader.from_batches(kinds, batches())


def _convert(kind: pa.DataType, engine: str) -> Callable[[object], str] | None:
    """What makes text of values that an engine cannot have: lists become JSON, SQLite has no UUIDs."""
    if pa.types.is_nested(kind):
        return as_json
    return as_text if kind == pa.uuid() and engine == "sqlite" else None
