"""The steps of `truepair paper`: run, tune, in one process or several; wall-clock is kept as a line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from truepair.data.fetching import locate
from truepair.errors import InputError, TruepairError, check_choice
from truepair.experiments.lines import Session, append_line, read_lines
from truepair.experiments.paper.contrasts import make_contrasts
from truepair.experiments.paper.plan import settings_text, tuned_settings, wanted_runs
from truepair.experiments.paper.points import device_name
from truepair.experiments.paper.presets import (
    DATA,
    ENCODERS,
    METHODS,
    NO_ENCODER,
    REFERENCES,
    SEEDS,
    STUDIES,
    Material,
    load_material,
    missing_files,
)
from truepair.experiments.paper.running import Say, run_wanted
from truepair.experiments.paper.search import search
from truepair.experiments.paper.timing import time_epochs

__all__ = [
    "Asked",
    "checked",
    "compare",
    "in_processes",
    "keep_session",
    "run",
    "run_timings",
    "settings_text",
    "tune",
]


@dataclass(frozen=True)
class Asked:
    """Which part of the experiments to do."""

    datasets: Sequence[str] = tuple(DATA)
    studies: Sequence[str] = tuple(STUDIES)
    encoders: Sequence[str] = (*ENCODERS, NO_ENCODER)
    methods: Sequence[str] = (*METHODS, *REFERENCES)
    seeds: Sequence[int] = SEEDS
    data_dir: Path | None = None

    def words(self) -> list[str]:
        """As options of the command."""
        named = {
            "--only": self.datasets, "--studies": self.studies, "--encoders": self.encoders,
            "--methods": self.methods,
        }  # fmt: skip
        told = [f"{option}={','.join(values)}" for option, values in named.items()]
        return told + ([] if self.data_dir is None else [f"--data-dir={self.data_dir}"])


def run(asked: Asked, out: Path, say: Say) -> int:
    """Every wanted run that is not done, then timings and comparisons; gives how many runs were made."""
    count = 0
    for material in materials(asked, say):
        wanted = wanted_runs(
            material.data,
            [s for s in asked.studies if s != "timing"],
            tuned_settings(read_lines(out)),
            asked.seeds,
        )
        wanted = [w for w in wanted if w.encoder in asked.encoders and w.method in asked.methods]
        count += run_wanted(material, wanted, out, say)
    return count + run_timings(asked, out, say)


def run_timings(asked: Asked, out: Path, say: Say) -> int:
    """The epochs' times, if they are asked for."""
    if "timing" not in asked.studies:
        return 0
    return sum(time_epochs(material, out, say) for material in materials(asked, say))


def tune(asked: Asked, out: Path, say: Say, progress: bool = False) -> int:
    """Every search that is not finished; gives how many there were."""
    count = 0
    for material in materials(asked, say):
        for encoder, method in places(asked):
            best = search(material, encoder, method, out, progress=progress)
            say(f"{material.data.name} {encoder} {method}: best validation ndcg@20 {best.score:.4f}")
            count += 1
    return count


def places(asked: Asked) -> list[tuple[str, str]]:
    """The (encoder, method) that are asked for."""
    every = [(encoder, method) for encoder in ENCODERS for method in METHODS]
    every += [(NO_ENCODER, method) for method in REFERENCES]
    return [(e, m) for e, m in every if e in asked.encoders and m in asked.methods]


def materials(asked: Asked, say: Say) -> Iterator[Material]:
    """The datasets asked for; one that nobody may pass on is skipped, with a message, where it is absent."""
    for name in asked.datasets:
        try:
            yield load_material(name, asked.data_dir)
        except TruepairError as error:
            if missing_files(name) is None or len(asked.datasets) == 1:
                raise
            say(f"{DATA[name].title} is skipped: {error}")


def compare(asked: Asked, out: Path, say: Say) -> None:
    """The clean protocol's comparisons, for what is there."""
    if "clean" in asked.studies:
        for name in asked.datasets:
            make_contrasts(name, out, say)


# --- several processes ---------------------------------------------------------------------------------


def in_processes(step: str, asked: Asked, out: Path, processes: int, say: Say) -> int:
    """The same work, divided by dataset, encoder and method; gives how many parts there were.

    Each process has its share of the processors; all of them append to the same files.
    """
    parts = [
        Asked(
            (name,),
            [s for s in asked.studies if s != "timing"],
            (encoder,),
            (method,),
            asked.seeds,
            asked.data_dir,
        )
        for name in asked.datasets
        if _is_here(name, asked, say)
        for encoder, method in places(asked)
    ]
    with ThreadPoolExecutor(processes) as pool:
        failed = [
            text for text in pool.map(lambda part: _call(step, part, out, processes, say), parts) if text
        ]
    if failed:
        raise InputError(f"{len(failed)} of {len(parts)} parts failed; run it again to go on. {failed[0]}")
    return len(parts)


def _is_here(name: str, asked: Asked, say: Say) -> bool:
    if missing_files(name) is None or locate(DATA[name].source, asked.data_dir) is not None:
        return True
    say(f"{DATA[name].title} is skipped: {missing_files(name)}")
    return False


def _call(step: str, part: Asked, out: Path, processes: int, say: Say) -> str | None:
    threads = str(max(1, (os.cpu_count() or 1) // processes))
    names = "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
    command = [sys.executable, "-m", "truepair", "paper", step, *part.words(), f"--lines={out}", "--part"]
    command += [f"--seeds={len(part.seeds)}"] if step == "run" else []
    done = subprocess.run(
        command,
        env=os.environ | dict.fromkeys(names, threads),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    for text in done.stderr.splitlines():
        say(text)
    return None if done.returncode == 0 else " ".join(done.stderr.splitlines()[-1:])


def keep_session(out: Path, step: str, asked: Asked, runs: int, began: float) -> None:
    """A line on what was done and how long it took."""
    told = f"paper {step} {' '.join(asked.words())}"
    seconds = time.perf_counter() - began
    when = datetime.now(UTC) - timedelta(seconds=seconds)
    session = Session(when.isoformat(timespec="seconds"), device_name(), told, runs, round(seconds, 1))
    append_line(out / "sessions.jsonl", session)


def checked(what: str, names: str | None, allowed: Iterable[str]) -> tuple[str, ...]:
    """Names with commas between, each one of `allowed`; all of them if none are given."""
    allowed = tuple(allowed)
    if names is None:
        return allowed
    return tuple(check_choice(what, name.strip(), allowed) for name in names.split(","))
