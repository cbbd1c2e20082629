"""Model files with a right checksum and wrong contents: they are refused when they are loaded."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from truepair.errors import StorageError
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import KIND, VERSION
from truepair.storage.tensor_file import read_tensors, write_tensors

MODELS = Path(__file__).parents[1] / "compatibility" / "files" / "models"


def load_changed(name, folder, change):
    """Load a sound model whose tensors and facts were changed."""
    tensors, facts = read_tensors(MODELS / f"{name}.truepair", KIND, VERSION)
    change(tensors, facts)
    write_tensors(folder / "m", KIND, VERSION, tensors, facts)
    return Recommender.load(folder / "m")


@pytest.mark.parametrize("name", ["default", "ease", "itemknn", "dpl-uniform-cpu"])
@pytest.mark.parametrize("number", [0, 2**62, 2**63 - 1])
def test_popularity_that_cannot_be_divided_by(name, number, tmp_path):
    with pytest.raises(StorageError, match="popularity adds up to"):
        load_changed(name, tmp_path, lambda t, f: t["popularity"].fill_(number))


def ids(table):
    """Bytes of ids with these columns."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return torch.frombuffer(bytearray(sink.getvalue()), dtype=torch.uint8)


OTHER_IDS = {
    "no column": (lambda n: pa.table({"id": range(n)}).select([]), "have 0 columns instead of one"),
    "two columns": (lambda n: pa.table({"id": range(n), "x": range(n)}), "have 2 columns instead of one"),
    "categories": (
        lambda n: pa.table({"id": pa.array([f"{k:04}" for k in range(n)]).dictionary_encode()}),
        "have a dictionary message",
    ),
    "floats": (lambda n: pa.table({"id": pa.array(range(n), pa.float64())}), "not distinct and sorted"),
    "nulls": (lambda n: pa.table({"id": pa.nulls(n)}), "are missing"),
    "lists": (lambda n: pa.table({"id": [[k] for k in range(n)]}), "cannot be used"),
}


@pytest.mark.parametrize("name", OTHER_IDS)
@pytest.mark.parametrize("side", ["users", "items"])
def test_ids_of_another_form_beside_an_emptied_popularity(name, side, tmp_path):
    make, message = OTHER_IDS[name]

    def change(tensors, facts):
        tensors[f"ids.{side}"] = ids(make(len(tensors[side])))
        tensors["popularity"] = tensors["popularity"][:0]

    with pytest.raises(StorageError, match=message):
        load_changed("default", tmp_path, change)


@pytest.mark.parametrize(
    "tau", [[], {}, "", False, [0.1, "x"], [None], [0.1, 2.0], 1.0, -0.1, [[0.1]], 10**400]
)
def test_priors_that_are_none(tau, tmp_path):
    with pytest.raises(StorageError, match="tau"):
        load_changed("dpl-uniform-cpu", tmp_path, lambda t, f: f.update(tau=tau))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("dim", 10**400),
        ("learning_rate", 10**400),
        ("tau", 10**400),
        ("sampler", {"kind": "dns", "pool": 2**31}),
    ],
    ids=str,
)
def test_numbers_above_all_bounds(part, value, tmp_path):
    with pytest.raises(StorageError, match="does not describe a Recommender"):
        load_changed("dpl-uniform-cpu", tmp_path, lambda t, f: f["parameters"].update({part: value}))


@pytest.mark.parametrize("value", [[{}], [0.1, {"unknown": "x"}], [[{"kind": "mf"}]]], ids=str)
@pytest.mark.parametrize(("name", "part"), [("default", "tau"), ("ease", "patience")])
def test_objects_within_a_parameter_that_has_no_effect(name, part, value, tmp_path):
    """It is left out when it is read, and would fail when the model is saved again."""
    with pytest.raises(StorageError, match="is no number, no text and no list of them"):
        load_changed(name, tmp_path, lambda t, f: f["parameters"].update({part: value}))


def test_facts_nested_deeply(tmp_path):
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(StorageError, match="more than 32 deep within each other"):
        load_changed("default", tmp_path, lambda t, f: f.update(versions=deep))


# --- the state of training ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def updatable(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "m"
    data = {"user": [1, 1, 2, 2, 3], "item": [1, 2, 2, 3, 4]}
    Recommender(dim=4, epochs=2, auto=False, device="cpu").fit(data).save(path)
    return path


BAD_STATES = {
    "a missing part": (lambda t: t.pop("training.items.first"), "training.items.first"),
    "no steps": (lambda t: t.pop("training.steps"), "training.steps"),
    "steps of another type": (lambda t: t.update({"training.steps": torch.tensor(2.0)}), "not one int64"),
    "many steps": (lambda t: t.update({"training.steps": torch.tensor([2, 2])}), "not one int64"),
    "negative steps": (lambda t: t["training.steps"].fill_(-1), "steps"),
    "moments of no steps": (lambda t: t["training.steps"].fill_(0), "does not belong"),
    "an unknown part": (lambda t: t.update({"training.users.third": torch.ones(3, 4)}), "does not belong"),
    "too few users": (
        lambda t: t.update({n: t[n][:2] for n in t if n.startswith("training.users.")}),
        "for 3 users",
    ),
    "another width": (
        lambda t: t.update({n: t[n][:, :3].clone() for n in t if n.startswith("training.") and t[n].ndim}),
        "training state 3",
    ),
    "another shape": (lambda t: t.update({"training.users.first": torch.ones(3, 5)}), "first of users"),
    "one axis": (lambda t: t.update({"training.users.vectors": torch.ones(3)}), "for 3 users"),
    "another type": (lambda t: t.update({"training.users.first": torch.ones(3, 4).double()}), "float64"),
    "NaN": (lambda t: t["training.items.vectors"].fill_(float("nan")), "NaN"),
    "infinity": (lambda t: t["training.items.second"].fill_(float("inf")), "infinity"),
    "negative squares": (lambda t: t["training.items.second"].fill_(-1.0), "negative"),
}


def load_with(path, folder, change):
    tensors, facts = read_tensors(path, KIND, VERSION)
    change(tensors, facts)
    write_tensors(folder / "m", KIND, VERSION, tensors, facts)
    return Recommender.load(folder / "m")


@pytest.mark.parametrize("name", BAD_STATES)
def test_a_state_of_training_that_is_none(name, updatable, tmp_path):
    change, message = BAD_STATES[name]
    with pytest.raises(StorageError, match=message):
        load_with(updatable, tmp_path, lambda tensors, facts: change(tensors))


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("updates", {}), ("updates", [1]), ("updates", [{"epochs": [1]}]), ("updates", [{"epochs": True}]),
        ("vectors without pairs", [3]), ("vectors without pairs", 0), ("vectors without pairs", [True]),
    ],
)  # fmt: skip
def test_facts_of_updates_that_are_none(fact, value, updatable, tmp_path):
    with pytest.raises(StorageError, match=r"update|vectors without pairs"):
        load_with(updatable, tmp_path, lambda tensors, facts: facts.update({fact: value}))


def test_a_closed_form_has_no_state_of_training(updatable, tmp_path):
    tensors, _ = read_tensors(updatable, KIND, VERSION)
    state = {name: tensor for name, tensor in tensors.items() if name.startswith("training.")}
    Recommender(encoder="ease").fit({"user": [1, 1, 2, 2, 3], "item": [1, 2, 2, 3, 4]}).save(tmp_path / "e")
    with pytest.raises(StorageError, match="is not trained"):
        load_with(tmp_path / "e", tmp_path, lambda tensors, facts: tensors.update(state))
