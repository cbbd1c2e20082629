"""Defaults of the parameters that were not given.

Defaults depend on whether the sampler draws items, and on whether the loss is made for cosine scores. The
measurements behind them are in lab/docs/full-catalogue-log.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truepair.losses import LOSSES
from truepair.sampling import Full, Sampler

PARTS_BY_DEFAULT: dict[str, Any] = {"loss": "infonce", "encoder": "mf", "sampler": "full", "blend": None}
FULL_CATALOGUE: dict[str, Any] = {  # with the sampler "full", which draws nothing
    "dim": 128, "scoring": "cosine", "temperature": 0.15, "popularity": 0.0, "weight_decay": 0.0,
    "epochs": 40, "learning_rate": 5e-3, "schedule": "cosine", "patience": None, "validation": 0.0,
}  # fmt: skip
SAMPLED: dict[str, Any] = {  # with samplers that draw
    "dim": 64, "scoring": "dot", "temperature": 1.0, "popularity": 0.0, "weight_decay": 1e-5,
    "epochs": 200, "learning_rate": 3e-3, "schedule": "constant", "patience": 10, "validation": 0.1,
}  # fmt: skip

USED_BY_CLOSED_FORMS = ("encoder", "metric", "device", "seed", "auto")


def is_full(sampler: str | Sampler) -> bool:
    """Whether the sampler, given by name or as an object, uses the full catalogue."""
    return sampler == "full" or isinstance(sampler, Full)


def with_defaults(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, with the sampler's default wherever one is None or absent.

    For `patience`, None means that training does not stop early, and "auto" means the default.

    >>> with_defaults({"sampler": "uniform", "epochs": None, "patience": "auto"})["patience"]
    10
    """
    defaults = FULL_CATALOGUE if is_full(parameters["sampler"]) else SAMPLED
    if _needs_cosines(parameters.get("loss")):
        defaults = {**defaults, "scoring": "cosine", "temperature": 1.0}
    given = {name: value for name, value in parameters.items() if value is not None or name == "patience"}
    if given.get("patience") == "auto":
        del given["patience"]
    return {**defaults, **given}


def _needs_cosines(loss: object) -> bool:
    """Whether a loss, given by name or as an object, is made for cosine scores at temperature 1."""
    kind = LOSSES.get(loss) if isinstance(loss, str) else type(loss)
    return bool(getattr(kind, "needs_cosines", False))


def default_batch_size(sampler: str | Sampler, n_pairs: int, n_users: int = 0) -> int:
    """Full catalogue: users, one for each 1000 pairs, from 8 to 128. Where users have few pairs and are many,
    as many users as have 8192 pairs, at most 2048 and a 16th of all. Where users are very many, a 2048th of
    them, at most 4096: every step updates all items. Drawn items: a 64th of the pairs, from 64 to 1024."""
    if not is_full(sampler):
        return min(max(n_pairs // 64, 64), 1024)
    few_pairs = min(8192 * n_users // max(n_pairs, 1), n_users // 16, 2048)
    many = max(few_pairs, min(n_users // 2048, 4096))
    return many if many > 128 else min(max(n_pairs // 1000, 8), 128)
