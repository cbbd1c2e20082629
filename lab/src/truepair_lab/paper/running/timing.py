"""One epoch of BPR, DPL and BNS in turns: how many times BPR's time each takes."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from truepair.training import ENGINES, choose_engine
from truepair_lab.lines import Timing, append_line, read_lines
from truepair_lab.paper.baselines import device_name
from truepair_lab.paper.presets import Material, authors_parameters
from truepair_lab.paper.running.plan import Wanted
from truepair_lab.paper.running.runs import Say, job_of

_METHODS = ("bpr", "dpl", "bns")


def time_epochs(material: Material, out: Path, say: Say, rounds: int = 5) -> int:
    """Alternating rounds of one epoch each, MF, the authors' settings; a line a method, kept once."""
    name, encoder = material.data.name, "mf"
    jobs = {
        method: job_of(
            Wanted(
                "timing", name, encoder, method, "", 0, authors_parameters(material.data, encoder, method)
            ),
            material,
        )
        for method in _METHODS
    }
    engines = {method: choose_engine(job) for method, job in jobs.items()}
    lines = [
        Timing(name, encoder, method, device_name(), engines[method], job.settings.batch_size, [], 1.0)
        for method, job in jobs.items()
    ]
    if {line.key for line in lines} <= {line.key for line in read_lines(out).timings}:
        say(f"{name}: timed before")
        return 0
    trainers = {method: ENGINES[engines[method]].start(job) for method, job in jobs.items()}
    seconds: dict[str, list[float]] = {method: [] for method in _METHODS}
    for turn in range(-2, rounds):  # two epochs to compile, capture and warm up
        for method, trainer in trainers.items():
            began = time.perf_counter()
            trainer.train(turn + 2, 1e-3, lambda steps: None)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[method] += [time.perf_counter() - began] if turn >= 0 else []
    for line in lines:
        own = seconds[line.method]
        ratio = statistics.median(a / b for a, b in zip(own, seconds["bpr"], strict=True))
        timing = Timing(
            name, encoder, line.method, line.device, line.engine, line.batch_size,
            [round(s, 6) for s in own], round(ratio, 4),
        )  # fmt: skip
        append_line(out / f"timings-{name}.jsonl", timing)
        say(f"{name}: an epoch of {line.method} takes {ratio:.2f} times BPR's ({line.engine})")
    return len(lines)
