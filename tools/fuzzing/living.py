"""Targets: models that were updated, extended and reduced, and checkpoints of backtests."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from torch import Tensor

from fuzzing.changed_files import change_cases, changed_file
from fuzzing.files import use_model
from fuzzing.mutations import ALPHABET, places_of, with_change
from fuzzing.target import Target
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.recommender import model_file
from truepair.recommender.estimator import Recommender
from truepair.storage.tensor_file import read_tensors

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from truepair.reporting.backtesting import Backtest

# --- models with every optional tensor and fact --------------------------------------------------------


def _clicks() -> Interactions:
    """Pairs with weights, and dislikes."""
    rng = np.random.default_rng(1)
    items = np.concatenate([rng.choice(9, 4, replace=False) for _ in range(8)])
    weights = np.where(np.arange(32) % 5, rng.integers(1, 4, 32), -1)
    users = [f"u{user}" for user in np.repeat(np.arange(8), 4)]
    columns = {"user": users, "item": [f"i{item}" for item in items], "weight": weights}
    return read_interactions(columns, dislikes=True)


def _item_table(n: int) -> dict[str, Any]:
    tags = [["x", "y"], ["y"], None]
    return {
        "item": [f"i{place}" for place in range(n)],
        "kind": ["a", "b"] * (n // 2),
        "tags": [tags[place % 3] for place in range(n)],
        "price": [float(place % 4) for place in range(n)],
        "vector": [[place % 3 + 0.5, place % 2 + 0.5] for place in range(n)],
    }


_SMALL: dict[str, Any] = {"dim": 4, "epochs": 1, "auto": False}
_SETTINGS: tuple[dict[str, Any], ...] = (
    {**_SMALL, "validation": 0.2, "metric": "ndcg@2", "popularity": 0.5},
    {**_SMALL, "blend": "ease"},
    {**_SMALL, "encoder": "lightgcn", "loss": "dpl", "tau": tuple([0.1] * 8)},
    {**_SMALL, "encoder": "hybrid"},
    {"encoder": "ease"},
)


@functools.cache
def _made() -> list[bytes]:
    """A file of each model, after an update, with added items where it can have them, and without some."""
    found, data = [], _clicks()
    for settings in _SETTINGS:
        is_hybrid, is_trained = settings.get("encoder") == "hybrid", settings.get("encoder") != "ease"
        model = Recommender(**settings, device="cpu")
        model = model.fit(data, item_features=_item_table(10)) if is_hybrid else model.fit(data)
        new = {"user": ["u1", "u9"], "item": ["i8", "i2"], "weight": [2.0, 1.0]}
        model = model if is_hybrid else model.update(new)
        model.forget(users=["u0"])
        only = model.seen_.items_of(0)
        model.forget(items=model.seen_.item_ids.outside(only))  # a user with a vector and no pair
        model = model.add_items(_item_table(12)) if is_trained else model
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder, "made"))
            found.append(Path(folder, "made").read_bytes())
    return found


@functools.cache
def _contents() -> list[tuple[dict[str, Tensor], Any]]:
    found = []
    for content in _made():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "made").write_bytes(content)
            found.append(read_tensors(Path(folder, "made"), model_file.KIND, model_file.VERSION))
    return found


def _use_changed(data: bytes, folder: Path) -> None:
    case = json.loads(data)
    tensors, facts = _contents()[case["file"] % len(_SETTINGS)]
    use_model(changed_file(tensors, facts, model_file.KIND, model_file.VERSION, case), folder)


# --- checkpoints of backtests --------------------------------------------------------------------------


def _timed_clicks() -> dict[str, Any]:
    return {
        "user": [place * 5 % 7 for place in range(60)],
        "item": [place * place % 11 for place in range(60)],
        "time": [1_700_000_000 + 40_000 * place for place in range(60)],
    }


def _backtest(path: Path) -> Backtest:
    """A backtest whose models, where the file does not have their results, are those of popularity."""
    from truepair.reporting.backtesting import backtest, strategies

    def fitted(models: strategies.PeriodModels, pairs: Interactions) -> tuple[Recommender, float]:
        kept = {} if models.settings is None else strategies.restored(models.settings)
        _ = Recommender(**kept).spec  # training with them may take as long as they say
        return Recommender(encoder="popular", device="cpu").fit(pairs), 0.1

    model = Recommender(dim=4, epochs=1, metric="ndcg@2", device="cpu")
    with mock.patch.object(strategies.PeriodModels, "fitted", fitted):
        return backtest(_timed_clicks(), model, every="7d", strategies=["retrain", "update"], checkpoint=path)


@functools.cache
def _checkpoint() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _backtest(Path(folder, "made"))
        lines = Path(folder, "made").read_text(encoding="utf-8").splitlines(keepends=True)
    settings = {"settings": {"dim": 16, "epochs": 5, "blend": "none", "auto": False}}
    others = [line for line in lines[1:] if "settings" not in json.loads(line)]
    return "".join([lines[0], json.dumps(settings) + "\n", *others[:-1]]).encode()


def _continue_backtest(data: bytes, folder: Path) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(data)
    found = _backtest(path)
    assert found.table()
    assert found.to_json()


def _checkpoint_cases() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    number = st.integers(0, 2**16)
    value = (
        st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(ALPHABET, max_size=5)
        | st.sampled_from([[], {}, [1], {"a": 1}, "retrain", "mf", 10**30, -(10**400), 1e308, "9" * 5000])
        | st.sampled_from([{"dim": 2**40}, {"encoder": "ease"}, {"kind": "dpl"}, {"settings": {}}])
    )  # fmt: skip
    return st.lists(st.tuples(number, number, st.booleans(), value), min_size=1, max_size=3)


def _continue_changed_backtest(data: bytes, folder: Path) -> None:
    lines = [json.loads(line) for line in _checkpoint().splitlines()]
    for which, where, drop, value in json.loads(data):
        at = which % (len(lines) - 1) + 1  # the first line is a checksum
        places = places_of(lines[at])
        place = places[where % len(places)]
        lines[at] = with_change(lines[at], place, value, drop=drop and bool(place))
    _continue_backtest("".join(json.dumps(line) + "\n" for line in lines).encode(), folder)


LIVING = [
    Target("living model bytes", use_model, lambda folder: _made(), 30),
    Target(
        "living model facts",
        _use_changed,
        lambda folder: _made()[:0],
        50,
        functools.partial(change_cases, len(_SETTINGS)),
    ),
    Target("backtest bytes", _continue_backtest, lambda folder: [_checkpoint()], 25),
    Target(
        "backtest facts",
        _continue_changed_backtest,
        lambda folder: [_checkpoint()][:0],
        25,
        _checkpoint_cases,
    ),
]
