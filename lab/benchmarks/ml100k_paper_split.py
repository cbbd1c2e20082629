"""The reference loop on the paper authors' MovieLens-100k split, with the authors' settings.

Prints NDCG@20 (and the other metrics) of the last epoch, mean and spread over the seeds. No choice is made
here: settings are the authors', the epoch is the last one. The scores of the authors' own program are typed
in, from one run of it without a log: a rough check, no result.

    python benchmarks/ml100k_paper_split.py --data DIR        # DIR holds 100k_train.csv and 100k_test.csv
    python benchmarks/ml100k_paper_split.py --data DIR --only "MF BPR" --seeds 1
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from truepair.data.reading import read_interactions
from truepair.data.split_recipes import split_given
from truepair.evaluation import evaluate
from truepair.losses import BPR, DPL, Loss
from truepair.models.encoders import MF, Encoder, LightGCN
from truepair.sampling import Uniform
from truepair.training import Job, Settings, fit

TAU = 0.07
# the authors clamp the difference before it is divided by 1 − τ, at 0.01
AUTHORS_DPL = DPL(tau=TAU, floor=0.01 / (1 - TAU))

# name: encoder, loss, M, N, NDCG@20 of the authors' own program on this split, the least we accept
RUNS: dict[str, tuple[Encoder, Loss, int, int, float, str]] = {
    "MF DPL (10,10)": (MF(dim=32), AUTHORS_DPL, 10, 10, 0.4281, "≥ .426"),
    "MF BPR": (MF(dim=32), BPR(), 0, 1, 0.4196, ".415–.424"),
    "LightGCN DPL (5,1)": (LightGCN(dim=32, hops=1), AUTHORS_DPL, 5, 1, 0.4016, "≥ .399"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with 100k_train.csv and 100k_test.csv"
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds: 0, 1, … (default 3)")
    parser.add_argument("--epochs", type=int, default=200, help="the authors': 200")
    parser.add_argument("--decay", type=float, default=0.5, help="learning rate factor from epoch 100 on")
    parser.add_argument("--only", choices=RUNS, help="one of the runs")
    args = parser.parse_args()

    train, test = (read_interactions(args.data / f"100k_{part}.csv") for part in ("train", "test"))
    split = split_given(train, test)
    print(split)
    for name in [args.only] if args.only else RUNS:
        encoder, loss, m, n, authors, bar = RUNS[name]
        scores: list[float] = []
        for seed in range(args.seeds):
            settings = Settings(
                epochs=args.epochs,
                n_extra=m,
                n_unlabelled=n,
                schedule="step",
                decay_epoch=100,
                decay=args.decay,
                weight_decay=1e-5,
                seed=seed,
            )
            began = time.perf_counter()
            result = fit(Job(encoder, loss, Uniform(), split.train, settings), progress=True)
            seconds = time.perf_counter() - began
            evaluation = evaluate(result, split)
            scores.append(evaluation.mean("ndcg@20"))
            means = "  ".join(f"{metric} {value:.4f}" for metric, value in evaluation.means.items())
            print(f"{name}, seed {seed}, {seconds:.0f} s, {result}\n  {means}", flush=True)
        spread = f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        print(
            f"{name}: NDCG@20 {statistics.mean(scores):.4f}{spread}; authors' program {authors}, bar {bar}\n"
        )


if __name__ == "__main__":
    main()
