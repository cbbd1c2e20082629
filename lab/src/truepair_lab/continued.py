"""Trials that are added to the lines of a search: named ones, and drawn ones where the journal is gone.

A journal of Optuna is not kept with the lines. A search that is to have more trials then learns from the
lines: TPE sees every complete trial, in ranges that hold them all, and new trials get the next numbers. Of
several processes each takes every n-th number and reads the lines of the others before each trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from truepair.search.domains import Choice, Domain, Powers, distribution_of, domain_of, place_of
from truepair.search.journal import quietly
from truepair.search.trials import OpenTrial, Trial
from truepair_lab.lines import TrialLine
from truepair_lab.searching import Quest, Searched, lasting, trial_line

Ended = Callable[[Trial], None]
_RANDOM, _SEED = 8, 1  # as in a search with a journal; that one has seed 0
_ALIKE = 0.02  # of two values of a parameter: below, a named trial is not run again


def run_named(quest: Quest, named: Sequence[Mapping[str, Any]], out: Path, ended: Ended) -> None:
    """Run the named trials that have no line, together where the runner can."""
    kept = quest.lines(out)
    wanted = [{**quest.runner.fixed, **values} for values in named]
    missing = [each for each in wanted if not any(_alike(lasting(each), line.parameters) for line in kept)]
    start = next_number(kept)
    _run(quest, [(start + at, parameters, ()) for at, parameters in enumerate(missing)], ended)


def go_on(
    quest: Quest, out: Path, trials: int, ended: Ended, share: tuple[int, int] = (0, 1), together: int = 1
) -> None:
    """Add drawn trials until there are as many as asked for, `together` at once; `share` is (k, n) for the
    k-th of n processes. Once a third of the trials is done, a trial that is behind the median is pruned."""
    kept = quest.lines(out)
    numbers = list(range(next_number(kept) + share[0], trials, share[1]))

    def keep(trial: Trial) -> None:
        ended(trial)
        kept.append(trial_line(quest.place, quest.split, quest.device, trial))

    for at in range(0, len(numbers), together):
        if share[1] > 1:
            kept[:] = quest.lines(out)
        done = [line.curve for line in kept if line.state == "complete" and line.curve]
        others = done if len(kept) >= math.ceil(trials / 3) else []
        known = list(kept)
        batch = [
            (number, {**quest.runner.fixed, **drawn(quest.space, known, number, quest.first)}, others)
            for number in numbers[at : at + together]
        ]
        _run(quest, batch, keep)


def next_number(kept: Sequence[TrialLine]) -> int:
    """The first number after those of the lines."""
    return max((line.number for line in kept), default=-1) + 1


def drawn(
    space: Mapping[str, Searched], kept: Sequence[TrialLine], number: int, first: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of the next trial: the middle, or `first`, where there is no trial yet; else by TPE."""
    import optuna

    domains = {name: domain_of(entry) for name, entry in space.items()}
    done = [line for line in kept if line.state == "complete" and set(domains) <= set(line.parameters)]
    if not number:
        return {name: domain.middle() for name, domain in domains.items()} | dict(first)
    wide = {name: _holding(d, [line.parameters[name] for line in done]) for name, d in domains.items()}
    distributions = {name: distribution_of(domain) for name, domain in wide.items()}
    seed = int(np.random.SeedSequence([_SEED, number]).generate_state(1)[0])
    with quietly():
        sampler = optuna.samplers.TPESampler(n_startup_trials=_RANDOM, multivariate=False, seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for line in done:
            values = {name: place_of(domain, line.parameters[name]) for name, domain in wide.items()}
            study.add_trial(
                optuna.trial.create_trial(params=values, distributions=distributions, value=line.score)
            )
        asked = study.ask(distributions).params
    return {name: _value(domain, asked[name]) for name, domain in wide.items()}


def _run(quest: Quest, trials: Sequence[tuple[int, dict[str, Any], Sequence[Any]]], ended: Ended) -> None:
    """Run trials and hand each over as it ends."""

    batch = [OpenTrial(number, dict(p), ended, others) for number, p, others in trials]
    if batch:
        quest.runner(batch)
        for asked in batch:
            asked.close()


def _alike(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)


def _equal(a: Any, b: Any) -> bool:
    return math.isclose(a, b, rel_tol=_ALIKE) if isinstance(a, float) and isinstance(b, float) else a == b


def _holding(domain: Domain, values: Sequence[Any]) -> Domain:
    """The domain, as wide as the values that were tried: earlier searches had extended it."""
    if isinstance(domain, Choice) or not values:
        return domain
    low, high = min(domain.low, *values), max(domain.high, *values)
    bounds = {"least": None, "most": None}
    return replace(domain, low=low, high=high, **bounds)  # type: ignore[arg-type]


def _value(domain: Domain, place: Any) -> Any:
    return domain.unscaled(place) if isinstance(domain, Powers) else place
