from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from extras import pl
from truepair.data.ids import IdMap, canonical_ids
from truepair.errors import InputError

BIG = 2**63 + 5  # only uint64 holds it
UUIDS = [uuid.UUID(int=number) for number in (2**100, 7, 2**64)]


def both_ways(values: object) -> list[object]:
    """Outside ids -> codes -> outside ids."""
    ids = IdMap.of(values)
    return ids.outside(ids.codes(values)).to_pylist()


@pytest.mark.parametrize(
    "values",
    [
        ["b", "a", "ä", "b"],
        ["007", "7", ""],
        [3, -1, 2**62],
        [BIG, 1, 2**64 - 1],
        [b"\x00", b"\xff"],
        UUIDS,
    ],
    ids=["text", "text of digits", "int", "uint64", "bytes", "uuid"],
)
@pytest.mark.parametrize("container", [list, pa.array, pd.Series, "object array"])
def test_ids_come_back_as_they_were(values: list[object], container: object) -> None:
    if container is pa.array:
        given = pa.array(values, pa.uint64()) if BIG in values else pa.array(values)
    else:
        given = np.array(values, dtype=object) if container == "object array" else container(values)
    assert both_ways(given) == values


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.uint8, np.uint32, np.uint64, np.float64])
def test_a_number_is_the_same_id_in_any_width(kind: type) -> None:
    assert IdMap.of(np.array([3, 1, 2], dtype=kind)) == IdMap.of([1, 2, 3])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_is_the_same_id_in_any_layout(kind: pa.DataType) -> None:
    assert IdMap.of(pa.array(["b", "a"], kind)) == IdMap.of(["a", "b"])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)])
def test_bytes_are_the_same_id_in_any_layout(kind: pa.DataType) -> None:
    assert IdMap.of(pa.array([b"bb", b"aa"], kind)) == IdMap.of([b"aa", b"bb"])


@pytest.mark.parametrize(
    "source",
    [
        lambda: pd.Series(["b", "a", "b"], dtype="category"),
        lambda: pl.Series(["b", "a", "b"], dtype=pl.Categorical),
        lambda: pa.array(["b", "a", "b"]).dictionary_encode(),
        lambda: pl.concat([pl.Series([x], dtype=pl.Categorical) for x in "bab"], rechunk=False),
        lambda: pa.chunked_array([pa.array(x).dictionary_encode() for x in (["b"], ["a", "b"])]),
    ],
    ids=["pandas", "polars", "arrow", "polars chunks", "arrow chunks with other dictionaries"],
)
def test_categoricals_are_their_values(source: Callable[[], object]) -> None:
    values = source()
    assert IdMap.of(values) == IdMap.of(["a", "b"])
    assert both_ways(values) == ["b", "a", "b"]


def test_integers_that_pandas_made_floats_are_integers_again() -> None:
    assert canonical_ids(pd.Series([1.0, np.nan, 3.0])).to_pylist() == [1, None, 3]
    assert canonical_ids(pd.Series([1, None, 3], dtype="Int64")).to_pylist() == [1, None, 3]


def test_uuids_stay_uuids_and_sort_as_numbers() -> None:
    ids = IdMap.of(pd.Series(UUIDS))
    assert ids.ids.type == pa.uuid()
    assert ids.ids.to_pylist() == sorted(UUIDS)


def test_chunks_and_no_chunks() -> None:
    assert IdMap.of(pa.chunked_array([["b"], ["a"]])) == IdMap.of(["a", "b"])
    assert len(IdMap.of(pa.chunked_array([], type=pa.string()))) == 0
    assert len(IdMap.of([])) == 0


def test_codes_do_not_depend_on_the_order_of_rows() -> None:
    assert IdMap.of(["c", "a", "b"]).codes(["a", "b", "c"]).tolist() == [0, 1, 2]
    assert IdMap.range(3) == IdMap.of([2, 0, 1, 2])


def test_find_gives_minus_one_for_strangers() -> None:
    ids = IdMap.of(["a", "b"])
    assert ids.find(["b", "x", None]).tolist() == [1, -1, -1]
    assert ids.find([]).tolist() == []
    assert ids.find([None]).tolist() == [-1]


def test_find_across_int64_and_uint64_confuses_no_numbers() -> None:
    large = IdMap.of(np.array([1, BIG, 2**64 - 1], dtype=np.uint64))
    assert large.find([1, -1, 2]).tolist() == [0, -1, -1]
    small = IdMap.of([-1, 1])
    assert small.find(np.array([1, 2**64 - 1], dtype=np.uint64)).tolist() == [1, -1]


def test_an_unknown_id_is_named() -> None:
    with pytest.raises(InputError, match=r"unknown user: 'zoe'; the 2 known are 'ann', 'bob'\."):
        IdMap.of(["ann", "bob"]).codes(["ann", "zoe", "zoe"], "user")
    with pytest.raises(
        InputError, match=r"unknown item: 10, 11, 12, 13, 14 and 2 more; the 5 known are 0, 1, 2, …"
    ):
        IdMap.range(5).codes(range(10, 17), "item")
    with pytest.raises(InputError, match="unknown user: UUID"):
        IdMap.of(UUIDS).codes([uuid.UUID(int=1)], "user")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, "a"], "user ids must be 1-D and of one kind"),
        (["a", 1], "user ids must be 1-D and of one kind"),
        (np.array(["a", 1], dtype=object), "user ids must be 1-D and of one kind"),
        (np.zeros((2, 2)), "user ids must be 1-D and of one kind"),
        ([2**70], "user ids must be 1-D and of one kind"),
        (5, "user ids must be 1-D and of one kind"),
        ("ann", "must be a list or an array, not the single value 'ann'"),
        ([1.5, 2.0], "not all whole"),
        ([True, False], "user ids of type bool cannot be used; give integers, strings or UUIDs"),
        ([1, None], r"1 user ids are missing \(null or NaN\)"),
    ],
)
def test_ids_that_cannot_be(values: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        IdMap.of(values, "user")


def test_other_kinds_of_id_are_not_compared() -> None:
    with pytest.raises(InputError, match="of type int64 here and of type large_string elsewhere; convert"):
        IdMap.of(["1", "2"]).codes([1], "user")


def test_union() -> None:
    assert IdMap.of(["a", "c"]).union(IdMap.of(["b", "a"])) == IdMap.of(["a", "b", "c"])
    assert IdMap.of(UUIDS[:1]).union(IdMap.of(UUIDS)) == IdMap.of(UUIDS)
    large = IdMap.of(np.array([BIG], dtype=np.uint64))
    assert large.union(IdMap.of([1])).ids.to_pylist() == [1, BIG]
    assert IdMap.of([1]).union(large).ids.to_pylist() == [1, BIG]
    assert IdMap.of([]).union(IdMap.of(["a"])) == IdMap.of(["a"])
    with pytest.raises(InputError, match="convert one"):
        IdMap.of([1]).union(IdMap.of(["1"]))


def test_digest_tells_ids_apart() -> None:
    maps = [IdMap.of(x) for x in (["1", "2"], [1, 2], ["12"], ["1", "2", "3"], [b"1", b"2"], UUIDS)]
    assert len({ids.digest() for ids in maps}) == len(maps)
    assert IdMap.of(["2", "1"]).digest() == maps[0].digest()
    assert len(set(maps)) == len(maps)


def test_repr_tells_what_is_inside() -> None:
    assert repr(IdMap.of(["a", "b", "c", "d"])) == "<IdMap of 4 large_string ids: 'a', 'b', 'c', …>"


def test_codes_of_any_shape_and_nobody() -> None:
    ids = IdMap.of(["a", "b", "c"])
    assert ids.outside(np.array([[2, 0], [1, -1]])).to_pylist() == ["c", "a", "b", None]
    with pytest.raises(InputError, match="codes go from -2 to 3; allowed are -1 to 2"):
        ids.outside([-2, 3])


@pytest.mark.parametrize(
    "values",
    [
        [5, 3, 5, 9],
        [-4, 2**40, -4],
        pa.array([2**63 + 2, 2**63 + 1, 2**63 + 2], pa.uint64()),
        pa.array([-(2**63), 2**63 - 1]),
        ["b", "a", "ä", "b"],
        [b"\xff", b"", b"\xff"],
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"b" * 16, b"a" * 16], pa.binary(16))),
        pa.array([], pa.int64()),
    ],
)
def test_encoding_is_the_map_and_its_codes(values):
    ids, codes = IdMap.encode(values)
    assert ids == IdMap.of(values)
    assert codes.tolist() == ids.codes(values).tolist()
