"""What an estimate is worth: DPL with τ from the data against τ tuned on validation.

Everything but τ is fixed: MF, dim 64, M = N = 5, and a learning rate, weight decay and batch size near
those that the paper's searches found for BPR, in which no τ had a hand. Validation chooses the epoch, and
the τ of the grid; the test part is looked at once for each source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from truepair.data.split import Split
from truepair.evaluation import Validation, evaluate
from truepair.losses import DPL
from truepair.models.encoders import MF
from truepair.prior import with_estimated_prior
from truepair.sampling import Uniform
from truepair.training import AUTO, FitResult, Job, Settings, fit_many
from truepair_lab.prior_study.lines import AutoLine

SOURCES = {
    "none": "0: no correction",
    "density": "the observed density",
    "auto": "estimated, one for all",
    "per-user": "estimated, one for each user",
    "tuned": "the best of the grid on validation",
}
_ESTIMATED: tuple[Literal["auto", "per-user"], ...] = ("auto", "per-user")
GRID = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4)
SEEDS = (0, 1, 2)
METRIC = "ndcg@20"


@dataclass(frozen=True)
class Setup:
    """A dataset of the paper, and what is fixed for it."""

    title: str
    batch_size: int
    learning_rate: float
    weight_decay: float
    epochs: int = 100
    dim: int = 64

    def settings(self, seed: int, device: str) -> Settings:
        """Of every run."""
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            n_extra=5,
            n_unlabelled=5,
            patience=15,
            validate_every=5,
            seed=seed,
            device=device,
        )


SETUPS = {
    "ml-100k": Setup("MovieLens-100k", 1024, 2.5e-3, 2e-5),
    "ml-1m": Setup("MovieLens-1M", 4096, 3e-3, 5e-6),
    "gowalla": Setup("Gowalla", 8192, 1.5e-3, 3e-8, epochs=240),
}


def lines_of(
    name: str, setup: Setup, split: Split, seed: int, device: str = "auto", engine: str = AUTO
) -> list[AutoLine]:
    """A line for each source, of one seed; a source whose training diverged has no line."""
    losses = losses_for(split, seed)
    trained = _trained(losses, setup, split, seed, device, engine)
    grid = {tau: trained[f"{tau:g}"] for tau in GRID if f"{tau:g}" in trained}
    if not grid:
        return []
    best = max(grid, key=lambda tau: grid[tau].score or 0.0)
    chosen = {"none": "0", "density": "density", "auto": "auto", "per-user": "per-user", "tuned": f"{best:g}"}
    tried = [[tau, grid[tau].score if tau in grid else None] for tau in GRID]
    return [
        AutoLine(
            dataset=name,
            source=source,
            seed=seed,
            tau=_mean(losses[run].tau),
            valid=trained[run].score or 0.0,
            epoch=trained[run].epoch,
            ndcg=_tested(trained[run], split),
            grid=tried if source == "tuned" else [],
            settings=_plain(setup),
            split=split.hash,
            engine=trained[run].engine,
        )
        for source, run in chosen.items()
        if run in trained
    ]


def losses_for(split: Split, seed: int) -> dict[str, DPL]:
    """What is trained: the grid, the density, and the estimates as `Recommender` makes them."""
    losses = {f"{tau:g}": DPL(tau=tau) for tau in GRID} | {"density": DPL(tau=split.train.density)}
    for word in _ESTIMATED:
        loss, _ = with_estimated_prior(DPL(tau=word), split.train, seed=seed)
        assert isinstance(loss, DPL)
        losses[word] = loss
    return losses


def _trained(
    losses: Mapping[str, DPL], setup: Setup, split: Split, seed: int, device: str, engine: str
) -> dict[str, FitResult]:
    """All of a seed, which a GPU trains at once; without those that diverged."""
    assert split.valid is not None
    settings, validation = (
        setup.settings(seed, device),
        Validation(split.valid, split.train, METRIC, cold="model"),
    )
    jobs = [Job(MF(dim=setup.dim), loss, Uniform(), split.train, settings) for loss in losses.values()]
    runs = zip(losses, fit_many(jobs, validation, engine=engine), strict=True)
    return {name: run for name, run in runs if isinstance(run, FitResult)}


def _tested(run: FitResult, split: Split) -> float:
    return evaluate(run, split, ks=(20,), cold="model").mean(METRIC)


def _mean(tau: Any) -> float:
    return sum(tau) / len(tau) if isinstance(tau, tuple) else float(tau)


def _plain(setup: Setup) -> dict[str, float]:
    named = ("dim", "batch_size", "learning_rate", "weight_decay", "epochs")
    return {name: getattr(setup, name) for name in named}
