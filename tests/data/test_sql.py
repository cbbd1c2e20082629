"""Reading databases: SQLite, DuckDB and a PostgreSQL server give what the same rows in memory give."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import truepair as tp
from databases import PASSWORD, QUOTED, execute
from truepair.data.sources import sql
from truepair.data.sources.sql_urls import parse_url
from truepair.errors import InputError

ROWS = [
    ("ann", 7, 4.5, 100, "x"),
    ("bob", 7, 3.0, 200, "y"),
    ("bob", 9, 5.0, 50, "z"),
    ("ann", 8, 1.0, 10, ""),
]
COLUMNS = {
    "user": "text",
    "item": "bigint",
    "rating": "double precision",
    "time": "bigint",
    "comment": "text",
}


def make(url, name='"clicks"', columns=COLUMNS, rows=ROWS):
    types = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
    values = ", ".join(
        f"({', '.join('null' if cell is None else repr(cell) for cell in row)})" for row in rows
    )
    execute(url, f"create table {name} ({types})", *([f"insert into {name} values {values}"] if rows else []))


def in_memory(rows=ROWS, **options):
    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    return tp.read_interactions(columns, **options)


def error_of(*args, **options):
    with pytest.raises(InputError) as found:
        tp.read_interactions(*args, **options)
    for text in (str(found.value), repr(found.value), str(found.value.__cause__)):
        assert PASSWORD not in text
        assert QUOTED not in text
    return str(found.value)


def test_the_rows_of_a_query(database):
    make(database)
    assert tp.read_interactions(database, query="select * from clicks") == in_memory()
    fewer = tp.read_interactions(database, query='select item, "user" from clicks where rating > 2')
    assert fewer == in_memory([row for row in ROWS if row[2] > 2], rating=False, time=False)
    ordered = 'select "user", item from clicks order by time'
    found = tp.read_interactions(database, query=ordered, chronological=True)
    assert found.time.tolist() == [2, 0, 3, 1]  # sorted by user and item


def test_the_options_of_a_table_in_memory(database):
    make(database, rows=[*ROWS, ("cat", None, 2.0, 5, "w"), ("ann", 7, 2.0, 500, "v")])
    options = {"missing": "drop", "duplicates": "max", "min_rating": 1.5, "time": False, "item": "item"}
    rows = [*ROWS, ("ann", 7, 2.0, 500, "v")]
    assert tp.read_interactions(f"{database}#clicks", **options) == in_memory(
        rows, **options | {"missing": "error"}
    )
    assert "the first at row 5" in error_of(f"{database}#clicks")


def test_a_table_by_its_name(database):
    schema = {"sqlite": "main", "duckdb": "main", "postgresql": "public"}[database.partition(":")[0]]
    hostile = 'my "clicks"; drop table "clicks"; --'
    make(database)
    make(database, '"' + hostile.replace('"', '""') + '"', rows=ROWS[:2])
    assert tp.read_interactions(f"{database}#clicks") == in_memory()
    assert tp.read_interactions(f"{database}#{schema}.clicks") == in_memory()
    assert tp.read_interactions(f"{database}#{hostile.replace(' ', '%20')}") == in_memory(ROWS[:2])
    assert len(execute(database, "select * from clicks")) == 4
    assert "cli" in error_of(f"{database}#clix")
    assert "is not the name of a table" in error_of(f"{database}#a.b.c")
    assert "is not the name of a table" in error_of(f"{database}#a.")


def test_a_file_without_a_url(tmp_path):
    pytest.importorskip("adbc_driver_sqlite")
    make(f"sqlite:///{tmp_path}/shop.csv")  # the first bytes decide
    path = tmp_path / "shop.csv"
    assert tp.read_interactions(path, query="select * from clicks") == in_memory()
    assert f"sqlite:///{path}#clicks" in error_of(path)
    assert "query needs a database" in error_of(Path(__file__), query="select 1")
    assert "query needs a database, not a dict" in error_of({"user": [1]}, query="select 1")


def test_errors_of_queries(database):
    make(database)
    shown = parse_url(database).shown
    assert f"{shown} is a database; pass query=" in error_of(database)
    assert "drop it or the query" in error_of(f"{database}#clicks", query="select 1")
    assert "is no query" in error_of(database, query="  ")
    assert "is no query" in error_of(database, query="select '\0'")
    assert "query is a int" in error_of(database, query=5)
    assert "syntax error" in error_of(database, query="selec * from clicks")
    assert "nothing" in error_of(database, query="select nothing from clicks")
    assert "has no rows" in error_of(database, query="select * from clicks where item > 99")
    assert "recognised as the user; its columns are 'item'" in error_of(
        database, query="select item from clicks"
    )
    assert "columns 'item'" in error_of(database, query='select "user", item, item from clicks', item="item")
    for option in ({"format": "csv"}, {"header": True}, {"encoding": "latin-1"}):
        assert f"{next(iter(option))} = " in error_of(f"{database}#clicks", **option)
    for text in ("selec", "select * from clicks where item > 99"):
        assert error_of(database, query=text).startswith(shown)


def test_a_query_cannot_write(database):
    make(database)
    for statement in ("delete from clicks", "drop table clicks", "create table other (a int)"):
        assert "read" in error_of(database, query=statement)
    assert len(execute(database, "select * from clicks")) == 4
    with pytest.raises(Exception, match="other"):
        execute(database, "select * from other")


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_missing_file_is_not_created(engine, tmp_path):
    url = f"{engine}:///{tmp_path}/no.db"
    assert "does not exist" in error_of(f"{url}#clicks")
    assert "is not a file" in error_of(f"{engine}:///{tmp_path}#clicks")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_engine(tmp_path):
    make(f"sqlite:///{tmp_path}/a.db")
    assert "it is one of sqlite" in error_of(f"duckdb:///{tmp_path}/a.db#clicks")
    (tmp_path / "b.db").write_text("user,item\n1,2\n")
    assert "is no database of sqlite." in error_of(f"sqlite:///{tmp_path}/b.db#clicks")


def test_connections_are_closed(tmp_path):
    """DuckDB refuses to open a file for writing while this process has it open for reading."""
    url = f"duckdb:///{tmp_path}/shop.duckdb"
    make(url)
    tp.read_interactions(f"{url}#clicks")
    execute(url, "create table a (x int)")
    error_of(url, query="select item from clicks")
    execute(url, "create table b (x int)")
    error_of(url, query="selec")
    execute(url, "create table c (x int)")


def test_a_variable_of_the_program_is_no_table(tmp_path):
    url = f"duckdb:///{tmp_path}/shop.duckdb"
    make(url)
    database = {"user": [1], "item": [2]}
    assert "does not exist" in error_of(url, query="select * from database")
    assert len(database) == 2


def test_what_is_not_needed_is_not_kept(tmp_path):
    """Columns are copied into Arrow's own memory: a driver's batch would keep all its columns."""
    pytest.importorskip("adbc_driver_sqlite")
    url = f"sqlite:///{tmp_path}/shop.db"
    make(url)
    with closing(sql.open_query(parse_url(f"{url}#clicks"), None)) as raw:
        before = pa.total_allocated_bytes()
        columns = raw.read([1, 3])
    assert [column.to_pylist() for column in columns] == [[7, 7, 9, 8], [100, 200, 50, 10]]
    assert pa.total_allocated_bytes() - before >= 2 * 4 * 8


def test_a_column_of_sqlite_with_several_types(tmp_path, monkeypatch):
    pytest.importorskip("adbc_driver_sqlite")
    url = f"sqlite:///{tmp_path}/shop.db"
    make(url, columns=COLUMNS | {"rating": "numeric"})
    assert tp.read_interactions(f"{url}#clicks") == in_memory()
    monkeypatch.setattr(sql, "_BATCH", 1)
    first = f"{url}#clicks"
    execute(
        url,
        "update clicks set rating = 4 where time = 100",
        "update clicks set rating = 3.5 where time = 200",
    )
    assert "column 'rating' has values of one type in its first 1 rows" in error_of(first)
    cast = 'select "user", item, cast(rating as real) as rating, time from clicks'
    assert tp.read_interactions(url, query=cast).rating.tolist() == [4, 1, 3.5, 5]


def test_text_that_is_no_unicode(tmp_path):
    pytest.importorskip("adbc_driver_sqlite")
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("create table clicks as select cast(x'ff' as text) as user, 1 as item")
        connection.commit()
    assert "UTF8" in error_of(f"{url}#clicks")


def test_types_of_duckdb(tmp_path):
    url = f"duckdb:///{tmp_path}/shop.duckdb"
    text = "select 'a'::enum('a', 'b') as user, 12::hugeint as item, 1.50::decimal(4, 2) as rating"
    execute(url, f"create table clicks as {text}")
    found = tp.read_interactions(f"{url}#clicks")
    assert (found.user_ids.ids.to_pylist(), found.item_ids.ids.to_pylist()) == (["a"], [12])
    assert found.rating.tolist() == [1.5]
    assert "list<" in error_of(url, query="select [1] as user, 2 as item")


def test_types_of_postgresql(postgresql):
    url = f"{postgresql}/postgres"
    id = "0d9e6f00-0000-4000-8000-000000000001"
    text = f"select '{id}'::uuid as user, 12::numeric as item, 4.50::numeric(4, 2) as rating, {{}} as time"
    found = tp.read_interactions(url, query=text.format("timestamptz '2024-05-31 12:00+02'"))
    assert [str(value) for value in found.user_ids.ids.to_pylist()] == [id]
    assert (found.item_ids.ids.to_pylist(), found.rating.tolist()) == ([12], [4.5])
    assert np.asarray(found.time).tolist() == [1717149600000000]
    assert tp.read_interactions(url, query=text.format("date '2024-05-31'")).time.tolist() == [
        1717113600000000
    ]
    for kind in ("json '{}'", "array[1]", "interval '1 day'", "true"):
        assert "item ids of type" in error_of(url, query=f"select 1 as user, {kind} as item")
    found = error_of(url, query="select 1 as user, inet '::1' as item")
    assert (
        "'item' has the type inet, which cannot be read; write cast(\"item\" as text) in the query" in found
    )
    execute(url, "create type kinds as enum ('view', 'buy')")
    rows = "select 1 as user, 2 as item, 'buy'::kinds as kind"
    assert tp.read_interactions(url, query=rows, feedback={"buy": 2}).weight.tolist() == [2]


def test_errors_of_a_server(postgresql, monkeypatch):
    query = {"query": "select 1 as user, 2 as item"}
    assert len(tp.read_interactions(f"{postgresql}/postgres", **query)) == 1
    wrong = f"{postgresql.replace(QUOTED, 'guess' + QUOTED)}/postgres"
    assert 'password authentication failed for user "ann"' in error_of(wrong, **query)
    assert 'database "none" does not exist' in error_of(f"{postgresql}/none", **query)
    nobody = postgresql.rpartition(":")[0] + ":1/postgres"
    assert "cannot connect" in error_of(nobody, **query)
    assert "check host, port, database, user and password" in error_of(nobody, **query)
    assert "invalid sslmode" in error_of(f"{postgresql}/postgres?sslmode=often", **query)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert len(tp.read_interactions(f"{postgresql.replace(':' + QUOTED, '')}/postgres", **query)) == 1


def test_a_server_that_does_not_answer_is_not_waited_for():
    assert sql._with_timeout("postgresql://h/d") == "postgresql://h/d?connect_timeout=10"
    assert sql._with_timeout("postgresql://h/d?a=b") == "postgresql://h/d?a=b&connect_timeout=10"
    assert sql._with_timeout("postgresql://h/d?connect_timeout=3") == "postgresql://h/d?connect_timeout=3"


@pytest.mark.parametrize(
    ("engine", "module"),
    [
        ("sqlite", "adbc_driver_sqlite.dbapi"),
        ("duckdb", "duckdb"),
        ("postgresql", "adbc_driver_postgresql.dbapi"),
    ],
)
def test_without_the_extra(engine, module, tmp_path, monkeypatch):
    path = tmp_path / "shop.db"
    if engine != "postgresql":
        make(f"{engine}:///{path}")
    monkeypatch.setitem(sys.modules, module, None)
    url = f"{engine}:///{path}#clicks" if engine != "postgresql" else f"postgresql://a:{QUOTED}@h/d#clicks"
    assert "pip install 'truepair[sql]'" in error_of(url)


def test_a_table_of_items(database):
    clicks = {"user": ["ann", "ann", "bob"], "item": [1, 2, 3]}
    model = tp.Recommender(encoder="popular").fit(clicks)
    make(database, '"items"', {"item": "bigint", "price": "bigint"}, [(1, 5), (2, 50), (3, 500)])
    found = model.recommend(["bob"], 3, items=f"{database}#items", where="price < 20")
    assert found["item"].to_pylist() == [1]
    with pytest.raises(InputError, match="or name a table: ") as error:
        model.recommend(["bob"], 3, items=database, where="price < 20")
    assert QUOTED not in str(error.value)


def test_a_model_is_fitted_and_holds_no_password(postgresql, tmp_path):
    tp.write_table({"user": [1, 1, 2], "item": [1, 2, 2]}, f"{postgresql}/postgres", "fitted_on")
    model = tp.Recommender(encoder="popular").fit(f"{postgresql}/postgres#fitted_on")
    model.save(tmp_path / "model")
    text = (tmp_path / "model").read_bytes() + repr(model).encode() + repr(model.facts_).encode()
    for secret in (PASSWORD, QUOTED):
        assert secret.encode() not in text
