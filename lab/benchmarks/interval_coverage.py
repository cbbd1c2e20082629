"""How often intervals of a mean over few users hold the mean of all users.

    python benchmarks/interval_coverage.py --data-dir DIR      # DIR holds ml-100k/
    python benchmarks/interval_coverage.py --quick             # a simulated world, few samples

The population is the NDCG@20 of every test user for EASE. From it come samples of n users with replacement;
for each, two intervals of level .95: quantiles .025 and .975 of resampled means, and those of
`bootstrap_interval`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import truepair as tp
from truepair.evaluation.metrics import Floats
from truepair.evaluation.statistics import bootstrap_interval

SIZES = (10, 20, 60, 300)
LEVEL, RESAMPLES = 0.95, 1_000


def covered(population: Floats, n: int, samples: int) -> tuple[float, float]:
    """The coverage of the percentile interval, and of `bootstrap_interval`."""
    rng, mean = np.random.default_rng(n), population.mean()
    counts = np.zeros(2)
    for seed in range(samples):
        values = rng.choice(population, n)
        means = rng.choice(values, (RESAMPLES, n)).mean(axis=1)
        percentile = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        ours = bootstrap_interval(values, LEVEL, resamples=RESAMPLES, seed=seed)
        counts += [low <= mean <= high for low, high in (percentile, ours)]
    return float(counts[0] / samples), float(counts[1] / samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="the folder that holds ml-100k")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    data = tp.simulate_world(300, 200, tau=0.1, density=0.1, seed=1).observed
    if not options.quick:
        data = tp.load_dataset("ml-100k", data_dir=options.data_dir)
    split = tp.split_random(data, test=0.2, seed=0)
    population = tp.Recommender(encoder="ease").fit(split).evaluate(split).values("ndcg@20")
    print(f"{len(population)} users, NDCG@20 {population.mean():.4f}")
    print("| users | percentile | `bootstrap_interval` |\n|---|---|---|")
    for n in SIZES:
        found = covered(population, n, 50 if options.quick else 4_000)
        print(f"| {n} | {found[0]:.3f} | {found[1]:.3f} |".replace("0.", "."))


if __name__ == "__main__":
    main()
