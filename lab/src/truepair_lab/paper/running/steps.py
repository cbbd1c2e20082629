"""The steps of `truepair-lab paper`: run, tune, in one process or several; wall-clock is kept as a line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import torch

from truepair.data.datasets.loading import locate
from truepair.data.datasets.registry import DATASETS
from truepair.errors import InputError, check_choice
from truepair_lab.lines import Session, append_line, read_lines
from truepair_lab.paper.baselines import device_name
from truepair_lab.paper.presets import (
    DATA,
    ENCODERS,
    METHODS,
    METHODS_OF,
    NO_ENCODER,
    REFERENCES,
    STUDIES,
    Material,
    load_material,
    missing_files,
    other_split,
)
from truepair_lab.paper.running.contrasts import make_contrasts
from truepair_lab.paper.running.plan import Tuned, tuned_settings, wanted_runs
from truepair_lab.paper.running.runs import Say, run_wanted
from truepair_lab.paper.running.search import search
from truepair_lab.paper.running.timing import time_epochs


@dataclass(frozen=True)
class Selection:
    """Which part of the experiments to do, and with how many processes and trials at once."""

    datasets: Sequence[str] = tuple(DATA)
    studies: Sequence[str] = tuple(STUDIES)
    encoders: Sequence[str] = (*ENCODERS, NO_ENCODER)
    methods: Sequence[str] = (*METHODS, *REFERENCES)
    seeds: int | None = None  # as many as a study has by habit
    data_dir: Path | None = None
    processes: int = 1
    together: int = 1

    def __post_init__(self) -> None:
        if not self.places:
            raise InputError(
                f"none of the methods {', '.join(self.methods)} goes with {', '.join(self.encoders)}: "
                f"{', '.join(REFERENCES)} go with the encoder `{NO_ENCODER}`, the others with "
                f"{' and '.join(ENCODERS)}."
            )

    @property
    def places(self) -> list[tuple[str, str]]:
        """The (encoder, method) that are selected."""
        every = [(encoder, method) for encoder in ENCODERS for method in METHODS_OF[encoder]]
        every += [(NO_ENCODER, method) for method in REFERENCES]
        return [(e, m) for e, m in every if e in self.encoders and m in self.methods]

    @property
    def trained_studies(self) -> list[str]:
        """The studies whose runs differ by seed."""
        return [study for study in self.studies if study != "timing"]

    def words(self, step: str) -> list[str]:
        """As options of the command."""
        named: dict[str, Sequence[object]] = {
            "only": self.datasets, "encoders": self.encoders, "methods": self.methods,
        }  # fmt: skip
        if step == "run":
            named |= {"studies": self.studies} | ({} if self.seeds is None else {"seeds": [self.seeds]})
        else:
            named |= {"together": [self.together]}
        return [f"--{option}={','.join(map(str, values))}" for option, values in named.items()]


def run(selected: Selection, out: Path, say: Say) -> None:
    """Every wanted run that is not done, then timings."""
    for material in materials(selected, say):
        tuned = tuned_settings(read_lines(out))
        wanted = wanted_runs(material.data, selected.trained_studies, tuned, selected.seeds)
        wanted = [each for each in wanted if (each.encoder, each.method) in selected.places]
        for split in dict.fromkeys(each.other_split for each in wanted):
            own = other_split(material, split, selected.data_dir) if split else material
            run_wanted(own, [each for each in wanted if each.other_split == split], out, say)
    run_timings(selected, out, say)


def run_timings(selected: Selection, out: Path, say: Say) -> None:
    """The epochs' times, if they are asked for."""
    if "timing" in selected.studies:
        for material in materials(selected, say):
            time_epochs(material, out, say)


def tune(selected: Selection, out: Path, say: Say, progress: bool = False) -> None:
    """Every search that is not finished."""
    for material in materials(selected, say):
        for encoder, method in selected.places:
            best = search(material, encoder, method, out, progress=progress, together=selected.together)
            say(f"{material.data.name} {encoder} {method}: best validation ndcg@20 {best.score:.4f}")


def materials(selected: Selection, say: Say) -> Iterator[Material]:
    """The datasets selected; one that nobody may pass on is skipped, with a message, where it is absent."""
    for name in selected.datasets:
        if _is_here(name, selected, say):
            yield load_material(name, selected.data_dir)


def _is_here(name: str, selected: Selection, say: Say) -> bool:
    if missing_files(name) is None or locate(DATA[name].source, selected.data_dir) is not None:
        return True
    wanted = ", ".join(file.name for file in DATASETS[DATA[name].source].files)
    say(f"{DATA[name].title} is skipped, as {wanted} are not here. {missing_files(name)}")
    return False


def compare(selected: Selection, out: Path, say: Say) -> None:
    """The clean protocol's comparisons, for what is there."""
    if "clean" in selected.studies:
        for name in selected.datasets:
            make_contrasts(name, out, say)


# --- several processes ---------------------------------------------------------------------------------


def in_processes(step: str, selected: Selection, out: Path, say: Say) -> None:
    """The same work, divided by dataset, encoder and method.

    Each process has its share of the processors; all of them append to the same files.
    """
    if step == "run" and not selected.trained_studies:
        return
    shares: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((e,), (m,)) for e, m in selected.places]
    solved = tuple(method for encoder, method in selected.places if encoder == NO_ENCODER)
    if step == "run" and solved:  # they take less time than a process takes to start
        shares = [share for share in shares if share[0] != (NO_ENCODER,)] + [((NO_ENCODER,), solved)]
    parts = [
        replace(
            selected, datasets=(name,), studies=selected.trained_studies, encoders=encoders, methods=methods
        )
        for name in selected.datasets
        if _is_here(name, selected, say)
        for encoders, methods in shares
    ]
    if step == "run":  # the longest first, so that no process is left alone with it
        tuned = tuned_settings(read_lines(out))
        parts.sort(key=lambda part: _epochs(part, tuned), reverse=True)
    with ThreadPoolExecutor(selected.processes) as pool:
        failed = [text for text in pool.map(lambda part: _call(step, part, out, say), parts) if text]
    if failed:
        raise InputError(f"{len(failed)} of {len(parts)} parts failed; run it again to go on. {failed[0]}")


def _epochs(part: Selection, tuned: Tuned) -> float:
    """The epochs of all runs of a part; LightGCN's take about twice as long."""
    wanted = wanted_runs(DATA[part.datasets[0]], part.studies, tuned, part.seeds)
    selected = [w for w in wanted if (w.encoder, w.method) in part.places]
    return sum(float(w.parameters.get("epochs", 1)) * (2 if w.encoder == "lightgcn" else 1) for w in selected)


def _call(step: str, part: Selection, out: Path, say: Say) -> str | None:
    threads = str(max(1, (os.cpu_count() or 1) // part.processes))
    names = "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
    command = [sys.executable, "-m", "truepair_lab", "paper", step, *part.words(step), f"--lines={out}"]
    command += ["--part", "--processes=1"]
    command += [] if part.data_dir is None else [f"--data-dir={part.data_dir}"]
    environment = os.environ | dict.fromkeys(names, threads)
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    for text in done.stderr.splitlines():
        say(text)
    return None if done.returncode == 0 else " ".join(done.stderr.splitlines()[-1:])


def default_processes() -> int:
    """A GPU serves one process best; on the CPU, small data gain more from processes than from threads."""
    return 1 if torch.cuda.is_available() else min(os.cpu_count() or 1, 8)


def keep_session(out: Path, asked: str, runs: int, began: float) -> None:
    """A line on what was asked for, what was done and how long it took."""
    seconds = time.perf_counter() - began
    when = datetime.now(UTC) - timedelta(seconds=seconds)
    session = Session(when.isoformat(timespec="seconds"), device_name(), asked, runs, round(seconds, 1))
    append_line(out / "sessions.jsonl", session)


def count_lines(out: Path) -> int:
    """How many runs, trials and timings are kept."""
    lines = read_lines(out)
    return len(lines.runs) + len(lines.trials) + len(lines.timings)


def checked(what: str, names: str | None, allowed: Iterable[str]) -> tuple[str, ...]:
    """Names with commas between, each one of `allowed`; all of them if none are given."""
    allowed = tuple(allowed)
    if names is None:
        return allowed
    return tuple(check_choice(what, name.strip(), allowed) for name in names.split(","))
