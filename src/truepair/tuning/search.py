"""One process's part in a search: claiming trials under the lock, running them, extending the space."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from truepair.errors import TrainingError
from truepair.tuning.domains import Domain, When, extend_space
from truepair.tuning.study import KeptStudy, quietly
from truepair.tuning.trials import Asked, History, Trial

# Runs that share these can train in the same kernels, so the trials of one round share them.
SHAPES = frozenset(
    ["batch_size", "device", "dim", "encoder", "encoder.dim", "encoder.hops", "encoder.scoring", "loss",
     "loss.clamp", "n_extra", "n_unlabelled", "sampler", "sampler.alpha", "sampler.in_batch", "sampler.pool",
     "sampler.weight"]
)  # fmt: skip
_WAIT = 0.2  # seconds between two looks at what others do


class Runner(Protocol):
    """Runs trials: each gets `report`ed scores, and is ended by `finish` or `fail`.

    It may have two facts of its own: `fixed`, the parameters that all trials share, and `identity`, a text
    that says what is measured on which data. A study goes on only where both are the same.
    """

    def __call__(self, batch: Sequence[Asked], /) -> None:
        """Run these trials, together or one after the other."""


@dataclass(frozen=True)
class Tuning:
    """What a search found: the best trial, all trials, the space as it became, what was extended."""

    best: Trial
    trials: tuple[Trial, ...]
    space: dict[str, Domain | When]
    extended: tuple[str, ...]

    def __repr__(self) -> str:
        states = [trial.state for trial in self.trials]
        counts = ", ".join(f"{states.count(s)} {s}" for s in ("complete", "pruned", "failed") if s in states)
        return f"<Tuning: best {self.best.score:.4f} in trial {self.best.number}; {counts}>"


@dataclass(frozen=True)
class Search:
    """One process's part in a search."""

    kept: KeptStudy
    fixed: Mapping[str, Any]
    start: Mapping[str, Any]
    trials: int
    together: int
    seed: int
    extensions: int
    prune: bool

    def claim(self) -> list[Asked] | None:
        """Trials to run now; an empty list while others run the last ones; None when all is done."""
        with quietly(), self.kept.lock:
            self.kept.recover()
            if not (room := self.room()):
                if self.kept.at_work():
                    return []
                if not self.extend():
                    return None
                room = self.room()
            return self.ask(min(room, self.together))

    def room(self) -> int:
        """How many trials are still to be asked."""
        more = sum(one["more"] for one in self.kept.extensions)
        return max(self.trials + int(more) - self.kept.counted(), 0)

    def ask(self, n: int) -> list[Asked]:
        """A round: the first trial is chosen freely, the others share its shapes."""
        rivals, asked = self.rivals(), list[Asked]()
        pinned = {} if self.kept.counted() else self.start
        for _ in range(n):
            asked.append(self.kept.ask(self.fixed, pinned, self.seed, rivals))
            chosen = [name for name in self.kept.space() if name in asked[0].parameters]
            pinned = {name: asked[0].parameters[name] for name in chosen if name in SHAPES}
        return asked

    def rivals(self) -> list[History]:
        """The histories of complete trials, where there are trials enough to prune by."""
        done = self.kept.trials()
        if not self.prune or len(done) < math.ceil(self.trials / 3):
            return []
        return [one.history for one in done if one.state == "complete" and one.history]

    def extend(self) -> bool:
        """Whether the space was extended."""
        done, so_far = [one for one in self.kept.trials() if one.state == "complete"], self.kept.extensions
        if not done or len(so_far) >= self.extensions:
            return False
        space, names = extend_space(self.kept.space(), best_of(done).parameters)
        if names:
            self.kept.extend(space, names, math.ceil(self.trials / 3))
        return bool(names)

    def run(self, batch: list[Asked], runner: Runner, tell: Callable[[Asked], None]) -> None:
        """Run a batch; a trial that an error or Ctrl-C interrupted is marked as such."""
        if not batch:
            time.sleep(_WAIT)
            return
        try:
            runner(batch)
            for asked in batch:
                asked.close()
        finally:
            for asked in batch:
                if not asked.ended:
                    self.kept.abandon(asked)
        for asked in batch:
            tell(asked)

    def found(self) -> Tuning:
        """What all processes have found so far."""
        with quietly():
            done, space = self.kept.trials(), self.kept.space()
            names = [name for one in self.kept.extensions for name in one["names"]]
        complete = [one for one in done if one.state == "complete"]
        if not complete:
            why = next((one.why for one in done if one.why), "nothing was run")
            raise TrainingError(f"none of {len(done)} trials has a score; the first failed because: {why}")
        return Tuning(best_of(complete), done, space, tuple(dict.fromkeys(names)))


def best_of(trials: Sequence[Trial]) -> Trial:
    """The one of highest score, the earliest of equals."""
    return max(trials, key=lambda one: (one.score, -one.number))


def teller(
    kept: KeptStudy, trials: int, progress: bool, on_trial: Callable[[Trial], None] | None
) -> Callable[[Asked], None]:
    """What is done after each trial of this process: a line on stderr, and the caller's function."""

    def tell(asked: Asked) -> None:
        with quietly():
            done = kept.trials()
        trial = next(one for one in done if one.number == asked.number)
        if progress:
            print(_line(trial, done, trials + sum(e["more"] for e in kept.extensions)), file=sys.stderr)
        if on_trial is not None:
            on_trial(trial)

    return tell


def _line(trial: Trial, done: Sequence[Trial], of: int) -> str:
    complete = [one for one in done if one.state == "complete"]
    best = f"; best {best_of(complete).score:.4f} in trial {best_of(complete).number}" if complete else ""
    reached = "" if trial.score is None else f" {trial.score:.4f}"
    why = f" ({trial.why})" if trial.why else ""
    return f"trial {trial.number}, {len(done)} of {of} done: {trial.state}{reached}{why}{best}"
