"""Rows in order of time: row numbers or positions become times, of a kind that every step keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.data.split_recipes import split_given, split_leave_last_out
from truepair.errors import InputError


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def ordered() -> Interactions:
    """ann: 9, 7, 8; bob: 8, 9, where the position is the time."""
    users, items = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 1, 2])
    time, ids = np.array([1, 2, 0, 0, 1]), (IdMap.of(["ann", "bob"]), IdMap.of([7, 8, 9]))
    return Interactions(users, items, *ids, rating=np.arange(5.0), time=time, time_kind="order")


# --- reading ---------------------------------------------------------------------------------------


def test_positions_in_an_adjacency_file(tmp_path: Path) -> None:
    path = written(tmp_path, "train.txt", "5 9 7 8\n3 8 9\n5 2\n")
    found = read_interactions(path, chronological=True)
    rows = {"user": [3, 3, 5, 5, 5, 5], "item": [8, 9, 2, 7, 8, 9]}
    assert found.to_table().to_pydict() == {**rows, "order": [0, 1, 3, 1, 2, 0]}
    assert found.time_kind == "order"
    assert found.origin.policy.reading == {"chronological": True}
    plain = read_interactions(path)
    assert plain.time is None
    assert plain == found  # the hash is about the pairs
    assert repr(found).endswith(", order>")


def test_of_repeated_items_the_last_position_counts(tmp_path: Path) -> None:
    path = written(tmp_path, "train.txt", "ann hat cap hat\nbob cap hat\n")
    last, first = (read_interactions(path, chronological=True, duplicates=d) for d in ("last", "first"))
    assert last.to_table().to_pydict()["order"] == [0, 1, 0, 1]  # ann: cap, hat
    assert first.to_table().to_pydict()["order"] == [1, 0, 0, 1]  # ann: hat, cap


def test_row_numbers_are_times_of_a_clock(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "user,item\nbob,1\nann,2\nbob,3\nbob,1\n")
    found = read_interactions(path, chronological=True)
    assert found.to_table().to_pydict() == {
        "user": ["ann", "bob", "bob"],
        "item": [2, 1, 3],
        "time": [1, 3, 2],
    }
    assert found.time_kind == "clock"
    table = {"user": ["bob", "ann"], "item": [1, 2]}
    assert read_interactions(table, chronological=True).time.tolist() == [1, 0]  # type: ignore[union-attr]


def test_chronological_is_refused_where_it_means_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "user,item,date\n1,1,5\n1,2,4\n")
    with pytest.raises(InputError, match=r"has the times 'date'; use time=False"):
        read_interactions(path, chronological=True)
    assert read_interactions(path, chronological=True, time=False).time.tolist() == [0, 1]  # type: ignore
    with pytest.raises(InputError, match="the matrix is a matrix without order"):
        read_interactions(sp.csr_array(np.eye(3)), chronological=True)
    with pytest.raises(
        InputError, match="chronological is a str, which cannot be used here; pass True or False"
    ):
        read_interactions(path, chronological="yes")  # type: ignore[arg-type]


# --- the kind of times -----------------------------------------------------------------------------


def test_the_kind_stays_with_the_pairs() -> None:
    data = ordered()
    some = np.array([True, False, True, True, True])
    kept = {
        "take": data.take(some),
        "k_core": data.k_core(2),
        "min_rating": data.with_min_rating(1),
        "items": data.with_items([7, 8, 9, 10]),
        "given": split_given(data, data.take(~some & some)).train,
        "last": split_leave_last_out(data).train,
    }
    for name, found in kept.items():
        assert found.time_kind == "order", name
        assert found.time is not None, name
    test = split_leave_last_out(data).test.to_table().to_pydict()
    assert (test["user"], test["item"]) == (["ann", "bob"], [8, 9])


def test_positions_of_parts_with_other_ids_are_kept() -> None:
    data = ordered()
    more = read_interactions({"user": ["abe", "ann"], "item": [1, 1]})
    train = split_given(data, more).train  # the codes of ann, bob and of all items change
    assert train.to_table().to_pydict()["order"] == data.to_table().to_pydict()["order"]


def test_the_hash_is_without_positions_and_with_times() -> None:
    data = ordered()
    assert data.hash == replace(data, time=None).hash
    assert replace(data, time_kind="clock").hash != data.hash
    with pytest.raises(InputError, match="time_kind = 'date' is not known; choose one of 'clock', 'order'"):
        replace(data, time_kind="date")  # type: ignore[arg-type]


def test_pairs_only() -> None:
    found = ordered().pairs_only()
    assert found.to_table().column_names == ["user", "item"]
    assert found.time_kind == "clock"
