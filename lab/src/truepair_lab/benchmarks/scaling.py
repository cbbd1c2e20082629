"""Scaling: how the cost of an epoch grows with what a job is made of, on simulated worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.losses import DPL
from truepair.models.encoders import MF
from truepair_lab.benchmarks.outcome import Options, Outcome, Row, Skipped, medians
from truepair_lab.benchmarks.truepair_side import DEFAULTS, FAST, SETTINGS, TAU, seconds_per_epoch, start

ENGINES_MEASURED = (FAST,)


class Point(NamedTuple):
    """A job, as far as it varies."""

    dim: int = 32
    drawn: int = 10  # M + N, half of each
    batch: int = 1024
    pairs: int = 200_000


# what varies: its label, its values, and the point it makes
AXES: dict[str, tuple[str, tuple[int, ...], Callable[[int], Point]]] = {
    "dim": ("d", (8, 16, 32, 64, 128), lambda x: Point(dim=x)),
    "drawn": ("M + N", (2, 4, 10, 20, 40), lambda x: Point(drawn=x)),
    "batch": ("batch", (256, 1024, 4096, 16384), lambda x: Point(batch=x)),
    "pairs": ("interactions", (50_000, 100_000, 200_000, 400_000), lambda x: Point(pairs=x)),
}
_USERS, _ITEMS = 3000, 2000
_QUICK = 100  # a hundredth of the pairs


def epoch_scaling(options: Options) -> Outcome:
    """An epoch's cost by d, by M + N, by batch and by interactions, on simulated worlds."""
    return measure_scaling(options, ENGINES_MEASURED)


def measure_scaling(options: Options, engines: tuple[str, ...]) -> Outcome:
    """Seconds an epoch at every point of every axis; the fast mode has no batches."""
    outcome, worlds = Outcome(settings={"users": _USERS, "items": _ITEMS}), {}
    for engine in engines:
        for axis, (label, values, point_at) in AXES.items():
            if (engine, axis) == (FAST, "batch"):
                continue
            seconds: list[float] = []
            try:
                for value in values:
                    point = point_at(value)
                    if point.pairs not in worlds:
                        worlds[point.pairs] = world_of(point.pairs, options)
                    name = f"{engine}, {label} = {value:,}"
                    rounds = _rounds(engine, worlds[point.pairs], point, options)
                    outcome.rounds[f"{name}: seconds an epoch"] = rounds
                    seconds.append(medians({name: rounds})[name])
                    options.say(f"{name}: {seconds[-1]:.4g} s")
            except Skipped as skipped:
                outcome.skipped.append(str(skipped))
                break
            outcome.data.setdefault(axis, {"label": label, "engines": {}})["engines"][engine] = {
                "x": list(values),
                "seconds": seconds,
            }
            what = f"engine {engine}, an epoch, {label} from {values[0]:,} to {values[-1]:,}"
            note = f"x {values[-1] / values[0]:g} the {label}"
            peer = f"{label} = {values[0]:,}"
            outcome.rows.append(Row(what, seconds[-1], "s", peer, seconds[0], note=note))
    return outcome


def world_of(pairs: int, options: Options) -> Interactions:
    """A simulated world of so many interactions, whose users and items are always as many."""
    shrink = _QUICK if options.quick else 1
    users, items = (n // int(shrink**0.5) for n in (_USERS, _ITEMS))
    density = pairs / shrink / (users * items)
    return simulate_world(users, items, tau=0.05, density=density, seed=options.seed).observed


def _rounds(engine: str, train: Interactions, point: Point, options: Options) -> list[float]:
    settings = replace(
        SETTINGS.get(engine, DEFAULTS),
        n_extra=point.drawn // 2,
        n_unlabelled=point.drawn - point.drawn // 2,
        batch_size=point.batch,
        seed=options.seed,
    )
    measure = seconds_per_epoch(
        start(engine, train, MF(dim=point.dim), DPL(tau=TAU), settings), settings.learning_rate
    )
    return [measure() for _ in range(options.rounds + 1)][1:]  # the first one compiles
