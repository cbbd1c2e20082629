"""What is trained while it is attacked: one small job for each engine, and the digest of its result."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

import truepair as tp
from truepair.errors import TruepairError
from truepair.training.checkpoints import load_checkpoint

EPOCHS = 12
_FAST = {"optimizer": "sgd", "learning_rate": 0.1, "schedule": "linear"}
JOBS: dict[str, Callable[[], tp.Job]] = {
    "reference": lambda: _job(tp.LightGCN(dim=8, hops=2), tp.DPL(), tp.Uniform()),
    "full": lambda: _job(tp.MF(dim=16, scoring="cosine"), tp.InfoNCE(), tp.Full()),
    "cpu": lambda: _job(tp.MF(dim=16), tp.DPL(), tp.Uniform(), **_FAST),
}
MODEL = "model"  # a Recommender that is trained and saved
ENGINES = (*JOBS, MODEL)
THREADED: tuple[str, ...] = ()  # engines that cannot train in a process forked after training, and say so


@cache
def data() -> tp.Interactions:
    """The interactions that everything is trained on."""
    return tp.simulate_world(300, 120, tau=0.1, density=0.08, seed=1).observed


def _job(encoder: Any, loss: Any, sampler: Any, **changes: Any) -> tp.Job:
    numbers: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 500, "device": "cpu"} | changes
    return tp.Job(encoder, loss.with_density(data().density), sampler, data(), tp.Settings(**numbers))


def score(state: Any) -> float:
    """A validation score that rises and falls, so that the best epoch is not the last."""
    return -abs(float(state.epoch) - 0.7 * EPOCHS)


def train(engine: str, folder: Path) -> str:
    """Train in `folder`, from its checkpoint if there is one; the digest of the result."""
    torch.set_num_threads(1)
    checkpoint = folder / "run.checkpoint"
    if engine != MODEL:
        result = tp.fit(JOBS[engine](), score, engine=engine, checkpoint=checkpoint)
        return _digest({"users": result.users, "items": result.items})
    model = tp.Recommender(dim=16, epochs=EPOCHS, validation=0.1)
    model.fit(data(), checkpoint=checkpoint).save(folder / "saved.model")
    return _digest(safetensors.torch.load_file(folder / "saved.model"))


def unreadable(folder: Path) -> int:
    """How many of the files that must be whole at every moment cannot be read."""
    bad = 0
    readers: dict[str, Callable[[Path], object]] = {"run.checkpoint": load_checkpoint, "saved.model": tp.load}
    for name, read in readers.items():
        try:
            if (folder / name).exists():
                read(folder / name)
        except TruepairError:
            bad += 1
    return bad


def leftovers(folder: Path) -> list[str]:
    """Files in the folder that belong to nobody."""
    known = {
        "run.checkpoint",
        "run.checkpoint.settings",
        "saved.model",
    }  # automatic settings go with the checkpoint
    return sorted({path.name for path in folder.iterdir()} - known)


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].numpy().tobytes())
    return digest.hexdigest()


# --- moments of a kill -----------------------------------------------------------------------------


MOMENTS = ("time", "fsync", "replace", "write", "epoch")


def kill_at(moment: str, count: int) -> None:
    """Have this process killed, as SIGKILL does, at the `count`-th call of what the moment names."""
    from truepair.training.loop import Run

    calls = {"fsync": (os, "fsync"), "replace": (os, "replace"), "epoch": (Run, "finish_epoch")}
    owner, name = calls.get(moment, (safetensors.torch, "save"))
    real, left = getattr(owner, name), [count]

    def until_killed(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(owner, name, until_killed)


def scatter_memory(seed: int) -> list[Any]:
    """Blocks of random sizes, every other one freed: arrays lie elsewhere than in another process."""
    sizes = np.random.default_rng(seed).integers(1, 600, size=200)
    blocks = [np.zeros(size, dtype=np.float32) for size in sizes]
    return blocks[::2]
