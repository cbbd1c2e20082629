"""The usual values of parameters that nobody gave: they depend on whether items are drawn.

docs/exact.md tells on what evidence they were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truepair.sampling import Exact, Sampler

WITHOUT_DRAWS: dict[str, Any] = {
    "dim": 128, "scoring": "cosine", "temperature": 0.15,
    "epochs": 40, "learning_rate": 5e-3, "schedule": "cosine", "patience": None, "validation": 0.0,
}  # fmt: skip
WITH_DRAWS: dict[str, Any] = {
    "dim": 64, "scoring": "dot", "temperature": 1.0,
    "epochs": 200, "learning_rate": 3e-3, "schedule": "constant", "patience": 10, "validation": 0.1,
}  # fmt: skip


def usual(sampler: str | Sampler) -> dict[str, Any]:
    """The usual values with a sampler, given by its name or itself."""
    return WITHOUT_DRAWS if is_exact(sampler) else WITH_DRAWS


def given_over(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The usual values, and over them what was given: anything but None, and a patience that is no word.

    >>> given_over({"epochs": 40, "patience": 10}, {"epochs": None, "patience": None, "seed": 1})
    {'epochs': 40, 'patience': None, 'seed': 1}
    """
    told = {name: value for name, value in given.items() if value is not None or name == "patience"}
    if told.get("patience") == "auto":
        del told["patience"]
    return {**values, **told}


def usual_batch(sampler: str | Sampler, n_pairs: int) -> int:
    """Users of a batch, one for each 1000 pairs, from 8 to 128; where items are drawn, pairs of a batch: a
    64th of them all, from 64 to 1024."""
    if is_exact(sampler):
        return min(max(n_pairs // 1000, 8), 128)
    return min(max(n_pairs // 64, 64), 1024)


def is_exact(sampler: str | Sampler) -> bool:
    """Whether nothing is drawn."""
    return sampler == "exact" or isinstance(sampler, Exact)
