"""Cases: data whose true prior is known. The estimate sees `observed`, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from truepair.data.datasets.loading import load_split
from truepair.data.interactions import Interactions
from truepair.data.simulation import EXPOSURES, simulate_world
from truepair.prior.holdout_scores import Floats
from truepair_lab.truth import coat
from truepair_lab.truth.cases import hidden_case
from truepair_lab.truth.complete_labels import positives_of

WORLD, DENSITY = (1000, 1000), 0.05
TAUS, HIDDEN = (0.01, 0.03, 0.1, 0.3), (0.2, 0.5, 0.8)
WORLD_SEEDS = tuple(range(100, 110))  # 0 to 3 chose the method, and must not judge it
BLOCK_SEEDS = (0, 1, 2)
SMALL_SEEDS = tuple(range(200, 206))
RESAMPLES = 100


class Place(NamedTuple):
    """Which case of a study: see `lines.EstimateLine`."""

    exposure: str
    level: float
    seed: int


@dataclass(frozen=True, eq=False)
class PriorCase:
    """What is observed, and the true τ; a user's own where all labels are known."""

    observed: Interactions
    tau: float
    low: float
    high: float
    user_tau: Floats | None


@dataclass(frozen=True)
class Study:
    """One kind of data: its title, its cases, and how each is made."""

    title: str
    exposures: tuple[str, ...]
    levels: tuple[float, ...]
    seeds: tuple[int, ...]
    make: Callable[[Place, Path | None], PriorCase]
    resamples: int = RESAMPLES

    def places(self) -> Iterator[Place]:
        """Every case, the first seed of all before the second."""
        return (Place(e, x, s) for s in self.seeds for e in self.exposures for x in self.levels)


def world_case(place: Place, data_dir: Path | None, noise: float, size: tuple[int, int] = WORLD) -> PriorCase:
    """A simulated world."""
    world = simulate_world(
        *size, tau=place.level, density=DENSITY, exposure=place.exposure, noise=noise, seed=place.seed
    )
    return PriorCase(world.observed, world.tau, world.tau, world.tau, world.user_tau)


def block_case(place: Place, data_dir: Path | None, name: str) -> PriorCase:
    """A block whose labels are all known, with a share of its positives hidden."""
    return hidden(positives_of(name, data_dir), place)


def hidden(positives: Interactions, place: Place) -> PriorCase:
    """τ = hidden positives / pairs that are not observed, of all and of each user."""
    case = hidden_case(positives, "block", place.exposure, place.level, place.seed)
    left = (~case.observed).sum(axis=1)
    lost = (case.truth & ~case.observed).sum(axis=1)
    tau = float(lost.sum() / left.sum())
    return PriorCase(case.pairs(case.observed), tau, tau, tau, lost / np.maximum(left, 1))


def coat_case(place: Place, data_dir: Path | None) -> PriorCase:
    """Observed: 4 or 5 stars among what people chose to rate; the truth is from ratings that chance chose.

    Those leave out what was chosen, so that with p their share of positives and r the pairs rated in train,
    τ = p·(U·I − r)/(U·I − observed): what was chosen and got fewer stars is no positive.
    """
    split = load_split("coat", data_dir)
    assert split.train.rating is not None
    assert split.test.rating is not None
    observed = split.train.take(split.train.rating >= coat.LEAST)
    pairs = observed.n_users * observed.n_items
    found = binomtest(int((split.test.rating >= coat.LEAST).sum()), len(split.test))
    ends = found.proportion_ci(0.95, "wilson")
    scale = (pairs - len(split.train)) / (pairs - len(observed))
    tau, low, high = (float(share) * scale for share in (found.statistic, ends.low, ends.high))
    return PriorCase(observed, tau, low, high, None)


def small_study(title: str, size: tuple[int, int], noise: float) -> Study:
    """Worlds in which few pairs are observed."""
    make = partial(world_case, noise=noise, size=size)
    return Study(title, EXPOSURES, TAUS, SMALL_SEEDS, make, resamples=30)


STUDIES: dict[str, Study] = {
    "worlds": Study("Simulated worlds", EXPOSURES, TAUS, WORLD_SEEDS, partial(world_case, noise=0.5)),
    "noisy": Study("Noisy worlds", ("random",), TAUS, WORLD_SEEDS, partial(world_case, noise=1.0)),
    "kuairec": Study("KuaiRec", EXPOSURES, HIDDEN, BLOCK_SEEDS, partial(block_case, name="kuairec")),
    "jester5k": Study("Jester", EXPOSURES, HIDDEN, BLOCK_SEEDS, partial(block_case, name="jester5k")),
    "coat": Study("Coat", ("self",), (0.0,), BLOCK_SEEDS, coat_case),
    "small": small_study("Worlds of 300 x 200", (300, 200), 0.5),
    "small-noisy": small_study("Noisy worlds of 300 x 200", (300, 200), 1.0),
    "tiny": small_study("Worlds of 100 x 100", (100, 100), 0.5),
    "tiny-noisy": small_study("Noisy worlds of 100 x 100", (100, 100), 1.0),
}
