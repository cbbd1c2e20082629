"""Is a true half-life found? Worlds in which each event is that of an item in proportion to its faded events.

python benchmarks/half_life.py            # ten seeds of half-lives of 3, 10 and 30 days
python benchmarks/half_life.py --quick    # one seed, fewer events
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import truepair as tp

DAYS, START, DAY = 200, 1_700_000_000, 86_400


def world(half_life: float, seed: int, n: int, n_users: int = 800, n_items: int = 300) -> dict[str, Any]:
    """n events of 200 days; an item is taken in proportion to its events, which fade with the half-life."""
    rng = np.random.default_rng(seed)
    days, faded = np.sort(rng.uniform(0, DAYS, n)), rng.gamma(0.3, 1, n_items) * 30
    items, gaps = np.empty(n, int), np.diff(days, prepend=0.0)
    for place, gap in enumerate(gaps):
        faded *= 2 ** (-gap / half_life)
        chances = np.cumsum(faded + 0.02)
        items[place] = min(np.searchsorted(chances, rng.random() * chances[-1]), n_items - 1)
        faded[items[place]] += 1
    return {"user": rng.integers(0, n_users, n), "item": items, "time": (START + days * DAY).astype(int)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed, fewer events")
    args = parser.parse_args()
    seeds, n = (range(1), 8_000) if args.quick else (range(10), 30_000)
    for half_life in (3, 10, 30):
        found = []
        for seed in seeds:
            model = tp.Recommender(encoder=tp.Popular("auto")).fit(world(half_life, seed, n))
            found.append(float(str(model.spec_.encoder.half_life).removesuffix("d")))
        near = sum(half_life / 2 <= one <= 2 * half_life for one in found)
        print(f"half-life of {half_life} days: found {found}, within a factor of 2 in {near} of {len(found)}")


if __name__ == "__main__":
    main()
