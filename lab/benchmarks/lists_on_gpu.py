"""Lists for many people on the CPU and on a GPU, in one run, and whether both give the same lists.

python benchmarks/lists_on_gpu.py [--users 10000] [--items 1000000] [--dim 64]
python benchmarks/lists_on_gpu.py --quick        # a small catalogue
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np
import pyarrow as pa
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.models.scorer import Scorer
from truepair.recommender.estimator import Recommender


def world(n_users: int, n_items: int, dim: int, per_user: int = 50) -> Recommender:
    """A model with unit vectors around centres, and histories by chance."""
    rng = np.random.default_rng(0)
    start = Recommender(dim=dim, epochs=1, auto=False, device="cpu").fit(
        {"user": [1, 1, 2], "item": [1, 2, 2]}
    )
    keys = np.unique(
        np.repeat(np.arange(n_users), per_user) * n_items + rng.integers(0, n_items, n_users * per_user)
    )
    seen = Interactions(keys // n_items, keys % n_items, IdMap.range(n_users), IdMap.range(n_items))
    centres = rng.normal(size=(200, dim)).astype(np.float32)
    parts = []
    for n in (n_users, n_items):
        rows = centres[rng.integers(0, 200, n)] + 0.6 * rng.normal(size=(n, dim)).astype(np.float32)
        parts.append(torch.nn.functional.normalize(torch.from_numpy(rows)))
    start.model_ = dataclasses.replace(
        start.model_, scorer=Scorer(parts[0] / 0.15, parts[1]), seen=seen,
        popularity=np.maximum(seen.item_counts, 1),
        trained=np.ones(n_users, dtype=bool), added=np.zeros(n_items, dtype=bool), start=None,
    )  # fmt: skip
    return start


def lists(model: Recommender, device: str, k: int) -> tuple[pa.Table, float]:
    """The lists of everybody, of which some items are excluded, and the seconds that they took."""
    model.device = device
    third = list(range(0, min(model.seen_.n_items, 3000), 3))
    begun = time.perf_counter()
    return model.recommend(k=k, exclude_items=third), time.perf_counter() - begun


def differences(one: pa.Table, other: pa.Table, k: int) -> tuple[int, float]:
    """(places with another item, the largest difference of scores in any place)."""
    items = [table.column("item").to_numpy().reshape(-1, k) for table in (one, other)]
    scores = [table.column("score").to_numpy().reshape(-1, k) for table in (one, other)]
    return int((items[0] != items[1]).sum()), float(np.abs(scores[0] - scores[1]).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="a small catalogue")
    args = parser.parse_args()
    sizes = (300, 2000, 8) if args.quick else (args.users, args.items, args.dim)
    model, gpu = world(*sizes), torch.cuda.is_available()
    print(
        f"{sizes[0]:,} users, {sizes[1]:,} items, d = {sizes[2]}; {torch.get_num_threads()} threads",
        flush=True,
    )
    devices = ("cpu", "cuda") if gpu else ("cpu",)
    for device in devices:  # the first lists compile, or start the device
        lists(model, device, 1)
    for k in (10, 100):
        found = {}
        for device in (*devices, *devices):
            found[device], seconds = lists(model, device, k)
            room = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0
            print(
                f"k = {k:3}, {device:4}: {seconds:6.2f} s" + (f", {room:.1f} GB of the GPU" if room else ""),
                flush=True,
            )
        if gpu:
            other, difference = differences(found["cpu"], found["cuda"], k)
            places = len(found["cpu"])
            print(f"k = {k:3}: {other:,} of {places:,} places differ; scores by at most {difference:.1e}")


if __name__ == "__main__":
    main()
