"""The contest's cases: what is learnt from, what is chosen by, and what judges.

One protocol: settings and epochs are searched on a validation part held out of train, then each seed learns
from train and validation together and is judged once. The validation part is made like the test part.

ml-100k, ml-1m      the clean study's own splits; validation is drawn at random, as test was
…-tail              the split that comes with the files, as most papers use it: test is the end of each user's
                    history, and so is validation, of what is left
…-standard          the same split with validation drawn at random: the former protocol, kept for its lines
kuairec, coat       the truth lab's cases: lists rank the pairs whose true labels are known

Where validation is random, the best settings are scored on further parts of the same size and chosen by
their mean. A history has one end, so that the tail has no second part: there the first part chooses. The
further ones are draws of its users with replacement; they cost no training, and show how much the choice
depends on who was there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from truepair.data.datasets.loading import load_split
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.errors import check_choice
from truepair.evaluation import evaluate
from truepair.evaluation.metrics import Floats
from truepair.recommender.holdout import hold_out, joined
from truepair_lab.paper.presets import CHOOSE_BY, KS, METRICS, SPLIT_SEED, load_material
from truepair_lab.truth.cases import TruthCase
from truepair_lab.truth.sources import Asked
from truepair_lab.truth.true_label_metrics import judged_users

NDCG, RECALL = CHOOSE_BY, "recall@20"
LAB_SEED = 0  # of what the truth lab hides, holds out and judges
_VALID = 0.1  # of train, where a split comes without a validation part
_STANDARD, _TAIL = "-standard", "-tail"


@dataclass(frozen=True)
class Judgement:
    """What one model reached: metrics, and NDCG@20 of each user that was judged."""

    metrics: Mapping[str, float]
    per_user: Floats


@dataclass(frozen=True, eq=False)
class Case:
    """One case, loaded. `holdout` has all three parts; where a lab's case judges, its test part is the judged
    positives."""

    name: str
    holdout: Split
    lab: TruthCase | None = None

    @property
    def valid(self) -> Interactions:
        """What settings and epochs are chosen by."""
        assert self.holdout.valid is not None
        return self.holdout.valid

    @cached_property
    def whole(self) -> Split:
        """Train and validation together, and what judges."""
        return Split(joined([self.holdout.train, self.valid]), None, self.holdout.test, self.holdout.recipe)

    @property
    def train(self) -> Interactions:
        """What the final runs learn from."""
        return self.whole.train

    def part(self, number: int) -> Split:
        """Train with another validation part of the same size; part 0 is the one of the searches, and the
        only one with a training of its own where users are resampled."""
        if number == 0 or is_resampled(self.name):
            return self.holdout
        share = len(self.valid) / len(self.train)
        made = split_random(self.train, test=share, seed=SPLIT_SEED + number)
        recipe = f"{self.holdout.recipe}, validation part {number}"
        return Split(made.train, made.test, self.holdout.test, recipe)

    def judged(self, users: Any, items: Any) -> Judgement:
        """The one look at the test part.

        Lists hold all items but those of train. Where the lab judges, they hold the judged pairs alone, and
        the users are those that the lab can judge, so that the figures are those of `truth.quality`.
        """
        masks = self.train if self.lab is None else self.lab.pairs(~self.lab.judged)
        found = evaluate(
            (users, items), self.whole.test, exclude=masks, train=self.train, ks=KS, cold="model"
        )
        every = np.ones(found.n_users, dtype=bool)
        kept = every if self.lab is None else np.isin(found.users, judged_users(self.lab))
        means = {name: round(float(found.values(name)[kept].mean()), 6) for name in METRICS}
        return Judgement(means, found.values(NDCG)[kept])


# --- the list ------------------------------------------------------------------------------------------

Loaded = tuple[Split, TruthCase | None]


@dataclass(frozen=True)
class Entry:
    """A case by name: its title, what the report says of it, whether it is large, and how it is loaded."""

    title: str
    about: str
    load: Callable[[str, Path | None], Loaded]
    large: bool = False
    resampled: bool = False  # further validation parts are draws of users, not of pairs
    former: bool = False  # of an earlier protocol: its lines are shown, nothing is searched any more


def _of_paper(name: str, data_dir: Path | None) -> Loaded:
    return load_material(name, data_dir).holdout, None


def _standard(name: str, data_dir: Path | None) -> Loaded:
    given = load_split(name.removesuffix(_STANDARD), data_dir)
    part = split_random(joined([given.train]), test=_VALID, seed=SPLIT_SEED)
    recipe = f"{given.recipe}, valid={_VALID}, seed={SPLIT_SEED}"
    return Split(part.train, part.test, joined([given.test]), recipe), None


def _tail(name: str, data_dir: Path | None) -> Loaded:
    given = load_split(name.removesuffix(_TAIL), data_dir)
    part = hold_out(given.train, "last", _VALID)
    assert part.valid is not None
    train, valid, test = (joined([each]) for each in (part.train, part.valid, given.test))
    return Split(train, valid, test, f"{given.recipe}, {part.recipe}"), None


def _of_lab(name: str, data_dir: Path | None) -> Loaded:
    lab = Asked(name, data_dir=data_dir).case(LAB_SEED)
    recipe = f"truth lab, {lab.exposure} exposure, hide={lab.hide:g}, seed={LAB_SEED}"
    return Split(lab.train, lab.valid, lab.pairs(lab.truth & lab.judged), recipe), lab


_GIVEN = "the split that comes with the files; validation is the last tenth of each user's train pairs"
_FORMER = "the same split with validation drawn at random: the former protocol"
CASES: dict[str, Entry] = {
    "ml-100k": Entry("MovieLens-100k", "the split that the paper's authors publish", _of_paper),
    "ml-1m": Entry("MovieLens-1M", "a random split, 80 to 20: the clean study's", _of_paper),
    "gowalla-tail": Entry("Gowalla", _GIVEN, _tail, large=True, resampled=True),
    "yelp2018-tail": Entry("Yelp2018", _GIVEN, _tail, large=True, resampled=True),
    "kuairec": Entry(
        "KuaiRec, true labels",
        "the truth lab's default: half of the positives hidden at random; lists rank the judged pairs",
        _of_lab,
    ),
    "coat": Entry(
        "Coat, true labels",
        "the truth lab's: people chose what is observed, chance the 16 items that judge, so that R@20 is 1",
        _of_lab,
    ),
    "gowalla-standard": Entry("Gowalla, random validation", _FORMER, _standard, large=True, former=True),
    "yelp2018-standard": Entry("Yelp2018, random validation", _FORMER, _standard, large=True, former=True),
}

# what full-catalogue training is to reach, on the test part
AIMS: dict[str, dict[str, float]] = {
    "ml-100k": {NDCG: 0.455},
    "ml-1m": {NDCG: 0.430},
    "gowalla-tail": {RECALL: 0.196, NDCG: 0.164},
    "yelp2018-tail": {RECALL: 0.0750, NDCG: 0.0621},
}


def load_case(name: str, data_dir: Path | None = None) -> Case:
    """A case, ready to be searched, trained and judged."""
    return Case(name, *CASES[check_choice("case", name, CASES)].load(name, data_dir))


def n_parts(name: str) -> int:
    """The number of validation parts, the first one included."""
    return 3 if name in CASES and CASES[name].former else 5


def is_resampled(name: str) -> bool:
    """Whether further validation parts are draws of users: the first part alone then chooses."""
    return name in CASES and CASES[name].resampled


def case_title(name: str) -> str:
    """A case as people write it."""
    return CASES[name].title if name in CASES else name
