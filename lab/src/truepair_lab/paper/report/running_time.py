"""Work: how long it took, on what data and machines, as tables."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

from truepair_lab.lines import Lines, Session, Timing
from truepair_lab.markdown import duration, share, table
from truepair_lab.paper.presets import DATA
from truepair_lab.paper.report.names import METHOD_NAMES, dataset_name, in_order, model_name, not_run
from truepair_lab.paper.report.published import COUNTS, TABLE_I

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
            # a processor's own time depends on what else it does; the ratio in one process does not
            f"{statistics.median(t.seconds):.3g}" if t.engine == "gpu" and t.seconds else "–",
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
        in_order(DATA)(t.dataset),
        t.encoder,
        in_order(METHOD_NAMES)(t.method),
        t.batch_size,
    )


def session_table(lines: Lines) -> str:
    """Wall-clock of all sessions by machine."""
    if not lines.sessions:
        return not_run(["any session"])
    devices: dict[str, list[Session]] = defaultdict(list)
    for session in sorted(lines.sessions, key=lambda s: (s.device, s.began, s.asked)):
        devices[session.device].append(session)
    totals = [
        [device, len(of), f"{sum(s.runs for s in of):,}", duration(sum(s.seconds for s in of))]
        for device, of in devices.items()
    ]
    return table(["machine", "sessions", "runs", "wall-clock"], totals)


def data_table(lines: Lines) -> str:
    """The datasets beside the paper's Table I; the splits by their checksums, and how many runs they have."""
    runs: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for run in lines.runs:
        runs[run.dataset, run.split][run.study] += 1
    rows = [
        [
            dataset_name(d),
            *_counts(d),
            f"`{split}`",
            ", ".join(f"{study} {n}" for study, n in sorted(counts.items())),
        ]
        for (d, split), counts in sorted(runs.items(), key=lambda item: (in_order(DATA)(item[0][0]), item[0]))
    ]
    head = ["dataset", "users", "items", "interactions", "density", "checksum of the split", "runs"]
    return table(head, rows) if rows else not_run(["any run"])


def _counts(dataset: str) -> list[str]:
    """Users, items, interactions and density; in brackets Table I's, where they differ."""
    if dataset not in COUNTS:
        return ["–"] * 4
    users, items, pairs = own = COUNTS[dataset]
    *printed, their_density = TABLE_I[dataset]
    cells = [f"{n:,}" + (f" ({m:,})" if m != n else "") for n, m in zip(own, printed, strict=True)]
    density = pairs / (users * items)
    is_close = abs(density - their_density) <= 0.01 * density
    return [*cells, share(density) + ("" if is_close else f" ({share(their_density)})")]


def versions_text(lines: Lines) -> str:
    """The versions that the runs name."""
    named = {f"{name} {version}" for run in lines.runs for name, version in run.versions.items() if version}
    engines = {f"{run.engine} on {run.device}" for run in lines.runs}
    listed = [", ".join(sorted(names)) or "none named" for names in (named, engines)]
    return f"Versions: {listed[0]}. Engines: {listed[1]}."
