"""Stores are exported and imported whole or not at all, between SQLite and PostgreSQL both ways."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.errors import InputError, StorageError
from truepair.serving.events.event import Event
from truepair.serving.events.records import ItemRecord, UserRecord
from truepair.serving.events.store import open_store
from truepair.serving.transfer import exporting
from truepair.serving.transfer.exporting import PARTS, export_store
from truepair.serving.transfer.importing import import_files


def nothing(name, count):
    pass


def fill(store):
    events = [
        Event(f"u{n % 5}", f"i{n}", "like", n / 2 + 1, n * 10**6, f"e{n}" if n % 2 else None)
        for n in range(20)
    ]
    store.add([events])
    store.add_feedback([Event("ann", "täa", "star", 1.0, 5, None, 3.5, "good")], overwrite=False)
    store.put([ItemRecord("täa", True, ("a", "b"), -7, {"price": 3}, "c"), ItemRecord("gone")])
    store.put([UserRecord("ann", ["x"], "y"), UserRecord("bob")])
    store.delete_item("gone")
    store.delete_user("bob")


def content(place):
    store = open_store(place)
    reader = store.reader()
    columns = ", ".join(f'"{name}"' for name in PARTS["events"].names)
    events = reader.rows(f"SELECT {columns} FROM events ORDER BY number")
    tables = [sorted(reader.rows(f"SELECT * FROM {part}")) for part in list(PARTS)[1:]]
    reader.close()
    store.close()
    return [events, *tables]


@pytest.fixture
def sqlite(tmp_path):
    return str(tmp_path / "shop.sqlite")


@pytest.mark.parametrize("batch", [3, 1000])
def test_there_and_back_again(sqlite, tmp_path, postgresql, batch, monkeypatch):
    monkeypatch.setattr("truepair.serving.events.reading._BATCH", batch)
    monkeypatch.setattr("truepair.serving.transfer.importing._BATCH", batch)
    server, back = f"{postgresql}/postgres", str(tmp_path / "back.sqlite")
    store = open_store(sqlite)
    fill(store)
    store.close()
    for source, target in ((sqlite, server), (server, back)):
        folder = tmp_path / f"export of {Path(source).name}"
        result = CliRunner().invoke(app, ["export", source, "-o", str(folder)])
        assert result.exit_code == 0, result.output
        assert "21 events, 2 items, 2 users" in result.output
        for changed in (True, False):
            result = CliRunner().invoke(app, ["import", str(folder), target, "--json"])
            assert result.exit_code == 0, result.output
            counts = json.loads(result.output)
            assert counts["events"] == {"read": 21, "changed": 21 * changed}
            assert (counts["items"]["changed"], counts["users"]["changed"]) == ((2, 2) if changed else (0, 0))
            assert "s3cr3t" not in result.output
    assert content(sqlite) == content(server) == content(back)


def test_a_failed_export_leaves_nothing(sqlite, tmp_path, monkeypatch):
    store = open_store(sqlite)
    fill(store)
    reader, folder = store.reader(), tmp_path / "out"

    def fail(file):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "flush_to_disk", fail)
        with pytest.raises(
            StorageError, match=r"cannot write .*out: No space left on device; nothing was left"
        ):
            export_store(reader, folder, nothing)
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    folder.mkdir()
    assert export_store(reader, folder, nothing)["events"] == 21
    with pytest.raises(InputError, match="out is there already; give a new or an empty folder"):
        export_store(reader, folder, nothing)
    with pytest.raises(InputError, match="there is no folder"):
        export_store(reader, tmp_path / "no" / "out", nothing)
    reader.close()
    store.close()


def test_a_failed_import_changes_nothing(sqlite, tmp_path):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("user,item,weight\nann,tea,1\n")
    bad.write_text("user,item,weight\nann,tea,-1\n")
    store = open_store(sqlite)
    with pytest.raises(InputError, match="an event has the weight"):
        import_files(store, [str(good), str(bad)], "like", nothing)
    store.close()
    assert content(sqlite) == [[], [], []]


def test_tables_of_any_source_become_events_and_records(sqlite, tmp_path):
    files = {
        "clicks.csv": "user_id,movie,event,timestamp\n1,10,buy,1700000000\n1,11,view,1700000001\n",
        "likes.csv": "user,item\n1,10\n2,12\n",
        "items.csv": "item,price,title,categories,hidden\n10,3,Tea,drink,false\n11,,Jam,food,true\n",
        "users.csv": ",user,age\n0,1,30\n",  # of pandas, with its index
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    sources = [str(tmp_path / name) for name in files]
    store = open_store(sqlite)
    assert import_files(store, sources, "like", nothing) == {
        "events": (4, 4),
        "items": (2, 2),
        "users": (1, 1),
    }
    assert import_files(store, sources, "like", nothing) == {
        "events": (4, 0),
        "items": (2, 0),
        "users": (1, 0),
    }
    reader = store.reader()
    assert reader.of_users(["1"])["1"].rows == [("10", "like", 1.0), ("10", "buy", 1.0), ("11", "view", 1.0)]
    assert reader.feedback(kind="buy")[0].time == 1_700_000_000 * 10**6
    assert reader.record(ItemRecord, "10") == ItemRecord(
        "10", False, ("drink",), None, {"price": 3, "title": "Tea"}
    )
    assert reader.record(ItemRecord, "11").hidden
    assert reader.record(UserRecord, "1") == UserRecord("1", {"age": 30})
    reader.close()
    store.close()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["import", "x.sqlite"], "give what to import, and the store at the end"),
        (["import", "empty", "x.sqlite"], "empty has none of events.parquet, items.parquet, users.parquet"),
        (["import", "nothing.csv", "x.sqlite"], "nothing.csv"),
        (["import", "other.csv", "x.sqlite"], "no column that is recognised as the user or the item"),
        (["import", "early.csv", "x.sqlite"], "times of at most 7, too small for seconds since 1970"),
        (["import", "broken", "x.sqlite"], "events.parquet cannot be read as Parquet"),
        (["import", "other", "x.sqlite"], "has no column 'kind'; it is no file of `truepair export`"),
        (["import", "empty", "x.sqlite", "--kind", ""], "--kind = '' cannot be used"),
        (["export", "nothing.sqlite", "-o", "out"], "there is no store nothing.sqlite"),
        (["export", "mysql://x", "-o", "out"], "mysql:// cannot be read"),
    ],
)
def test_bad_arguments_are_clear_errors(tmp_path, monkeypatch, arguments, problem):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "broken", "other"):
        Path(name).mkdir()
    Path("broken/events.parquet").write_bytes(b"PAR1 and nothing")
    pq.write_table(pa.table({"user": ["a"], "item": ["b"]}), "other/events.parquet")
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("early.csv").write_text("user,item,time\n1,2,7\n")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    assert problem in result.output
    assert not Path("out").exists()


def test_progress_is_said(sqlite, tmp_path, monkeypatch):
    store = open_store(sqlite)
    fill(store)
    store.close()
    monkeypatch.setattr("truepair.cli.commands.serve._EVERY", -1.0)
    result = CliRunner().invoke(app, ["export", sqlite, "-o", str(tmp_path / "out")])
    assert "21 events\n" in result.output
