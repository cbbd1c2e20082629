"""Folding in new people against retraining with them, on MovieLens-100k.

A tenth of the users is kept out of training. Their training part is then folded in, and their held-out items
are looked for; the same with a model that was trained on everybody. Also: how much of a training user's list
comes back when their own history is folded in.

    python benchmarks/fold_in.py --data DIR     # DIR holds ml-100k/u.data; without it, it is fetched
    python benchmarks/fold_in.py --quick        # a small simulated world, one epoch
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from truepair.data.datasets.loading import load
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random_per_user
from truepair.evaluation import evaluate
from truepair.randomness import random_order, stream_key
from truepair.ranking.selection import top_k
from truepair.recommender.estimator import Recommender


def recall(model: Recommender, target: Interactions) -> float:
    """Over the target's people, whatever codes they have in this model."""
    users = model.seen_.user_ids.find(target.user_ids)[target.users]
    known = Interactions(users, target.items, model.seen_.user_ids, model.seen_.item_ids)
    return evaluate(model, known, exclude=model.seen_).mean("recall@20")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="a small simulated world and one epoch instead")
    args = parser.parse_args()
    clicks = simulate_world(60, 50, density=0.2).observed if args.quick else load("ml-100k", args.data)
    split = split_random_per_user(clicks, test=0.2, seed=5)
    new = np.zeros(clicks.n_users, dtype=bool)
    new[random_order(stream_key(5), clicks.n_users)[: clicks.n_users // 10]] = True
    theirs, target = split.train.take(new[split.train.users]), split.test.take(new[split.test.users])
    for encoder in ("mf", "lightgcn"):
        settings: dict[str, Any] = {
            "encoder": encoder,
            "epochs": 1 if args.quick else args.epochs,
            "validation": 0,
        }
        retrained = Recommender(**settings).fit(split.train)
        others = Recommender(**settings).fit(split.train.take(~new[split.train.users]))
        folded = others.fold_in(theirs)
        a, b = recall(retrained, target), recall(folded, target)
        print(f"{encoder}: recall@20 of new people: retrained {a:.4f}, folded in {b:.4f}, ratio {b / a:.1%}")
        again = retrained.fold_in(split.train)
        lists = [top_k(*m.matrices(), 20, exclude=split.train).items for m in (retrained, again)]
        overlap = np.mean([len(set(x) & set(y)) / 20 for x, y in zip(*lists, strict=True)])
        print(
            f"{encoder}: overlap@20 of a training user's list with that of their own history: {overlap:.1%}"
        )


if __name__ == "__main__":
    main()
