"""Draw the figures of ../docs/performance.md and ../docs/full-catalogue.md from the kept measurements.

    python benchmarks/scaling_figures.py [--results results/bench] [--figures ../docs/figures]

Each file of `results` is what `truepair-lab bench scaling`, `full-scaling` or `gpu` wrote with --out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from truepair_lab.benchmarks.plots import draw_scaling

LAB = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figures of scaling from the kept measurements.")
    parser.add_argument("--results", type=Path, default=LAB / "results" / "bench")
    parser.add_argument("--figures", type=Path, default=LAB.parent / "docs" / "figures")
    given = parser.parse_args()
    for path in sorted(given.results.glob("*scaling*.json")):
        (facts,) = json.loads(path.read_text(encoding="utf-8"))["benchmarks"].values()
        data = facts["data"]
        figure = given.figures / f"{path.stem}.svg"
        draw_scaling(data.get("scaling", data), figure)  # `gpu` measures more than scaling
        print(figure)


if __name__ == "__main__":
    main()
