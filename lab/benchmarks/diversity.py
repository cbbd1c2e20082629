"""What `diversify` costs and gains on MovieLens: NDCG@20 on a validation part, coverage, likeness in lists.

python benchmarks/diversity.py --data DIR            # DIR holds ml-100k/u.data and ml-1m/ratings_notime.dat
python benchmarks/diversity.py --data DIR --time     # also seconds of all lists, filtered and explained
python benchmarks/diversity.py --quick               # a small simulated world, one epoch

A fifth of the pairs is set aside as test and never used, a tenth is the validation part. The model learns
from the others, with fixed settings (auto=False).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truepair.data.datasets.loading import load
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random
from truepair.evaluation.metrics import coverage, ndcg
from truepair.recommender.estimator import Recommender

STRENGTHS = (0.0, 0.1, 0.2, 0.3, 0.5)
K = 20


def lists_of(model: Recommender, diversify: float) -> Codes:
    """The lists of all users as codes, [n_users, K]; -1: no item."""
    table = model.recommend(k=K, diversify=diversify)
    listed = np.full((model.seen_.n_users, K), -1)
    users = model.seen_.user_ids.codes(table["user"])
    listed[users, table["rank"].to_numpy() - 1] = model.seen_.item_ids.codes(table["item"])
    return listed


def measured(model: Recommender, valid: Interactions, diversify: float) -> tuple[float, float, float]:
    """NDCG@20 on the validation part, coverage of the catalogue, mean cosine of two items of a list."""
    listed = lists_of(model, diversify)
    asked = np.flatnonzero(valid.user_counts)
    some = listed[asked]
    hits = (some >= 0) & valid.has(np.repeat(asked, K), np.maximum(some, 0).ravel()).reshape(some.shape)
    vectors = torch.nn.functional.normalize(model.model_.scorer.items)[torch.from_numpy(np.maximum(some, 0))]
    alike = torch.einsum("nad,nbd->nab", vectors, vectors)
    within = float((alike.sum(dim=(1, 2)) - K).mean()) / (K * (K - 1))
    return float(ndcg(hits, valid.user_counts[asked]).mean()), coverage(listed, model.popularity_), within


def seconds(model: Recommender, diversify: float, explain: bool) -> float:
    """The least of three times of all lists, with a filter, a quota and diversity."""
    n = model.seen_.n_items
    table = {"item": model.seen_.item_ids.ids, "year": 1950 + np.arange(n) % 50, "kind": np.arange(n) % 18}
    times = []
    for _ in range(4):  # the first compiles
        began = time.perf_counter()
        options: dict[str, Any] = {"quota": {"kind": 4}, "diversify": diversify, "explain": explain}
        model.recommend(k=K, items=table, where="year > 1955", **options)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    parser.add_argument("--time", action="store_true", help="measure the time of lists, too")
    parser.add_argument("--quick", action="store_true", help="a small simulated world and one epoch instead")
    args = parser.parse_args()
    for name in ["world"] if args.quick else ["ml-100k", "ml-1m"]:
        pairs = simulate_world(60, 50, density=0.2).observed if args.quick else load(name, args.data)
        split = split_random(pairs, test=0.2, valid=0.1, seed=0)
        assert split.valid is not None
        settings: dict[str, Any] = {"dim": 4, "epochs": 1} if args.quick else {}
        model = Recommender(auto=False, device="cpu", **settings).fit(split.train)
        print(
            f"{name}\n| λ | NDCG@20 | change | coverage | mean cosine within a list |\n|---|---|---|---|---|"
        )
        first = None
        for strength in STRENGTHS:
            quality, covered, alike = measured(model, split.valid, strength)
            first = quality if first is None else first
            change = f"{quality / first - 1:+.1%}"
            print(f"| {strength:g} | {quality:.4f} | {change} | {covered:.1%} | {alike:.3f} |", flush=True)
        for explain in (False, True) if args.time else ():
            what = "a filter, a quota, diversity" + (" and explanations" if explain else "")
            for one in (model, Recommender(encoder="ease").fit(split.train)):
                print(f"{name}, {one.encoder}: {seconds(one, 0.3, explain):.2f} s for all lists with {what}")


if __name__ == "__main__":
    main()
