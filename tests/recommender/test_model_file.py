"""Models on disk: what goes in comes out, and no file, however bad, does more than give an error."""

import contextlib
import errno
import json
import os
import struct

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import scipy.sparse as sp
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import StorageError
from truepair.recommender.model_file import KIND, VERSION, Model, load_model, save_model
from truepair.storage.tensor_file import read_tensors, write_tensors
from worlds import two_tastes


@pytest.fixture
def model():
    seen = two_tastes(n_users=12, n_items=20, each=4)
    g = torch.Generator().manual_seed(0)
    matrices = torch.randn(12, 5, generator=g), torch.randn(20, 5, generator=g)
    return Model(*matrices, seen, seen.item_counts, {"note": "hello"})


@pytest.fixture
def path(model, tmp_path):
    save_model(tmp_path / "m.truepair", model)
    return tmp_path / "m.truepair"


def test_what_goes_in_comes_out(path, model):
    loaded = load_model(path)
    assert torch.equal(loaded.users, model.users)
    assert torch.equal(loaded.items, model.items)
    assert loaded.seen == model.seen
    assert loaded.facts == model.facts


@pytest.mark.parametrize(
    "ids",
    [["ann", "bob", "çağ"], [1, 2, 2**40], [2**63, 2**63 + 1, 2**64 - 1], [b"\x00", b"\x01\x02", b"z"]],
    ids=["text", "integers", "large", "bytes"],
)
def test_ids_of_any_kind(ids, tmp_path):
    seen = Interactions(np.array([0, 2]), np.array([1, 1]), IdMap.of(ids), IdMap.of(["x", "y"]))
    save_model(tmp_path / "m", Model(torch.ones(3, 2), torch.ones(2, 2), seen, seen.item_counts))
    assert load_model(tmp_path / "m").seen.user_ids.ids.to_pylist() == ids


def test_a_users_or_items_without_interactions_survive(tmp_path):
    seen = Interactions(np.zeros(0, int), np.zeros(0, int), IdMap.range(3), IdMap.range(2))
    save_model(tmp_path / "m", Model(torch.ones(3, 2), torch.ones(2, 2), seen, seen.item_counts))
    assert load_model(tmp_path / "m").seen.n_users == 3


def test_known_pairs_are_not_widened(path, model):
    seen = load_model(path).seen
    assert (seen.users.dtype, seen.items.dtype) == (np.int32, np.int32)
    assert np.array_equal(seen.indptr, model.seen.indptr)
    assert np.array_equal(seen.user_counts, model.seen.user_counts)
    for array in (seen.users, seen.items, seen.indptr, seen.user_counts):
        assert not array.flags.writeable


def test_the_items_of_a_user_may_be_in_any_order_in_a_file(path, model):
    tensors, facts = read_tensors(path, KIND, VERSION)
    first, second = tensors["seen.items"][:2].tolist()
    tensors["seen.items"][:2] = torch.tensor([second, first])
    write_tensors(path, KIND, VERSION, tensors, facts)
    assert load_model(path).seen == model.seen


@pytest.fixture
def sparse_path(model, tmp_path):
    """A model of sparse users and sparse items, with a row of nothing in both."""
    rng = np.random.default_rng(0)
    users, items = (rng.normal(size=(n, 20)) * (rng.random((n, 20)) < 0.3) for n in (12, 20))
    users[3], items[5] = 0, 0
    rows = [sp.csr_array(matrix.astype(np.float32)) for matrix in (users, items)]
    save_model(tmp_path / "s.truepair", Model(*rows, model.seen, model.popularity))
    return tmp_path / "s.truepair"


@pytest.fixture
def wide_path(model, tmp_path):
    """A model of sparse users and dense items, both wider than there are items."""
    rng = np.random.default_rng(0)
    users = sp.csr_array((rng.normal(size=(12, 25)) * (rng.random((12, 25)) < 0.3)).astype(np.float32))
    items = torch.from_numpy(rng.normal(size=(20, 25)).astype(np.float32))
    save_model(tmp_path / "s.truepair", Model(users, items, model.seen, model.popularity))
    return tmp_path / "s.truepair"


def test_sparse_users_are_as_wide_as_dense_items(wide_path):
    loaded = load_model(wide_path)
    assert loaded.users.shape == (12, 25)
    assert loaded.items.shape == (20, 25)
    assert loaded.items.T.is_contiguous()
    rewritten(wide_path, lambda t, f: t["users.columns"].__setitem__(0, 25))
    with pytest.raises(StorageError, match="users has columns that are not among 25"):
        load_model(wide_path)


def test_sparse_matrices_come_out_too(sparse_path, model):
    tensors, _ = read_tensors(sparse_path, KIND, VERSION)
    assert {"users.starts", "users.columns", "users.values", "items.starts"} <= set(tensors)
    assert not {"users", "items"} & set(tensors)
    loaded = load_model(sparse_path)
    again = sparse_path.with_name("again")
    save_model(again, loaded)
    for name, tensor in read_tensors(again, KIND, VERSION)[0].items():
        assert torch.equal(tensor, tensors[name]), name
    assert loaded.users.shape == (12, 20)
    assert loaded.users.dtype == np.float32
    assert loaded.users[[3]].nnz == 0


def test_columns_in_any_order_are_saved_in_rising_order(tmp_path, model):
    tangled = sp.csr_array((np.array([1, 2, 3.0]), np.array([4, 0, 4]), np.r_[0, np.full(12, 3)]), (12, 20))
    save_model(tmp_path / "m", Model(tangled, sp.csr_array((20, 20)), model.seen, model.popularity))
    assert load_model(tmp_path / "m").users.toarray()[0, [0, 4]].tolist() == [2.0, 4.0]
    assert tangled.indices.tolist() == [4, 0, 4]  # the caller's own is as it was


# --- bad files -----------------------------------------------------------------------------------------


def header_and_body(content):
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def joined(header, body):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def mutants(content, n, rng):
    """Bit flips, truncations, insertions, swapped header fields, oversize headers."""
    header, body = header_and_body(content)
    names = [name for name in header if name != "__metadata__"]
    for k in range(n):
        kind = k % 6
        if kind == 0:
            changed = bytearray(content)
            changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
            yield bytes(changed)
        elif kind == 1:
            yield content[: rng.integers(len(content))]
        elif kind == 2:
            at = rng.integers(len(content))
            yield content[:at] + rng.bytes(rng.integers(1, 9)) + content[at:]
        elif kind == 3:
            a, b = rng.choice(names, 2, replace=False)
            yield joined({**header, a: header[b], b: header[a]}, body)
        elif kind == 4:
            yield struct.pack("<Q", int(rng.integers(len(content), 2**62))) + content[8:]
        else:
            a = rng.choice(names)
            field = {**header[a], "shape": [int(x) for x in rng.integers(0, 2**33, 2)]}
            yield joined({**header, a: field}, body)


@pytest.mark.parametrize("kind", ["path", "sparse_path", "wide_path"])
def test_a_thousand_mutants_give_a_thousand_clear_errors(kind, request):
    path = request.getfixturevalue(kind)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for mutant in mutants(content, 1000, rng):
        path.write_bytes(mutant)
        with pytest.raises(StorageError, match=r"[ms]\.truepair .*(damaged|not a|cannot be read|upgrade it)"):
            load_model(path)


def rewritten(path, change):
    """The file with its tensors or facts changed by someone who knows how to write a right checksum."""
    tensors, facts = read_tensors(path, KIND, VERSION)
    changed = change(tensors, facts)
    write_tensors(path, KIND, VERSION, tensors, changed if isinstance(changed, list) else facts)


def compressed_ids(n):
    sink = pa.BufferOutputStream()
    table = pa.table({"id": pa.array(range(n))})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return torch.frombuffer(bytearray(sink.getvalue()), dtype=torch.uint8)


HOSTILE = {
    "NaN": (lambda t, f: t["users"].__setitem__((0, 0), float("nan")), "1 rows of users hold NaN"),
    "other dimension": (lambda t, f: t.update(items=torch.ones(20, 7)), "users have 5 dimensions, items 7"),
    "too few users": (lambda t, f: t.update(users=torch.ones(3, 5)), "12 ids for 3 users"),
    "no items": (lambda t, f: t.pop("items"), "not a sound model"),
    "a vector": (lambda t, f: t.update(users=torch.ones(12)), "not a float32 matrix"),
    "doubles": (lambda t, f: t.update(users=torch.ones(12, 5).double()), "not a float32 matrix"),
    "item out of range": (lambda t, f: t["seen.items"].__setitem__(0, 99), "items has codes"),
    "repeated pair": (lambda t, f: t["seen.items"].__setitem__(1, int(t["seen.items"][0])), "repeat a"),
    "negative start": (lambda t, f: t["seen.starts"].__setitem__(1, -5), "does not divide"),
    "huge start": (lambda t, f: t["seen.starts"].__setitem__(-1, 2**60), "does not divide"),
    "ids are junk": (lambda t, f: t.update({"ids.users": torch.zeros(64, dtype=torch.uint8)}), "not a sound"),
    "ids are empty": (lambda t, f: t.update({"ids.users": torch.zeros(0, dtype=torch.uint8)}), "not a sound"),
    "other counts": (lambda t, f: t.update(popularity=torch.zeros(3, dtype=torch.int64)), "not 20 counts"),
    "negative counts": (lambda t, f: t["popularity"].__setitem__(0, -1), "not 20 counts"),
    "a bomb": (lambda t, f: t.update({"ids.users": compressed_ids(12)}), "compressed or malformed"),
    "facts are a list": (lambda t, f: [1, 2], "facts are a list"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_with_a_right_checksum_is_still_checked(name, path):
    change, message = HOSTILE[name]
    rewritten(path, change)
    with pytest.raises(StorageError, match=message):
        load_model(path)


HOSTILE_SPARSE = {
    "NaN": (lambda t, f: t["users.values"].__setitem__(0, float("nan")), "1 values of users are NaN"),
    "column out of range": (lambda t, f: t["users.columns"].__setitem__(0, 20), "not among 20"),
    "column below zero": (lambda t, f: t["items.columns"].__setitem__(0, -1), "not among 20"),
    "repeated column": (
        lambda t, f: t["users.columns"].__setitem__(1, int(t["users.columns"][0])),
        "not distinct and rising",
    ),
    "negative start": (lambda t, f: t["users.starts"].__setitem__(1, -5), "does not divide"),
    "huge start": (lambda t, f: t["users.starts"].__setitem__(-1, 2**60), "does not divide"),
    "fewer values": (lambda t, f: t.update({"users.values": torch.ones(3)}), "does not divide"),
    "no values": (lambda t, f: t.pop("users.values"), "not a sound model"),
    "no starts": (lambda t, f: t.update({"items.starts": torch.zeros(0).long()}), "not a sound model"),
    "a start": (lambda t, f: t.update({"items.starts": torch.tensor(3)}), "not a sound model"),
    "more users": (
        lambda t, f: t.update({"users.starts": torch.cat([t["users.starts"], t["users.starts"][-1:]])}),
        "12 ids for 13 users",
    ),
    "more items": (
        lambda t, f: t.update({"items.starts": torch.cat([t["items.starts"], t["items.starts"][-1:]])}),
        "20 ids for 21 items",
    ),
    "doubles": (lambda t, f: t.update({"users.values": t["users.values"].double()}), "not of int64, int32"),
    "a matrix": (
        lambda t, f: t.update({"users.values": t["users.values"][None]}),
        r"users is of shapes \(13,\), \(\d+,\), \(1, \d+\); each must have one axis",
    ),
    "a matrix of what was seen": (
        lambda t, f: t.update({"seen.items": t["seen.items"][None]}),
        r"seen is of shapes \(13,\), \(1, \d+\); each must have one axis",
    ),
    "dense items of less width": (
        lambda t, f: t.update(items=torch.ones(20, 7)),
        "users has columns that are not among 7",
    ),
    "no dense items, of a width that costs nothing": (
        lambda t, f: t.update(items=torch.ones(0, 2**40)),
        "it has no items",
    ),
    "dense users of another width": (
        lambda t, f: t.update(users=torch.ones(12, 7)),
        "users have 7 dimensions, items 20",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_SPARSE)
def test_a_hostile_sparse_file_with_a_right_checksum_is_still_checked(name, sparse_path):
    change, message = HOSTILE_SPARSE[name]
    rewritten(sparse_path, change)
    with pytest.raises(StorageError, match=message):
        load_model(sparse_path)


def test_junk_in_the_arrow_bytes_with_a_right_checksum(path):
    """Every byte of the ids changed in turn, the checksum made right: an error, or ids that are sound."""
    tensors, facts = read_tensors(path, KIND, VERSION)
    before, sound = tensors["ids.users"].clone(), 0
    for at in range(0, len(before), 3):
        tensors["ids.users"] = before.clone()
        tensors["ids.users"][at] ^= 0xA5
        write_tensors(path, KIND, VERSION, tensors, facts)
        with contextlib.suppress(StorageError):
            assert len(load_model(path).seen.user_ids) == 12
            sound += 1
    assert 0 < sound < len(before) / 3  # some changes are to padding or to an id; most are found


def test_foreign_newer_and_missing_files(path, tmp_path):
    safetensors.torch.save_file({"x": torch.zeros(2)}, tmp_path / "foreign")
    with pytest.raises(StorageError, match="is not a truepair model, but 'something foreign'"):
        load_model(tmp_path / "foreign")
    write_tensors(tmp_path / "newer", KIND, VERSION + 1, {"x": torch.zeros(2)}, {})
    with pytest.raises(StorageError, match=r"of version 2; this truepair reads up to 1; upgrade"):
        load_model(tmp_path / "newer")
    write_tensors(tmp_path / "checkpoint", "truepair checkpoint", 1, {"x": torch.zeros(2)}, {})
    with pytest.raises(StorageError, match="is not a truepair model, but 'truepair checkpoint'"):
        load_model(tmp_path / "checkpoint")
    with pytest.raises(StorageError, match="there is no truepair model at"):
        load_model(tmp_path / "nothing")
    with pytest.raises(StorageError, match="is a folder, not a truepair model"):
        load_model(tmp_path)


def test_tensors_of_other_types_are_refused(path):
    tensors, facts = read_tensors(path, KIND, VERSION)
    header = {"kind": KIND, "version": str(VERSION), "facts": json.dumps(facts), "digest": "x"}
    for dtype in (torch.bfloat16, torch.float16, torch.bool, torch.float8_e4m3fn):
        changed = {**tensors, "users": tensors["users"].to(dtype)}
        safetensors.torch.save_file(changed, path, metadata=header)
        with pytest.raises(StorageError, match="damaged"):
            load_model(path)


def test_saving_onto_a_folder(model, tmp_path):
    with pytest.raises(StorageError, match="it is a folder; name a file in it"):
        save_model(tmp_path, model)


def test_a_full_disk_leaves_the_old_model_intact(path, model, monkeypatch):
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device; the one before it is untouched"):
        save_model(path, model)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
