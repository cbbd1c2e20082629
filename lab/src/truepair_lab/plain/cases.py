"""Cases of the plain call: those of the contest, Jester, and simulated worlds of three densities.

The plain call learns from train and validation together (`Case.whole`) and holds out pairs of its own. Only
the baselines of Jester and of the worlds are tuned on the validation part; those of the other cases were
tuned in the contest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from truepair.data.datasets.loading import load, load_split
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.errors import check_choice
from truepair.recommender.holdout import hold_out
from truepair_lab.quality.cases import NDCG, RECALL, Case
from truepair_lab.quality.cases import load_case as load_contest_case

SEEDS, FEWER_SEEDS = 5, 3
_VALID = 0.1


@dataclass(frozen=True)
class Entry:
    """A case by name: its title, what the page says about it, how it is loaded, the number of seeds.

    `contest` names the contest's cases with the same test part, the preferred one first; where there is none,
    the baselines are tuned here.
    """

    title: str
    about: str
    load: Callable[[str, Path | None], Case]
    seeds: int = SEEDS
    contest: tuple[str, ...] = ()


def _given(name: str, data_dir: Path | None) -> Case:
    """The published split; pairs keep the order of the file as their time."""
    given = load_split(name, data_dir)
    part = hold_out(given.train, "last", _VALID)
    return Case(name, Split(part.train, part.valid, given.test, given.recipe))


def _random(name: str, pairs: Interactions) -> Case:
    return Case(name, split_random(pairs.pairs_only(), test=0.2, valid=_VALID, seed=0))


def _jester(name: str, data_dir: Path | None) -> Case:
    return _random(name, load("jester5k", data_dir))


def _world(density: float, name: str, data_dir: Path | None) -> Case:
    return _random(name, simulate_world(3000, 1500, density=density, exposure="popularity").observed)


_AS_CONTEST = "as in the contest"
_GIVEN = "the split that comes with the files; positions in the files are times"
_WORLD = "3,000 users x 1,500 items, popular items are seen more often; a random split, 80 to 20"
CASES: dict[str, Entry] = {
    "ml-100k": Entry("MovieLens-100k", _AS_CONTEST, load_contest_case, contest=("ml-100k",)),
    "ml-1m": Entry("MovieLens-1M", _AS_CONTEST, load_contest_case, FEWER_SEEDS, ("ml-1m",)),
    "gowalla": Entry("Gowalla", _GIVEN, _given, FEWER_SEEDS, ("gowalla-tail", "gowalla-standard")),
    "yelp2018": Entry("Yelp2018", _GIVEN, _given, FEWER_SEEDS, ("yelp2018-tail", "yelp2018-standard")),
    "kuairec": Entry("KuaiRec, true labels", _AS_CONTEST, load_contest_case, contest=("kuairec",)),
    "coat": Entry("Coat, true labels", _AS_CONTEST, load_contest_case, contest=("coat",)),
    "jester": Entry("Jester", "every rating is a pair; a random split, 80 to 20", _jester),
    "world-sparse": Entry("World, density .005", _WORLD, partial(_world, 0.005)),
    "world-medium": Entry("World, density .02", _WORLD, partial(_world, 0.02)),
    "world-dense": Entry("World, density .08", _WORLD, partial(_world, 0.08)),
}

# what the plain call is to reach, on the test part
AIMS: dict[str, dict[str, float]] = {
    "ml-100k": {NDCG: 0.450},
    "ml-1m": {NDCG: 0.424},
    "gowalla": {RECALL: 0.192, NDCG: 0.160},
    "yelp2018": {RECALL: 0.0735, NDCG: 0.0608},
}


def load_case(name: str, data_dir: Path | None = None) -> Case:
    """A case, ready to be trained and judged."""
    return CASES[check_choice("case", name, CASES)].load(name, data_dir)
