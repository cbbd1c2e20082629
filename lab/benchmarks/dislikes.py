"""What known dislikes are worth: likes and hidden dislikes in lists, where dislikes are ignored or used.

python benchmarks/dislikes.py --data DIR             # DIR holds ml-100k and coat; prints JSON lines, tables
python benchmarks/dislikes.py --quick                # a small simulated world, one epoch

Ratings of 4 and 5 are likes, 1 and 2 dislikes; the others are left out. KuaiRec is fully observed: of its
negative pairs, as many as there are likes are drawn as dislikes. A fifth of the likes is the test
part, a tenth the validation part; of the dislikes, as many are hidden for each. A model learns from the other
likes, with fixed settings (auto=False), three seeds. The weight is chosen by NDCG@20 on validation likes; the
test part is used for this weight alone.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truepair.data.datasets.loading import load
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.evaluation.metrics import ndcg
from truepair.randomness import random_order
from truepair.ranking.selection import top_k
from truepair.recommender.estimator import Recommender

WEIGHTS = (1.0, 2.0, 5.0, 20.0)
K = 20


class Case(NamedTuple):
    """Likes in three parts, whose train part knows some dislikes, and the dislikes that are hidden."""

    split: Split
    hidden: dict[str, Interactions]  # by the part that they are judged with


class Judged(NamedTuple):
    """NDCG@20 of the likes, and the share of list entries that are hidden dislikes."""

    likes: float
    dislikes: float


def case_of(everything: Interactions, seed: int = 0) -> Case:
    """The parts of interactions that have dislikes."""
    assert everything.disliked is not None
    order = random_order(seed + 1, len(everything.disliked))
    test, valid = int(0.2 * len(order)), int(0.1 * len(order))
    parts = {"test": order[:test], "valid": order[test : test + valid], "known": order[test + valid :]}
    keys = {name: np.sort(everything.disliked[places]) for name, places in parts.items()}
    likes = split_random(replace(everything, disliked=keys["known"]), test=0.2, valid=0.1, seed=seed)
    hidden = {name: _pairs(everything, keys[name]) for name in ("valid", "test")}
    return Case(likes, hidden)


def _pairs(data: Interactions, keys: Codes) -> Interactions:
    return Interactions(*np.divmod(keys, data.n_items), data.user_ids, data.item_ids)


def judged(model: Recommender, case: Case, on: str, excluded: bool) -> Judged:
    """The model's lists without what was trained on, and without the known dislikes if `excluded`."""
    split = case.split
    target = split.valid if on == "valid" else split.test
    assert target is not None
    assert split.valid is not None
    masks = [split.train, *([split.valid] if on == "test" else [])]
    masks = masks if excluded else [replace(mask, disliked=None) for mask in masks]
    users = np.flatnonzero((target.user_counts > 0) & (split.train.user_counts > 0))
    listed = top_k(*model.matrices(), K, rows=users, exclude=masks).items
    rows = np.repeat(users, K)

    def among(part: Interactions) -> Any:
        return ((listed.ravel() >= 0) & part.has(rows, np.maximum(listed, 0).ravel())).reshape(listed.shape)

    found = ndcg(among(target), target.user_counts[users])
    return Judged(float(found.mean()), float(among(case.hidden[on]).mean()))


class Arm(NamedTuple):
    """A way to use dislikes: "ignored", "excluded" from the lists, or "learnt" from with a weight, too."""

    what: str
    weight: float


ARMS = [Arm("ignored", 1.0), Arm("excluded", 1.0), *(Arm("learnt", weight) for weight in WEIGHTS[1:])]


def measure(name: str, case: Case, seeds: int, options: dict[str, Any]) -> None:
    """Print a line for each arm and seed on the validation part; the chosen weight and the others on test."""
    models = {
        (weight, seed): Recommender(seed=seed, dislike_weight=weight, auto=False, **options).fit(case.split)
        for seed in range(seeds)
        for weight in WEIGHTS
    }

    def mean(arm: Arm, on: str) -> Judged:
        found = [judged(models[arm.weight, s], case, on, arm.what != "ignored") for s in range(seeds)]
        print(json.dumps({"case": name, "on": on, **arm._asdict(), "seeds": found}), flush=True)
        return Judged(*np.mean(found, axis=0).tolist())

    valid = {arm: mean(arm, "valid") for arm in ARMS}
    learnt = max(ARMS[2:], key=lambda arm: valid[arm].likes)
    test = {arm: mean(arm, "test") for arm in (*ARMS[:2], learnt)}
    for on, found in (("valid", valid), ("test", test)):
        print(f"{name}, {on}\n| dislikes | weight | NDCG@{K} | hidden dislikes in lists |\n|---|---|---|---|")
        for arm, (likes, dislikes) in found.items():
            print(f"| {arm.what} | {arm.weight:g} | {likes:.4f} | {dislikes:.2%} |", flush=True)


def quick_case() -> Case:
    """A small world: of the pairs that are not true, some are known."""
    world = simulate_world(60, 40, tau=0.1, density=0.1, seed=0)
    likes = world.observed
    others = np.setdiff1d(np.arange(likes.n_users * likes.n_items), likes.keys)
    return case_of(replace(likes, disliked=others[::9]))


def _with_known_negatives(likes: Interactions) -> Interactions:
    """Where every pair is observed, as in KuaiRec: as many of the negative ones as there are likes."""
    others = np.setdiff1d(np.arange(likes.n_users * likes.n_items), likes.keys)
    drawn = random_order(7, len(others))[: len(likes)]
    return replace(likes, disliked=np.sort(others[drawn]))


def main() -> None:
    """Measure, and show the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of the datasets")
    parser.add_argument("--quick", action="store_true", help="a small simulated world")
    parser.add_argument("--cases", default="ml-100k,coat", help="names of datasets; also kuairec")
    given = parser.parse_args()
    if given.quick:
        measure("world", quick_case(), 1, {"epochs": 1, "dim": 4, "device": "cpu"})
    for name in [] if given.quick else given.cases.split(","):
        data = load(name, given.data)
        case = case_of(_with_known_negatives(data) if data.rating is None else data.with_dislikes(2, 4))
        print(case.split)
        measure(name, case, 3, {"device": "cpu"})


if __name__ == "__main__":
    main()
