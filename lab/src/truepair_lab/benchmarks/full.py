"""Full-catalogue training: time to quality beside iALS, and cost beside that of its products alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch

from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.errors import InputError
from truepair.evaluation import Validation
from truepair.losses import DPLHard, InfoNCE, Loss
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training import ENGINES, Job, Settings
from truepair.training.job import Trainer
from truepair.training.result import EpochState
from truepair_lab.benchmarks.outcome import Options, Outcome, Row, medians
from truepair_lab.benchmarks.truepair_side import seconds_per_epoch, timed
from truepair_lab.paper.baselines import solved
from truepair_lab.paper.presets import load_material

METRIC, NEAR = "ndcg@20", 0.002
SECONDS_BAR, RATIO_BAR = 60.0, 10.0
# chosen on validation: iALS in docs/paper.md, the others in docs/full-catalogue-log.md
IALS = {"factors": 64, "regularization": 49.46, "alpha": 6.006}
LOSS, TEMPERATURE = InfoNCE(temperature=0.135), 1.0
SETTINGS = Settings(epochs=30, batch_size=128, schedule="cosine", weight_decay=1e-4, device="cpu")


class Plan(NamedTuple):
    """A run, and which of the two bars it is to keep."""

    dim: int
    settings: Settings
    soon: bool = False  # near its final score within SECONDS_BAR
    beside: bool = False  # as good as iALS, within RATIO_BAR times its time


PLANS = (
    Plan(64, replace(SETTINGS, learning_rate=8e-3), soon=True),
    Plan(256, replace(SETTINGS, learning_rate=4e-3)),
    Plan(256, replace(SETTINGS, learning_rate=6e-3, epochs=16, batch_size=256), beside=True),
)


def full_quality(options: Options) -> Outcome:
    """Seconds of training until NDCG@20 on ML-1M's validation part is within .002 of the final one; iALS.

    The test part is not looked at. Judging takes no part in the time.
    """
    split = load_material("ml-1m", options.data_dir, progress=True).holdout
    outcome = Outcome(settings={"ials": IALS, "full": repr((LOSS, PLANS))})
    ials_seconds, ials_score = _ials(split, options, outcome)
    for plan in PLANS:
        settings = replace(plan.settings, seed=options.seed)
        settings = replace(settings, epochs=3) if options.quick else settings
        curve = _curve(_started(split.train, plan.dim, settings), settings, split, options)
        seconds, final = _until_near(curve)
        size = f"{len(curve)} epochs, blocks of {settings.batch_size}"
        name = f"ML-1M, MF d={plan.dim}, full-catalogue softmax, {size}"
        outcome.rounds[f"{name}: seconds, {METRIC}"] = [figure for point in curve for figure in point]
        near = f"{name}: until {METRIC} is within {NEAR} of {final:.4f}"
        bar = SECONDS_BAR if plan.soon and not options.quick else None
        outcome.rows.append(Row(near, seconds, "s of training", bar=bar))
        if ials_seconds is not None:
            barred = plan.beside and not options.quick
            limit, least = (RATIO_BAR, 1.0) if barred else (None, None)
            time_row = Row(name, curve[-1][0], "s of training", "iALS", ials_seconds, limit)
            what = f"{name}: {METRIC} on validation"
            outcome.rows += [time_row, Row(what, final, "", "iALS", ials_score, least, at_least=True)]
    return outcome


def _ials(split: Split, options: Options, outcome: Outcome) -> tuple[float | None, float]:
    try:
        solved("ials", IALS, split.train)  # compiles nothing, but fills the caches
        began = time.perf_counter()
        model = solved("ials", IALS, split.train, options.seed)
        seconds = time.perf_counter() - began
    except InputError as absent:  # implicit is not installed
        outcome.skipped.append(str(absent))
        return None, 0.0
    assert split.valid is not None
    score = Validation(split.valid, split.train, METRIC).score(model.users, model.items)
    options.say(f"iALS: {METRIC} {score:.4f} after {seconds:.3g} s")
    outcome.rounds[f"iALS: seconds, {METRIC}"] = [seconds, float(score)]
    return seconds, float(score)


def _started(train: Interactions, dim: int, settings: Settings, loss: Loss = LOSS) -> Trainer:
    encoder = MF(dim=dim, scoring="cosine", temperature=TEMPERATURE)
    return ENGINES["full"].start(Job(encoder, loss, Full(), train, settings))


def _curve(trainer: Trainer, settings: Settings, split: Split, options: Options) -> list[tuple[float, float]]:
    """(seconds of training so far, score) after every epoch."""
    assert split.valid is not None
    judge, spent = Validation(split.valid, split.train, METRIC), 0.0
    found: list[tuple[float, float]] = []
    for epoch in range(settings.epochs):
        began = time.perf_counter()
        trainer.train(epoch, settings.learning_rate_at(epoch), lambda steps: None)
        spent += time.perf_counter() - began
        found.append((spent, float(judge(EpochState(epoch + 1, 0.0, trainer.matrices)))))
        options.say(f"epoch {epoch + 1}: {METRIC} {found[-1][1]:.4f} after {spent:.3g} s")
    return found


def _until_near(curve: list[tuple[float, float]]) -> tuple[float, float]:
    final = curve[-1][1]
    return next(seconds for seconds, score in curve if score >= final - NEAR), final


# --- cost ------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A job, as far as it varies."""

    users: int = 2000
    items: int = 4000
    pairs: int = 100_000
    dim: int = 64


AXES: dict[str, tuple[str, tuple[int, ...], Callable[[int], Point]]] = {
    "users": ("users", (500, 1000, 2000, 4000), lambda x: Point(users=x, pairs=50 * x)),
    "items": ("items", (1000, 2000, 4000, 8000, 16000), lambda x: Point(items=x)),
    "pairs": ("interactions", (25_000, 50_000, 100_000, 200_000), lambda x: Point(pairs=x)),
    "dim": ("d", (16, 32, 64, 128, 256), lambda x: Point(dim=x)),
}
CURVES: dict[str, Loss] = {"softmax": InfoNCE(temperature=0.15), "DPL hard": DPLHard(tau=0.2)}
FLOOR = "three products"
_QUICK = 10


def full_scaling(options: Options) -> Outcome:
    """The cost of a full-catalogue epoch by users, items, interactions and d, beside its products alone."""
    outcome = Outcome(settings={"batch_size": SETTINGS.batch_size})
    worlds: dict[tuple[int, int, int], Interactions] = {}
    for axis, (label, values, point_at) in AXES.items():
        for value in values:
            point = point_at(value // _QUICK if options.quick and axis != "dim" else value)
            if point[:3] not in worlds:
                density = point.pairs / (point.users * point.items)
                world = simulate_world(point.users, point.items, tau=0.05, density=density, seed=options.seed)
                worlds[point[:3]] = world.observed
            for name, rounds in _costs(worlds[point[:3]], point, options).items():
                _keep(outcome, axis, label, name, value, rounds, options)
    for axis, (label, values, _) in AXES.items():
        for name, curve in outcome.data[axis]["engines"].items():
            what = f"{name}, a full-catalogue epoch, {label} from {values[0]:,} to {values[-1]:,}"
            first, last = curve["seconds"][0], curve["seconds"][-1]
            peer, note = f"{label} = {values[0]:,}", f"x {values[-1] / values[0]:g} the {label}"
            outcome.rows.append(Row(what, last, "s", peer, first, note=note))
    return outcome


def _keep(
    outcome: Outcome, axis: str, label: str, name: str, value: int, rounds: list[float], options: Options
) -> None:
    what = f"{name}, {label} = {value:,}"
    outcome.rounds[f"{what}: seconds an epoch"] = rounds
    seconds = medians({what: rounds})[what]
    options.say(f"{what}: {seconds:.4g} s")
    curves = outcome.data.setdefault(axis, {"label": label, "engines": {}})["engines"]
    curve = curves.setdefault(name, {"x": [], "seconds": []})
    curve["x"].append(value)
    curve["seconds"].append(seconds)


def _costs(train: Interactions, point: Point, options: Options) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, loss in CURVES.items():
        trainer = _started(train, point.dim, replace(SETTINGS, seed=options.seed), loss)
        measure = seconds_per_epoch(trainer, 1e-3)
        found[name] = [measure() for _ in range(options.rounds + 1)][1:]  # the first one compiles
    measure = timed(lambda: _products(point))
    found[FLOOR] = [measure() for _ in range(options.rounds + 1)][1:]
    return found


def _products(point: Point) -> None:
    """Scores, and gradients by users and by items: what no such epoch can do without."""
    items, block = torch.ones(point.items, point.dim), torch.ones(SETTINGS.batch_size, point.dim)
    for _ in range(0, point.users, SETTINGS.batch_size):
        scores = block @ items.T
        scores @ items
        scores.T @ block
