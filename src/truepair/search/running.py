"""A search: trials are claimed under a lock and run; the space grows where the best is at an edge."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from truepair.errors import InputError, TrainingError, check_type, check_whole
from truepair.search.domains import (
    Choice,
    Domain,
    Flat,
    Range,
    Space,
    When,
    domain_of,
    extend_space,
    is_asked,
    plain_space,
    values_inside,
)
from truepair.search.journal import check_optuna, quietly
from truepair.search.trials import History, OpenTrial, Trial
from truepair.storage.types import Json

if TYPE_CHECKING:
    from truepair.search.study import KeptStudy

# Runs that share these can train in the same kernels, so the trials of one round share them.
SHAPES = frozenset(
    ["batch_size", "device", "dim", "encoder", "encoder.dim", "encoder.hops", "encoder.scoring", "loss",
     "loss.clamp", "n_extra", "n_unlabelled", "sampler", "sampler.alpha", "sampler.in_batch", "sampler.pool",
     "sampler.weight"]
)  # fmt: skip
_PLACES = ("device", "engine")  # where trials are computed: a study may continue elsewhere
_BY_VALIDATION = ("validation", "patience", "validate_every")  # they have no effect if nothing is held out
_WAIT = 0.2  # seconds between two checks of what other processes do


class Runner(Protocol):
    """Runs trials: each gets `report`ed scores, and is ended by `finish` or `fail`.

    It may have two attributes: `fixed`, the parameters that all trials share, and `identity`, a text that
    states what is measured on which data. A study continues only if both are the same.
    """

    def __call__(self, batch: Sequence[OpenTrial], /) -> None:
        """Run these trials, together or one after the other."""


@dataclass(frozen=True, repr=False)
class SearchResult:
    """Results of a search: the best trial, all trials, the final space, and what was extended.

    `interrupted` is the number of trials that were interrupted and run again; `trials` does not contain them.
    `default` is the trial of the default values, if the search had one. `lately` is the score of what is
    popular lately, if trials are scored by what comes next.
    """

    best: Trial
    trials: tuple[Trial, ...]
    space: dict[str, Domain | When]
    extended: tuple[str, ...]
    interrupted: int = 0
    default: Trial | None = None
    lately: float | None = None

    def __repr__(self) -> str:
        states = [trial.state for trial in self.trials]
        counts = ", ".join(f"{states.count(s)} {s}" for s in ("complete", "pruned", "failed") if s in states)
        kind = type(self).__name__
        return f"<{kind}: best {self.best.score:.4f} in trial {self.best.number}; {counts}>"

    def parameters(self) -> Json:
        """The parameters of the best trial for a fit on everything, flat.

        Nothing is held out, and training stops after the epoch that the validation part chose. The learning
        rate follows the same schedule as in the trial.
        """
        found = {name: value for name, value in self.best.parameters.items() if name not in _BY_VALIDATION}
        if self.best.epoch is None:  # a closed form: it has no epoch
            return found
        return {**found, "validation": 0.0, "stop_after": self.best.epoch}


@dataclass(frozen=True)
class TpeSearch:
    """One process's part in a search: the strategy that proposes its trials, by Optuna's TPE."""

    kept: KeptStudy
    fixed: Flat
    default: Flat | None
    first: Flat
    seed: int
    prune: bool
    trials: int
    together: int
    extensions: int

    def batches(self) -> Iterator[list[OpenTrial]]:
        """Trials to run together; waits while other processes run the last ones."""
        while True:
            with self.kept.lock():
                self.kept.recover()
                room = self.trials - self.kept.counted()
                if room <= 0 and not self.kept.at_work():
                    return
                batch = self._asked(min(room, self.together)) if room > 0 else []
            if batch:
                yield batch
            else:
                time.sleep(_WAIT)

    def _asked(self, n: int) -> list[OpenTrial]:
        """A round of trials: the default alone; or one that is chosen freely, and others of its shapes."""
        done = self.kept.trials()
        self._extend(done)
        has_default, space = self.kept.has_default(), self.kept.space()
        if self.default is not None and has_default and self.kept.default_number() is None:
            # TPE does not learn from values outside the space
            inside, known = values_inside(space, self.default, self.fixed), {**self.fixed, **self.default}
            meant = {n: v for n, v in known.items() if n not in space or is_asked(space[n], known)}
            return [self.kept.ask(meant, {name: space[name] for name in inside}, inside)]
        others, batch, pinned = list[History](), list[OpenTrial](), Json()
        if self.prune and len(done) >= math.ceil(self.trials / 3):
            others = [one.history for one in done if one.state == "complete" and one.history]
        if self.kept.counted() <= has_default:  # the first that is not the default
            given = {name: value for name, value in self.first.items() if name in space}
            pinned = {name: domain_of(entry).middle() for name, entry in space.items()} | given
        for _ in range(n):
            batch.append(self.kept.ask(self.fixed, space, pinned, others, self.seed))
            chosen = batch[0].parameters
            pinned = {name: chosen[name] for name in space if name in chosen and name in SHAPES}
        return batch

    def _extend(self, done: Sequence[Trial]) -> None:
        """Extend the space if the best lies at an edge of it and the next extension is due.

        Each extension has as many trials after it, and three times as many lie before the first.
        """
        so_far = len(self.kept.extensions)
        due = math.ceil(self.trials * (3 + so_far) / (3 + self.extensions))
        if so_far < self.extensions and self.kept.counted() >= due and (best := best_of(done)):
            space, names = extend_space(self.kept.space(), best.parameters)
            if names:
                self.kept.extend(space, names)

    def found(self) -> SearchResult:
        """The results of all processes so far."""
        with quietly():
            done, space = self.kept.trials(), self.kept.space()
            interrupted = len(self.kept.frozen()) - self.kept.counted()
            names = [name for one in self.kept.extensions for name in one["names"]]
            default = next((one for one in done if one.number == self.kept.default_number()), None)
        if (best := best_of(done)) is None:
            why = next((one.why for one in done if one.why), "nothing was run")
            raise TrainingError(f"none of {len(done)} trials has a score; the first failed because: {why}")
        return SearchResult(best, done, space, tuple(dict.fromkeys(names)), interrupted, default)


def run_search(
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
    on_best: Callable[[SearchResult], None] | None = None,
    progress: bool = False,
    prune: bool = True,
    default: Flat | None = None,
    first: Flat | None = None,
    keep_space: bool = False,
) -> SearchResult:
    """Search the space for the highest score of any runner; `tune` does so for models of truepair.

    Exactly `trials` trials are run, pruned and failed ones included, also if the search is interrupted and
    continued, and if the space is extended. Interrupted trials are run again and do not count.

    `storage` is a journal of all trials. A search that was stopped, in whatever way, continues when it is
    started again with the same arguments, and several processes may share one journal. If `default` is given,
    it is trial 0: the values that are used without a search, so that the best is never worse; they may lie
    outside the space. The next trial
    is the middle of the space, except where `first` names other values; then Optuna's TPE chooses. `together`
    trials run at once. `on_trial` is called after each trial of this process, `on_best` with the results so
    far whenever such a trial is the best of all.

    With `prune`, once a third of the trials is done, a trial stops early if its best score after three or
    more reports is below the median of what complete trials had reached by that epoch.

    If the best value lies at an edge of a range (within 5% of its width), that side is extended: a range by
    half its width, powers of two by one. This happens at most `extensions` times: with 2, after three fifths
    of the trials and after four fifths. With `keep_space`, a study that exists keeps the space it began with.
    """
    fixed = dict(getattr(runner, "fixed", {}))
    check_space(space, fixed)
    seed = check_whole("seed", seed, 0)
    effort = check_effort(trials, together, extensions)
    _check_first(first or {}, space)
    check_optuna()
    from truepair.search.study import KeptStudy  # it needs Optuna

    meaning = _meaning(space, fixed, runner)
    kept = KeptStudy(Path(storage), study, meaning, keep_space=keep_space, has_default=default is not None)
    search = TpeSearch(kept, fixed, default, first or {}, seed, prune, **effort)
    try:
        for batch in search.batches():
            _run(batch, runner, kept)
            with quietly():
                done = kept.trials()
            best, own = best_of(done), [trial.number for trial in batch]
            for trial in done:  # without those that others took for dead
                if trial.number not in own:
                    continue
                if progress:
                    count = f"trial {trial.number}, {len(done)} of {trials} done"
                    print(f"{count}: {_line(trial, best)}", file=sys.stderr)
                if on_trial is not None:
                    on_trial(trial)
                if on_best is not None and trial == best:
                    on_best(search.found())
        return search.found()
    finally:
        kept.presence.leave()


def _run(batch: Sequence[OpenTrial], runner: Runner, kept: KeptStudy) -> None:
    """Run a batch; a trial that an error or Ctrl-C interrupted is marked as such."""
    try:
        runner(batch)
        for trial in batch:
            trial.close()
    finally:
        for trial in batch:
            if not trial.ended:
                kept.abandon(trial)


def _line(trial: Trial, best: Trial | None) -> str:
    """How a trial ended, and the best so far."""
    reached = "" if trial.score is None else f" {trial.score:.4f}"
    why = f" ({trial.why})" if trial.why else ""
    so_far = "" if best is None else f"; best {best.score:.4f} in trial {best.number}"
    return f"{trial.state}{reached}{why}{so_far}"


def check_effort(trials: int, together: int, extensions: int) -> dict[str, int]:
    """The three as whole numbers, by name; raise if one is out of range."""
    least = {"trials": (trials, 1), "together": (together, 1), "extensions": (extensions, 0)}
    return {name: check_whole(name, value, low) for name, (value, low) in least.items()}


def check_space(space: Space, fixed: Flat) -> None:
    """Raise if a space cannot be searched."""
    check_type("space", space, Mapping, "give a mapping from names to Range, Powers, Choice or When")
    if not space:
        raise InputError("the space is empty; name one parameter or more, such as learning_rate.")
    known = dict(fixed)
    for name, entry in space.items():
        check_type(f"space[{name!r}]", entry, (Range, Choice, When), "give a Range, Powers or Choice")
        if name in fixed:
            raise InputError(f"{name} is fixed to {fixed[name]!r} and also in the space; remove it from one.")
        if isinstance(entry, When) and entry.parameter not in known:
            raise InputError(f"{name} depends on {entry.parameter}, neither fixed nor named before it.")
        known[name] = None


def _check_first(first: Flat, space: Space) -> None:
    """Raise if a value of the first trial is outside its domain."""
    for name, value in first.items():
        if name in space and not domain_of(space[name]).contains(value):
            raise InputError(f"first has {name} = {value!r}, which is outside {domain_of(space[name])}.")


def _meaning(space: Space, fixed: Flat, runner: Runner) -> Json:
    facts = {
        "measure": str(getattr(runner, "identity", "")),
        "fixed parameters": {name: value for name, value in fixed.items() if name not in _PLACES},
        "space": plain_space(space),
    }
    try:
        meaning: Json = json.loads(json.dumps(facts))
    except TypeError as error:
        raise InputError(f"fixed parameters are plain values, such as 'loss': 'dpl'; {error}.") from error
    return meaning


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The complete one of highest score, the earliest of equals; None if none ran to its end."""
    complete = [one for one in trials if one.state == "complete"]
    return max(complete, key=lambda one: (one.score, -one.number), default=None)
