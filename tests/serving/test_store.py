"""An acknowledged event is on the disk, and there once."""

import os
import signal
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import processes
from truepair.errors import StorageError
from truepair.serving.events import reading
from truepair.serving.events import store as store_module
from truepair.serving.events.event import Event
from truepair.serving.events.reading import SCHEMA
from truepair.serving.events.store import EventReader, EventStore


def event(n, **changes):
    return Event(
        **(
            {"user": f"u{n % 7}", "item": f"i{n}", "kind": "like", "weight": 1.0, "time": n, "id": None}
            | changes
        )
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.sqlite"


def test_the_same_event_twice_counts_once(path):
    store = EventStore(path)
    assert store.add([[event(1, id="a"), event(2)], [event(1, id="a")]]) == [2, 0]
    assert store.add([[event(2), event(3, id="a"), event(2, time=5), event(2, kind="dislike")]]) == [2]
    store.close()
    assert EventReader(path).count() == 4
    again = EventStore(path)
    assert again.add([[event(1, id="a"), event(2)]]) == [0]
    again.close()


def test_a_reader_notices_the_events_of_others_once(path):
    store = EventStore(path)
    store.add([[event(1)]])
    reader = EventReader(path)
    assert reader.changed()["user"] == set()
    store.add([[event(2), event(3)]])
    assert reader.changed()["user"] == {"u2", "u3"}
    assert reader.changed()["user"] == set()
    other = EventStore(path)
    other.add([[event(4)]])
    assert reader.changed()["user"] == {"u4"}
    for one in (store, other, reader):
        one.close()


def test_events_of_a_person_are_in_the_order_of_time(path):
    store = EventStore(path)
    store.add([[event(1, time=9), event(8, time=3, weight=2.0), event(15, time=9)], [event(2)]])
    assert EventReader(path).of_users(["u1"])["u1"].rows == [
        ("i8", "like", 2.0),
        ("i1", "like", 1.0),
        ("i15", "like", 1.0),
    ]
    store.close()


def test_a_table_of_events_is_whole_and_in_order(path, monkeypatch):
    store = EventStore(path)
    reader = EventReader(path)
    assert reader.table().schema == SCHEMA
    assert reader.table().num_rows == 0
    store.add([[event(n, time=100 - n, weight=n / 2) for n in range(1, 8)]])
    table = reader.table()
    assert table["number"].to_pylist() == [*range(1, 8)]
    assert table["item"].to_pylist() == [f"i{n}" for n in range(1, 8)]
    assert table["time"][0].as_py() == datetime.fromtimestamp(0, UTC) + timedelta(microseconds=99)
    monkeypatch.setattr(reading, "_BATCH", 3)
    assert [len(batch) for batch in reader.batches("events", SCHEMA)] == [3, 3, 1]
    assert reader.table().equals(table)


def test_a_commit_waits_for_the_disk_and_readers_do_not_wait(path):
    store = EventStore(path)
    pragma = lambda name: store._database.execute(f"PRAGMA {name}").fetchone()[0]  # noqa: E731
    assert (pragma("synchronous"), pragma("journal_mode")) == (2, "wal")
    store.close()


def test_an_older_store_is_migrated_and_a_newer_one_refused(path, monkeypatch):
    store = EventStore(path)
    store.add([[event(1)]])
    store.close()
    more = [*store_module.MIGRATIONS, ["ALTER TABLE events ADD COLUMN place TEXT"]]
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "MIGRATIONS", more)
        newer = EventStore(path)
        assert newer._database.execute("SELECT item, place FROM events").fetchall() == [("i1", None)]
        newer.close()
        EventStore(path).close()  # nothing is done twice
    with pytest.raises(
        StorageError, match="has version 3 of the store, and this truepair knows 2; install a newer"
    ):
        EventStore(path)


def test_files_of_others_are_refused(path):
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError, match="file is not a database"):
        EventStore(path)
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    with pytest.raises(StorageError, match="an SQLite file of another program"):
        EventStore(path)


def test_a_failed_transaction_leaves_nothing(path):
    store = EventStore(path)
    with pytest.raises(StorageError, match=r"events.sqlite cannot be used"):
        store.add([[event(1)], [event(2, weight=None)]])
    assert store.add([[event(1)]]) == [1]
    store.close()


def write_until_killed(path, acknowledged, seed):
    """Store batches for ever, and write the number of each acknowledged event to a file."""
    store, n = EventStore(Path(path)), 1000 * seed
    with open(acknowledged, "a", buffering=1) as file:
        while True:
            batches = [[event(n + k, id=f"e{n + k}") for k in range(5 * b, 5 * b + 5)] for b in range(3)]
            store.add(batches)
            store.add(batches[:1])  # a client that tries again
            file.write("".join(f"{n + k}\n" for k in range(15)))
            n += 15


def test_nothing_acknowledged_is_lost_by_a_kill(path, tmp_path):
    acknowledged = tmp_path / "acknowledged"
    acknowledged.touch()
    for seed in range(3):
        before = acknowledged.stat().st_size
        writer = processes.start(write_until_killed, str(path), str(acknowledged), seed)
        waiting = threading.Event()
        while acknowledged.stat().st_size < before + 200:
            waiting.wait(0.005)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        numbers = [int(line) for line in acknowledged.read_text().split("\n")[:-1]]
        stored = [row[0] for row in sqlite3.connect(path).execute("SELECT item FROM events")]
        assert {f"i{n}" for n in numbers} <= set(stored)
        assert len(stored) == len(set(stored))
        sound = sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()
        assert sound == ("ok",)
