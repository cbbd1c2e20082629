"""How often intervals of a mean over few users hold the mean of all users.

    python benchmarks/interval_coverage.py --data-dir DIR --out results/bench/interval-coverage.json
    python benchmarks/interval_coverage.py --report results/bench/interval-coverage.json
    python benchmarks/interval_coverage.py --quick             # a simulated world, few samples

DIR holds ml-100k/. A population is a metric of every test user for EASE, of a random split and of one that
holds out the last item of each user, so that most users have a value of 0; or the difference of two models
there. From it come samples of n users with replacement; for each, three intervals of level .95: quantiles
.025 and .975 of resampled means, Student's t, and `bootstrap_interval`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

import truepair as tp
from truepair.evaluation.metrics import Floats
from truepair.evaluation.statistics import bootstrap_interval

SIZES = (20, 60, 300)
LEVEL, RESAMPLES = 0.95, 1_000
INTERVALS = {"percentile": "percentiles", "student": "Student's t", "bootstrap": "`Evaluation.interval`"}


def covered(population: Floats, n: int, samples: int) -> dict[str, float]:
    """The coverage of each interval."""
    rng, mean = np.random.default_rng(n), population.mean()
    counts = dict.fromkeys(INTERVALS, 0)
    student = stdtrit(n - 1, (1 + LEVEL) / 2)
    for seed in range(samples):
        values = rng.choice(population, n)
        means = rng.choice(values, (RESAMPLES, n)).mean(axis=1)
        error = student * values.std(ddof=1) / np.sqrt(n)
        found = {
            "percentile": np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]),
            "student": (values.mean() - error, values.mean() + error),
            "bootstrap": bootstrap_interval(values, LEVEL, resamples=RESAMPLES, seed=seed),
        }
        for name, (low, high) in found.items():
            counts[name] += bool(low <= mean <= high)
    return {name: count / samples for name, count in counts.items()}


def populations(data: tp.Interactions) -> dict[str, Floats]:
    """Values of users, by what they are."""
    parts = {"random": tp.split_random(data, test=0.2, seed=0), "last item": tp.split_leave_last_out(data)}
    ease, popular = (
        {name: tp.Recommender(encoder=encoder).fit(split).evaluate(split) for name, split in parts.items()}
        for encoder in ("ease", "popular")
    )
    found = {
        f"{metric.replace('ndcg', 'NDCG')}, {name}": ease[name].values(metric)
        for name in parts
        for metric in ("ndcg@20", "recall@20")
    }
    last = ease["last item"]
    found["NDCG@5, last item"] = last.values("ndcg@5")
    both = last.values("ndcg@20"), popular["last item"].values("ndcg@20")
    return found | {"NDCG@20 less that of popularity, last item": both[0] - both[1]}


def measured(data: tp.Interactions, samples: int) -> dict[str, Any]:
    """What is kept."""
    rows = [
        {"values": name, "users": len(each), "zeros": float((each == 0).mean()), "n": n}
        | covered(each, n, samples)
        for name, each in populations(data).items()
        for n in SIZES
    ]
    return {"data": repr(data), "level": LEVEL, "samples": samples, "resamples": RESAMPLES, "rows": rows}


def table(found: dict[str, Any]) -> str:
    """As in docs/evaluation.md."""
    lines = [f"| values | zeros | n | {' | '.join(INTERVALS.values())} |", "|---|--:|--:|--:|--:|--:|"]
    for row in found["rows"]:
        cells = " | ".join(f"{row[name]:.3f}".removeprefix("0") for name in INTERVALS)
        lines.append(f"| {row['values']} | {row['zeros']:.0%} | {row['n']} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="the folder that holds ml-100k")
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    parser.add_argument("--report", type=Path, help="print the table of such a file")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.report:
        print(table(json.loads(options.report.read_text())))
        return
    data = tp.simulate_drift(300, 60, periods=4, pairs=20, seed=1)
    if not options.quick:
        data = tp.load_dataset("ml-100k", data_dir=options.data_dir)
    found = measured(data, 50 if options.quick else 2_000)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
