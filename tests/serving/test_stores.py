"""The same promises for a store in SQLite and in PostgreSQL."""

import os
import signal
import socket
import threading
import time
from contextlib import suppress

import pytest

pytest.importorskip("psycopg")

import databases
import processes
from truepair.errors import InputError, StorageError
from truepair.serving.events import migrations
from truepair.serving.events.connections import Deadlines
from truepair.serving.events.event import Event
from truepair.serving.events.reading import StoredHistory
from truepair.serving.events.records import ItemRecord, UserRecord
from truepair.serving.events.store import open_store


def event(n, **changes):
    given = {"user": f"u{n % 7}", "item": f"i{n}", "kind": "like", "weight": 1.0, "time": n, "id": None}
    return Event(**(given | changes))


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path):
    """Where an empty store can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "store.sqlite")
    return f"{request.getfixturevalue('postgresql')}/postgres"


@pytest.fixture
def opened(place):
    """A function that opens the store once more; all are closed in the end."""
    stores = []

    def open_one():
        stores.append(open_store(place))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def eventually(reader, what, wanted, seconds=10.0):
    """Look until the changes that were found together hold what is wanted."""
    found, end = set(), time.monotonic() + seconds
    while not found >= wanted and time.monotonic() < end:
        found |= reader.changed()[what]
        time.sleep(0.002)
    assert found >= wanted
    return found


def test_the_same_event_twice_counts_once(opened):
    store = opened()
    assert store.add([[event(1, id="a"), event(2)], [event(1, id="a")]]) == [2, 0]
    assert store.add([[event(2), event(3, id="a"), event(2, time=5), event(2, kind="dislike")], []]) == [2, 0]
    assert opened().add([[event(1, id="a"), event(2)]]) == [0]
    reader = store.reader()
    assert reader.count() == 4
    assert reader.of_users(["u2"])["u2"].rows == [
        ("i2", "like", 1.0),
        ("i2", "dislike", 1.0),
        ("i2", "like", 1.0),
    ]
    table = reader.table()
    assert table["item"].to_pylist() == ["i1", "i2", "i2", "i2"]


def test_own_changes_are_noticed_at_once_and_those_of_others_soon(opened):
    store, other = opened(), opened()
    store.add([[event(1)]])
    reader, second = store.reader(), store.reader()
    assert reader.changed() == {"user": set(), "item": set()}
    store.add([[event(2), event(3)]])
    assert reader.changed()["user"] >= {"u2", "u3"}
    assert second.changed()["user"] >= {"u2", "u3"}
    store.put([ItemRecord("i1")])
    assert reader.changed()["item"] >= {"i1"}
    store.delete_item("i2")  # by whom u2 has an event
    changed = reader.changed()
    assert ("u2" in changed["user"], "i2" in changed["item"]) == (True, True)
    other.add([[event(4)]])
    eventually(reader, "user", {"u4"})
    other.delete_feedback("u4", "i4")
    eventually(reader, "user", {"u4"})
    other.put([ItemRecord("i5", hidden=True)])
    eventually(reader, "item", {"i5"})
    other.delete_user("u3")
    eventually(reader, "user", {"u3"})


def test_feedback_is_once_for_each_user_item_and_kind(opened):
    store = opened()
    reader = store.reader()
    assert store.add_feedback([event(1, value=2.0), event(1, time=9), event(8)], overwrite=False) == 2
    assert store.add_feedback([event(1, time=20)], overwrite=False) == 0
    assert [(one.item, one.value, one.time) for one in reader.feedback("u1")] == [
        ("i1", 2.0, 1),
        ("i8", 0.0, 8),
    ]
    assert (reader.record(UserRecord, "u1"), reader.record(ItemRecord, "i8")) == (
        UserRecord("u1"),
        ItemRecord("i8"),
    )
    assert store.add_feedback([event(1, time=30), event(1, time=31, comment="!")], overwrite=True) == 1
    assert [(one.time, one.comment) for one in reader.feedback("u1", "i1", "like")] == [(31, "!")]
    assert reader.feedback(kind="like", until=20)[0].item == "i8"
    assert reader.feedback(item="i1", kind="view") == []
    store.add([[event(1, time=40)]])  # an event of the other interface
    assert [one.time for one in reader.feedback("u1", "i1")] == [40]
    assert [one.time for one in reader.feedback("u1", "i1", until=39)] == [31]
    first = reader.feedback(limit=1)
    assert len(reader.feedback(after=first[0].number)) == 1
    assert store.delete_feedback("u1", "i1", "view") == 0
    assert store.delete_feedback("u1", "i1") == 2
    assert store.delete_feedback("u1", "i1") == 0


def test_records_of_items_and_users(opened):
    store = opened()
    reader = store.reader()
    tea = ItemRecord("tea", False, ("drink", "hot"), 5, {"price": 3, "title": "Tea <b>"}, "a comment")
    assert store.put([tea, ItemRecord("jam", comment="Jam 100%")]) == 2
    assert store.put([tea]) == 0  # nothing changed
    assert reader.record(ItemRecord, "tea") == tea
    assert (tea.title, ItemRecord("x", comment="c").title, ItemRecord("x").title) == ("Tea <b>", "c", None)
    assert [one.item for one in reader.records(ItemRecord)] == ["jam", "tea"]
    assert [one.item for one in reader.records(ItemRecord, "jam", 5)] == ["tea"]
    assert [one.item for one in reader.records(ItemRecord, text="DRINK")] == ["tea"]
    assert [one.item for one in reader.records(ItemRecord, text="0%")] == ["jam"]
    assert reader.records(ItemRecord, text="_a") == []
    assert store.patch(ItemRecord, "tea", hidden=True, labels=["new"])
    assert reader.record(ItemRecord, "tea") == tea._replace(hidden=True, labels=["new"])
    assert reader.unlisted_items() == {"tea"}
    assert not store.patch(ItemRecord, "nothing", hidden=True)
    assert store.delete_item("tea")
    assert not store.delete_item("tea")
    assert reader.record(ItemRecord, "tea") is None
    assert (reader.unlisted_items(), reader.is_unlisted("tea"), reader.is_unlisted("jam")) == (
        {"tea"},
        True,
        False,
    )
    store.put([tea])
    assert (reader.record(ItemRecord, "tea"), reader.unlisted_items()) == (tea, set())
    ann = UserRecord("ann", {"age": 30}, "!")
    assert store.put([ann, UserRecord("bob")]) == 2
    assert (reader.record(UserRecord, "ann"), [one.user for one in reader.records(UserRecord, limit=1)]) == (
        ann,
        ["ann"],
    )
    assert [one.user for one in reader.records(UserRecord, "ann")] == ["bob"]
    assert store.patch(UserRecord, "ann", comment="?")
    assert reader.record(UserRecord, "ann") == ann._replace(comment="?")
    store.add([[event(1, user="ann")]])
    assert reader.forgotten_users() == set()
    assert store.delete_user("ann")
    assert (reader.record(UserRecord, "ann"), reader.of_users(["ann"])["ann"]) == (
        None,
        StoredHistory([], True),
    )
    store.add_feedback([event(1, user="ann")], overwrite=False)
    assert (reader.record(UserRecord, "ann"), reader.forgotten_users()) == (UserRecord("ann"), {"ann"})


def test_a_failed_transaction_leaves_nothing(opened):
    store = opened()
    with pytest.raises(StorageError, match="cannot be used"):
        store.add([[event(1)], [event(2, weight=None)]])
    assert store.add([[event(1)]]) == [1]


def test_a_snapshot_does_not_move(opened):
    store, other = opened(), opened()
    reader = store.reader()
    store.add([[event(1)]])
    with reader.snapshot():
        assert reader.count() == 1
        other.add([[event(2)]])
        assert reader.count() == 1
    assert reader.count() == 2


# --- PostgreSQL alone ------------------------------------------------------------------------------------


@pytest.fixture
def server(postgresql):
    return f"{postgresql}/postgres"


def test_events_that_commit_late_are_not_missed(server):
    watching, slow, quick = (open_store(server) for _ in range(3))
    reader, inserted, release = watching.reader(), threading.Event(), threading.Event()

    def write_slowly():
        with slow.writing() as transaction:
            transaction.do(
                'INSERT INTO events ("user", item, kind, weight, time) VALUES (?, ?, ?, ?, ?)',
                ("slow", "i", "like", 1.0, 1),
            )
            inserted.set()
            release.wait(10)

    first = threading.Thread(target=write_slowly)
    second = threading.Thread(target=quick.add, args=([[event(2, user="quick")]],))
    first.start()
    inserted.wait(10)
    second.start()
    waiting = "select 1 from pg_locks where locktype = 'advisory' and not granted"
    while second.is_alive() and not databases.execute(server, waiting):
        time.sleep(0.005)
    if not second.is_alive():
        eventually(reader, "user", {"quick"})
    release.set()
    first.join()
    second.join()
    found = eventually(reader, "user", {"slow"})
    assert found | eventually(reader, "user", {"quick"} - found) >= {"slow", "quick"}
    for store in (watching, slow, quick):
        store.close()


def test_a_store_that_is_away_fails_at_once_and_comes_back(server, monkeypatch):
    address = server.rpartition("@")[2].partition("/")[0]
    store, other = open_store(server), open_store(server)
    reader = store.reader()
    store.add([[event(1)]])
    databases.stop(address)
    try:
        for _ in range(2):
            with pytest.raises(StorageError, match=r"the store postgresql://ann@127.0.0.1:\d+/postgres "):
                reader.of_users(["u1"])
        with suppress(StorageError):
            reader.changed()  # what was noticed before
        with monkeypatch.context() as patch:  # nothing is tried, so that nobody waits
            patch.setattr(store.connections._pool, "connection", None)
            for attempt in (
                lambda: reader.of_users(["u1"])["u1"].rows,
                reader.changed,
                lambda: store.add([[event(2)]]),
            ):
                with pytest.raises(StorageError, match="does not answer"):
                    attempt()
    finally:
        databases.start(address)
    end = time.monotonic() + 10
    while True:
        try:
            assert reader.of_users(["u1"])["u1"].rows == [("i1", "like", 1.0)]
            break
        except StorageError:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert store.add([[event(2)]]) == [1]
    other.add([[event(3)]])
    eventually(reader, "user", {"u3"})
    store.close()
    other.close()


def test_nobody_waits_for_a_server_that_stands_still(server):
    store = open_store(server)
    reader = store.reader()
    store.add([[event(1)]])
    assert reader.count() == 1
    with databases.frozen(server):
        with pytest.raises(StorageError):
            reader.of_users(["u1"])
        assert store.connections.away.is_set()
        with pytest.raises(StorageError, match="does not answer"):
            store.add([[event(2)]])
    end = time.monotonic() + 20
    while store.connections.away.is_set():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert store.add([[event(2)]]) == [1]
    store.close()


def test_a_socket_is_shut_after_its_deadline():
    deadlines = Deadlines()
    ours, theirs = socket.socketpair()
    ours.settimeout(0.3)
    with deadlines.within(ours, 1000), pytest.raises(TimeoutError):
        ours.recv(1)
    ours.settimeout(10)
    with deadlines.within(ours, 0):
        assert ours.recv(1) == b""  # nobody has written
    deadlines.stop()
    ours.close()
    theirs.close()


def test_an_older_schema_is_migrated_and_a_newer_one_refused(server, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("truepair.serving.events.postgresql.MIGRATIONS", migrations.POSTGRESQL[:1])
        open_store(server).close()
    row = "insert into truepair.events (\"user\", item, kind, weight, time) values ('u', 'i', 'like', 1, 5)"
    databases.execute(server, row)
    store = open_store(server)
    assert [(one.item, one.comment) for one in store.reader().feedback()] == [("i", "")]
    store.close()
    databases.execute(server, "update truepair.version set version = 9")
    with pytest.raises(StorageError, match="has version 9 of the store, and this truepair knows 2; install"):
        open_store(server)


def test_errors_of_postgresql_are_clear_and_show_no_password(server):
    with pytest.raises(InputError, match="names a table; the store has its own schema 'truepair': leave"):
        open_store(f"{server}#clicks")
    store = open_store(server)
    with pytest.raises(InputError, match=r"cannot keep a value: .*NUL"):
        store.add([[event(1, item="a\0b")]])
    store.close()
    nowhere = server.replace("/postgres", "/nothing")
    with pytest.raises(StorageError) as caught:
        open_store(nowhere)
    assert "s3cr3t" not in str(caught.value)
    with pytest.raises(InputError, match=r"duckdb:///x\.duckdb cannot be a store"):
        open_store("duckdb:///x.duckdb")


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setattr("truepair.serving.events.store.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs psycopg, psycopg_pool: pip install 'truepair\[serve\]'"):
        open_store("postgresql://localhost/shop")


def write_until_killed(place, acknowledged, seed):
    """Store batches for ever, and write the number of each acknowledged event to a file."""
    store, n = open_store(place), 1000 * seed
    with open(acknowledged, "a", buffering=1) as file:
        while True:
            batches = [[event(n + k, id=f"e{n + k}") for k in range(5 * b, 5 * b + 5)] for b in range(3)]
            store.add(batches)
            store.add(batches[:1])  # a client that tries again
            file.write("".join(f"{n + k}\n" for k in range(15)))
            n += 15


@pytest.mark.long
def test_nothing_acknowledged_is_lost_by_a_kill(server, tmp_path):
    acknowledged = tmp_path / "acknowledged"
    acknowledged.touch()
    for seed in range(2):
        before = acknowledged.stat().st_size
        writer = processes.start(write_until_killed, server, str(acknowledged), seed)
        while acknowledged.stat().st_size < before + 200:
            time.sleep(0.005)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    numbers = [int(line) for line in acknowledged.read_text().split("\n")[:-1]]
    stored = [item for (item,) in databases.execute(server, "select item from truepair.events")]
    assert {f"i{n}" for n in numbers} <= set(stored)
    assert len(stored) == len(set(stored))
