"""The settings of each contestant, and the trials of which they are the best.

All trials are judged on validation pairs: those at 10^6 pairs, and a few at 10^7, with more items.
"""

from __future__ import annotations

from itertools import product
from typing import Any

Settings = dict[str, Any]
FAST: Settings = {"engine": "cpu", "sampler": "uniform", "schedule": "linear"}
_NAMES = ("loss", "n_unlabelled", "optimizer", "learning_rate", "l2", "epochs")


def fast(*values: Any) -> Settings:
    """Settings of truepair's engine."""
    return FAST | dict(zip(_NAMES, values, strict=True))


def als(name: str, iterations: int, *grids: tuple[tuple[float, ...], tuple[float, ...]]) -> list[Settings]:
    """Every alpha with every regularisation of a grid; what was in an earlier grid is left out."""
    points = dict.fromkeys(point for grid in grids for point in product(*grid))
    return [{"alpha": alpha, name: value, "iterations": iterations} for alpha, value in points]


SETTINGS: dict[str, Settings] = {
    "truepair": fast("infonce", 8, "sgd", 0.05, 0.0, 4),
    "implicit": {"alpha": 1, "regularization": 30, "iterations": 10},
    "spark": {"alpha": 1, "regParam": 0.15, "iterations": 6},
}
"""The best of the trials at 10^6 pairs."""

_TRUEPAIR = [
    ("bpr", 1, "sgd", 0.05, 0.0, 8),
    ("bpr", 1, "sgd", 0.1, 0.0, 8),
    ("bpr", 1, "sgd", 0.1, 0.01, 8),
    ("bpr", 1, "sgd", 0.1, 0.01, 4),
    ("bpr", 1, "sgd", 0.1, 0.03, 8),
    ("bpr", 1, "sgd", 0.15, 0.01, 5),
    ("bpr", 1, "sgd", 0.2, 0.01, 5),
    ("bpr", 1, "sgd", 0.3, 0.01, 5),
    ("infonce", 3, "sgd", 0.1, 0.0, 5),
    ("infonce", 3, "sgd", 0.2, 0.0, 5),
    ("infonce", 8, "sgd", 0.1, 0.0, 5),
    ("bpr", 1, "adagrad", 0.1, 0.0, 5),
    # around the best of these
    ("bpr", 1, "sgd", 0.02, 0.0, 8),
    ("bpr", 1, "sgd", 0.03, 0.0, 8),
    ("bpr", 1, "sgd", 0.03, 0.0, 12),
    ("bpr", 1, "sgd", 0.05, 0.0, 3),
    ("bpr", 1, "sgd", 0.05, 0.0, 5),
    ("bpr", 1, "sgd", 0.05, 0.003, 5),
    ("bpr", 1, "sgd", 0.05, 0.003, 8),
    ("infonce", 3, "sgd", 0.03, 0.0, 5),
    ("infonce", 3, "sgd", 0.05, 0.0, 3),
    ("infonce", 3, "sgd", 0.05, 0.003, 5),
    ("infonce", 8, "sgd", 0.05, 0.0, 4),
    ("infonce", 8, "sgd", 0.03, 0.003, 6),
]
# implicit's regularisation is a number; Spark's is multiplied by the pairs of the user or item, and Spark has
# 1 + alpha where implicit has alpha.
TRIALS: dict[str, list[Settings]] = {
    "truepair": [fast(*row) for row in _TRUEPAIR],
    "implicit": als("regularization", 10, ((1, 3, 10, 40), (0.1, 3, 30)), ((0.5, 1, 2), (30, 60, 120, 240))),
    "spark": als(
        "regParam",
        6,
        ((0, 0.3, 1, 3), (0.03, 0.1, 0.3)),
        ((0.3, 1), (0.07, 0.15)),
        ((3, 10), (0.5, 1)),
        ((1,), (0.2,)),
    ),
}
LARGE = 10_000_000  # from so many pairs on, these:
TRIALS_LARGE: dict[str, list[Settings]] = {
    "truepair": [
        fast("infonce", 8, "sgd", 0.05, 0.0, 4),
        fast("infonce", 16, "sgd", 0.05, 0.0, 4),
        fast("infonce", 8, "sgd", 0.1, 0.0, 4),
        fast("infonce", 32, "sgd", 0.05, 0.0, 3),
    ],
    "implicit": als("regularization", 8, ((1,), (30, 60, 80, 120))),
    "spark": als("regParam", 4, ((1,), (0.15, 0.25)), ((0.3,), (0.1, 0.15))),
}
SETTINGS_LARGE: dict[str, Settings] = {
    "implicit": {"alpha": 1, "regularization": 60, "iterations": 8},
    "spark": {"alpha": 1, "regParam": 0.15, "iterations": 4},
}
"""The best of these; for truepair that of 10^6 pairs, within 1% of the best and faster."""


def settings_of(name: str, pairs: int) -> Settings:
    """The chosen settings of a contestant for a world of this size."""
    return SETTINGS_LARGE.get(name, SETTINGS[name]) if pairs >= LARGE else SETTINGS[name]


def trials_of(name: str, pairs: int) -> list[Settings]:
    """The trials of a contestant for a world of this size."""
    return (TRIALS_LARGE if pairs >= LARGE else TRIALS)[name]
