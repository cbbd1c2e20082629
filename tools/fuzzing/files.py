"""Targets: model files, checkpoints and journals of trials."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from fuzzing.changed_files import change_cases, changed_file
from fuzzing.mutations import ALPHABET, places_of, with_change
from fuzzing.target import Target
from truepair.data.ids import IdMap, is_text
from truepair.data.interactions import Interactions
from truepair.data.tables.feature_columns import Vector
from truepair.errors import InputError
from truepair.losses import BPR, DPL, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.recommender import model_file
from truepair.recommender.estimator import Recommender
from truepair.sampling import Full, Uniform
from truepair.storage.tensor_file import read_tensors
from truepair.training import EpochState, Job, Settings, checkpoints, fit, new_users

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from truepair.search.trials import OpenTrial

_FILES = Path(__file__).parents[2] / "tests" / "compatibility" / "files"
_MODELS = sorted((_FILES / "models").glob("*.truepair"))
_JOURNAL = _FILES / "tuning" / "exact-rows.journal"

# --- models --------------------------------------------------------------------------------------------


def use_model(data: bytes, folder: Path) -> None:
    """Load a model and do all that people do with one; some of it a sound model may refuse."""
    path = folder / "a.truepair"
    path.write_bytes(data)
    model = Recommender.load(path)
    seen = model.seen_
    users, items = seen.user_ids.ids[:2], seen.item_ids.ids[:2]
    uses = (
        lambda: model.recommend(k=3),
        lambda: model.recommend(users, k=3, unknown="popular", exclude_seen=False),
        lambda: model.similar_items(items, k=2),
        lambda: model.similar_users(users, k=2),
        lambda: model.score(seen.take(np.arange(len(seen)) < 2)),
        lambda: model.fold_in(seen.take(np.isin(seen.users, seen.users[:1]))).recommend(k=2),
        lambda: model.save(folder / "again"),
        lambda: model.add_items(_more_items(model)).recommend(k=2),
        lambda: model.update(_more_pairs(seen), epochs=None if model.spec.closed_form else 0),
        lambda: model.forget(items=items[:1], users=users[:1]),
        lambda: model.recommend(k=3),
    )
    for use in uses:
        # few steps of fold-in run every line of it
        with contextlib.suppress(InputError), mock.patch.object(new_users, "STEPS", 3):
            use()


def _more_items(model: Recommender) -> dict[str, Any]:
    """A table with a row more than the model has items, and the columns of its features, or one."""
    last = model.seen_.item_ids.ids[-1:]
    more = pa.array(["zz"], last.type) if is_text(last.type) else pc.add(last, 1)
    ids = pa.concat_arrays([model.seen_.item_ids.ids, more])
    item_map, numbers = model.model_.item_map, np.arange(len(ids)) % 3
    columns: dict[str, Any] = {"size": numbers}
    for column in () if item_map is None else item_map.encoding.columns:
        if isinstance(column, Vector):
            columns[column.name] = numbers if column.kind == "number" else [list(column.mean)] * len(ids)
        else:
            value = column.values[0]
            columns[column.name] = [value if column.kind == "category" else [value]] * len(ids)
    return {**columns, "item": ids}


def _more_pairs(seen: Interactions) -> dict[str, Any]:
    """A known pair, which a model may not have by now, and with two users one of the second."""
    return {"user": seen.user_ids.ids[:2], "item": seen.item_ids.ids[-1:].take([0] * min(seen.n_users, 2))}


@functools.cache
def _model_contents() -> list[tuple[dict[str, Tensor], Any]]:
    return [read_tensors(path, model_file.KIND, 1) for path in _MODELS]


def _use_changed_model(data: bytes, folder: Path) -> None:
    case = json.loads(data)
    contents = _model_contents()
    tensors, facts = contents[case["file"] % len(contents)]
    use_model(changed_file(tensors, facts, model_file.KIND, 1, case), folder)


# --- checkpoints ---------------------------------------------------------------------------------------


def _data() -> Interactions:
    rng = np.random.default_rng(0)
    rows = [rng.choice(12, 4, replace=False) for _ in range(10)]
    return Interactions(np.repeat(np.arange(10), 4), np.concatenate(rows), IdMap.range(10), IdMap.range(12))


@functools.cache
def _jobs() -> list[tuple[Job, str]]:
    """Jobs of two epochs and their engines."""
    data, settings = _data(), Settings(epochs=2, batch_size=16, n_extra=2, n_unlabelled=2, device="cpu")
    adagrad = replace(settings, optimizer="adagrad")
    return [
        (Job(MF(dim=4), DPL(tau=0.1), Uniform(), data, settings), "reference"),
        (Job(LightGCN(dim=4), BPR(), Uniform(), data, replace(settings, optimizer="sgd")), "reference"),
        (Job(MF(dim=4), BPR(), Uniform(), data, adagrad), "cpu"),
        (Job(MF(dim=4, scoring="cosine"), InfoNCE(), Full(), data, settings), "full"),
        (Job(MF(dim=4, popularity=0.5), InfoNCE(), Full(), data, adagrad), "full"),
    ]


def _score(state: EpochState) -> float:
    return 0.5 / state.epoch


@functools.cache
def _checkpoints(folder: Path) -> list[bytes]:
    """A checkpoint after the first epoch of each job."""
    found = []
    for place, (job, engine) in enumerate(_jobs()):
        path = folder / f"made-{place}"
        path.unlink(missing_ok=True)
        shorter = replace(job, settings=replace(job.settings, epochs=1))
        fit(shorter, _score, engine=engine, checkpoint=path)
        found.append(path.read_bytes())
        path.unlink()
    return found


def _numbered_checkpoints(folder: Path) -> list[bytes]:
    """Each begins with the number of its job."""
    return [bytes([place]) + content for place, content in enumerate(_checkpoints(folder))]


def _continue(data: bytes, folder: Path) -> None:
    job, engine = _jobs()[data[0] % len(_jobs()) if data else 0]
    path = folder / "a.checkpoint"
    path.write_bytes(data[1:])
    fit(job, _score, engine=engine, checkpoint=path)


@functools.cache
def _checkpoint_contents(folder: Path) -> list[tuple[dict[str, Tensor], Any]]:
    path, found = folder / "made", []
    for content in _checkpoints(folder):
        path.write_bytes(content)
        found.append(read_tensors(path, checkpoints.KIND, checkpoints.VERSION))
        path.unlink()
    return found


def _continue_changed(data: bytes, folder: Path) -> None:
    case = json.loads(data)
    place = case["file"] % len(_jobs())
    tensors, facts = _checkpoint_contents(folder)[place]
    content = changed_file(tensors, facts, checkpoints.KIND, checkpoints.VERSION, case)
    _continue(bytes([place]) + content, folder)


# --- journals ------------------------------------------------------------------------------------------


def _constant(batch: Sequence[OpenTrial]) -> None:
    for asked in batch:
        asked.finish(0.5, 1)


def _continue_search(data: bytes, folder: Path) -> None:
    from truepair.search.domains import read_space
    from truepair.search.running import run_search

    for old in folder.glob("a.journal*"):
        old.unlink()
    path = folder / "a.journal"
    path.write_bytes(data)
    space = read_space(_meaning()["space"])
    run_search(space, _Runner(), trials=7, storage=path, study="exact-rows", extensions=1)


class _Runner:
    """Gives every trial the same score; what it measures is what the journal says."""

    def __init__(self) -> None:
        meaning = _meaning()
        self.fixed, self.identity = meaning["fixed parameters"], meaning["measure"]

    def __call__(self, batch: Sequence[OpenTrial], /) -> None:
        _constant(batch)


@functools.cache
def _meaning() -> dict[str, Any]:
    lines = [json.loads(line) for line in _JOURNAL.read_text(encoding="utf-8").splitlines()]
    found: dict[str, Any] = next(a for line in lines if "meaning" in (a := line.get("user_attr", {})))[
        "meaning"
    ]
    return found


def _journal_cases() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    number = st.integers(0, 2**16)
    value = (
        st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(ALPHABET, max_size=5)
        | st.sampled_from([[], {}, [1], {"a": 1}, "failed", "complete", "[" * 3000, 10**30])
    )  # fmt: skip
    return st.lists(st.tuples(number, number, st.booleans(), value), min_size=1, max_size=3)


def _continue_changed_search(data: bytes, folder: Path) -> None:
    lines = [json.loads(line) for line in _JOURNAL.read_text(encoding="utf-8").splitlines()]
    for which, where, drop, value in json.loads(data):
        at = which % len(lines)
        places = places_of(lines[at])
        place = places[where % len(places)]
        lines[at] = with_change(lines[at], place, value, drop=drop and bool(place))
    text = "".join(
        (line if isinstance(line, str) and line[:1] == "[" else json.dumps(line)) + "\n" for line in lines
    )
    _continue_search(text.encode(), folder)


FILES = [
    Target("model bytes", use_model, lambda folder: [path.read_bytes() for path in _MODELS], 60),
    Target(
        "model facts",
        _use_changed_model,
        lambda folder: [],
        35,
        functools.partial(change_cases, len(_MODELS)),
    ),
    Target("checkpoint bytes", _continue, _numbered_checkpoints, 25),
    Target("checkpoint facts", _continue_changed, lambda folder: [], 25, functools.partial(change_cases, 7)),
    Target("journal bytes", _continue_search, lambda folder: [_JOURNAL.read_bytes()], 12),
    Target("journal facts", _continue_changed_search, lambda folder: [], 12, _journal_cases),
]
