"""A trial: its parameters, its outcome, and the rule that prunes one early."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from truepair.search.domains import Flat

State = Literal["complete", "pruned", "failed"]
History = Sequence[tuple[int, float]]  # (epoch, score)
_REPORTS = 3  # a trial with fewer reports is not pruned
_OTHERS = 3  # with fewer complete trials, a median means nothing


@dataclass(frozen=True)
class Trial:
    """A set of parameters and its result.

    parameters  fixed and chosen, flat: see `truepair.spec.parameters`
    score       the best validation score, None where it failed; of a pruned trial, the best until then
    epoch       the epoch that the score is from, where there are epochs
    why         for a failed one
    """

    number: int
    parameters: Flat
    score: float | None
    epoch: int | None
    state: State
    why: str = ""
    history: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0
    engine: str = ""


@dataclass(eq=False)
class OpenTrial:
    """A trial to be run: its parameters, and where the runner reports and ends it."""

    number: int
    parameters: Flat
    settle: Callable[[Trial], object]
    pruned_by: Sequence[History] = ()  # complete trials that it is compared with; empty without pruning
    history: list[tuple[int, float]] = field(default_factory=list)
    pruned: bool = False
    ended: bool = False

    def report(self, epoch: int, score: float) -> bool:
        """Report a validation score; True means that the trial is pruned and must stop."""
        if math.isfinite(score):
            self.history.append((int(epoch), float(score)))
        self.pruned = self.pruned or is_behind(self.history, self.pruned_by)
        return self.pruned

    def finish(
        self, score: float | None, epoch: int | None = None, seconds: float = 0.0, engine: str = ""
    ) -> None:
        """End the trial with its best score, the epoch of that score, and the time it took."""
        if score is None or not math.isfinite(score):
            self.fail(f"the score is {score}")
        else:
            state: State = "pruned" if self.pruned else "complete"
            own, found, took = self.parameters, float(score), float(seconds)
            self._end(Trial(self.number, own, found, epoch, state, seconds=took, engine=engine))

    def fail(self, why: str) -> None:
        """End the trial without a score."""
        self._end(Trial(self.number, self.parameters, None, None, "failed", why))

    def close(self) -> None:
        """End a trial that the runner left open: a pruned one with its best score, any other as failed."""
        if self.pruned:
            epoch, score = max(self.history, key=lambda one: one[1])
            self.finish(score, epoch)
        else:
            self.fail("the runner gave neither a score nor a reason")

    def _end(self, trial: Trial) -> None:
        """Hand over the trial, once."""
        if not self.ended:
            self.ended = True
            self.settle(replace(trial, history=tuple(self.history)))


def is_behind(history: History, others: Sequence[History]) -> bool:
    """Whether the best score so far is below the median of what the others had reached by the same epoch."""
    if len(history) < _REPORTS:
        return False
    until = history[-1][0]
    reached = [max((s for e, s in other if e <= until), default=None) for other in others]
    known = [score for score in reached if score is not None]
    return len(known) >= _OTHERS and max(s for _, s in history) < statistics.median(known)
