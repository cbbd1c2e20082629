"""Memory: how much training adds to an interpreter that has PyTorch imported."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from truepair.data.interactions import Interactions
from truepair.training import ENGINES
from truepair_lab.benchmarks.outcome import Options, Outcome, Row, Skipped, medians
from truepair_lab.benchmarks.truepair_side import FAST, movielens_1m

BAR = 300  # MB
# Peak memory is that of a process; a fresh one does nothing but import and train.
PROGRAM = r"""
import re, sys
import torch

def peak():  # getrusage would count what the parent had before
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 1024

imported = peak()
import numpy as np
from truepair_lab.benchmarks.truepair_side import SETTINGS, TAU, DEFAULTS
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.models.encoders import MF
from truepair.losses import DPL
from truepair.sampling import Uniform
from truepair.training import Job, fit
from dataclasses import replace

path, engine, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
with np.load(path) as pairs:
    n_users, n_items = pairs["shape"]
    train = Interactions(pairs["users"], pairs["items"], IdMap.range(n_users), IdMap.range(n_items))
settings = replace(SETTINGS.get(engine, DEFAULTS), n_extra=10, n_unlabelled=10, epochs=epochs)
fit(Job(MF(dim=32), DPL(tau=TAU), Uniform(), train, settings), engine=engine)
print(peak() - imported)
"""


def peak_memory(options: Options) -> Outcome:
    """Peak memory of training on ML-1M, DPL (10,10), d = 32, above an interpreter with PyTorch."""
    if not Path("/proc/self/status").exists():
        raise Skipped("peak memory is read from /proc, which only Linux has")
    train = movielens_1m(options).train
    return measure_memory("ML-1M d=32", train, (FAST,), options)


def measure_memory(data: str, train: Interactions, engines: tuple[str, ...], options: Options) -> Outcome:
    """A fresh process a round and an engine; one more before, which compiles."""
    outcome, epochs = Outcome(settings={"epochs": 1 if options.quick else 3}), 1 if options.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.npz"
        np.savez(path, users=train.users, items=train.items, shape=[train.n_users, train.n_items])
        for engine in engines:
            if engine not in ENGINES:
                outcome.skipped.append(f"there is no engine {engine!r} here; there are {', '.join(ENGINES)}")
                continue
            peaks = [peak_above_imports(path, engine, epochs) for _ in range(options.rounds + 1)][1:]
            options.say(f"{engine}: {', '.join(f'{peak:.0f}' for peak in peaks)} MB")
            outcome.rounds[f"{engine}: MB"] = peaks
    for name, peak in medians(outcome.rounds).items():
        row = Row(f"{data}, training, engine {name.removesuffix(': MB')}", peak, "MB", bar=BAR)
        outcome.rows.append(replace(row, note="peak above `import torch`"))
    return outcome


def peak_above_imports(path: Path, engine: str, epochs: int) -> float:
    """MB that a fresh process needs for training, above what it had with PyTorch imported."""
    command = [sys.executable, "-c", PROGRAM, str(path), engine, str(epochs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Skipped(f"training in a fresh process failed: {last}")
    return float(done.stdout.split()[-1])
