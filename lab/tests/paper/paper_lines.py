"""Made-up lines for the tests of the report: a value for each cell, and a little noise for each seed."""

import random

from truepair_lab.lines import Contrast, Lines, RunLine, Session, Timing, TrialLine, digest
from truepair_lab.paper.presets import METRICS
from truepair_lab.paper.running.plan import optimistic

DATASETS = ("ml-100k", "ml-1m", "yelp2018", "gowalla")
LEVEL = {"bpr": 0.30, "infonce": 0.31, "dcl": 0.32, "hcl": 0.33, "dpl": 0.35, "bns": 0.33, "dpl-hard": 0.36}
REFERENCES = {"ease": 0.38, "ials": 0.37, "itemknn": 0.31, "popularity": 0.15}
VARIANTS = ("dpl", "half", "tau=0", "n-alone", "hard-alone", "hard", "relative-clamp")


def setting(method):
    """The parameters of a made-up run."""
    return {"loss": method, "encoder.dim": 32, "learning_rate": 0.001}


def run(study, dataset, encoder, method, value, seed=0, variant="", noise=0.0005, **other):
    """A run whose every metric is near `value`; the last epoch is .01 lower."""
    spread = random.Random(f"{study} {dataset} {encoder} {method} {variant} {seed}").gauss(0, noise)
    metrics = {name: value + spread + at / 1000 for at, name in enumerate(METRICS)}
    fields = {
        "parameters": setting(method),
        "split": f"split-of-{dataset}", "engine": "cpu", "device": "CPU, 2 threads",
        "versions": {"truepair": "0.1.0", "torch": None}, "epoch": 0, "curve": [(5, value)],
        "clamped": 0.02, "seconds": 1.5,
    }  # fmt: skip
    last = {name: figure - 0.01 for name, figure in metrics.items()}
    return RunLine(
        study, dataset, encoder, method, variant, seed, metrics=metrics, last=last, **(fields | other)
    )


def runs(study, dataset, encoder, method, value, seeds=3, **other):
    """One run a seed."""
    return [run(study, dataset, encoder, method, value, seed, **other) for seed in range(seeds)]


def whole(datasets=DATASETS):
    """Lines of everything the report speaks of."""
    found = []
    for dataset in datasets:
        for encoder, more in (("mf", 0.0), ("lightgcn", 0.005)):
            for method, level in LEVEL.items():
                found += runs("paper", dataset, encoder, method, level + more)
                found += runs("clean", dataset, encoder, method, level + 0.01 + more)
            tuned = optimistic({"parameters": setting("dpl"), "epoch": 40})
            found += runs("paper-tuned", dataset, encoder, "dpl", 0.45 + more, parameters=tuned)
        for method, level in REFERENCES.items():
            found += runs("clean", dataset, "-", method, level, seeds=1)
        for at, variant in enumerate(VARIANTS):
            found += runs("ablation", dataset, "mf", "dpl", 0.35 - at / 100, variant=variant)
    timings = [
        Timing(d, "mf", m, device, engine, 1024, [ratio / 10] * 3, ratio)
        for d in datasets
        for device, engine in (("CPU, 2 threads", "cpu"), ("NVIDIA H200", "gpu"))
        for m, ratio in (("bpr", 1.0), ("dpl", 1.1), ("bns", 4.0))
    ]
    return Lines(
        [*found, *sweep()],
        trials(datasets),
        [contrast(d, "mf dpl", "ease", -0.02, 0.0004) for d in datasets],
        timings,
        [Session("2026-01-01T00:00:00Z", "CPU, 2 threads", "paper run", 12, 7300.0)],
    )


def sweep(tau=(0.30, 0.33, 0.31)):
    """MF gains by M and N; LightGCN gains by M and loses by N; τ has its best inside."""
    found = []
    for encoder, sign in (("mf", 1), ("lightgcn", -1)):
        for m, value in ((0, 0.30), (1, 0.33), (5, 0.335), (10, 0.336)):
            found += runs("sweep", "ml-1m", encoder, "dpl", value, variant=f"M={m}")
        for n in (1, 5, 10):
            found += runs("sweep", "ml-1m", encoder, "dpl", 0.33 + sign * n / 1000, variant=f"N={n}")
        for x, value in zip((0, 0.05, 0.4), tau, strict=True):
            found += runs("sweep", "ml-1m", encoder, "dpl", value, variant=f"tau={x:g}")
    return found


def trials(datasets):
    """Three trials a search: a good one, a pruned one, a failed one."""
    states = (("complete", 0.2, 40), ("pruned", 0.1, 5), ("failed", None, None))
    return [
        TrialLine(
            d, "mf", "dpl", number, state,
            setting("dpl") | {"learning_rate": 0.001 * (number + 1), "encoder.dim": 32 * 2**number},
            score, epoch, [], f"split-of-{d}", "gpu", "NVIDIA H200", 60.0,
        )
        for d in datasets
        for number, (state, score, epoch) in enumerate(states)
    ]  # fmt: skip


def contrast(dataset, a, b, value, p):
    """A comparison over the same users, of the settings that made-up runs have."""
    marks = [digest(setting(name.split()[-1])) for name in (a, b)]
    interval = value - 0.01, value + 0.01
    return Contrast(dataset, a, b, "ndcg@20", 3, 900, value, *interval, p, p, f"split-of-{dataset}", *marks)
