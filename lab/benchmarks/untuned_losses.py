"""Losses with the defaults of the full catalogue, on MovieLens-100k: validation NDCG@20, one seed.

The figures of ../docs/losses.md. The split is the paper's, a tenth of its train part held out for validation.

    python benchmarks/untuned_losses.py --data DIR    # DIR holds ml-100k-paper-split/
    python benchmarks/untuned_losses.py --data DIR --out results/untuned/losses.jsonl    # keeps lines
    python benchmarks/untuned_losses.py --quick       # a small simulated world, one epoch
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random
from truepair.losses import BSL
from truepair.models.encoders import MF
from truepair.recommender.estimator import Recommender
from truepair_lab.paper.presets import load_material
from truepair_lab.store import append

MODELS: dict[str, dict[str, Any]] = {
    "infonce": {},
    "dcl": {"loss": "dcl"},
    "hcl": {"loss": "hcl"},
    "bsl": {"loss": "bsl"},
    "dcl, uniform": {"loss": "dcl", "sampler": "uniform"},
    "hcl, uniform": {"loss": "hcl", "sampler": "uniform"},
    "bsl, temperature 0.15": {"loss": BSL(temperature=0.15), "encoder": MF(dim=128, scoring="cosine")},
}


@dataclass(frozen=True)
class UntunedLine:
    """One loss with defaults: validation NDCG@20 at its best epoch; the share of rows at the loss's floor."""

    kind: ClassVar[str] = "untuned"
    older: ClassVar[Mapping[str, str]] = {}
    model: str
    score: float
    epoch: int
    clamped: float | None
    split: str

    @property
    def key(self) -> tuple[str, str]:
        """What must not be run twice."""
        return self.model, self.split


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    parser.add_argument("--quick", action="store_true", help="a small simulated world and one epoch instead")
    parser.add_argument("--out", type=Path, help="a file to which a JSON line for each loss is added")
    args = parser.parse_args()
    if args.quick:
        split = split_random(simulate_world(60, 50, density=0.2).observed, test=0.2, valid=0.1, seed=0)
    else:
        split = load_material("ml-100k", args.data).holdout
    more: dict[str, Any] = {"epochs": 1} if args.quick else {}
    for name, given in MODELS.items():
        result = Recommender(**given, **more).fit(split).result_
        assert result.score is not None
        if args.out is not None:
            clamped = None if result.clamped is None else round(result.clamped, 4)
            append(args.out, UntunedLine(name, round(result.score, 8), result.epoch, clamped, split.hash))
        floor = "" if result.clamped is None else f", {result.clamped:.0%} of the rows at the floor"
        print(f"{name}: ndcg@20 {result.score:.4f} at epoch {result.epoch}{floor}", flush=True)


if __name__ == "__main__":
    main()
