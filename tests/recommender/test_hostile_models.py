"""Model files with a right checksum and wrong contents: they are refused when they are loaded."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from truepair.errors import StorageError
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import KIND, VERSION
from truepair.spec.parameters import PARAMETERS
from truepair.storage.tensor_file import read_tensors, write_tensors

MODELS = Path(__file__).parents[1] / "compatibility" / "files" / "models"


def load_changed(name, folder, change, version=1):
    """Load a sound model of a version whose tensors and facts were changed."""
    path = MODELS / f"{name}.truepair"
    if version == VERSION:
        Recommender.load(path).save(folder / "sound")
        path = folder / "sound"
    tensors, facts = read_tensors(path, KIND, version)
    change(tensors, facts)
    write_tensors(folder / "m", KIND, version, tensors, facts)
    return Recommender.load(folder / "m")


def parameters_of(facts):
    """Where files of both versions have them."""
    return facts["model"]["parameters"] if "model" in facts else facts["parameters"]


both_versions = pytest.mark.parametrize("version", [1, VERSION])


@both_versions
@pytest.mark.parametrize("name", ["default", "ease", "itemknn", "dpl-uniform-cpu", "exact-plus-ease"])
def test_what_is_changed_is_sound_before(name, version, tmp_path):
    """Else every change would be refused for the wrong reason."""
    assert load_changed(name, tmp_path, lambda t, f: None, version).recommend(k=2).num_rows


@both_versions
@pytest.mark.parametrize("name", ["default", "ease", "itemknn", "dpl-uniform-cpu"])
@pytest.mark.parametrize("number", [0, 2**62, 2**63 - 1])
def test_popularity_that_cannot_be_divided_by(name, number, version, tmp_path):
    with pytest.raises(StorageError, match="popularity adds up to"):
        load_changed(name, tmp_path, lambda t, f: t["popularity"].fill_(number), version)


# --- ids of version 1, which are an Arrow stream -----------------------------------------------------------


def ids(table, compression=None):
    """Bytes of ids with these columns."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
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


JUNK = {
    "junk": (lambda n: torch.zeros(64, dtype=torch.uint8), "not a sound Arrow stream"),
    "empty": (lambda n: torch.zeros(0, dtype=torch.uint8), "not a sound Arrow stream"),
    "a bomb": (lambda n: ids(pa.table({"id": range(n)}), "zstd"), "compressed or malformed"),
    "not bytes": (lambda n: torch.zeros(64), "are not bytes"),
    "a matrix": (lambda n: ids(pa.table({"id": range(n)}))[None], "are not bytes"),
    "too few": (lambda n: ids(pa.table({"id": range(n - 1)})), "not a sound model"),
    "not sorted": (lambda n: ids(pa.table({"id": range(n, 0, -1)})), "not distinct and sorted"),
}


@pytest.mark.parametrize("name", JUNK)
@pytest.mark.parametrize("side", ["users", "items"])
def test_ids_that_are_not_a_stream(name, side, tmp_path):
    make, message = JUNK[name]
    with pytest.raises(StorageError, match=message):
        load_changed("default", tmp_path, lambda t, f: t.update({f"ids.{side}": make(len(t[side]))}))


def test_junk_in_the_arrow_bytes_with_a_right_checksum(tmp_path):
    """Bytes of the ids changed in turn, the checksum made right: an error, or ids that are sound."""
    tensors, facts = read_tensors(MODELS / "default.truepair", KIND, 1)
    before, n, sound = tensors["ids.users"].clone(), len(tensors["users"]), 0
    for at in range(0, len(before), 3):
        tensors["ids.users"] = before.clone()
        tensors["ids.users"][at] ^= 0xA5
        write_tensors(tmp_path / "m", KIND, 1, tensors, facts)
        with contextlib.suppress(StorageError):
            assert Recommender.load(tmp_path / "m").seen_.n_users == n
            sound += 1
    assert 0 < sound < len(before) / 3  # some changes are to padding or to an id; most are found


# --- matrices of version 1, in which all parts lie side by side --------------------------------------------


def without_a_vector(tensors):
    """A user's last number is missing."""
    tensors["users.starts"][1:] -= 1
    at = int(tensors["users.starts"][1])
    for part in ("columns", "values"):
        tensors[f"users.{part}"] = torch.cat(
            [tensors[f"users.{part}"][:at], tensors[f"users.{part}"][at + 1 :]]
        )


BAD_MATRICES = {
    ("default", "wider users"): (
        lambda t: t.update(users=torch.cat([t["users"]] * 2, 1)),
        "users is torch.float32 of shape",
    ),
    ("default", "wider items"): (
        lambda t: t.update(items=torch.cat([t["items"]] * 2, 1)),
        "items is torch.float32 of shape",
    ),
    ("default", "a vector"): (lambda t: t.update(users=torch.ones(3)), "users is torch.float32 of shape"),
    ("default", "fewer users"): (lambda t: t.update(users=t["users"][:-1]), "not float32 of"),
    ("default", "doubles"): (lambda t: t.update(users=t["users"].double()), "users is torch.float64"),
    ("default", "NaN"): (lambda t: t["items"].fill_(float("nan")), "NaN"),
    ("default", "no users"): (lambda t: t.pop("users"), "not a sound model: KeyError"),
    ("default", "starts of floats"): (
        lambda t: t.update({"seen.starts": t["seen.starts"].double()}),
        "not int64 of",
    ),
    ("default", "a start"): (lambda t: t.update({"seen.starts": torch.tensor(3)}), "not int64 of"),
    ("popular-int", "two columns"): (
        lambda t: t.update(items=torch.cat([t["items"]] * 2, 1)),
        r"not float32 of \(\d+, 1\)",
    ),
    ("popular-int", "a vector"): (lambda t: t.update(items=t["items"][:, 0]), r"not float32 of \(\d+, 1\)"),
    ("ease", "a column out of range"): (
        lambda t: t["users.columns"].fill_(10**6),
        "columns that are not among",
    ),
    ("ease", "items of less width"): (lambda t: t.update(items=t["items"][:, 1:]), "not float32 of"),
    ("itemknn", "no values"): (
        lambda t: t.pop("items.values"),
        "has 'weights.values', and the file does not",
    ),
    ("itemknn", "dense items"): (
        lambda t: (t.pop("items.starts"), t.update(items=torch.ones(9, 9))),
        "not a sound model",
    ),
    ("exact-plus-ease", "a missing number"): (without_a_vector, "do not have .* numbers each"),
    ("exact-plus-ease", "less width"): (
        lambda t: t.update(items=t["items"][:, 1:]),
        "items is torch.float32 of shape",
    ),
    ("exact-plus-ease", "a column out of range"): (lambda t: t["users.columns"].fill_(10**6), "not among"),
    ("exact-plus-ease", "a column below zero"): (lambda t: t["users.columns"].fill_(-1), "not among"),
    ("exact-plus-ease", "starts of floats"): (
        lambda t: t.update({"users.starts": t["users.starts"].double()}),
        "not int64 of",
    ),
    ("exact-plus-ease", "starts around the largest integer"): (
        lambda t: t["users.starts"][1:4].copy_(torch.tensor([2**62, -(2**63), -(2**62)])),
        "does not divide",
    ),
    ("exact-plus-ease", "a start"): (lambda t: t.update({"users.starts": torch.tensor(3)}), "not int64 of"),
    ("exact-plus-ease", "fewer values"): (
        lambda t: t.update({"users.values": torch.ones(3)}),
        r"\(3,\), not float32 of",
    ),
    ("exact-plus-ease", "NaN"): (lambda t: t["users.values"].fill_(float("nan")), "NaN"),
}


@pytest.mark.parametrize("case", BAD_MATRICES, ids=" ".join)
def test_matrices_of_version_1_are_checked(case, tmp_path):
    change, message = BAD_MATRICES[case]
    with pytest.raises(StorageError, match=message):
        load_changed(case[0], tmp_path, lambda tensors, facts: change(tensors))


@pytest.mark.parametrize("fact", ["only in validation", "vectors without pairs", "added items"])
@pytest.mark.parametrize("value", [[10**6], [-1], 0, {}, [True], [1.0], ["a"], [[1]], None], ids=str)
def test_codes_of_version_1_are_checked(fact, value, tmp_path):
    with pytest.raises(StorageError, match=f"the fact '{fact}' is not a list of codes below"):
        load_changed("default", tmp_path, lambda t, f: f.update({fact: value}))


# --- the prior ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tau", [[], {}, "", False, [0.1, "x"], [None], [0.1, 2.0], 1.0, -0.1, [[0.1]], 10**400]
)
def test_priors_of_version_1_that_are_none(tau, tmp_path):
    with pytest.raises(StorageError, match="tau"):
        load_changed("dpl-uniform-cpu", tmp_path, lambda t, f: f.update(tau=tau))


PRIORS = {
    "nothing": torch.zeros(0).double(),
    "a number without an axis": torch.tensor(0.1).double(),
    "of 32 bits": torch.tensor([0.1]),
    "an integer": torch.tensor([0]),
    "a matrix": torch.tensor([[0.1]]).double(),
    "two numbers": torch.tensor([0.1, 0.2]).double(),
    "1": torch.tensor([1.0]).double(),
    "negative": torch.tensor([-0.1]).double(),
    "NaN": torch.tensor([float("nan")]).double(),
    "infinity": torch.tensor([float("inf")]).double(),
}


@pytest.mark.parametrize("name", PRIORS)
def test_priors_that_are_none(name, tmp_path):
    with pytest.raises(StorageError, match="tau"):
        load_changed("dpl-uniform-cpu", tmp_path, lambda t, f: t.update(tau=PRIORS[name]), VERSION)


def test_a_prior_that_is_a_word_alone(tmp_path):
    """An update would go on with the word."""

    def change(tensors, facts):
        parameters_of(facts)["tau"] = "density"
        tensors.pop("tau", None)
        facts.update({} if "model" in facts else {"tau": None})

    for version in (1, VERSION):
        with pytest.raises(
            StorageError, match="the prior of its loss is 'density', and it does not have tau"
        ):
            load_changed("dpl-uniform-cpu", tmp_path, change, version)


def test_priors_of_other_users(tmp_path):
    def fewer(tensors, facts):
        assert facts["model"]["tau of each user"]
        tensors["tau"] = tensors["tau"][:-1]

    with pytest.raises(StorageError, match=r"tau has \d+ numbers for \d+ users"):
        load_changed("dpl-tau-per-user", tmp_path, fewer, VERSION)
    with pytest.raises(StorageError, match=r"tau has \d+ numbers for \d+ users"):
        load_changed(
            "dpl-uniform-cpu", tmp_path, lambda t, f: f["model"].update({"tau of each user": True}), VERSION
        )


# --- parameters and facts ----------------------------------------------------------------------------------


@both_versions
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
def test_numbers_above_all_bounds(part, value, version, tmp_path):
    what = {"sampler": "pool", "dim": "users is .*of shape"}.get(part, part)
    with pytest.raises(StorageError, match=f"is not a sound model: .*{what}"):
        load_changed(
            "dpl-uniform-cpu", tmp_path, lambda t, f: parameters_of(f).update({part: value}), version
        )


@both_versions
@pytest.mark.parametrize("value", [[{}], [0.1, {"unknown": "x"}], [[{"kind": "mf"}]]], ids=str)
@pytest.mark.parametrize(("name", "part"), [("default", "tau"), ("ease", "patience")])
def test_objects_within_a_parameter_that_has_no_effect(name, part, value, version, tmp_path):
    """It is left out when it is read, and would fail when the model is saved again."""
    with pytest.raises(StorageError, match="is no number, no text and no list of them"):
        load_changed(name, tmp_path, lambda t, f: parameters_of(f).update({part: value}), version)


@both_versions
@pytest.mark.parametrize(
    ("name", "part", "value"),
    [("default", "blend_weight", 2.0), ("default", "n_extra", 7), ("ease", "epochs", 9)],
)
def test_parameters_without_effect_are_dropped(name, part, value, version, tmp_path):
    """They would be an error in a fit with the parameters of the file."""

    def change(tensors, facts):
        own = parameters_of(facts)
        own.pop("plus_weight", None)  # the old name of one
        own[part] = value

    model = load_changed(name, tmp_path, change, version)
    assert getattr(model, part) == PARAMETERS[part]
    assert model.spec == model.spec_


@both_versions
def test_facts_nested_deeply(version, tmp_path):
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(StorageError, match="more than 32 deep within each other"):
        load_changed("default", tmp_path, lambda t, f: f.update(versions=deep), version)


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
    "steps of another type": (
        lambda t: t.update({"training.steps": torch.tensor(2.0)}),
        r"not int64 of \(\)",
    ),
    "many steps": (lambda t: t.update({"training.steps": torch.tensor([2, 2])}), r"not int64 of \(\)"),
    "negative steps": (lambda t: t["training.steps"].fill_(-1), "steps"),
    "moments of no steps": (lambda t: t["training.steps"].fill_(0), "does not belong"),
    "an unknown part": (lambda t: t.update({"training.users.third": torch.ones(3, 4)}), "does not belong"),
    "too few users": (
        lambda t: t.update({n: t[n][:2] for n in t if n.startswith("training.users.")}),
        r"training.users.vectors is .* of shape \(2, 4\), not float32 of \(3, 4\)",
    ),
    "another width": (
        lambda t: t.update({n: t[n][:, :3].clone() for n in t if n.startswith("training.") and t[n].ndim}),
        r"of shape \(3, 3\), not float32 of \(3, 4\)",
    ),
    "another shape": (lambda t: t.update({"training.users.first": torch.ones(3, 5)}), "first of users"),
    "not int64 of": (lambda t: t.update({"training.users.vectors": torch.ones(3)}), r"of shape \(3,\), not"),
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


UPDATES = [{}, [1], [{"epochs": [1]}], [{"epochs": True}]]


@pytest.mark.parametrize("value", UPDATES, ids=str)
def test_facts_of_updates_that_are_none(value, updatable, tmp_path):
    with pytest.raises(StorageError, match="update"):
        load_with(updatable, tmp_path, lambda tensors, facts: facts["facts"].update(updates=value))
    with pytest.raises(StorageError, match="update"):
        load_changed("default", tmp_path, lambda tensors, facts: facts.update(updates=value))


def test_moments_of_another_optimizer(updatable, tmp_path):
    with pytest.raises(StorageError, match="moments of Adam, not of sgd"):
        load_with(updatable, tmp_path, lambda t, f: f["model"]["parameters"].update(optimizer="sgd"))


def test_a_closed_form_has_no_state_of_training(updatable, tmp_path):
    tensors, _ = read_tensors(updatable, KIND, VERSION)
    state = {name: tensor for name, tensor in tensors.items() if name.startswith("training.")}
    Recommender(encoder="ease").fit({"user": [1, 1, 2, 2, 3], "item": [1, 2, 2, 3, 4]}).save(tmp_path / "e")
    with pytest.raises(StorageError, match="is not trained"):
        load_with(tmp_path / "e", tmp_path, lambda tensors, facts: tensors.update(state))
