"""Models on disk: what goes in comes out, and no file, however bad, does more than give an error."""

import dataclasses
import errno
import json
import os
import struct
import uuid

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import scipy.sparse as sp
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.errors import StorageError
from truepair.models.factor_matrices import by_columns
from truepair.models.scorer import Scorer
from truepair.recommender.estimator import Recommender
from truepair.recommender.model import Model
from truepair.recommender.model_file import KIND, VERSION, load_model, save_model
from truepair.spec import Spec
from truepair.storage.tensor_file import read_tensors, write_tensors
from worlds import two_tastes


def model_of(seen, scorer, facts=None, **parameters):
    """A model of these parts, all of whose users are trained."""
    spec = Spec.of({"device": "cpu", **parameters})
    trained, added = np.ones(seen.n_users, dtype=bool), np.zeros(seen.n_items, dtype=bool)
    popularity = np.maximum(seen.item_counts, 1)
    return Model(spec, scorer, seen, popularity, trained, added, facts=facts or {})


def vectors_of(seen, dim=5):
    g = torch.Generator().manual_seed(0)
    return torch.randn(seen.n_users, dim, generator=g), torch.randn(seen.n_items, dim, generator=g)


@pytest.fixture
def seen():
    """12 users with integers for ids, and 20 items with text."""
    data = two_tastes(n_users=12, n_items=20, each=4)
    names = IdMap.of([f"item {code:02}" for code in range(20)])
    return Interactions(data.users, data.items, data.user_ids, names)


@pytest.fixture
def model(seen):
    return model_of(seen, Scorer(*vectors_of(seen)), {"note": "hello"}, dim=5, auto=False)


@pytest.fixture
def path(model, tmp_path):
    save_model(tmp_path / "m.truepair", model)
    return tmp_path / "m.truepair"


def assert_same(found, model):
    """All parts of both models are equal."""
    assert found.spec.parameters() == model.spec.parameters()
    for part in ("users", "items", "term", "history", "weights"):
        one, other = getattr(found.scorer, part), getattr(model.scorer, part)
        assert type(one) is type(other), part
        if sp.issparse(one):
            assert one.shape == other.shape
            assert abs(one - other).max() == 0
        elif one is not None:
            assert torch.equal(one, other), part
    assert found.seen == model.seen
    for one, other in (
        (found.seen.weight, model.seen.weight), (found.seen.disliked, model.seen.disliked),
        (found.popularity, model.popularity), (found.trained, model.trained), (found.added, model.added),
    ):  # fmt: skip
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one, other)
    assert (found.tau, found.folded, found.facts) == (model.tau, model.folded, model.facts)
    assert (found.start is None) == (model.start is None)
    if found.start is not None:
        assert found.start.digest() == model.start.digest()
    assert (found.item_map is None) == (model.item_map is None)
    if found.item_map is not None:
        assert torch.equal(found.item_map.weights, model.item_map.weights)
        assert found.item_map.encoding.as_json() == model.item_map.encoding.as_json()
        assert (found.item_map.l2, found.item_map.cosine) == (model.item_map.l2, model.item_map.cosine)


def test_what_goes_in_comes_out(path, model):
    loaded = load_model(path)
    assert_same(loaded.model, model)
    assert loaded.output == "arrow"
    assert loaded.model.facts == {"note": "hello"}


SMALL = {"dim": 4, "epochs": 1, "auto": False, "device": "cpu"}
LIVING = {
    "held out": {**SMALL, "validation": 0.2, "popularity": 0.5},
    "a blend": {**SMALL, "validation": 0.2, "blend": "ease", "popularity": 0.3},
    "priors": {**SMALL, "encoder": "lightgcn", "loss": "dpl", "tau": tuple(np.linspace(0.1, 0.2, 40))},
    "a word for the prior": {**SMALL, "loss": "dpl", "sampler": "uniform", "tau": "density"},
    "ease": {"encoder": "ease"},
    "itemknn": {"encoder": "itemknn"},
    "popular": {"encoder": "popular"},
}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights and dislikes"])
@pytest.mark.parametrize("name", LIVING)
def test_everything_goes_in_and_out_at_every_stage(name, weighted, tmp_path):
    """After a fit, an update, forgetting, adding items, and of users who were folded in."""
    data = two_tastes()
    columns = {"user": data.users, "item": data.items}
    if weighted:
        columns["weight"] = np.where(np.arange(len(data)) % 9, np.arange(len(data)) % 3 + 1, -1)  # integers
    source = read_interactions(columns, dislikes=True) if weighted else read_interactions(columns)
    model = Recommender(**LIVING[name]).fit(source)
    stages = [model.model_]
    model.update(
        {"user": [1, 99], "item": [77, 2]},
        dislikes=False,
        **({} if model.spec_.closed_form else {"epochs": 0}),
    )
    stages.append(model.model_)
    model.forget(users=[0], items=[5])
    stages.append(model.model_)
    if model.spec_.is_trained:
        ids = [*model.seen_.item_ids.ids.to_pylist(), 1000, 1001]
        kinds = {"item": ids, "kind": [str(number % 2) for number in ids], "price": [n % 7 for n in ids]}
        model = model.add_items(kinds)
        assert model.model_.added.sum() == 2
        stages.append(model.model_)
    stages.append(model.fold_in({"user": ["x", "x", "y"], "item": [1, 3, 8]}).model_)
    assert stages[-1].folded
    for stage in stages:
        save_model(tmp_path / "m", stage, "pandas")
        found, output = load_model(tmp_path / "m")
        assert output == "pandas"
        assert_same(found, stage)
        assert Recommender.load(tmp_path / "m").spec == found.spec  # a new fit is one of the same model
        save_model(tmp_path / "again", found, "pandas")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


@pytest.mark.parametrize(
    "ids",
    [
        *(["ann", "bob", "çağ"], [1, 2, 2**40], [2**63, 2**63 + 1, 2**64 - 1], [-5, 0, 7]),
        *([b"\x00", b"\x01\x02", b"z"], ["", "a", "b"], [uuid.UUID(int=n) for n in (1, 2, 2**127)]),
    ],
    ids=["text", "integers", "large", "negative", "bytes", "empty text", "uuid"],
)
def test_ids_of_any_kind(ids, tmp_path):
    known = IdMap.of(pa.array(ids, pa.uuid()) if isinstance(ids[0], uuid.UUID) else ids)
    sides = (known, IdMap.of(["x", "y"])), (IdMap.of(["x", "y"]), known)
    for users, items in sides:
        seen = Interactions(np.array([0, 1]), np.array([1, 1]), users, items)
        save_model(tmp_path / "m", model_of(seen, Scorer(*vectors_of(seen, 2)), dim=2))
        found = load_model(tmp_path / "m").model.seen
        assert (found.user_ids, found.item_ids) == (users, items)
        assert found.user_ids.ids.type == users.ids.type


def test_a_users_or_items_without_interactions_survive(tmp_path):
    seen = Interactions(np.zeros(0, int), np.zeros(0, int), IdMap.range(3), IdMap.range(2))
    save_model(tmp_path / "m", model_of(seen, Scorer(*vectors_of(seen, 2)), dim=2))
    assert load_model(tmp_path / "m").model.seen.n_users == 3


def test_a_model_without_users_survives(tmp_path):
    seen = Interactions(np.zeros(0, int), np.zeros(0, int), IdMap.range(0), IdMap.range(2))
    save_model(tmp_path / "m", model_of(seen, Scorer(*vectors_of(seen, 2)), dim=2))
    found = load_model(tmp_path / "m").model
    assert (found.seen.n_users, found.scorer.users.shape) == (0, (0, 2))


def test_known_pairs_are_not_widened(path, model):
    seen = load_model(path).model.seen
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
    assert load_model(path).model.seen == model.seen


def sparse(rows, columns=20):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(rows, columns)) * (rng.random((rows, columns)) < 0.3)
    matrix[3] = 0
    return sp.csr_array(matrix.astype(np.float32))


def nothing(seen):
    return torch.zeros(seen.n_users, 0), torch.zeros(seen.n_items, 0)


@pytest.fixture
def sparse_path(seen, tmp_path):
    """A model of histories and sparse weights, with a row of nothing in both."""
    scorer = Scorer(*nothing(seen), history=sparse(12), weights=sparse(20))
    save_model(tmp_path / "s.truepair", model_of(seen, scorer, encoder="itemknn"))
    return tmp_path / "s.truepair"


@pytest.fixture
def blend_path(seen, tmp_path):
    """A model of vectors, a term, histories and dense weights."""
    weights = torch.randn(20, 20, generator=torch.Generator().manual_seed(1))
    scorer = Scorer(*vectors_of(seen), torch.arange(20.0), sparse(12), by_columns(weights))
    own = {"dim": 5, "popularity": 0.5, "blend": "ease", "auto": False}
    save_model(tmp_path / "s.truepair", model_of(seen, scorer, **own))
    return tmp_path / "s.truepair"


def test_parts_of_a_blend_are_named(blend_path):
    tensors, _ = read_tensors(blend_path, KIND, VERSION)
    shapes = {"users": (12, 5), "items": (20, 5), "term": (20,), "weights": (20, 20)}
    assert {name: tuple(tensors[name].shape) for name in shapes} == shapes
    loaded = load_model(blend_path).model.scorer
    assert loaded.weights.T.is_contiguous()
    assert loaded.width == 26
    rewritten(blend_path, lambda t, f: t["history.columns"].__setitem__(0, 25))
    with pytest.raises(StorageError, match="history has columns that are not among 20"):
        load_model(blend_path)


def test_a_history_that_is_what_was_seen_is_not_stored_twice(seen, blend_path, tmp_path):
    found = load_model(blend_path).model
    same = dataclasses.replace(found.scorer, history=seen.weighted_csr())
    save_model(tmp_path / "m", dataclasses.replace(found, scorer=same))
    tensors, _ = read_tensors(tmp_path / "m", KIND, VERSION)
    assert not [name for name in tensors if name.startswith("history")]
    assert abs(load_model(tmp_path / "m").model.scorer.history - seen.weighted_csr()).max() == 0


def test_sparse_matrices_come_out_too(sparse_path):
    tensors, _ = read_tensors(sparse_path, KIND, VERSION)
    assert {"history.starts", "history.columns", "history.values", "weights.starts"} <= set(tensors)
    assert not {"users", "items", "weights", "term"} & set(tensors)
    loaded = load_model(sparse_path).model
    again = sparse_path.with_name("again")
    save_model(again, loaded)
    for name, tensor in read_tensors(again, KIND, VERSION)[0].items():
        assert torch.equal(tensor, tensors[name]), name
    assert loaded.scorer.history.shape == (12, 20)
    assert loaded.scorer.history.dtype == np.float32
    assert loaded.scorer.history[[3]].nnz == 0


def test_columns_in_any_order_are_saved_in_rising_order(tmp_path, seen):
    tangled = sp.csr_array((np.array([1, 2, 3.0]), np.array([4, 0, 4]), np.r_[0, np.full(12, 3)]), (12, 20))
    scorer = Scorer(*nothing(seen), history=tangled, weights=sp.csr_array((20, 20)))
    save_model(tmp_path / "m", model_of(seen, scorer, encoder="itemknn"))
    assert load_model(tmp_path / "m").model.scorer.history.toarray()[0, [0, 4]].tolist() == [2.0, 4.0]
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


@pytest.mark.parametrize("kind", ["path", "sparse_path", "blend_path"])
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


def wrapped(tensors, name):
    """Starts whose differences, as integers of 64 bits, are all positive."""
    tensors[name][1:4] = torch.tensor([2**62, -(2**63), -(2**62)])


def longs(*numbers):
    return torch.tensor(numbers, dtype=torch.int64)


HOSTILE = {
    "NaN": (lambda t, f: t["users"].__setitem__((0, 0), float("nan")), "1 rows of users hold NaN"),
    "infinity": (
        lambda t, f: t["items"].__setitem__((0, 0), float("inf")),
        "1 rows of items hold NaN or inf",
    ),
    "other dimension": (
        lambda t, f: t.update(items=torch.ones(20, 7)),
        r"items is torch.float32 of shape \(20, 7\), not float32 of \(20, 5\)",
    ),
    "too few users": (lambda t, f: t.update(users=torch.ones(3, 5)), r"\(3, 5\), not float32 of \(12, 5\)"),
    "no items": (lambda t, f: t.pop("items"), "has 'items', and the file does not"),
    "a part of other models": (
        lambda t, f: t.update(term=torch.ones(20)),
        "does not have 'term', and the file",
    ),
    "weights of other models": (
        lambda t, f: t.update({"weights.starts": longs(*[0] * 21)}),
        "does not have 'weights.starts', and the file does",
    ),
    "a vector": (lambda t, f: t.update(users=torch.ones(12)), r"shape \(12,\), not float32"),
    "doubles": (lambda t, f: t.update(users=torch.ones(12, 5).double()), "users is torch.float64"),
    "items of a width that costs nothing": (lambda t, f: t.update(items=torch.ones(0, 2**40)), "not float32"),
    "another dim": (lambda t, f: f["model"]["parameters"].update(dim=6), r"not float32 of \(12, 6\)"),
    "popularity without a term": (lambda t, f: f["model"]["parameters"].update(popularity=0.5), "'term'"),
    "a blend without weights": (lambda t, f: f["model"]["parameters"].update(blend="ease"), "'weights'"),
    "a closed form without weights": (
        lambda t, f: f["model"]["parameters"].update(encoder="itemknn"),
        "'weights.starts'",
    ),
    "item out of range": (lambda t, f: t["seen.items"].__setitem__(0, 99), "items has codes"),
    "repeated pair": (lambda t, f: t["seen.items"].__setitem__(1, int(t["seen.items"][0])), "repeat a"),
    "negative start": (lambda t, f: t["seen.starts"].__setitem__(1, -5), "does not divide"),
    "huge start": (lambda t, f: t["seen.starts"].__setitem__(-1, 2**60), "does not divide"),
    "starts around the largest integer": (lambda t, f: wrapped(t, "seen.starts"), "does not divide"),
    "other counts": (lambda t, f: t.update(popularity=torch.zeros(3, dtype=torch.int64)), r"of \(20,\)"),
    "negative counts": (lambda t, f: t["popularity"].__setitem__(0, -1), "must be counts"),
    "facts are a list": (lambda t, f: [1, 2], "facts are a list"),
    "own facts are a list": (lambda t, f: f.update(facts=[1, 2]), "facts are a list"),
    "no facts": (lambda t, f: f.pop("facts"), "not a sound model: KeyError"),
    "the model is a list": (lambda t, f: f.update(model=[1, 2]), "not a sound model"),
    "the model is nothing": (lambda t, f: f.update(model=None), "not a sound model"),
    "no model": (lambda t, f: f.pop("model"), "not a sound model"),
    "no parameters": (lambda t, f: f["model"].pop("parameters"), "not a sound model: KeyError"),
    "parameters are text": (lambda t, f: f["model"].update(parameters="mf"), "not a sound model"),
    "another output": (lambda t, f: f["model"].update(output="excel"), "output"),
    "weights of integers": (
        lambda t, f: t.update({"seen.weights": torch.ones(48, dtype=torch.int64)}),
        r"not float64 of \(48,\)",
    ),
    "too few weights": (lambda t, f: t.update({"seen.weights": torch.ones(3).double()}), "weight"),
    "a weight of 0": (lambda t, f: t.update({"seen.weights": torch.zeros(48).double()}), "not above 0"),
    "dislikes of another type": (
        lambda t, f: t.update({"seen.disliked": torch.ones(2)}),
        "not int64 of",
    ),
    "a dislike out of range": (lambda t, f: t.update({"seen.disliked": longs(12 * 20)}), "not a sound model"),
    "nobody is trained": (lambda t, f: t.pop("trained"), "KeyError.'trained'"),
    "trained of another type": (
        lambda t, f: t.update(trained=torch.ones(12)),
        "not bool of",
    ),
    "trained of fewer users": (
        lambda t, f: t.update(trained=t["trained"][:3]),
        "not bool of",
    ),
    "trained in a matrix": (
        lambda t, f: t.update(trained=t["trained"][None]),
        "not bool of",
    ),
    "added of codes": (lambda t, f: t.update(added=longs(1, 2)), "not bool of"),
    "added of more items": (
        lambda t, f: t.update(added=torch.ones(21).bool()),
        "not bool of",
    ),
    "features without a map": (lambda t, f: f["model"].update(features={}), "either a map of features or"),
    "a map without features": (
        lambda t, f: t.update({"features.map": torch.ones(3, 5)}),
        "either a map of features or",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_with_a_right_checksum_is_still_checked(name, path):
    change, message = HOSTILE[name]
    rewritten(path, change)
    with pytest.raises(StorageError, match=message):
        load_model(path)


def changed(name, **parts):
    return lambda t, f: t.update({f"ids.{name}.{part}": tensor for part, tensor in parts.items()})


def bytes_of(text):
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


OTHER_IDS = {
    "no users": (lambda t, f: t.pop("ids.users.values"), "not a sound model: KeyError"),
    "no starts of text": (lambda t, f: t.pop("ids.items.starts"), "not a sound model: KeyError"),
    "no ids": (changed("users", values=longs()), "does not divide"),
    "no items": (changed("items", values=bytes_of(b" ")[:0], starts=longs(0)), "it has no items"),
    "fewer": (changed("users", values=torch.arange(11)), "does not divide"),
    "more": (changed("users", values=torch.arange(13)), "does not divide"),
    "of 32 bits": (changed("users", values=torch.arange(12, dtype=torch.int32)), "of other types"),
    "floats": (changed("users", values=torch.arange(12).double()), "of other types"),
    "truths for bytes": (changed("items", values=torch.ones(140).bool()), "of other types"),
    "half floats": (changed("users", values=torch.arange(12).bfloat16()), "not a sound model"),
    "repeated": (changed("users", values=longs(0, 0, *range(1, 11))), "users: the ids are not distinct"),
    "not sorted": (changed("users", values=torch.arange(12).flip(0)), "users: the ids are not distinct and"),
    "text that is not sorted": (
        lambda t, f: t["ids.items.values"].__setitem__(5, ord("9")),
        "items: the ids are not distinct and sorted",
    ),
    "text that is not UTF-8": (lambda t, f: t["ids.items.values"].fill_(0xFF), "the ids of items is damaged"),
    "text that ends too late": (
        lambda t, f: t["ids.items.starts"].__setitem__(-1, 2**40),
        "texts end after the last byte",
    ),
    "text that starts before": (lambda t, f: t["ids.items.starts"].__setitem__(0, -8), "is damaged"),
    "text that starts after": (lambda t, f: t["ids.items.starts"].__setitem__(3, 2**62), "is damaged"),
    "text that goes back": (lambda t, f: t["ids.items.starts"].__setitem__(3, 0), "is damaged"),
    "no start at all": (changed("items", starts=longs()), "texts end after the last byte"),
    "starts in a matrix": (
        lambda t, f: t.update({"ids.items.starts": t["ids.items.starts"][None]}),
        "of other",
    ),
    "an unknown kind": (
        lambda t, f: f["model"].update({"user ids": "float"}),
        "the type of the ids of users",
    ),
    "a kind that is a list": (lambda t, f: f["model"].update({"user ids": [1]}), "not a sound model"),
    "a kind that is nothing": (lambda t, f: f["model"].pop("user ids"), "not a sound model: KeyError"),
    "integers as text": (lambda t, f: f["model"].update({"user ids": "text"}), "not a sound model: KeyError"),
    "text as integers": (lambda t, f: f["model"].update({"item ids": "int64"}), "of other types"),
    "text as UUIDs": (lambda t, f: f["model"].update({"item ids": "uuid"}), "not a sound model"),
}


@pytest.mark.parametrize("name", OTHER_IDS)
def test_ids_that_are_not_sound(name, path):
    change, message = OTHER_IDS[name]
    rewritten(path, change)
    with pytest.raises(StorageError, match=message):
        load_model(path)


HOSTILE_SPARSE = {
    "NaN": (
        lambda t, f: t["history.values"].__setitem__(0, float("nan")),
        "history.values hold NaN",
    ),
    "column out of range": (lambda t, f: t["history.columns"].__setitem__(0, 20), "not among 20"),
    "column below zero": (lambda t, f: t["weights.columns"].__setitem__(0, -1), "not among 20"),
    "repeated column": (
        lambda t, f: t["history.columns"].__setitem__(1, int(t["history.columns"][0])),
        "not distinct and rising",
    ),
    "negative start": (lambda t, f: t["history.starts"].__setitem__(1, -5), "does not divide"),
    "huge start": (lambda t, f: t["history.starts"].__setitem__(-1, 2**60), "does not divide"),
    "starts around the largest integer": (lambda t, f: wrapped(t, "weights.starts"), "does not divide"),
    "fewer values": (lambda t, f: t.update({"history.values": torch.ones(3)}), r"\(3,\), not float32"),
    "no values": (lambda t, f: t.pop("history.values"), "not a sound model"),
    "no starts": (lambda t, f: t.update({"weights.starts": torch.zeros(0).long()}), "does not divide"),
    "a start": (lambda t, f: t.update({"weights.starts": torch.tensor(3)}), "not int64 of"),
    "more users": (
        lambda t, f: t.update({"history.starts": torch.cat([t["history.starts"], t["history.starts"][-1:]])}),
        "among 12 rows",
    ),
    "more items": (
        lambda t, f: t.update({"weights.starts": torch.cat([t["weights.starts"], t["weights.starts"][-1:]])}),
        "among 20 rows",
    ),
    "doubles": (
        lambda t, f: t.update({"history.values": t["history.values"].double()}),
        "not float32 of",
    ),
    "a matrix": (
        lambda t, f: t.update({"history.values": t["history.values"][None]}),
        r"history.values is torch.float32 of shape \(1, \d+\), not float32 of",
    ),
    "a matrix of what was seen": (
        lambda t, f: t.update({"seen.items": t["seen.items"][None]}),
        r"seen.items is torch.int32 of shape \(1, \d+\), not int32 of",
    ),
    "dense weights": (
        lambda t, f: (t.pop("weights.starts"), t.update(weights=torch.ones(20, 20))),
        "'weights.starts'",
    ),
    "sparse weights of a form that has dense ones": (
        lambda t, f: f["model"]["parameters"].update(encoder="ease"),
        "'weights'",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_SPARSE)
def test_a_hostile_sparse_file_with_a_right_checksum_is_still_checked(name, sparse_path):
    change, message = HOSTILE_SPARSE[name]
    rewritten(sparse_path, change)
    with pytest.raises(StorageError, match=message):
        load_model(sparse_path)


HOSTILE_BLEND = {
    "no term": (lambda t, f: t.pop("term"), "'term'"),
    "a term of fewer items": (lambda t, f: t.update(term=torch.ones(3)), r"\(3,\), not float32 of \(20,\)"),
    "a term in a column": (lambda t, f: t.update(term=t["term"][:, None]), r"not float32 of \(20,\)"),
    "NaN in the term": (lambda t, f: t["term"].fill_(float("nan")), "20 rows of term hold NaN"),
    "weights of less width": (lambda t, f: t.update(weights=torch.ones(20, 7)), r"not float32 of \(20, 20\)"),
    "NaN in the weights": (lambda t, f: t["weights"].fill_(float("nan")), "20 rows of weights hold NaN"),
    "half of a history": (lambda t, f: t.pop("history.values"), "not a sound model: KeyError"),
}


@pytest.mark.parametrize("name", HOSTILE_BLEND)
def test_a_hostile_blend_with_a_right_checksum_is_still_checked(name, blend_path):
    change, message = HOSTILE_BLEND[name]
    rewritten(blend_path, change)
    with pytest.raises(StorageError, match=message):
        load_model(blend_path)


@pytest.mark.parametrize("name", ["ids.users.values", "ids.items.values", "ids.items.starts"])
def test_junk_in_the_ids_with_a_right_checksum(name, path):
    """Every byte of the ids changed in turn, the checksum made right: an error, or ids that are sound."""
    tensors, facts = read_tensors(path, KIND, VERSION)
    before, refused = tensors[name].clone(), 0
    places = range(0, len(before.view(torch.uint8)), 3)
    for at in places:
        tensors[name] = before.clone()
        tensors[name].view(torch.uint8)[at] ^= 0xA5
        write_tensors(path, KIND, VERSION, tensors, facts)
        try:
            seen = load_model(path).model.seen
        except StorageError:
            refused += 1
        else:
            assert (len(seen.user_ids), len(seen.item_ids)) == (12, 20)
            assert seen.item_ids.ids.validate(full=True) is None
            assert IdMap.of(seen.item_ids.ids) == seen.item_ids
    assert refused > len(places) / 4  # others are other ids, in order


def test_foreign_newer_and_missing_files(path, tmp_path):
    safetensors.torch.save_file({"x": torch.zeros(2)}, tmp_path / "foreign")
    with pytest.raises(StorageError, match="is not a truepair model, but 'something foreign'"):
        load_model(tmp_path / "foreign")
    write_tensors(tmp_path / "newer", KIND, VERSION + 1, {"x": torch.zeros(2)}, {})
    with pytest.raises(StorageError, match=r"of version 3; this truepair reads up to 2; upgrade"):
        load_model(tmp_path / "newer")
    write_tensors(tmp_path / "older", KIND, 0, {"x": torch.zeros(2)}, {})
    with pytest.raises(StorageError, match=r"of version '0', which never existed"):
        load_model(tmp_path / "older")
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


def test_what_updates_count_is_stored_and_found_among_the_facts_of_older_files(tmp_path):
    data = two_tastes(n_users=12, n_items=20, each=4)
    model = Recommender(dim=4, epochs=2, auto=False).fit(data).model_
    known = dataclasses.replace(
        model,
        n_updates=2,
        new_pairs=7,
        facts={**model.facts, "updates": [{"new pairs": 3}, {"new pairs": 4}]},
    )
    path, older = tmp_path / "m", tmp_path / "older"
    save_model(path, known)
    tensors, facts = read_tensors(path, KIND, VERSION)
    for name in ("data", "updates", "new pairs"):
        del facts["model"][name]
    write_tensors(older, KIND, VERSION, tensors, facts)
    for place in (path, older):
        found = load_model(place).model
        assert (found.data, found.n_updates, found.new_pairs) == (data.hash, 2, 7)
    for name, value in (("updates", -1), ("new pairs", "many")):
        write_tensors(older, KIND, VERSION, tensors, {**facts, "model": {**facts["model"], name: value}})
        with pytest.raises(StorageError, match=f"{name} = "):
            load_model(older)
