"""Checkpoints: a run that was killed at any moment continues where it was, bit for bit.

All random numbers are functions of (seed, epoch, step), so the tensors and the epoch are the whole state.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from truepair.errors import StorageError
from truepair.losses.positive_probability import Posterior
from truepair.storage.old_names import current_value
from truepair.storage.tensor_file import read_tensors, write_tensors
from truepair.training.job import Job

KIND, VERSION = "truepair checkpoint", 1


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; if that fails, the old one is still there."""
    write_tensors(path, KIND, VERSION, tensors, facts)


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint."""
    try:
        return read_tensors(path, KIND, VERSION)
    except StorageError as error:
        raise StorageError(f"{error} Delete it to start anew.") from error


def describe_job(job: Job, on_epoch: object) -> dict[str, Any]:
    """All that the numbers of a run depend on, as plain JSON."""
    validation = getattr(on_epoch, "identity", None if on_epoch is None else "a function")
    described: dict[str, Any] = {"interactions": job.interactions.hash, "on_epoch": validation}
    for part in ("encoder", "loss", "sampler"):
        described[part] = type(getattr(job, part)).__name__
        described |= {f"{part}.{k}": v for k, v in _fields(getattr(job, part)).items()}
    described |= _fields(job.settings)
    masks = {"anchors": job.anchors, "negatives": job.negatives}
    described |= {name: _digest(mask.tobytes()) for name, mask in masks.items() if mask is not None}
    del described["device"]  # a run may move to another device, though only the CPU repeats every bit
    if job.settings.schedule in ("constant", "step") and job.settings.validate_every == 1:
        del described["epochs"]  # nothing here looks ahead to the last epoch, so a run may be made longer
    return described


def check_same_job(path: Path, saved: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """An error that names what differs, if the checkpoint is of another run."""
    saved = {key: current_value(key, value) for key, value in saved.items()}
    differing = [key for key in {**saved, **job} if saved.get(key) != job.get(key)]
    if differing:
        shown = "; ".join(f"{key} was {saved.get(key)!r}, is {job.get(key)!r}" for key in differing[:5])
        remedy = "Give another file, or delete this one."
        if differing == ["engine"]:
            remedy = f"Go on with engine={saved['engine']!r}, or give another file."
        raise StorageError(f"{path} is of another run: {shown}. {remedy}")


def _fields(value: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(value):
        return {"value": repr(value)}
    return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):  # one prior per user: its checksum identifies it
        return f"{len(value)} values, {_digest(repr(value).encode())}"
    if isinstance(value, Posterior):  # a checkpoint keeps the one it began with
        return repr(value)
    return value
