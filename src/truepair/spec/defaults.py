"""Defaults of the parameters that were not given.

Defaults depend on whether the sampler samples items, on whether the engine "cpu" trains, and on whether the
loss is made for cosine scores. The measurements behind them are in lab/docs/full-catalogue-log.md and
docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from truepair.losses import LOSSES
from truepair.models.encoders import ENCODERS
from truepair.sampling import DNS, SAMPLERS, Full, Sampler
from truepair.storage.types import Json
from truepair.training import AUTO
from truepair.training.sampled.cpu.engine import lacking_part

Given: TypeAlias = Mapping[str, Any]
"""Parameters by name, not checked yet."""

PARTS_BY_DEFAULT: Json = {"loss": "infonce", "encoder": "mf", "sampler": "full", "blend": None, "trend": None}
FULL_CATALOGUE: Json = {  # with the sampler "full"
    "optimizer": "adam", "l2_users": 0.0, "dim": 128,
    "scoring": "cosine", "temperature": 0.15, "popularity": 0.0, "weight_decay": 0.0,
    "epochs": 40, "learning_rate": 5e-3, "schedule": "cosine", "patience": None, "validation": 0.0,
}  # fmt: skip
SAMPLED: Json = {  # with the other samplers, in the engines "gpu" and "reference"
    "optimizer": "adam", "l2_users": 0.0, "dim": 64,
    "scoring": "dot", "temperature": 1.0, "popularity": 0.0, "weight_decay": 1e-5,
    "epochs": 200, "learning_rate": 3e-3, "schedule": "constant", "patience": 10, "validation": 0.1,
}  # fmt: skip
SAMPLED_CPU: Json = {  # in the engine "cpu", whose steps are single interactions
    **SAMPLED, "optimizer": "adagrad", "l2_users": 0.1, "weight_decay": 0.0, "epochs": 50,
    "learning_rate": 0.1, "schedule": "linear", "patience": None, "validation": 0.0,
}  # fmt: skip
SEQUENCES: Json = {  # encoders that read the order of events
    "optimizer": "adam", "l2_users": 0.0, "dim": 128,
    "scoring": "dot", "temperature": 1.0, "popularity": 0.0, "weight_decay": 0.0,
    "epochs": 60, "learning_rate": 1e-3, "schedule": "cosine", "patience": None, "validation": 0.0,
}  # fmt: skip
SEQUENCES_CPU: Json = {**SEQUENCES, "dim": 64, "epochs": 20, "learning_rate": 3e-3}
MOST_HISTORIES = 128  # of a step
EARLY_STOPPING = {"patience": 10, "validation": 0.1}  # of SAMPLED_CPU with DNS, whose hard items overfit soon

USED_BY_CLOSED_FORMS = ("encoder", "trend", "metric", "device", "seed", "auto")


def is_full(sampler: str | Sampler) -> bool:
    """Whether the sampler, given by name or as an object, uses the full catalogue."""
    return sampler == "full" or isinstance(sampler, Full)


def with_defaults(parameters: Given, disliked: bool = False) -> Json:
    """The parameters, with the default wherever one is None or absent.

    For `patience`, None means that training does not stop early, and "auto" means the default. `disliked`:
    whether the interactions have dislikes.

    >>> with_defaults({"sampler": "uniform", "optimizer": "adam", "patience": "auto"})["patience"]
    10
    """
    sampler, defaults = parameters["sampler"], FULL_CATALOGUE
    encoder = parameters.get("encoder")
    if getattr(ENCODERS.get(encoder) if isinstance(encoder, str) else encoder, "reads_order", False):
        defaults = SEQUENCES_CPU if _is_on_cpu(parameters) else SEQUENCES
    elif not is_full(sampler):
        defaults = SAMPLED if disliked or not _trains_on_cpu(parameters) else SAMPLED_CPU
    if defaults is SAMPLED_CPU and (sampler == "dns" or isinstance(sampler, DNS)):
        defaults = {**defaults, **EARLY_STOPPING}
    loss = parameters.get("loss")
    if getattr(LOSSES.get(loss) if isinstance(loss, str) else loss, "needs_cosines", False):
        defaults = {**defaults, "scoring": "cosine", "temperature": 1.0}
    given = {name: value for name, value in parameters.items() if value is not None or name == "patience"}
    if given.get("patience") == "auto":
        del given["patience"]
    return {**defaults, **given}


def _is_on_cpu(parameters: Given) -> bool:
    device = parameters.get("device", "auto")
    return device == "cpu" or (device == "auto" and not torch.cuda.is_available())


def _trains_on_cpu(parameters: Given) -> bool:
    """Whether the engine "cpu" can train with these parameters, and "gpu" cannot take over."""
    engine, device = parameters.get("engine", AUTO), parameters.get("device", "auto")
    on_cpu = device == "cpu" or (device == "auto" and (engine == "cpu" or not torch.cuda.is_available()))
    if engine not in (AUTO, "cpu") or not on_cpu or parameters.get("optimizer") == "adam":
        return False
    if any(parameters.get(name) for name in ("weight_decay", "popularity")):
        return False
    kinds: dict[str, Given] = {"encoder": ENCODERS, "loss": LOSSES, "sampler": SAMPLERS}
    named = {part: parameters.get(part, PARTS_BY_DEFAULT[part]) for part in kinds}
    parts = {part: kinds[part][v]() if v in list(kinds[part]) else v for part, v in named.items()}
    return lacking_part(**parts) is None


def default_batch_size(sampler: str | Sampler, n_pairs: int, n_users: int = 0) -> int:
    """Full catalogue: users, one for each 1000 pairs, from 8 to 128. Where users have few pairs and are many,
    as many users as have 8192 pairs, at most 2048 and a 16th of all. Where users are very many, a 2048th of
    them, at most 4096: every step updates all items. Drawn items: a 64th of the pairs, from 64 to 1024."""
    if not is_full(sampler):
        return min(max(n_pairs // 64, 64), 1024)
    few_pairs = min(8192 * n_users // max(n_pairs, 1), n_users // 16, 2048)
    many = max(few_pairs, min(n_users // 2048, 4096))
    return many if many > 128 else min(max(n_pairs // 1000, 8), 128)
