"""Our side: the datasets that are measured on, jobs, and seconds of an epoch of any engine."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from truepair.data.datasets.loading import load, load_split
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.losses import DPL, Loss
from truepair.models.encoders import MF, Encoder
from truepair.sampling import Uniform
from truepair.training import ENGINES, Job, Settings
from truepair.training.job import Trainer
from truepair_lab.benchmarks.outcome import Measure, Options, Skipped

Vectors = npt.NDArray[np.float32]

TAU = 0.07
FAST = "cpu"
# SGD, one data entry at a time, is the fast mode's habit; Adam in batches of 1,024 is the paper's.
SETTINGS: dict[str, Settings] = {
    FAST: Settings(optimizer="sgd", learning_rate=0.05, l2_users=0.01, device="cpu"),
    "gpu": Settings(),
}
DEFAULTS = Settings(device="cpu")


def movielens_1m(options: Options) -> Split:
    """MovieLens-1M, a random fifth of all pairs for test."""
    return split_random(load("ml-1m", options.data_dir, progress=True), test=0.2, seed=options.seed)


def gowalla(options: Options) -> Split:
    """Gowalla, as it is split in most papers."""
    return load_split("gowalla", options.data_dir, progress=True)


def factors(train: Interactions, dim: int, seed: int) -> tuple[Vectors, Vectors]:
    """Vectors of users and items, popular items ahead, as in a trained model: those are often masked."""
    rng = np.random.default_rng(seed)
    users = rng.normal(size=(train.n_users, dim)).astype(np.float32)
    items = rng.normal(size=(train.n_items, dim)).astype(np.float32)
    users[:, 0], items[:, 0] = 2.0, np.log1p(train.item_counts)
    return users, items


def start(
    engine: str,
    train: Interactions,
    encoder: Encoder | None = None,
    loss: Loss | None = None,
    settings: Settings | None = None,
) -> Trainer:
    """A trainer, or the news that there is no such engine here, or that it cannot do this."""
    if engine not in ENGINES:
        raise Skipped(f"there is no engine {engine!r} here; there are {', '.join(ENGINES)}")
    settings = SETTINGS.get(engine, DEFAULTS) if settings is None else settings
    job = Job(encoder or MF(dim=32), loss or DPL(tau=TAU), Uniform(), train, settings)
    if lack := ENGINES[engine].lacks(job):
        raise Skipped(f"engine {engine!r}: {lack}")
    return ENGINES[engine].start(job)


class _Enough(Exception):  # noqa: N818, it is no error
    """The requested number of steps is done."""


def seconds_per_epoch(trainer: Trainer, rate: float, most_steps: int | None = None) -> Measure:
    """Seconds of one epoch after the other.

    With `most_steps` an epoch is left after so many of its steps, and its seconds are those times a factor,
    from the first step that the engine reports; what comes before a first step is left out.
    """
    epoch = 0

    def measure() -> float:
        nonlocal epoch
        marks: list[tuple[float, int]] = []  # (when, steps done)

        def advance(steps: int) -> None:
            marks.append((time.perf_counter(), steps + (marks[-1][1] if marks else 0)))
            if most_steps is not None and len(marks) > 1 and marks[-1][1] >= most_steps:
                raise _Enough

        began = time.perf_counter()
        epoch += 1
        try:
            trainer.train(epoch - 1, rate, advance)
        except _Enough:
            (first, done_first), (last, done_last) = marks[0], marks[-1]
            return (last - first) * trainer.steps / (done_last - done_first)
        return time.perf_counter() - began

    return measure


def timed(work: Callable[[], object]) -> Measure:
    """Seconds of `work`."""

    def measure() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return measure
