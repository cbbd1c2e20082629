"""write_table: whole or not at all, old or new, whatever a table is called."""

import json
import uuid

import pandas as pd
import pyarrow as pa
import pytest

import truepair as tp
from databases import PASSWORD, QUOTED, execute
from extras import pl
from truepair.data.sources import sql_writing
from truepair.data.sources.sql_writing import check_target
from truepair.errors import InputError, StorageError

LISTS = pa.table(
    {"user": ["ann", "ann", "bob"], "item": [7, 9, 7], "score": [0.5, 0.25, -1.0], "rank": [1, 2, 1]}
)
OTHER = pa.table({"user": ["cat"], "item": [8], "score": [0.125], "rank": [1]})
ALL = 'select "user", item, score, "rank" from "{}" order by "user", "rank"'


def rows_of(table):
    return list(zip(*table.to_pydict().values(), strict=True))


def there(url, name="lists"):
    return [tuple(row) for row in execute(url, ALL.format(name.replace('"', '""')))]


def error_of(*args, kind=InputError, call=tp.write_table):
    with pytest.raises(kind) as found:
        call(*args)
    for text in (str(found.value), repr(found.value), str(found.value.__cause__)):
        assert PASSWORD not in text
        assert QUOTED not in text
    return str(found.value)


@pytest.mark.parametrize(
    "convert",
    [
        lambda table: table,
        lambda table: table.to_pandas(),
        lambda table: pl.from_arrow(table),
        lambda table: table.to_pydict(),
        lambda table: table.to_reader(max_chunksize=1),
    ],
    ids=["arrow", "pandas", "polars", "dict", "reader"],
)
def test_tables_of_every_kind(convert, tmp_path):
    url = f"sqlite:///{tmp_path}/shop.db"
    assert tp.write_table(convert(LISTS), url, "lists") == 3
    assert there(url) == rows_of(LISTS)


def test_a_table_is_made_and_replaced(database):
    assert tp.write_table(LISTS, database, "lists") == 3
    assert there(database) == rows_of(LISTS)
    assert tp.write_table(OTHER, database, "lists") == 1
    assert there(database) == rows_of(OTHER)
    assert tp.write_table(LISTS.slice(0, 0), database, "lists") == 0
    assert there(database) == []
    execute(database, 'drop table "lists"')
    assert tp.write_table(LISTS.slice(0, 0), database, "lists") == 0
    assert there(database) == []


def test_what_the_owner_of_a_table_made_stays(database):
    columns = '"rank" smallint, item integer, "user" varchar(20), score real, made integer default 42'
    execute(database, f"create table lists ({columns})", "create index by_user on lists (item)")
    tp.write_table(LISTS, database, "lists")
    tp.write_table(OTHER, database, "lists")
    assert there(database) == rows_of(OTHER)
    assert [tuple(row) for row in execute(database, "select made from lists")] == [(42,)]


def test_a_table_of_other_columns_is_left_alone(database):
    tp.write_table({"user": ["ann"], "item": [7]}, database, "clicks")
    for call in (
        lambda: tp.write_table(LISTS, database, "clicks"),
        lambda: check_target(database, "clicks", LISTS.column_names),
    ):
        assert "there is a table clicks without 'score', 'rank'" in error_of(call=call)
    assert [tuple(row) for row in execute(database, "select * from clicks")] == [("ann", 7)]


def test_hostile_names(database):
    tp.write_table(LISTS, database, "lists")
    for name in ('x"; drop table "lists"; --', "x'; drop table lists; --", "Lists Ω %s ?", "select"):
        tp.write_table(LISTS, database, name)
        tp.write_table(OTHER, database, name)
        assert there(database, name) == rows_of(OTHER)
    assert there(database) == rows_of(LISTS)
    odd = {'a"b; drop table lists': [1], "select": [2], "%s ?": [3]}
    tp.write_table(odd, database, "odd")
    tp.write_table(odd, database, "odd")
    assert [tuple(row) for row in execute(database, "select * from odd")] == [(1, 2, 3)]


def test_a_schema(database):
    schema = "main" if database.startswith("sqlite") else "lab"
    if schema == "lab":
        execute(database, "create schema lab")
    for table in (LISTS, OTHER):
        tp.write_table(table, database, f"{schema}.lists")
    found = execute(database, f'select "user" from {schema}.lists')
    assert [tuple(row) for row in found] == [("cat",)]
    assert "nowhere" in error_of(LISTS, database, "nowhere.lists", kind=StorageError)


class BrokenError(Exception):
    pass


def broken_after(act, error=BrokenError):
    """Batches of OTHER, then what `act` does, then an error."""

    def batches():
        yield from OTHER.to_batches()
        act()
        if error is not None:
            raise error("in the middle")
        yield from OTHER.to_batches()

    return pa.RecordBatchReader.from_batches(OTHER.schema, batches())


@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt, InputError])
def test_what_fails_in_the_middle_changes_nothing(database, error):
    with pytest.raises(error, match=r"^in the middle$"):
        tp.write_table(broken_after(lambda: None, error), database, "lists")
    with pytest.raises(Exception, match="lists"):  # no such table
        execute(database, "select * from lists")
    tp.write_table(LISTS, database, "lists")
    with pytest.raises(error, match=r"^in the middle$"):
        tp.write_table(broken_after(lambda: None, error), database, "lists")
    assert there(database) == rows_of(LISTS)


def test_readers_see_the_old_rows_until_the_new_ones_are_there(database, monkeypatch):
    seen, commit = [], sql_writing._commit

    def look_and_commit(connection):
        seen.append(there(database))
        commit(connection)

    tp.write_table(LISTS, database, "lists")
    monkeypatch.setattr(sql_writing, "_commit", look_and_commit)
    tp.write_table(broken_after(lambda: seen.append(there(database)), None), database, "lists")
    assert seen == [rows_of(LISTS)] * 2
    assert there(database) == rows_of(OTHER) * 2


def test_a_failing_insert_keeps_the_old_rows(database):
    if database.startswith("sqlite"):
        execute(
            database, 'create table lists ("user" text, item int check (item < 8), score real, "rank" int)'
        )
    else:
        execute(
            database, 'create table lists ("user" text, item int, score real, "rank" int, check (item < 8))'
        )
    tp.write_table(LISTS.slice(0, 1), database, "lists")
    message = error_of(LISTS, database, "lists", kind=StorageError)
    assert "table lists is not written" in message
    assert "nothing has changed" in message
    assert there(database) == rows_of(LISTS)[:1]


def test_two_writers_of_a_server_do_not_mix(postgresql):
    """A writer waits for another one: here only for a moment, since the other one never ends."""
    import adbc_driver_postgresql.dbapi

    url = f"{postgresql}/postgres"
    tp.write_table(LISTS, url, "lists")
    with adbc_driver_postgresql.dbapi.connect(url) as other, other.cursor() as cursor:
        cursor.execute('insert into lists select * from lists where "rank" = 1')
        impatient = f"{url}?options=-c%20lock_timeout%3D50"
        assert "lock timeout" in error_of(OTHER, impatient, "lists", kind=StorageError)
        other.commit()
    assert len(there(url)) == 5


def test_ids_and_reasons(database):
    ids = [uuid.UUID(int=1), uuid.UUID(int=2)]
    table = pa.table(
        {
            "user": pa.array([id.bytes for id in ids], pa.uuid()),
            "item": pa.array([b"\x00\xff", b"b"], pa.large_binary()),
            "because": [[{"item": b"x", "weight": 0.5}], []],
            "rest": [None, 0.5],
        }
    )
    for _ in range(2):
        tp.write_table(table, database, "lists")
    found = execute(database, 'select "user", item, because, rest from lists order by "user"')
    assert [str(row[0]) for row in found] == list(map(str, ids))
    assert [bytes(row[1]) for row in found] == [b"\x00\xff", b"b"]
    assert [json.loads(row[2]) for row in found] == [[{"item": "x", "weight": 0.5}], []]
    assert [row[3] for row in found] == [None, 0.5]


def test_what_cannot_be_written(database, tmp_path):
    assert "is not the name of a table" in error_of(LISTS, database, "")
    assert "is not the name of a table" in error_of(LISTS, database, "a.b.c")
    assert "is not the name of a table" in error_of(LISTS, database, "nul\0")
    assert "the name of a table is a int" in error_of(LISTS, database, 5)
    assert "is for reading; give the name apart" in error_of(LISTS, f"{database}#lists", "lists")
    assert "a int cannot be written: " in error_of(5, database, "lists")
    for wrong in ({"a": [1], "b": [1, 2]}, {"a": [2**70]}, {"a": [1, "x"]}, {"a": ["\ud800"]}):
        assert "a dict cannot be written" in error_of(wrong, database, "lists")
    twice = pa.table([[1], [2]], names=["a", "a"])
    assert "each with its own name" in error_of(twice, database, "lists")
    assert "each with its own name" in error_of({}, database, "lists")
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written(tmp_path):
    assert "is not the URL of a database" in error_of(LISTS, tmp_path / "shop.db", "lists")
    assert "there is no folder" in error_of(LISTS, f"sqlite:///{tmp_path}/no/shop.db", "lists")
    (tmp_path / "notes.txt").write_text("notes")
    for engine in ("sqlite", "duckdb"):
        assert "is no database of" in error_of(LISTS, f"{engine}:///{tmp_path}/notes.txt", "lists")
    assert (tmp_path / "notes.txt").read_text() == "notes"
    nobody = f"postgresql://ann:{QUOTED}@127.0.0.1:1/shop"
    assert "cannot connect" in error_of(LISTS, nobody, "lists")
    assert "cannot connect" in error_of(nobody, "lists", ["user"], call=check_target)


def test_checking_creates_nothing(database, tmp_path):
    before = list(tmp_path.iterdir())
    check_target(database, "lists", ["user"])
    assert list(tmp_path.iterdir()) == before
    tp.write_table(LISTS, database, "lists")
    check_target(database, "lists", LISTS.column_names)
    assert there(database) == rows_of(LISTS)


def test_an_index_of_pandas_is_no_column(tmp_path):
    url = f"sqlite:///{tmp_path}/shop.db"
    frame = pd.DataFrame({"user": ["ann", "bob", "cat", "dan"], "item": [1, 2, 3, 4]})
    tp.write_table(frame.iloc[1:2], url, "lists")
    assert execute(url, "select * from lists") == [("bob", 2)]
    tp.write_table(frame[frame.item != 2].sort_values("item", ascending=False), url, "others")
    assert execute(url, "select * from others") == [("dan", 4), ("cat", 3), ("ann", 1)]
    tp.write_table(frame.set_index("item").iloc[1:2], url, "named")
    assert execute(url, "select user, item from named") == [("bob", 2)]
