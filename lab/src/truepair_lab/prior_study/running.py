"""Running: what has no line yet is done, a line at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from truepair.errors import check_choice
from truepair_lab.paper.presets import load_material
from truepair_lab.prior_study import lines
from truepair_lab.prior_study.auto import SEEDS, SETUPS, SOURCES, lines_of
from truepair_lab.prior_study.cases import STUDIES
from truepair_lab.prior_study.measuring import measure

Say = Callable[[str], None]
EVERY = (*STUDIES, *(f"auto-{name}" for name in SETUPS))


def run(
    studies: Sequence[str],
    folder: Path,
    say: Say,
    data_dir: Path | None = None,
    device: str = "auto",
) -> int:
    """Do these studies as far as they have no line in `folder`; how many lines there were to add."""
    for name in studies:
        check_choice("study", name, EVERY)
    return sum(
        run_auto(name.removeprefix("auto-"), folder, say, data_dir, device)
        if name.startswith("auto-")
        else run_estimates(name, folder, say, data_dir)
        for name in studies
    )


def run_estimates(name: str, folder: Path, say: Say, data_dir: Path | None = None) -> int:
    """One study of estimates."""
    study, made = STUDIES[name], 0
    done = _done(folder, say)
    for place in study.places():
        if (name, *place) in done:
            continue
        began = time.perf_counter()
        line = measure(name, place, study.make(place, data_dir), study.resamples)
        lines.append(folder / f"{name}.jsonl", [line])
        made += 1
        took = time.perf_counter() - began
        say(f"{name} {place.exposure} {place.level:g} seed {place.seed}: {_estimated(line)}, {took:.1f} s")
    return made


def run_auto(name: str, folder: Path, say: Say, data_dir: Path | None = None, device: str = "auto") -> int:
    """DPL with τ from every source on one dataset, a seed at a time."""
    split, made = load_material(name, data_dir).holdout, 0
    done = _done(folder, say)
    for seed in SEEDS:
        if all((name, source, seed, split.hash) in done for source in SOURCES):
            continue
        began = time.perf_counter()
        found = lines_of(name, SETUPS[name], split, seed, device)
        lines.append(folder / f"auto-{name}.jsonl", found)
        made += len(found)
        took = time.perf_counter() - began
        scores = ", ".join(f"{line.source} τ = {line.tau:.3g} {line.ndcg:.4f}" for line in found)
        say(f"{name} seed {seed}: NDCG@20 {scores}, {took:.0f} s")
    return made


def _done(folder: Path, say: Say) -> set[lines.Key]:
    found, broken = lines.read(folder)
    for text in broken:
        say(f"left out: {text}")
    return {line.key for line in found}


def _estimated(line: lines.EstimateLine) -> str:
    return f"true τ {line.tau:.4g}; estimated {line.estimate:.4g} [{line.low:.4g}, {line.high:.4g}]"
