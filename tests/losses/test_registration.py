"""What `register_loss` accepts, and what of a registered loss can be saved and loaded."""

import dataclasses
import json
import math
from typing import Any

import pytest

import truepair as tp
from truepair.errors import InputError, StorageError
from truepair.losses import BPR, LOSSES, Loss, register_loss
from truepair.spec.parameters import as_json, check_saveable, from_json
from worlds import two_tastes

DATA = two_tastes(n_users=10, n_items=8, each=3)
QUICK = {"dim": 2, "epochs": 1, "device": "cpu"}


@pytest.fixture(autouse=True)
def no_loss_stays():
    kept = dict(LOSSES)
    yield
    LOSSES.clear()
    LOSSES.update(kept)


def register():
    """A class that is defined and registered anew by each call, as by a cell of a notebook."""

    @dataclasses.dataclass(frozen=True)
    class Mine(BPR):
        slope: Any = 1.0
        twice: float = dataclasses.field(default=2.0, init=False)

    register_loss("mine", Mine)
    return Mine


@dataclasses.dataclass(frozen=True)
class Another(BPR):
    pass


@dataclasses.dataclass(frozen=True)
class Abstract(Loss):
    pass


@dataclasses.dataclass(frozen=True)
class WithKind(BPR):
    kind: str = "hinge"


@dataclasses.dataclass(frozen=True)
class WithoutTau(BPR):
    uses_prior = True


@dataclasses.dataclass(frozen=True)
class Refusing(BPR):
    slope: float = -1.0

    def __post_init__(self):
        raise ZeroDivisionError("slope is -1")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Abstract, r"Abstract\(\) cannot be constructed: .*abstract.*_rows"),
        (WithKind, "WithKind has a field `kind`.*rename it"),
        (WithoutTau, "WithoutTau has uses_prior = True but no field tau"),
        (Refusing, r"Refusing\(\) cannot be constructed: slope is -1"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(kind, message):
    with pytest.raises(InputError, match=message):
        register_loss("other", kind)
    assert "other" not in LOSSES


def test_the_same_definition_again_replaces_the_class():
    first, second = register(), register()
    assert first is not second
    assert LOSSES["mine"] is second
    with pytest.raises(InputError, match="'mine' is Mine already"):
        register_loss("mine", Another)
    with pytest.raises(InputError, match="'mine' is Mine already"):
        register_loss("yours", second)


@pytest.mark.parametrize("value", [3, "text", None, True, 0.5, (1, 2), ((1, 2), ("a", None))], ids=repr)
def test_fields_that_are_restored(value):
    mine = register()
    stored = {"loss": as_json(mine(slope=value))}
    check_saveable(stored)
    assert from_json(json.loads(json.dumps(stored)))["loss"] == mine(slope=value)


@pytest.mark.parametrize("value", [{"a": 1}, (1, {"a": 1}), {1}, BPR(), (BPR,), 1j], ids=repr)
def test_fields_that_cannot_be_saved(value):
    with pytest.raises(InputError, match=r"loss\.slope = .* cannot be saved: .*A field that is saved is a"):
        check_saveable({"loss": as_json(register()(slope=value))})


def test_a_loss_with_a_field_that_cannot_be_saved_writes_no_file(tmp_path):
    fitted = tp.Recommender(loss=register()(slope={"a": 1}), **QUICK).fit(DATA)
    with pytest.raises(InputError, match=r"loss\.slope = \{'a': 1\} cannot be saved"):
        fitted.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("value", [math.inf, math.nan, (1.0, -math.inf)], ids=repr)
def test_a_field_that_is_not_finite_is_refused_before_training(value):
    with pytest.raises(InputError, match=r"loss\.slope = .*(inf|nan).* cannot be saved; give a finite"):
        _ = tp.Recommender(loss=register()(slope=value), **QUICK).spec


def test_a_model_whose_loss_is_not_registered_says_how_to_load_it(tmp_path):
    mine = register()
    for loss in ("mine", mine(slope=2.0)):
        tp.Recommender(loss=loss, **QUICK).fit(DATA).save(tmp_path / "m")
        del LOSSES["mine"]
        with pytest.raises(StorageError, match=r"register it first: truepair\.register_loss") as caught:
            tp.load(tmp_path / "m")
        assert "InputError(" not in str(caught.value)
        register_loss("mine", mine)
        assert tp.load(tmp_path / "m").loss == loss
