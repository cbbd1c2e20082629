"""Comparison: the difference between two models over the same users, and its significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from truepair.errors import InputError, check_choice, check_type
from truepair.evaluation.results import Evaluation
from truepair.evaluation.statistics import bootstrap_interval, holm, sign_flip_test

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Comparison:
    """The difference a - b of a metric: its mean, its bootstrap interval, and two p-values.

    `p_value` is of this comparison alone; `p_corrected` accounts for the other comparisons of the same call.
    """

    metric: str
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    p_value: float
    p_corrected: float
    a: str = "a"
    b: str = "b"

    @property
    def is_significant(self) -> bool:
        """Whether `p_corrected` is below `SIGNIFICANT`."""
        return self.p_corrected < SIGNIFICANT

    @property
    def verdict(self) -> str:
        """Whether a is "better" or "worse" than b; "not shown" says neither that, nor that both are equal."""
        if not self.is_significant:
            return "not shown"
        return "better" if self.difference > 0 else "worse"

    def __str__(self) -> str:
        return (
            f"{self.metric}: {self.a} {self.mean_a:.4f}, {self.b} {self.mean_b:.4f}, difference "
            f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}], p = {self.p_corrected:.4g}"
        )


def compare(
    a: Evaluation,
    b: Evaluation,
    metric: str = "ndcg@20",
    *,
    level: float = 0.95,
    flips: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the users that count in the means of both, user by user.

    The interval is the bootstrap interval of the mean difference a - b; the p-value is that of the
    two-sided sign-flip test.
    """
    _check_same_users(a, b)
    difference = a.values(metric) - b.values(metric)
    low, high = bootstrap_interval(difference, level, seed=seed)
    p = sign_flip_test(difference, flips=flips, seed=seed)
    return Comparison(metric, a.mean(metric), b.mean(metric), float(difference.mean()), low, high, p, p)


def compare_all(
    evaluations: Mapping[str, Evaluation],
    metrics: str | Sequence[str],
    baseline: str | None = None,
    *,
    level: float = 0.95,
    flips: int = 10_000,
    seed: int = 0,
) -> list[Comparison]:
    """Compare each model with `baseline`, or every pair without one, on one metric or several.

    `p_corrected` is Holm's correction over all the comparisons of this call.
    """
    names = list(evaluations)
    if len(names) < 2:
        raise InputError(f"{len(names)} evaluations cannot be compared; give two or more.")
    if baseline is None:
        pairs = list(combinations(names, 2))
    else:
        pairs = [(name, check_choice("baseline", baseline, names)) for name in names if name != baseline]
    found = [
        replace(
            compare(evaluations[a], evaluations[b], metric, level=level, flips=flips, seed=seed), a=a, b=b
        )
        for metric in ([metrics] if isinstance(metrics, str) else metrics)
        for a, b in pairs
    ]
    if not found:
        raise InputError("metrics is empty; name one metric or more, such as 'ndcg@20'.")
    corrected = holm([comparison.p_value for comparison in found])
    return [replace(one, p_corrected=p) for one, p in zip(found, corrected, strict=True)]


def _check_same_users(a: Evaluation, b: Evaluation) -> None:
    for evaluation in (a, b):
        check_type("an evaluation", evaluation, Evaluation, "compare results of evaluate")
    only_a, only_b = (len(np.setdiff1d(x.users, y.users)) for x, y in ((a, b), (b, a)))
    if only_a or only_b:
        raise InputError(
            f"the users differ: {only_a:,} were evaluated in a only, {only_b:,} in b only; "
            "evaluate both models on the same target."
        )
    if len(a.cold_users) and a.cold != b.cold:
        raise InputError(
            f"users without history were evaluated with cold = {a.cold!r} in a and {b.cold!r} in b; evaluate "
            "both models with the same policy."
        )
    if a.target != b.target:
        raise InputError("the two models were evaluated on different targets; evaluate both on the same one.")
