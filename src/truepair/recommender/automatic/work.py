"""Counted work of a search: what decides how many runs it makes, so that no clock has a say.

The unit is that of `step_work`. What LightGCN adds is left out: it makes a short run cheaper beside a full
one.
"""

from __future__ import annotations

from typing import NamedTuple

from truepair.training.full.step_work import step_work

_LISTED = 60  # of a score that is masked and ranked
_SOLVED = 0.7  # of items³: EASE's inverse


class RunSize(NamedTuple):
    """The data of a run, and the users of a step."""

    n_users: int
    n_items: int
    n_pairs: int
    batch: int
    columns: int | None = None  # of the catalogue that a step compares with; None: all


def training_work(size: RunSize, dim: int, epochs: int) -> float:
    """Of full-catalogue training."""
    steps = -(-size.n_users // size.batch)
    return epochs * steps * step_work(*size[:4], dim, size.columns)


def ranking_work(n_users: int, n_items: int, dim: int) -> float:
    """Of lists for these users."""
    return float(n_users * n_items * (_LISTED + dim))


def blend_work(n_users: int, n_items: int, n_pairs: int, weights: int) -> float:
    """Of one regularisation of EASE: solved, and judged by users with so many pairs, with so many weights."""
    scores = n_pairs * n_items
    return _SOLVED * n_items**3 + scores + ranking_work(n_users, n_items, (weights - 1) * _LISTED)
