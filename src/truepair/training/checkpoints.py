"""Checkpoints: a run killed at any moment goes on where it was, bit for bit.

A checkpoint is one safetensors file: tensors, and JSON in its header. It is written beside the old one,
flushed to disk and then renamed over it, so at every moment a whole checkpoint lies there. All random
numbers are functions of (seed, epoch, step), so the tensors and the epoch are the whole state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from truepair.errors import CheckpointError
from truepair.training.result import Job

FORMAT = "truepair checkpoint 1"


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; if that fails, the old one is still there."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"format": FORMAT, "digest": _digest(tensors), "facts": json.dumps(facts)}
    fresh = path.with_name(path.name + ".writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(fresh, "wb") as file:
            file.write(safetensors.torch.save(tensors, metadata=header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        kept = "the one before it is untouched" if path.exists() else "there was none before"
        raise CheckpointError(f"cannot write the checkpoint {path}: {error}; {kept}.") from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint; anything wrong with the file is a CheckpointError."""
    remedy = "Delete it to start anew."
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise CheckpointError(f"{path} is not a {FORMAT!r}, but {header.get('format')!r}. {remedy}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dict
        facts = json.loads(header["facts"])
    except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {error}. {remedy}") from error
    if header.get("digest") != _digest(tensors):
        raise CheckpointError(f"{path} is damaged: its checksum does not match. {remedy}")
    return tensors, facts


def describe_job(job: Job) -> dict[str, Any]:
    """All that the numbers of a run depend on, as plain JSON."""
    described: dict[str, Any] = {"interactions": job.interactions.hash}
    for part in ("encoder", "loss", "sampler"):
        described[part] = type(getattr(job, part)).__name__
        described |= {f"{part}.{k}": v for k, v in _fields(getattr(job, part)).items()}
    described |= _fields(job.settings)
    del described["device"]  # a run may move to another device, though only the CPU repeats every bit
    if job.settings.schedule in ("constant", "step"):
        del described["epochs"]  # these schedules do not look ahead, so a run may be made longer
    return described


def check_same_job(path: Path, saved: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """An error that names what differs, if the checkpoint is of another run."""
    differing = [key for key in {**saved, **job} if saved.get(key) != job.get(key)]
    if differing:
        shown = "; ".join(f"{key} was {saved.get(key)!r}, is {job.get(key)!r}" for key in differing[:5])
        raise CheckpointError(f"{path} is of another run: {shown}. Give another file, or delete this one.")


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):  # one prior per user: its checksum is enough to tell it from another
        return f"{len(value)} values, {hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()}"
    return value


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
