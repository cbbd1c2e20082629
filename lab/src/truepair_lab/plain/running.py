"""Running the plain call: one line a seed, none twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from truepair.data.simulation import simulate_world
from truepair.recommender.estimator import Recommender
from truepair.storage.versions import package_version
from truepair_lab.lines import read_lines
from truepair_lab.paper.baselines import device_name
from truepair_lab.plain import baselines
from truepair_lab.plain.cases import CASES, load_case
from truepair_lab.plain.lines import PlainLine, keep_values, merge_values, plain_name, processor, read_plain
from truepair_lab.quality.cases import NDCG, Case
from truepair_lab.quality.part_scores import read_contest
from truepair_lab.store import append, rounded

Say = Callable[[str], None]


def tune_all(cases: Iterable[str], folder: Path, data_dir: Path | None, say: Say, progress: bool) -> None:
    """The searches of the baselines that the contest does not have; validation only."""
    for name in cases:
        if not CASES[name].contest:
            baselines.tune(load_case(name, data_dir), folder, say, progress)


def run_all(
    cases: Iterable[str],
    seeds: int | None,
    folder: Path,
    contest: Path,
    data_dir: Path | None,
    alone: bool,
    say: Say,
) -> int:
    """Every run that has no line: baselines, the plain call, the time of iALS. Gives the number of calls."""
    made, tuned = 0, read_contest(contest)
    for name in cases:
        case = load_case(name, data_dir)
        if not CASES[name].contest:
            baselines.run(case, folder, say)
        made += run_plain(case, range(CASES[name].seeds if seeds is None else seeds), folder, alone, say)
        own = read_lines(folder / baselines.FOLDER)
        parameters = baselines.ials_parameters(name, own, tuned)
        if parameters is not None:
            baselines.time_ials(case, parameters, folder, alone, say)
        merge_values(folder, name)
    return made


def run_plain(case: Case, seeds: Iterable[int], folder: Path, alone: bool, say: Say) -> int:
    """The plain call with these seeds, where it has no line; gives how many were run."""
    known, made = {line.key for line in read_plain(folder).runs}, 0
    for seed in seeds:
        if (case.name, seed, processor(), case.whole.hash) in known:
            continue
        warm_up()
        line = plain_run(case, seed, folder, alone)
        append(folder / f"runs-{case.name}.jsonl", line)
        say(f"{case.name}, seed {seed}: {NDCG} {line.metrics[NDCG]:.4f} ({line.seconds:.1f} s)")
        made += 1
    return made


@cache
def warm_up() -> None:
    """Compile and load what a fit needs, once in a process, so that the seconds of a call are without it."""
    Recommender().fit(simulate_world(300, 200, density=0.1).observed)


def plain_run(case: Case, seed: int, folder: Path, alone: bool) -> PlainLine:
    """One call, judged once; the values of users are kept."""
    began = time.perf_counter()
    model = Recommender(seed=seed).fit(case.whole)
    seconds = time.perf_counter() - began
    found = case.judged(*map(_on_device, model.matrices()))
    facts: dict[str, Any] = model.facts_.get("automatic", {})
    line = rounded(
        PlainLine(
            case.name, seed, case.whole.hash, processor(), device_name(), alone, package_version("truepair"),
            facts.get("chosen", {}), facts.get("hold out", facts.get("skipped", "")),
            len(facts.get("trials", ())), model.facts_["epoch"], found.metrics, seconds,
            facts.get("seconds", 0.0), sum(record.seconds for record in model.result_.history),
        )
    )  # fmt: skip
    assert isinstance(line, PlainLine)
    keep_values(folder, case.name, plain_name(line), found.per_user)
    return line


def _on_device(matrix: Any) -> Any:
    """Dense matrices where lists are made fastest."""
    return matrix.to(processor()) if isinstance(matrix, torch.Tensor) else matrix
