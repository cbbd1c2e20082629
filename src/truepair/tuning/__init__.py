"""Tuning: a search for parameters that can be stopped, goes on, and is shared by many processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from truepair.errors import InputError, check_type, check_whole
from truepair.tuning.domains import Choice, Powers, Range, Space, When, domain_of, plain_space
from truepair.tuning.runner import training_runner
from truepair.tuning.search import SHAPES, Runner, Search, Tuning, teller
from truepair.tuning.study import KeptStudy
from truepair.tuning.trials import Asked, Trial

__all__ = [
    "SHAPES",
    "Asked",
    "Choice",
    "Powers",
    "Range",
    "Runner",
    "Space",
    "Trial",
    "Tuning",
    "When",
    "training_runner",
    "tune",
]

_PLACES = ("device", "engine")  # where it is computed: a study may go on elsewhere


def tune(
    space: Space,
    runner: Runner,
    *,
    trials: int,
    storage: Path | str,
    study: str,
    together: int = 1,
    seed: int = 0,
    extensions: int = 2,
    on_trial: Callable[[Trial], None] | None = None,
    progress: bool = False,
    prune: bool = True,
    first: Mapping[str, Any] | None = None,
) -> Tuning:
    """Search the space for the highest score, in so many trials, `together` at once.

    `storage` is a file that keeps every trial: a search that is stopped, however it is stopped, goes on
    when it is started again with the same arguments, and several processes may share one. The first trial
    is the middle of the space, or `first` where that says otherwise; then Optuna's TPE chooses.

    With `prune`, once a third of the trials is done, a trial ends early whose best score, after three
    reports or more, is below the median of what complete trials had reached by that epoch.

    When the trials are done and the best lies at an edge of a range (within 5% of its width), that side
    grows (a range by half its width, powers of two by one) and a third of `trials` more are run; at most
    `extensions` times.
    """
    fixed = dict(getattr(runner, "fixed", {}))
    check_space(space, fixed)
    seed = check_whole("seed", seed, 0)
    trials, together, extensions = check_effort(trials, together, extensions)
    start = {name: domain_of(entry).middle() for name, entry in space.items()} | _checked(first or {}, space)
    kept = KeptStudy(Path(storage), study, _meaning(space, fixed, runner))
    search = Search(kept, fixed, start, trials, together, seed, extensions, prune)
    try:
        while (batch := search.claim()) is not None:
            search.run(batch, runner, teller(kept, trials, progress, on_trial))
        return search.found()
    finally:
        kept.presence.leave()


def check_effort(trials: int, together: int, extensions: int) -> tuple[int, int, int]:
    """The three as whole numbers, or an error."""
    return (
        check_whole("trials", trials, 1),
        check_whole("together", together, 1),
        check_whole("extensions", extensions, 0),
    )


def check_space(space: Space, fixed: Mapping[str, Any]) -> None:
    """An error where a space cannot be searched."""
    check_type("space", space, Mapping, "give a mapping from names to Range, Powers, Choice or When")
    if not space:
        raise InputError("the space is empty; name one parameter or more, such as learning_rate.")
    known = dict(fixed)
    for name, entry in space.items():
        check_type(f"space[{name!r}]", entry, (Range, Powers, Choice, When), "give a Range, Powers or Choice")
        if name in fixed:
            raise InputError(f"{name} is fixed to {fixed[name]!r}, and in the space too; take it out of one.")
        if isinstance(entry, When) and entry.parameter not in known:
            raise InputError(
                f"{name} depends on {entry.parameter}, which is neither fixed nor named before it."
            )
        known[name] = None


def _checked(first: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """What the first trial is to be, inside the space."""
    for name, value in first.items():
        if name in space and not domain_of(space[name]).contains(value):
            raise InputError(f"first has {name} = {value!r}, which is outside {domain_of(space[name])}.")
    return {name: value for name, value in first.items() if name in space}


def _meaning(space: Space, fixed: Mapping[str, Any], runner: Runner) -> dict[str, Any]:
    told = {
        "measure": str(getattr(runner, "identity", "")),
        "fixed parameters": {name: value for name, value in fixed.items() if name not in _PLACES},
        "space": plain_space(space),
    }
    try:
        meaning: dict[str, Any] = json.loads(json.dumps(told))
    except TypeError as error:
        raise InputError(
            f"fixed parameters are plain values, such as 'loss': 'dpl', 'loss.tau': 0.1; {error}."
        ) from error
    return meaning
