"""Trials of iALS: every few sweeps are scored, and the best score counts, as with epochs of training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from truepair.data.interactions import Interactions
from truepair.errors import TruepairError
from truepair.evaluation import Validation
from truepair.search.trials import OpenTrial
from truepair_lab.paper.baselines import scaled_ials


class IalsRunner:
    """Runs trials of iALS on a validation part; see `truepair.search.Runner`."""

    def __init__(self, fixed: Mapping[str, Any], train: Interactions, judge: Validation) -> None:
        self.fixed, self.train, self.judge, self.identity = dict(fixed), train, judge, judge.identity

    def __call__(self, batch: Sequence[OpenTrial]) -> None:
        """One after the other."""
        for asked in batch:
            began = time.perf_counter()
            try:
                score, sweeps = self._best(asked)
            except (TruepairError, RuntimeError, MemoryError) as error:
                asked.fail(str(error))
            else:
                asked.finish(score, sweeps, time.perf_counter() - began, "iALS")

    def _best(self, asked: OpenTrial) -> tuple[float, int]:
        """The best score, and the number of sweeps that gave it."""
        run, every = scaled_ials(asked.parameters, self.train), asked.parameters["validate_every"]
        found: list[tuple[float, int]] = []
        for sweeps in range(1, asked.parameters["epochs"] + 1):
            run.sweep()
            if sweeps % every == 0:
                score = self.judge.score(run.users, run.items)
                found.append((score, sweeps))
                if asked.report(sweeps, score):
                    break
        return max(found, key=lambda pair: pair[0])
