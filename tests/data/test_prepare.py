"""prepare_interactions: the pairs and the hash of read_interactions; resumed, and whole or not at all."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import truepair as tp
from truepair.data.preparing import coding, parts, prepare, row_files, staging
from truepair.data.preparing.parts import lowest_words
from truepair.data.preparing.work import memory_bytes
from truepair.data.rows.pairs import interactions_of
from truepair.data.sources import formats, text
from truepair.errors import InputError, StorageError, TruepairError
from truepair.randomness import random_order
from truepair.recommender.holdout import joined

MEMORY = "600MB"
IDS = ("int", "uint64", "huge", "text", "uuid", "bytes", "float", "category")
POLICIES = ("last", "first", "strongest", "sum", "error")


@pytest.fixture
def small_blocks(monkeypatch):
    """Batches and blocks of a few rows, so that small tables have many."""
    pytest.importorskip("duckdb")
    for module, name, size in (
        (staging, "_AT_ONCE", 7),
        (coding, "_AT_ONCE", 8),
        (coding, "_IDS_AT_ONCE", 3),
        (row_files, "AT_ONCE", 5),
        (parts, "AT_ONCE", 5),
        (formats, "BATCH", 4),
        (text, "_BLOCK", 300),
    ):
        monkeypatch.setattr(module, name, size)


def random_ids(rng, kind, n):
    k = rng.integers(0, rng.integers(1, 10), n)
    if kind == "uint64":
        return pa.array((k * 3).astype(np.uint64))
    if kind == "huge":
        return pa.array([2**63 + int(x) if x % 2 else int(x) for x in k], pa.uint64())
    if kind == "text":
        return pa.array([["ä", "b", "", "a\0b", "zz", "Z", " x", "10", "9", "007"][x] for x in k])
    if kind == "uuid":
        storage = pa.array([UUID(int=int(x) * (2**120 + 5)).bytes for x in k], pa.binary(16))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage)
    if kind == "bytes":
        return pa.array([bytes([255 - x, 0]) if x % 3 else b"z" for x in k.tolist()])
    if kind == "category":
        return pa.array([f"d{x}" for x in k]).dictionary_encode()
    return pa.array(k.astype(float) if kind == "float" else k * 7 - 20)


def with_nulls(rng, column):
    if rng.random() > 0.2 or isinstance(column, pa.DictionaryArray | pa.ExtensionArray):
        return column
    absent = rng.random(len(column)) < 0.15
    values = zip(absent, column.to_pylist(), strict=True)
    return pa.array([None if gone else value for gone, value in values], column.type)


def random_times(rng, n):
    seconds = 1.7e9 + rng.integers(0, 5, n) * 86_400 * 30
    as_text = [
        str(np.datetime64(int(s), "s")).replace("T", " ") if rng.random() < 0.9 else "" for s in seconds
    ]
    micros = pa.array((seconds * 1e6).astype(int)).cast(pa.timestamp("us"))
    return [pa.array(seconds.astype(int)), pa.array(seconds + 0.5), micros, pa.array(as_text)][
        rng.integers(4)
    ]


def random_case(seed):
    """A random table and random options of reading."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    table = {role: with_nulls(rng, random_ids(rng, rng.choice(IDS), n)) for role in ("user", "item")}
    options = {}
    if rng.random() < 0.5:
        table["rating"] = with_nulls(rng, pa.array(rng.integers(1, 6, n).astype(float)))
        if rng.random() < 0.5:
            options["min_rating"] = 3
        if rng.random() < 0.5:
            options["max_disliked_rating"] = 2
    if rng.random() < 0.5:
        signs = [1, 1, 1, -1] if rng.random() < 0.4 else [1]
        table["weight"] = pa.array(rng.choice([0.1, 1.0, 2.5, 3.3], n) * rng.choice(signs, n))
        options |= {"dislikes": True} if len(signs) > 1 else {}
        options |= {"counts": "cap:3"} if rng.random() < 0.3 else {}
    if rng.random() < 0.6:
        table["time"] = random_times(rng, n)
        options |= {"half_life": "30d"} if rng.random() < 0.4 else {}
    elif rng.random() < 0.4:
        options["chronological"] = True
    if rng.random() < 0.3 and "dislikes" not in options:
        table["event"] = pa.array(rng.choice(["view", "buy", "hide", "skip"], n))
        options["feedback"] = {"view": 1, "buy": 3.5, "hide": -1, "skip": 0}
    if rng.random() < 0.7:
        options["duplicates"] = str(rng.choice([*POLICIES, *(["max"] if "rating" in table else [])]))
    if rng.random() < 0.8:
        options["missing"] = "drop"
    if rng.random() < 0.3:
        options["core"] = tuple(int(x) for x in rng.integers(1, 4, 2))
    return pa.table(table), options, rng


def written(table, rng, folder):
    """The table as a Parquet file, a CSV file, or in memory."""
    form = rng.choice(["parquet", "csv", "memory"])
    if form == "memory":
        return table
    if form == "parquet":
        pq.write_table(table, folder / "in.parquet", row_group_size=int(rng.integers(1, 30)))
        return folder / "in.parquet"
    with (folder / "in.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            writer.writerow(["" if v is None else v.hex() if isinstance(v, bytes) else v for v in row])
    return folder / "in.csv"


def outcome(call):
    try:
        return call(), None
    except TruepairError as error:
        return None, str(error)


def check_same(one, other):
    assert other.hash == one.hash
    assert (other.user_ids, other.item_ids) == (one.user_ids, one.item_ids)
    assert np.array_equal(other.users, one.users)
    assert np.array_equal(other.items, one.items)
    assert other.report() == one.report()
    assert other.time_kind == one.time_kind
    check_same_events(one, other)


def check_same_events(one, other):
    """The same log where it is stored, and in any case the same order of events."""
    if one.time is None and one.stored_log is not None:
        return  # a folder has no events without times
    assert (other.stored_log is None) == (one.stored_log is None)
    assert (other.origin.places is None) == (one.origin.places is None)
    assert repr(other.log.to_table().to_pydict()) == repr(one.log.to_table().to_pydict())  # NaN equals NaN
    if one.stored_log is not None:
        assert interactions_of(other.log).hash == interactions_of(one.log).hash
        assert other.log.policy.duplicates == one.log.policy.duplicates


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("part", range(4))
def test_random_tables_give_what_reading_gives(tmp_path, part):
    equal = 0
    for seed in range(part * 12, part * 12 + 12):
        table, options, rng = random_case(seed)
        source, folder = written(table, rng, tmp_path), tmp_path / f"out {seed}"
        expected, error = outcome(lambda: tp.read_interactions(source, **options))  # noqa: B023
        made, why = outcome(lambda: tp.prepare_interactions(source, folder, memory=MEMORY, **options))  # noqa: B023
        assert (made is None) == (expected is None), (seed, error, why)
        assert folder.exists() == (made is not None)
        if expected is not None:
            check_same(expected, made)
            check_same(expected, tp.open_prepared(folder, verify=True))
            equal += 1
    assert equal >= 5


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("valid", [0.0, 0.25])
def test_the_split_is_that_of_split_random(tmp_path, valid):
    table, _, _ = random_case(4)
    options = {"missing": "drop", "duplicates": "last", "rating": False, "weight": False, "time": False}
    expected = tp.split_random(tp.read_interactions(table, **options), 0.3, valid, seed=5)
    made = tp.prepare_interactions(
        table, tmp_path / "f", memory=MEMORY, test=0.3, valid=valid, seed=5, **options
    )
    assert made == expected
    assert made.recipe == expected.recipe
    assert list(made.parts) == list(expected.parts)
    assert tp.open_prepared(tmp_path / "f", verify=True) == expected
    assert tp.read_interactions(tmp_path / "f" / "test") == expected.test
    with pytest.raises(InputError, match="is a split; give one of its parts"):
        tp.read_interactions(tmp_path / "f")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("core", [None, 2])
@pytest.mark.parametrize("user", [0, 40, 79])
def test_one_repeat_in_any_block_gives_the_log_of_all_events(tmp_path, user, core):
    users = np.append(np.repeat(np.arange(80), 3), user)
    items = np.append(np.arange(240) % 7, 3 * user % 7)
    table = {"user": users, "item": items, "time": np.random.default_rng(4).integers(0, 9, 241)}
    made = tp.prepare_interactions(table, tmp_path / "f", memory=MEMORY, core=core)
    assert len(made.stored_log) == 241
    check_same(tp.read_interactions(table, core=core), made)
    check_same(made, tp.open_prepared(tmp_path / "f", verify=True))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("core", [None, 2])
def test_pairs_of_equal_time_keep_their_order_in_the_source(tmp_path, core):
    rng = np.random.default_rng(3)
    users, items = np.divmod(rng.choice(8 * 9, 50, replace=False), 9)
    table = {"user": users, "item": items, "time": rng.integers(0, 3, 50)}
    expected = tp.read_interactions(table, core=core)
    made = tp.prepare_interactions(table, tmp_path / "f", memory=MEMORY, core=core)
    assert made.origin.places.dtype == np.uint16
    check_same(expected, made)
    last = [tp.split_leave_last_out(each, 2, seed=1) for each in (expected, made)]
    assert last[0] == last[1]
    split = tp.prepare_interactions(
        table, tmp_path / "s", memory=MEMORY, core=core, test=0.3, valid=0.2, seed=7
    )
    for name, part in tp.split_random(expected, 0.3, 0.2, seed=7).parts.items():
        check_same(part, split.parts[name])
    table["time"] = rng.permutation(50)
    assert tp.prepare_interactions(table, tmp_path / "no ties", memory=MEMORY).origin.places is None


def test_more_tied_pairs_than_16_bits_can_number_are_kept_as_events(tmp_path):
    pytest.importorskip("duckdb")
    users = np.append(np.repeat([0, 1], 5), np.full(70_000, 2))
    items = np.random.default_rng(1).permutation(70_010)
    table = {"user": users, "item": items, "time": np.arange(70_010) // 7, "weight": items + 1.0}
    made = tp.prepare_interactions(table, tmp_path / "f", memory=MEMORY, duplicates="sum")
    assert len(made.stored_log) == 70_010
    expected = tp.read_interactions(table, duplicates="sum")
    assert repr(made.log.to_table()) == repr(expected.log.to_table())
    assert made == expected


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("columns", [(), ("weight",), ("weight", "rating")])
@pytest.mark.parametrize("duplicates", ["sum", "strongest", "first"])
def test_rows_are_sorted_once_where_the_only_repeat_comes_last(tmp_path, monkeypatch, columns, duplicates):
    """What was written before is read again, in the order that places give."""
    rng, sorted_times = np.random.default_rng(4), []
    users, items = np.append(np.repeat(np.arange(80), 3), 79), np.append(np.arange(240) % 7, 1)
    table = {"user": users, "item": items, "time": rng.integers(0, 3, 241)}
    table |= {name: rng.integers(1, 9, 241) * 1.5 for name in columns}
    read = prepare.coded_rows
    monkeypatch.setattr(prepare, "coded_rows", lambda *args: sorted_times.append(1) or read(*args))
    for options in ({}, {"max_disliked_rating": 3} if "rating" in columns else {}):
        made = tp.prepare_interactions(
            table, tmp_path / f"f{len(sorted_times)}", memory=MEMORY, duplicates=duplicates, **options
        )
        assert len(made.stored_log) == 241
        check_same(tp.read_interactions(table, duplicates=duplicates, **options), made)
    assert sorted_times == [1, 1]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("now", [None, "2024-06-01", 1_717_300_000_000])
def test_the_events_have_the_policy_of_reading(tmp_path, now):
    """Train of a split is weighted as of the cut, or as of the `now` that was given."""
    rng = np.random.default_rng(4)
    table = {"user": rng.integers(0, 6, 80), "item": rng.integers(0, 5, 80)}
    table["time"] = 1_700_000_000 + rng.integers(0, 10**7, 80)
    options = {"half_life": "30d", "counts": "cap:3", "duplicates": "sum", "now": now}
    expected = tp.read_interactions(table, **options)
    made = tp.prepare_interactions(table, tmp_path / "f", memory=MEMORY, **options)
    check_same(expected, made)
    assert made.log.weight.tolist() == [1.0] * 80
    assert tp.split_temporal(made, 0.3, 0.2) == tp.split_temporal(expected, 0.3, 0.2)


def test_positions_of_events_in_lists_of_items(tmp_path):
    pytest.importorskip("duckdb")
    (tmp_path / "lists.txt").write_text("0 3 1 3 2\n1 2 2 1\n")
    options = {"format": "adjacency", "chronological": True}
    expected = tp.read_interactions(tmp_path / "lists.txt", **options)
    made = tp.prepare_interactions(tmp_path / "lists.txt", tmp_path / "f", memory=MEMORY, **options)
    check_same(expected, made)
    assert made.log.to_table()["order"].to_pylist() == [0, 1, 2, 3, 0, 1, 2]


def test_parts_that_are_opened_one_by_one_have_their_own_events(tmp_path):
    """Joined again, they are what the parts of one split are: no event counts twice."""
    pytest.importorskip("duckdb")
    table = {"user": [1, 1, 1, 2, 2, 2] * 3, "item": [1, 2, 3, 1, 2, 3] * 3, "time": list(range(18))}
    made = tp.prepare_interactions(
        table, tmp_path / "f", memory=MEMORY, duplicates="sum", test=0.2, valid=0.4, seed=1
    )
    opened = {name: tp.open_prepared(tmp_path / "f" / name) for name in made.parts}
    given = tp.split_given(opened["train"], opened["test"], opened["valid"])
    assert sum(len(part.log) for part in opened.values()) == 18
    assert given == made
    assert joined([given.train, given.valid]) == joined([made.train, made.valid])


def test_the_lowest_words_are_the_first_of_the_random_order(monkeypatch):
    monkeypatch.setattr(parts, "AT_ONCE", 100)
    for n, wanted in ((1, 0), (1, 1), (1000, 1), (1000, 333), (1000, 999), (1000, 1000)):
        chosen = lowest_words(7, n, wanted)
        found = np.concatenate([chosen(0, n // 3), chosen(n // 3, n - n // 3)])
        assert set(np.flatnonzero(found)) == set(random_order(7, n)[:wanted])


def test_a_catalogue_and_its_errors(tmp_path):
    pytest.importorskip("duckdb")
    clicks = {"user": ["a", "b"], "item": [3, 5]}
    made = tp.prepare_interactions(clicks, tmp_path / "f", memory=MEMORY, items=[9, 5, 3, 1])
    check_same(tp.read_interactions(clicks, items=[9, 5, 3, 1]), made)
    with pytest.raises(InputError, match="lacks 1 of the interactions; add 5"):
        tp.prepare_interactions(clicks, tmp_path / "g", memory=MEMORY, items=[3, 4])
    assert not (tmp_path / "g").exists()


def test_databases_and_folders_of_files(tmp_path):
    pytest.importorskip("adbc_driver_sqlite")
    pytest.importorskip("duckdb")
    clicks = tp.simulate_world(40, 30, tau=0.1, density=0.2).observed.to_table()
    tp.write_table(clicks.rename_columns(["user_id", "item_id"]), f"sqlite:///{tmp_path}/shop.db", "clicks")
    (tmp_path / "many").mkdir()
    for at in range(3):
        pq.write_table(clicks.slice(at * 70, 70 if at < 2 else None), tmp_path / "many" / f"{at}.parquet")
    query = "select user_id, item_id from clicks where item_id <> 'item 0003'"
    for name, (source, options) in {
        "a": (f"sqlite:///{tmp_path}/shop.db#clicks", {}),
        "b": (f"sqlite:///{tmp_path}/shop.db", {"query": query}),
        "c": (tmp_path / "many", {}),
    }.items():
        made = tp.prepare_interactions(source, tmp_path / name, memory=MEMORY, **options)
        check_same(tp.read_interactions(source, **options), made)


@pytest.mark.usefixtures("small_blocks")
def test_text_becomes_what_all_of_it_can_be(tmp_path):
    for name, users, times in (
        ("a", ["1", "2", "3"] * 40, ["5"] * 119 + ["7.5"]),
        ("b", ["1", "2", "3"] * 39 + ["x", "007", "4"], ["2024-05-01"] * 119 + [""]),
        (
            "c",
            [str(2**63 + n) for n in range(120)],
            ["2024-05-01 10:00:00.123456789"] * 60 + ["2024-05-02"] * 60,
        ),
    ):
        rows = "".join(
            f"{user},i{at},{time}\n" for at, (user, time) in enumerate(zip(users, times, strict=True))
        )
        (tmp_path / f"{name}.csv").write_text("user,item,time\n" + rows)
        made = tp.prepare_interactions(
            tmp_path / f"{name}.csv", tmp_path / name, memory=MEMORY, missing="drop"
        )
        check_same(tp.read_interactions(tmp_path / f"{name}.csv", missing="drop"), made)


@pytest.mark.usefixtures("small_blocks")
def test_the_last_of_many_repeated_rows_is_kept(tmp_path):
    rng = np.random.default_rng(3)
    table = {"user": rng.integers(0, 3, 300), "item": rng.integers(0, 3, 300), "rating": np.arange(300.0)}
    check_same(tp.read_interactions(table), tp.prepare_interactions(table, tmp_path / "f", memory=MEMORY))


@pytest.mark.usefixtures("small_blocks")
def test_the_core_is_repeated_until_nothing_changes(tmp_path):
    # a chain: each that leaves makes the next one leave
    table = {"user": [0, 1, 1, 2, 2, 3, 3, 8, 8, 9, 9], "item": [0, 0, 1, 1, 2, 2, 3, 8, 9, 8, 9]}
    made = tp.prepare_interactions(table, tmp_path / "f", memory=MEMORY, core=2)
    check_same(tp.read_interactions(table, core=2), made)
    assert made.user_ids.ids.to_pylist() == [8, 9]


# --- bad input -------------------------------------------------------------------------------------


def test_options_are_checked_before_any_work(tmp_path):
    clicks = {"user": [1], "item": [1]}
    for options, message in (
        ({"memory": "4"}, "memory = '4' is not an amount of 500MB or more"),
        ({"memory": "lots"}, "memory = 'lots'"),
        ({"min_ratng": 3}, "'min_ratng' is no option of prepare_interactions. Did you mean 'min_rating'"),
        ({"test": 1.5}, "test = 1.5 is out of range"),
        ({"valid": 0.1}, "valid = 0.1 has no effect without test"),
        ({"core": 2, "items": [1]}, "use one of them"),
    ):
        with pytest.raises(InputError, match=message):
            tp.prepare_interactions(clicks, tmp_path / "f", **options)
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageError, match="taken exists; remove it"):
        tp.prepare_interactions(clicks, tmp_path / "taken")
    assert os.listdir(tmp_path) == ["taken"]
    assert memory_bytes("1.5GB") == memory_bytes(1_500_000_000) == 1_500_000_000


def test_a_prepared_folder_is_no_source_of_another(tmp_path):
    pytest.importorskip("duckdb")
    tp.prepare_interactions({"user": [1], "item": [1]}, tmp_path / "f", memory=MEMORY)
    with pytest.raises(InputError, match="is prepared already"):
        tp.prepare_interactions(tmp_path / "f", tmp_path / "g")
    with pytest.raises(InputError, match=r"core = 2 has no effect on .* give it to `prepare`"):
        tp.read_interactions(tmp_path / "f", core=2)
    assert tp.read_interactions(tmp_path / "f", time=False, rating=False) is not None


def test_duckdb_is_named_where_it_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(InputError, match=r"needs duckdb: pip install 'truepair\[sql\]'"):
        tp.prepare_interactions({"user": [1], "item": [1]}, tmp_path / "f")


# --- resuming --------------------------------------------------------------------------------------


@pytest.fixture
def clicks(tmp_path):
    pytest.importorskip("duckdb")
    rng = np.random.default_rng(1)
    path = tmp_path / "clicks.parquet"
    users, items, times = (rng.integers(0, n, 900) for n in (50, 30, 99))
    pq.write_table(pa.table({"user": users, "item": items, "time": times}), path)
    return path


STEPS = ("rows", "ids", "pairs", "core", "split")


@pytest.mark.parametrize("stopped_after", STEPS)
def test_a_stopped_run_goes_on_from_the_last_finished_step(clicks, tmp_path, monkeypatch, stopped_after):
    options = {"memory": MEMORY, "core": 2, "test": 0.2}
    expected = tp.split_random(tp.read_interactions(clicks, core=2), 0.2)
    finish, done = prepare.Work.finish, []

    def stop(self, step, *args):
        found = finish(self, step, *args)
        done.append(step)
        if step == stopped_after:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(prepare.Work, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        tp.prepare_interactions(clicks, tmp_path / "f", **options)
    assert not (tmp_path / "f").exists()
    before, stopped_after = list(done), None
    done.clear()
    made = tp.prepare_interactions(clicks, tmp_path / "f", **options)
    assert made == expected
    for name, part in expected.parts.items():
        check_same_events(part, made.parts[name])
    assert [*before, *done] == list(STEPS)
    assert sorted(os.listdir(tmp_path)) == ["clicks.parquet", "f"]


def test_the_database_lets_go_of_its_memory_once_the_pairs_are_written(clicks, tmp_path, monkeypatch):
    finish, limits = prepare.Work.finish, {}

    def look(self, step, *args):
        limits[step] = self.value("select current_setting('memory_limit')")
        return finish(self, step, *args)

    monkeypatch.setattr(prepare.Work, "finish", look)
    tp.prepare_interactions(clicks, tmp_path / "f", memory="1GB", core=2, test=0.2)
    assert limits == dict.fromkeys(STEPS[:3], "667.5 MiB") | dict.fromkeys(STEPS[3:], "190.7 MiB")


def test_other_options_or_a_changed_source_start_anew(clicks, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "write_manifest", lambda *_: (_ for _ in ()).throw(StorageError("no")))
    with pytest.raises(StorageError, match="no"):
        tp.prepare_interactions(clicks, tmp_path / "f", memory=MEMORY)
    monkeypatch.undo()
    pq.write_table(pa.table({"user": [1, 2], "item": [3, 3]}), clicks)
    assert len(tp.prepare_interactions(clicks, tmp_path / "f", memory=MEMORY)) == 2


def test_a_damaged_step_is_done_again(clicks, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "write_manifest", lambda *_: (_ for _ in ()).throw(StorageError("no")))
    with pytest.raises(StorageError, match="no"):
        tp.prepare_interactions(clicks, tmp_path / "f", memory=MEMORY)
    monkeypatch.undo()
    items = tmp_path / "f.preparing" / "all" / "items.npy"
    content = bytearray(items.read_bytes())
    content[200] ^= 1
    items.write_bytes(content)
    check_same(tp.read_interactions(clicks), tp.prepare_interactions(clicks, tmp_path / "f", memory=MEMORY))


def test_a_full_disk_names_the_reason_and_keeps_finished_steps(clicks, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare, "write_pairs", full)
    with pytest.raises(StorageError, match="No space left on device; the same command goes on"):
        tp.prepare_interactions(clicks, tmp_path / "f", memory=MEMORY)
    monkeypatch.undo()
    journal = json.loads((tmp_path / "f.preparing" / "journal.json").read_text())
    assert list(journal["steps"]) == ["rows", "ids"]
    check_same(tp.read_interactions(clicks), tp.prepare_interactions(clicks, tmp_path / "f", memory=MEMORY))


@pytest.mark.long
def test_a_killed_process_leaves_no_folder_and_the_next_one_ends_it(clicks, tmp_path):
    code = "import sys, truepair as tp; tp.prepare_interactions(sys.argv[1], sys.argv[2], memory='600MB')"
    rng = np.random.default_rng(0)
    for trial in range(6):
        folder = tmp_path / f"f{trial}"
        process = subprocess.Popen([sys.executable, "-c", code, str(clicks), str(folder)])
        time.sleep(0.3 + rng.random() * 2.5)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if folder.exists():  # it was finished
            tp.open_prepared(folder, verify=True)
            shutil.rmtree(folder)
        check_same(tp.read_interactions(clicks), tp.prepare_interactions(clicks, folder, memory=MEMORY))
        assert not (tmp_path / f"f{trial}.preparing").exists()
