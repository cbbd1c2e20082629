"""The GPU engine: milliseconds an epoch, against the memory traffic it cannot do without."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from truepair.data.datasets.loading import load_split
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.evaluation import evaluate
from truepair.losses import DPL
from truepair.models.encoders import MF, Encoder, LightGCN
from truepair.ranking.selection import top_k
from truepair.sampling import Uniform
from truepair.training import Job, Settings
from truepair_lab.benchmarks.outcome import Options, Outcome, Row, Skipped, alternate, medians
from truepair_lab.benchmarks.scaling import measure_scaling
from truepair_lab.benchmarks.truepair_side import TAU, factors, gowalla, movielens_1m, timed

if TYPE_CHECKING:
    from truepair.training.sampled.gpu.runs import GpuRuns


class Case(NamedTuple):
    """One job, and the milliseconds an epoch of it may take."""

    data: str
    encoder: Encoder
    m: int
    n: int
    batch: int
    bar: float

    def __str__(self) -> str:
        kind = f"{type(self.encoder).__name__} d={self.encoder.dim}"
        return f"{self.data}, {kind}, DPL ({self.m},{self.n}), batch {self.batch:,}"


CASES = (
    Case("ML-100k", MF(dim=32), 10, 10, 1024, 0.9),
    Case("ML-1M", MF(dim=32), 10, 10, 1024, 6),
    Case("Yelp2018", MF(dim=64), 5, 5, 1024, 40),
    Case("Yelp2018", MF(dim=64), 5, 5, 65_536, 4),
    Case("ML-1M", LightGCN(dim=32, hops=1), 5, 5, 1024, 80),
    Case("Gowalla", LightGCN(dim=32, hops=1), 5, 5, 1024, 130),
    Case("Yelp2018", LightGCN(dim=32, hops=1), 5, 5, 1024, 250),
)
TOGETHER, TOGETHER_BAR = 32, 8.0  # runs at once, and their least throughput, as a multiple of one's


def gpu_speed(options: Options) -> Outcome:
    """The GPU engine on CUDA: an epoch of MF and LightGCN, many runs at once, lists, evaluation, scaling."""
    if not torch.cuda.is_available():
        raise Skipped("the GPU engine needs a CUDA device, and PyTorch sees none")
    outcome = Outcome(settings={"copy bandwidth, GB/s": round(copy_bandwidth() / 1e9)})
    splits: dict[str, Split] = {}
    for case in CASES[:1] if options.quick else CASES:
        if case.data not in splits:
            splits[case.data] = _split(case.data, options)
        _measure(case, splits[case.data].train, options, outcome)
    _measure_together(splits["ML-100k"].train, options, outcome)
    if not options.quick:
        _measure_lists(splits["Gowalla"], options, outcome)
        _measure_evaluation(splits["ML-1M"], options, outcome)
        grown = measure_scaling(options, ("gpu",))
        outcome.rows += grown.rows
        outcome.data["scaling"], outcome.rounds = grown.data, outcome.rounds | grown.rounds
    return outcome


def _split(data: str, options: Options) -> Split:
    options.say(f"loading {data}")
    if data == "ML-1M":
        return movielens_1m(options)
    if data == "Gowalla":
        return gowalla(options)
    name = {"ML-100k": "ml-100k-paper-split", "Yelp2018": "yelp2018"}[data]
    return load_split(name, options.data_dir, progress=True)


def _job(case: Case, train: Interactions, seed: int) -> Job:
    settings = Settings(
        batch_size=case.batch, n_extra=case.m, n_unlabelled=case.n, weight_decay=1e-6, seed=seed
    )
    return Job(case.encoder, DPL(tau=TAU), Uniform(), train, settings)


def _measure(case: Case, train: Interactions, options: Options, outcome: Outcome) -> None:
    from truepair.training.sampled.gpu.runs import GpuRuns

    runs = GpuRuns([_job(case, train, options.seed)])
    rounds = milliseconds(runs, options.rounds)
    options.say(f"{case}: {statistics.median(rounds):.4g} ms")
    outcome.rounds[f"{case}: ms an epoch"] = rounds
    floor = traffic(runs) / copy_bandwidth() * 1e3
    note = f"{floor:.2f} ms of memory traffic at copy speed"
    outcome.rows.append(Row(str(case), statistics.median(rounds), "ms", bar=case.bar, note=note))
    outcome.data.setdefault("kernels", {})[str(case)] = {
        "epoch, ms": statistics.median(rounds), "floor, ms": floor, "steps": runs.steps, **kernel_times(runs)
    }  # fmt: skip


def _measure_together(train: Interactions, options: Options, outcome: Outcome) -> None:
    from truepair.training.sampled.gpu.runs import GpuRuns

    case = CASES[0]
    alone = milliseconds(GpuRuns([_job(case, train, options.seed)]), options.rounds)
    group = GpuRuns([_job(case, train, seed) for seed in range(TOGETHER)])
    together = milliseconds(group, options.rounds)
    name = f"{case}, {TOGETHER} runs"
    outcome.rounds |= {f"{name} at once: ms an epoch": together, f"{name}, one of them: ms an epoch": alone}
    peer_value = 1 / statistics.median(alone)
    value = TOGETHER / statistics.median(together)
    floor = traffic(group) / copy_bandwidth() * 1e3
    note = f"{floor:.2f} ms of memory traffic for all at copy speed"
    row = Row(f"{name} at once", value, "epochs/ms", "one by one", peer_value, TOGETHER_BAR, True, note)
    outcome.rows.append(row)
    outcome.data["kernels"][name] = {
        "epoch, ms": statistics.median(together), "floor, ms": floor, "steps": group.steps,
        **kernel_times(group),
    }  # fmt: skip


def _measure_lists(split: Split, options: Options, outcome: Outcome) -> None:
    users, items = (torch.from_numpy(x).cuda() for x in factors(split.train, 64, options.seed))
    rounds = alternate({"lists": timed(lambda: top_k(users, items, 20, exclude=split.train))}, options)
    what = f"Gowalla d=64, top-20 of {len(users):,} users"
    outcome.rounds[f"{what}: s"] = rounds["lists"]
    outcome.rows.append(Row(what, medians(rounds)["lists"] * 1e3, "ms"))


def _measure_evaluation(split: Split, options: Options, outcome: Outcome) -> None:
    users, items = (torch.from_numpy(x).cuda() for x in factors(split.train, 32, options.seed))
    judged = split.test.user_counts.nonzero()[0]
    measures = {
        "evaluation": timed(lambda: evaluate((users, items), split)),
        "lists": timed(lambda: top_k(users, items, 20, rows=judged, exclude=split.train)),
    }
    rounds = alternate(measures, options)
    middle = medians(rounds)
    what = "ML-1M d=32, all metrics at 5, 10, 20"
    outcome.rounds |= {f"{what}, {name}: s": seconds for name, seconds in rounds.items()}
    outcome.rows.append(
        Row(what, middle["evaluation"] * 1e3, "ms", "its top-20 alone", middle["lists"] * 1e3)
    )


# --- measuring -----------------------------------------------------------------------------------------


def milliseconds(runs: GpuRuns, rounds: int) -> list[float]:
    """An epoch of a group, so many times; the first two, which compile and capture, are not counted."""
    found = []
    for epoch in range(rounds + 2):
        torch.cuda.synchronize()
        began = time.perf_counter()
        runs.train([epoch] * len(runs.jobs), [1e-3] * len(runs.jobs))
        torch.cuda.synchronize()
        found.append((time.perf_counter() - began) * 1e3)
    return found[2:]


def copy_bandwidth() -> float:
    """Bytes read and written a second by a large copy."""
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    seconds = []
    for _ in range(10):
        torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return 2 * source.nbytes / statistics.median(seconds)


def traffic(runs: GpuRuns) -> float:
    """Bytes that an epoch must move if nothing stayed in a cache: vectors, gradients, Adam, entries, order.

    Counted after an epoch, since the rows that were touched are counted as they were.
    """
    vector, entries = runs.dim * 4, runs.n_anchors * (1 + runs.plan.width)
    moved = entries * (vector * 2 + 4 * 2)  # vectors read, gradients added; entries written and read
    moved += runs.n_anchors * 16 * 2 * 8  # the order: eight passes over words and places
    updated = runs.steps * runs.n_rows
    if runs.lazy:
        owned = int((runs.entry_rows < 0).sum()) + int((runs.entry_users < 0).sum())
        updated = owned + runs.steps * runs.n_rows // 32
    moved += updated * vector * 8  # weights, two moments and the gradient, read and written
    if runs.hops is not None:
        degrees = torch.diff(runs.hops.indptr)
        touches = runs.touched.view(-1, runs.n_rows).sum(dim=0)  # of each row
        near = int((touches * degrees).sum())
        moved += 2 * near * vector  # the neighbours of touched rows, there and back
        moved += (near + runs.steps * int(degrees.sum())) * 8  # who they are, and their weights
        moved += (int(touches.sum()) + runs.steps * runs.n_rows) * 2 * vector
    return float(moved * (len(runs.jobs) if runs.hops is None else 1))


def kernel_times(runs: GpuRuns) -> dict[str, Any]:
    """Where an epoch's time goes: milliseconds in each kind of kernel, launched one by one."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        runs.enqueue()
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in profiled.key_averages():
        name = event.key if event.key.endswith("_kernel") and "::" not in event.key else "order and sums"
        found[name] = found.get(name, 0.0) + event.self_device_time_total / 1e3
    return {"kernels, ms": {name: round(ms, 4) for name, ms in sorted(found.items(), key=lambda x: -x[1])}}
