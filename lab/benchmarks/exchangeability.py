"""When a split's note says that test is unlike train: published splits, splits by time, random splits.

The tables of ../docs/evaluation.md. A random split of each kind is made with every seed; a note on one is a
false alarm. The share in brackets is that of all statistics with |z| > 1.96: 5% if they are calibrated.

    python benchmarks/exchangeability.py --data DIR              # DIR holds ml-100k/, gowalla/, …
    python benchmarks/exchangeability.py --data DIR --seeds 10
    python benchmarks/exchangeability.py --quick                 # a small simulated world
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from truepair.data.datasets.loading import load, load_split, locate
from truepair.data.exchangeability import differences
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import (
    split_leave_last_out,
    split_random,
    split_random_per_user,
    split_temporal,
)

RANDOM: dict[str, Callable[[Interactions, int], Split]] = {
    "random, 20%": lambda data, seed: split_random(data, seed=seed),
    "random of each user, 20%": lambda data, seed: split_random_per_user(data, seed=seed),
    "random, 5%": lambda data, seed: split_random(data, test=0.05, seed=seed),
}
BY_TIME: dict[str, Callable[[Interactions], Split]] = {
    "leave_last_out": split_leave_last_out,
    "leave_last_out, last=10": lambda data: split_leave_last_out(data, last=10),
    "temporal": split_temporal,
}
PUBLISHED = ("gowalla", "yelp2018", "ml-100k-paper-split", "coat", "yahoo-r3")
WHOLE = ("coat", "ml-100k", "kuairec", "ml-1m", "gowalla", "yelp2018")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    parser.add_argument("--seeds", type=int, default=100, help="random splits of each kind")
    parser.add_argument("--quick", action="store_true", help="a small simulated world and 3 seeds instead")
    args = parser.parse_args()
    print("| split | note | z |\n|---|---|---|")
    if args.quick:
        world = simulate_world(400, 100, density=0.1).observed
        show("biased", _biased(world))
        show("judged", _judged(world))
        random_splits({"simulated": world}, seeds=3)
        return
    for name in present(PUBLISHED, args.data):
        show(f"{name}, as published", load_split(name, args.data))
    show(
        "simulated, test of 10 random items a user", _judged(simulate_world(1000, 500, density=0.05).observed)
    )
    whole = {name: load(name, args.data) for name in present(WHOLE, args.data)}
    for name, data in whole.items():
        if data.time is not None and data.time_kind == "clock":
            for recipe, make in BY_TIME.items():
                show(f"{name}, {recipe}", make(data))
    random_splits(whole, args.seeds)


def show(name: str, split: Split) -> None:
    """Print a row: the note, and each statistic's z."""
    notes = [note for note in split.notes if "is unlike train" in note]
    found = ", ".join(f"{each.statistic} {each.z:.1f}" for each in differences(split.train, split.test))
    print(f"| {name} | {notes[0] if notes else 'none'} | {found} |", flush=True)


def random_splits(whole: dict[str, Interactions], seeds: int) -> None:
    """Print the number of false alarms of each kind of random split."""
    print(f"\n| false alarms of {seeds} | {' | '.join(RANDOM)} |\n|---{'|---' * len(RANDOM)}|")
    for name, data in whole.items():
        cells = []
        for make in RANDOM.values():
            splits = (make(data, seed) for seed in range(seeds))
            found = [differences(split.train, split.test) for split in splits]
            alarms = sum(any(each.significant for each in those) for those in found)
            beyond = np.mean([abs(each.z) > 1.96 for those in found for each in those])
            cells.append(f"{alarms} ({beyond:.1%})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def present(names: tuple[str, ...], data_dir: Path | None) -> list[str]:
    """The datasets whose files are on this machine."""
    return [name for name in names if locate(name, data_dir) is not None]


def _biased(data: Interactions) -> Split:
    """A split that holds out pairs of popular items four times as often as others."""
    popular = data.item_counts >= np.quantile(data.item_counts, 0.8)
    draws = np.random.default_rng(0).random(len(data))
    test = draws < np.where(popular[data.items], 0.4, 0.1)
    return Split(data.take(~test), None, data.take(test), "biased")


def _judged(data: Interactions) -> Split:
    """Chosen pairs as train, and 10 random items of each user as test, as in Yahoo! R3."""
    draws = np.random.default_rng(0).random((data.n_users, data.n_items))
    draws[data.users, data.items] = 2
    items = draws.argsort(axis=1)[:, :10]
    users = np.repeat(np.arange(data.n_users), 10)
    return Split(data, None, Interactions(users, items.ravel(), data.user_ids, data.item_ids), "judged")


if __name__ == "__main__":
    main()
