"""A trial: what was asked, what came of it; and when one that is under way has no hope."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["complete", "pruned", "failed"]
History = Sequence[tuple[int, float]]  # (epoch, score)
INTERRUPTED = "interrupted"  # why a trial failed whose process ended before it did
_REPORTS = 3  # before this many, nothing is known of a trial
_RIVALS = 3  # with fewer, a median means nothing


@dataclass(frozen=True)
class Trial:
    """One set of parameters and what it reached.

    parameters  fixed and chosen, flat: see `truepair.recommender.parameters.assembled`
    score       the best validation score, None where it failed; of a pruned trial, the best until then
    epoch       the epoch that the score is from, where there are epochs
    why         for a failed one
    """

    number: int
    parameters: Mapping[str, Any]
    score: float | None
    epoch: int | None
    state: State
    why: str = ""
    history: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0
    engine: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    state: State
    score: float | None = None
    epoch: int | None = None
    why: str = ""
    history: History = ()
    seconds: float = 0.0
    engine: str = ""


@dataclass(eq=False)
class Asked:
    """A trial to be run: its parameters, and where the runner reports and ends it."""

    number: int
    parameters: dict[str, Any]
    settle: Callable[[Outcome], None]
    rivals: Sequence[History] = ()  # those it must keep up with; none where nothing is pruned
    history: list[tuple[int, float]] = field(default_factory=list)
    pruned: bool = False
    ended: bool = False

    def report(self, epoch: int, score: float) -> bool:
        """Tell a validation score; True: stop now, the trial is pruned."""
        if math.isfinite(score):
            self.history.append((int(epoch), float(score)))
        self.pruned = self.pruned or is_hopeless(self.history, self.rivals)
        return self.pruned

    def finish(
        self, score: float | None, epoch: int | None = None, seconds: float = 0.0, engine: str = ""
    ) -> None:
        """The trial is over: its best score, the epoch that it is from, the time it took."""
        if score is None or not math.isfinite(score):
            self.fail(f"the score is {score}")
            return
        state: State = "pruned" if self.pruned else "complete"
        self._end(Outcome(state, float(score), epoch, "", tuple(self.history), float(seconds), engine))

    def fail(self, why: str) -> None:
        """The trial cannot be run, or came to nothing."""
        self._end(Outcome("failed", why=why, history=tuple(self.history)))

    def close(self) -> None:
        """What the runner left open: a pruned trial has its best until then, any other has failed."""
        if not self.ended and self.pruned:
            epoch, score = max(self.history, key=lambda one: one[1])
            self.finish(score, epoch)
        elif not self.ended:
            self.fail("the runner gave neither a score nor a reason")

    def _end(self, outcome: Outcome) -> None:
        if not self.ended:
            self.ended = True
            self.settle(outcome)


def is_hopeless(history: History, rivals: Sequence[History]) -> bool:
    """Whether the best so far is below the median of what the rivals had reached by the same epoch."""
    if len(history) < _REPORTS:
        return False
    until = history[-1][0]
    reached = [max((s for e, s in rival if e <= until), default=None) for rival in rivals]
    known = [score for score in reached if score is not None]
    return len(known) >= _RIVALS and max(s for _, s in history) < statistics.median(known)
