"""Effort: how hard each method was tuned, what was found, and which of its parameters lie at an end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from truepair.search.domains import EDGE, Choice, Domain, Powers, Range, domain_of
from truepair_lab.lines import Lines, TrialLine
from truepair_lab.markdown import duration, plain, short
from truepair_lab.paper.presets import DATA, ENCODERS, METHODS, NO_ENCODER, REFERENCES
from truepair_lab.paper.report.names import (
    ENCODER_NAMES,
    METHOD_NAMES,
    dataset_name,
    in_order,
    model_name,
    not_run,
)
from truepair_lab.paper.running.search import TRIALS, Place, best_trials, space_of
from truepair_lab.searching import ONE_PARAMETER

HEAD = (
    "dataset", "model", "trials", "pruned", "failed", "extended", "best validation", "epoch", "with",
    "at an end", "time",
)  # fmt: skip


def searches(lines: Lines) -> list[list[object]]:
    """A row a search: how much was tuned, and what was found; validation only."""
    found: dict[Place, list[TrialLine]] = defaultdict(list)
    for trial in lines.trials:
        found[trial.dataset, trial.encoder, trial.method].append(trial)
    order = in_order(DATA), in_order(ENCODER_NAMES), in_order(METHOD_NAMES)
    names = sorted(found, key=lambda s: tuple(key(part) for key, part in zip(order, s, strict=True)))
    best = best_trials(lines)
    return [_effort(name, found[name], best.get(name)) for name in names]


def effort_text(lines: Lines) -> str:
    """How the searches went."""
    return _caption() if lines.trials else not_run(["the searches"])


def _caption() -> str:
    return (
        f"Searches on validation alone: {TRIALS['mf']} trials for MF, {TRIALS['lightgcn']} for LightGCN, "
        f"{TRIALS[NO_ENCODER]} for a reference point, {ONE_PARAMETER} for EASE, which has one parameter; "
        "popularity has none. Where the best lies at an edge of its range, the range grows twice at most and "
        "more trials are run (“extended”), up to a cap: the dimension ends "
        f"at {_cap('mf', 'dpl', 'encoder.dim')} with MF and {_cap('lightgcn', 'dpl', 'encoder.dim')} with "
        f"LightGCN, its hops at {_cap('lightgcn', 'dpl', 'encoder.hops')}, N at "
        f"{_cap('mf', 'dpl', 'n_unlabelled')}, M at {_cap('mf', 'dpl', 'n_extra')}, BNS's pool at "
        f"{_cap('mf', 'bns', 'sampler.pool')}, the factors of iALS at {_cap(NO_ENCODER, 'ials', 'factors')}. "
        "“At an end” names the best trial's parameters at a cap, at the least value allowed, or at the edge "
        "of what was tried, and its epoch where it is the last: more might be found beyond it."
    )


def _cap(encoder: str, method: str, name: str) -> str:
    domain = domain_of(space_of(encoder, method)[name])
    most = max(_numbers(domain)) if isinstance(domain, Choice) else domain.most
    return "no cap" if most is None else f"{most:g}"


def _numbers(choice: Choice) -> list[float]:
    return [value for value in choice.values if isinstance(value, int | float)]


def _effort(place: Place, trials: Sequence[TrialLine], best: TrialLine | None) -> list[object]:
    states = Counter(trial.state for trial in trials)
    found = ["–"] * 4
    if best is not None:
        ends = ", ".join(_ends(place, trials, best)) or "–"
        found = [short(best.score or 0), str(best.epoch), _in_short(best, trials), ends]
    on_gpu = all(trial.engine in ("gpu", "", None) for trial in trials)  # elsewhere time depends on company
    time = duration(sum(trial.seconds for trial in trials)) if on_gpu else "–"
    extended = ", ".join(map(_brief, _extended(place, trials))) or "–"
    counts = [len(trials), states["pruned"], states["failed"], extended]
    return [dataset_name(place[0]), model_name(*place[1:]), *counts, *found, time]


def _in_short(best: TrialLine, trials: Sequence[TrialLine]) -> str:
    """The parameters that the search chose: those that differ between trials."""
    named = [n for n in sorted(best.parameters) if len({repr(t.parameters.get(n)) for t in trials}) > 1]
    return ", ".join(f"{_brief(n)} {plain(best.parameters[n])}" for n in named if n != "seed") or "–"


def _brief(name: str) -> str:
    return name.rpartition(".")[2]


# --- ends ----------------------------------------------------------------------------------------------


def _domains(place: Place) -> dict[str, Domain]:
    """What is searched, as it is at first; choices of words have no ends."""
    _, encoder, method = place
    known = (encoder == NO_ENCODER and method in REFERENCES) or (encoder in ENCODERS and method in METHODS)
    space = space_of(encoder, method) if known else {}
    domains = {name: domain_of(entry) for name, entry in space.items()}
    return {n: d for n, d in domains.items() if not isinstance(d, Choice) or _numbers(d)}


def _extended(place: Place, trials: Sequence[TrialLine]) -> list[str]:
    """Parameters that were tried beyond their first range."""
    ranges = {n: d for n, d in _domains(place).items() if not isinstance(d, Choice)}
    return [n for n, d in ranges.items() if any(not d.low <= v <= d.high for v in _tried(n, trials))]


def _tried(name: str, trials: Sequence[TrialLine]) -> list[float]:
    values = [trial.parameters.get(name) for trial in trials]
    return [value for value in values if isinstance(value, int | float)]


def _ends(place: Place, trials: Sequence[TrialLine], best: TrialLine) -> Iterator[str]:
    """Which of the best trial's parameters lie at an end, and its epoch where it is the last."""
    for name, domain in _domains(place).items():
        value = best.parameters.get(name)
        if isinstance(value, int | float):
            where = _end(domain, value, _tried(name, trials))
            if where:
                yield f"{_brief(name)} {plain(value)} ({where})"
    if best.epoch is not None and best.epoch == best.parameters.get("epochs"):
        yield f"epoch {best.epoch} (the last)"


def _end(domain: Domain, value: float, tried: Sequence[float]) -> str:
    """Cap or least: the bounds. Edge: the ends of the first range, widened by what was tried."""
    if isinstance(domain, Choice):
        numbers = _numbers(domain)
        return "cap" if value == max(numbers) else "least" if value == min(numbers) else ""
    if domain.most is not None and _near(domain, value, domain.most):
        return "cap"
    if domain.least is not None and _near(domain, value, domain.least):
        return "least"
    low, high = min(domain.low, *tried), max(domain.high, *tried)
    return "edge" if _near(domain, value, low) or _near(domain, value, high) else ""


def _near(domain: Range | Powers, value: float, end: float) -> bool:
    """Whether it lies within EDGE of the first range's width, in the scale that is searched."""
    if isinstance(domain, Powers):
        return int(value) == int(end)
    width = domain.scaled(domain.high) - domain.scaled(domain.low)
    if domain.log and min(value, end) <= 0:
        return value == end
    return abs(domain.scaled(value) - domain.scaled(end)) <= EDGE * width
