"""Work: how hard was tuned, how long it took, on what data and machines, as tables."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from truepair.experiments.lines import Lines, Session, Timing, TrialLine
from truepair.experiments.paper.cells import study_of
from truepair.experiments.paper.published import DATASETS
from truepair.experiments.paper.words import (
    ENCODERS,
    METHODS,
    dataset_name,
    details,
    in_order,
    model_name,
    not_run,
    short,
    table,
)

# --- effort --------------------------------------------------------------------------------------------


def effort_table(lines: Lines) -> str:
    """How much each method was tuned, and what was found: validation only."""
    searches: dict[tuple[str, str, str], list[TrialLine]] = defaultdict(list)
    for trial in lines.trials:
        searches[trial.dataset, trial.encoder, trial.method].append(trial)
    if not searches:
        return not_run(["the searches"])
    order = in_order(DATASETS), in_order(ENCODERS), in_order(METHODS)
    names = sorted(searches, key=lambda s: tuple(key(part) for key, part in zip(order, s, strict=True)))
    head = [
        "dataset",
        "model",
        "trials",
        "pruned",
        "failed",
        "extended",
        "best validation",
        "epoch",
        "with",
        "time",
    ]
    return table(head, [_effort(name, searches[name]) for name in names]) + f"\n\n{_EFFORT}"


_EFFORT = (
    "Validation NDCG@20; the test part was not looked at. One rule for every method: where the best "
    "lies at an edge of its range, the range grows and more trials are run."
)


def _effort(name: tuple[str, str, str], trials: Sequence[TrialLine]) -> list[object]:
    states = Counter(trial.state for trial in trials)
    scored = [(t.score, -t.number, t) for t in trials if t.score is not None and t.state == "complete"]
    best = max(scored, key=lambda item: item[:2])[2] if scored else None
    reached = ["–"] * 3 if best is None else [short(best.score or 0), best.epoch, _in_short(best, trials)]
    time = duration(sum(trial.seconds for trial in trials))
    counts = [len(trials), states["pruned"], states["failed"], _extended(trials)]
    return [dataset_name(name[0]), model_name(*name[1:]), *counts, *reached, time]


def _extended(trials: Sequence[TrialLine]) -> object:
    """How often the space was extended, where the trials tell."""
    told = [trial.parameters["extended"] for trial in trials if "extended" in trial.parameters]
    return max((len(x) if isinstance(x, list) else int(x) for x in told), default="–")


def _in_short(best: TrialLine, trials: Sequence[TrialLine]) -> str:
    """The parameters that the search chose: those that differ between trials."""
    chosen = [
        name for name in sorted(best.parameters) if len({repr(t.parameters.get(name)) for t in trials}) > 1
    ]
    named = [name for name in chosen if name not in ("extended", "seed")]
    return ", ".join(f"{name.rpartition('.')[2]} {_plain(best.parameters[name])}" for name in named) or "–"


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# --- time ----------------------------------------------------------------------------------------------


def timing_table(lines: Lines) -> str:
    """Seconds of an epoch as ratios to BPR's in the same process."""
    if not lines.timings:
        return not_run(["the timing of epochs"])
    rows = [
        [
            t.device,
            t.engine,
            dataset_name(t.dataset),
            model_name(t.encoder, t.method),
            f"{t.batch_size:,}",
            f"{statistics.median(t.seconds):.3g}" if t.seconds else "–",
            f"{t.ratio:.2f}",
        ]
        for t in sorted(lines.timings, key=_timing_order)
    ]
    head = ["device", "engine", "dataset", "model", "batch", "seconds an epoch", "ratio to BPR"]
    return table(head, rows)


def _timing_order(t: Timing) -> tuple[object, ...]:
    return (
        t.device,
        t.engine,
        in_order(DATASETS)(t.dataset),
        t.encoder,
        in_order(METHODS)(t.method),
        t.batch_size,
    )


def session_table(lines: Lines) -> str:
    """Wall-clock of all sessions by machine, and each of them."""
    if not lines.sessions:
        return not_run(["any session"])
    devices: dict[str, list[Session]] = defaultdict(list)
    for session in sorted(lines.sessions, key=lambda s: (s.device, s.began, s.asked)):
        devices[session.device].append(session)
    totals = [
        [device, len(of), f"{sum(s.runs for s in of):,}", duration(sum(s.seconds for s in of))]
        for device, of in devices.items()
    ]
    each = [
        [s.began, s.device, f"`{s.asked}`", s.runs, duration(s.seconds)]
        for of in devices.values()
        for s in of
    ]
    whole = table(["machine", "sessions", "runs", "wall-clock"], totals)
    all_of_them = table(["began", "machine", "asked", "runs", "wall-clock"], each)
    return f"{whole}\n\n{details('Every session', all_of_them)}"


def data_table(lines: Lines) -> str:
    """The splits by their checksums, and how many runs each has."""
    runs = Counter((run.dataset, run.split, run.study) for run in lines.runs)
    rows = [
        [dataset_name(d), f"`{split}`", study, n]
        for (d, split, study), n in sorted(
            runs.items(), key=lambda item: (in_order(DATASETS)(item[0][0]), item[0])
        )
    ]
    return (
        table(["dataset", "checksum of the split", "study", "runs"], rows) if rows else not_run(["any run"])
    )


def versions_text(lines: Lines) -> str:
    """The versions that the runs name."""
    named = {f"{name} {version}" for run in lines.runs for name, version in run.versions.items() if version}
    engines = {f"{run.engine} on {run.device}" for run in lines.runs}
    listed = [", ".join(sorted(names)) or "none named" for names in (named, engines)]
    return f"Versions: {listed[0]}. Engines: {listed[1]}."


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as a person would say it.

    >>> duration(8.25), duration(600), duration(9000)
    ('8.2 s', '10.0 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def settings_table(lines: Lines) -> str:
    """The parameters of every run of the paper's protocol, once for each setting."""
    rows = []
    for name in ("paper", "paper-tuned"):
        for (d, e, m, variant), cell in study_of(lines, name).cells.items():
            named = sorted(cell.runs[0].parameters.items())
            flat = ", ".join(f"{key} {_plain(value)}" for key, value in named)
            rows.append([name, dataset_name(d), model_name(e, m, variant), flat])
    return (
        details("The settings of these runs", table(["study", "dataset", "model", "parameters"], rows))
        if rows
        else ""
    )
