"""Checkpoints: a run that was killed at any moment continues where it was, bit for bit.

All random numbers are functions of (seed, epoch, step), so the tensors and the epoch are the whole state.
Every tensor and every fact of a file is compared with the job and the trainer before either is changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from truepair.errors import StorageError
from truepair.sampling import Full, Matrices
from truepair.storage.plain_values import is_number
from truepair.storage.tensor_file import read_tensors
from truepair.storage.types import Json
from truepair.storage.versions import current_value
from truepair.training.job import Job, Trainer
from truepair.training.result import EpochRecord

KIND, VERSION = "truepair checkpoint", 1
BEST_NETWORK = "best.network."


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], Json]:
    """The tensors and facts of a checkpoint; `checked_contents` checks them."""
    try:
        tensors, facts = read_tensors(path, KIND, VERSION)
    except StorageError as error:
        raise StorageError(f"{error} Delete it to start anew.") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("job"), dict):
        raise StorageError(f"{path} does not say which run it is of. Delete it to start anew.")
    if facts["job"].get("engine") == "cpu" and "trainer.steps" in tensors:
        raise StorageError(
            f"{path} is of the engine 'cpu' of version 0.1, which no longer exists, and cannot be continued. "
            "Delete it to start anew; engine='reference' computes the same steps."
        )
    return tensors, facts


def describe_job(job: Job, on_epoch: object) -> Json:
    """All that the numbers of a run depend on, as plain JSON."""
    validation = getattr(on_epoch, "identity", None if on_epoch is None else "a function")
    described: Json = {"interactions": job.interactions.hash, "on_epoch": validation}
    for part in ("encoder", "loss", "sampler"):
        described[part] = type(getattr(job, part)).__name__
        described |= {f"{part}.{k}": v for k, v in _fields(getattr(job, part)).items()}
    described |= _fields(job.settings)
    if job.encoder.reads_order:  # places in histories are no part of the checksum of interactions
        described["histories"] = _digest(job.interactions.log.histories.items.astype("<i8").tobytes())
    masks = {"anchors": job.anchors, "negatives": job.negatives}
    described |= {name: _digest(mask.tobytes()) for name, mask in masks.items() if mask is not None}
    if job.interactions.disliked is None or not isinstance(job.sampler, Full):
        del described["dislike_weight"]  # it has no effect, and earlier versions do not have it
    if described["optimizer_state"] != "half":  # else it only says where: earlier versions do not have it
        del described["optimizer_state"]
    described |= {} if job.start is None else {"start": job.start.digest()}
    del described["device"]  # a run may move to another device, though only the CPU repeats every bit
    if job.settings.schedule in ("constant", "step") and job.settings.validate_every == 1:
        del described["epochs"]  # nothing here looks ahead to the last epoch, so a run may be made longer
    return described


def check_same_job(path: Path, facts: Json, job: Json, epochs: int) -> None:
    """An error that names what differs if the checkpoint is of another run, or has more epochs."""
    saved = {key: current_value(key, value) for key, value in facts["job"].items()}
    differing = [key for key in {**saved, **job} if saved.get(key) != job.get(key)]
    if differing:
        shown = "; ".join(f"{key} was {saved.get(key)!r}, is {job.get(key)!r}" for key in differing[:5])
        remedy = "Give another file, or delete this one."
        if differing == ["engine"]:
            remedy = f"Go on with engine={saved.get('engine')!r}, or give another file."
        raise StorageError(f"{path} is of another run: {shown}. {remedy}")
    done = facts.get("history")
    if isinstance(done, list) and len(done) > epochs:
        raise StorageError(
            f"{path} holds more than this run: {len(done)} epochs are done, and epochs = {epochs}. "
            f"Raise epochs to {len(done)} or more, or give another file."
        )


# --- contents ------------------------------------------------------------------------------------------


# What a run continues from: the trainer's state, the history, and the best epoch, score and matrices.
Contents = tuple[dict[str, Tensor], list[EpochRecord], tuple[int, float, Matrices] | None]


def checked_contents(
    tensors: Mapping[str, Tensor],
    facts: Json,
    job: Job,
    trainer: Trainer,
    n_rows: tuple[int, int] | None = None,
) -> Contents:
    """The contents of a checkpoint of this job; a ValueError says what does not fit.

    `n_rows` are the numbers of users and items whose vectors the tensors have; by default, of all.
    """
    history = _history(facts.get("history"))
    best = _best(facts.get("best"), history)
    layouts = {f"trainer.{name}": layout for name, layout in _state_layouts(trainer).items()}
    if best is not None:
        width = job.encoder.dim + bool(job.encoder.popularity)
        of_all = job.interactions.n_users, job.interactions.n_items
        for name, rows in zip(("users", "items"), n_rows or of_all, strict=True):
            layouts[f"best.{name}"] = (rows, width), torch.float32
        for name, weights in getattr(trainer, "network", dict)().items():
            layouts[BEST_NETWORK + name] = tuple(weights.shape), weights.dtype
    before = 0 if job.start is None else job.start.steps
    _check_tensors(tensors, layouts, most_steps=before + len(history) * trainer.steps)
    state = {n.removeprefix("trainer."): value for n, value in tensors.items() if n.startswith("trainer.")}
    if best is None:
        return state, history, None
    return state, history, (*best, (tensors["best.users"], tensors["best.items"]))


def _history(given: object) -> list[EpochRecord]:
    if not isinstance(given, list) or not given:
        raise ValueError(f"its history is {given!r:.60}, not a list of epochs")
    return [_record(epoch, record) for epoch, record in enumerate(given, 1)]


def _record(epoch: int, given: object) -> EpochRecord:
    fields = {f.name for f in dataclasses.fields(EpochRecord)}
    if not isinstance(given, dict) or given.keys() != fields:
        raise ValueError(f"its record of epoch {epoch} is {given!r:.60}")
    for name, value in given.items():
        if not is_number(value) and not (value is None and name in ("clamped", "score")):
            raise ValueError(f"{name} of epoch {epoch} is {value!r:.60}, not a number")
    if given["epoch"] != epoch:
        raise ValueError(f"its record of epoch {epoch} is of epoch {given['epoch']}")
    return EpochRecord(**given)


def _best(given: object, history: list[EpochRecord]) -> tuple[int, float] | None:
    """The best epoch and its score, which the history has too."""
    scored = [(record.epoch, record.score) for record in history if record.score is not None]
    found = max(scored, key=lambda one: (one[1], -one[0]), default=None)
    if (list(found) if found is not None else None) != given:
        raise ValueError(f"its best epoch is {given!r:.60}, and by its history {found}")
    return found


_Layout = tuple[tuple[int, ...], torch.dtype]


def _state_layouts(trainer: Trainer) -> dict[str, _Layout]:
    """The shape and type of every tensor of a trainer's state after an epoch.

    They are those of its state now, and of what PyTorch's Adam adds in its first step.
    """
    found = dict(trainer.state())
    if isinstance(getattr(trainer, "optimizer", None), torch.optim.Adam):
        sides = [name for name in found if not name.startswith("optimizer.")]  # in the order of parameters
        for place, side in enumerate(sides):
            moments = {"step": torch.zeros(()), "exp_avg": found[side], "exp_avg_sq": found[side]}
            found |= {f"optimizer.{place}.{name}": value for name, value in moments.items()}
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in found.items()}


def _check_tensors(tensors: Mapping[str, Tensor], layouts: Mapping[str, _Layout], most_steps: int) -> None:
    if missing := [name for name in layouts if name not in tensors]:
        raise ValueError(f"{missing[0]} is missing")
    for name, tensor in tensors.items():
        if name not in layouts:
            raise ValueError(f"{name} does not belong to this run")
        (shape, kind), found = layouts[name], tuple(tensor.shape)
        if (found, tensor.dtype) != (shape, kind):
            raise ValueError(f"{name} is {tensor.dtype} of shape {found}, not {kind} of shape {shape}")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinity")
        if not shape and not 0 <= tensor.item() <= most_steps:
            raise ValueError(f"{name} is {tensor.item()}, and at most {most_steps} steps are done")


# --- descriptions --------------------------------------------------------------------------------------


def _fields(value: object) -> Json:
    if not dataclasses.is_dataclass(value):
        return {"value": repr(value)}
    return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, tuple):  # one prior per user: its checksum identifies it
        return f"{len(value)} values, {_digest(repr(value).encode())}"
    return getattr(value, "digest", value)  # tables of features, and what a loss was prepared with
