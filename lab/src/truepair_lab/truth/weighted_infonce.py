"""Weights by a first model where every label is known: full-catalogue InfoNCE, with and without.

The first model is InfoNCE with the same settings, trained on the case's train part; the
validation part, which it was not shown, is what its scores are calibrated by. Its epoch is chosen by that
part too, as everything here is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from truepair.errors import InputError, TrainingError, check_whole
from truepair.evaluation.task import Validation
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.prior import estimate_prior
from truepair.recommender.holdout import joined
from truepair.sampling import Full
from truepair.training import FitResult, Job, Settings, fit
from truepair_lab import store
from truepair_lab.posterior import InfoNCEPosterior
from truepair_lab.posterior.calibration import calibrate
from truepair_lab.truth.cases import TruthCase, mask_of
from truepair_lab.truth.fitting import one_thread
from truepair_lab.truth.lines import Key, PosteriorLine, append
from truepair_lab.truth.sources import Asked
from truepair_lab.truth.supervised_infonce import fit_supervised
from truepair_lab.truth.true_label_metrics import quality

TITLES = {
    "infonce": "InfoNCE",
    "posterior": "weights 1 − P, the true τ",
    "posterior-auto": "weights 1 − P, the estimated τ",
    "supervised": "InfoNCE, fully supervised",
}
KIND = "-kind"  # the same with InfoNCE's kind of scores, where validation chose the other
Say = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """Settings that are tried: how scores are made, at what temperature, and what holds vectors back."""

    scoring: str
    temperature: float
    weight_decay: float


_TEMPERATURES = 0.14, 0.2, 0.24, 0.28, 0.34, 0.4, 0.48, 0.57, 0.8, 1.6, 3.2, 6.4, 12.8
COSINES = tuple(Point("cosine", temperature, 1e-5) for temperature in _TEMPERATURES)
PRODUCTS = tuple(
    Point("dot", temperature, decay)
    for temperature in (1.0, 2.0, 4.0, 8.0)
    for decay in (1e-5, 3e-5, 1e-4, 3e-4)
)


@dataclass(frozen=True)
class Effort:
    """How much is trained and tried; the same for every treatment."""

    points: tuple[Point, ...] = COSINES + PRODUCTS
    epochs: int = 100
    patience: int = 15  # inner products rest at the items' popularity before they learn more
    batch_size: int = 64  # users
    dim: int = 32
    rate: float = 0.005


@dataclass(eq=False)
class Bench:
    """A case, and what was trained on it: first models are there once for all treatments."""

    case: TruthCase
    effort: Effort
    firsts: dict[Point, FitResult] = field(default_factory=dict)

    @cached_property
    def estimated(self) -> float:
        """τ as `truepair prior` would say it of the train part."""
        return estimate_prior(self.case.train, resamples=0, seed=self.case.seed, device="cpu").tau

    def fitted(self, treatment: str, point: Point) -> FitResult:
        """A treatment at a point; the epoch is the best by validation."""
        if treatment == "supervised":
            return fit_supervised(self.job(point, InfoNCE(point.temperature)), self.case)
        first = self.first(point)
        return first if treatment == "infonce" else self._fit(self.job(point, self.loss(treatment, point)))

    def first(self, point: Point) -> FitResult:
        """InfoNCE."""
        if point not in self.firsts:
            self.firsts[point] = self._fit(self.job(point, InfoNCE(point.temperature)))
        return self.firsts[point]

    def loss(self, treatment: str, point: Point) -> InfoNCEPosterior:
        """InfoNCE with the weights that its own first model gives."""
        case, first = self.case, self.first(point)
        known = joined([case.train, case.valid])
        found, _ = calibrate(first.users, first.items, known, case.train, case.valid, case.seed)
        tau = case.tau if treatment.removesuffix(KIND) == "posterior" else self.estimated
        return InfoNCEPosterior(tau=tau, temperature=point.temperature, posterior=found)

    def job(self, point: Point, loss: InfoNCE | InfoNCEPosterior) -> Job:
        """The job of a point."""
        effort, case = self.effort, self.case
        encoder = MF(dim=effort.dim, scoring="cosine" if point.scoring == "cosine" else "dot")
        settings = Settings(
            epochs=effort.epochs,
            batch_size=effort.batch_size,
            learning_rate=effort.rate,
            weight_decay=point.weight_decay,
            patience=effort.patience,
            seed=case.seed,
            device="cpu",
        )
        return Job(encoder, loss, Full(), case.train, settings)

    def _fit(self, job: Job) -> FitResult:
        valid = Validation(
            self.case.valid, self.case.train, f"ndcg@{min(20, self.case.train.n_items)}", cold="model"
        )
        with one_thread():
            return fit(job, valid)


# --- running -------------------------------------------------------------------------------------------


def run_posterior(asked: Asked, seeds: int, folder: Path, say: Say, effort: Effort | None = None) -> int:
    """Train what has no line yet, and add the lines to `folder`; how many there were to add."""
    seeds, effort = check_whole("seeds", seeds, 1, 100), effort or Effort()
    done, broken = _read(folder)
    for text in broken:
        say(f"left out: {text}")
    first = Bench(asked.case(0), effort)
    wanted = [name for name in TITLES if name != "supervised" or first.case.complete]
    chosen = {name: _chosen(first, name, done, folder, say) for name in wanted}
    found, _ = _read(folder)
    made = len(set(found) - set(done))
    chosen |= _of_kind([found[_key(first.case, name)] for name in wanted])
    for seed in range(seeds):
        bench = first if seed == 0 else Bench(asked.case(seed), effort)
        missing = [name for name in chosen if _key(bench.case, name) not in found]
        for name in missing:
            append(folder / f"{bench.case.name}.jsonl", _line(bench, name, chosen[name], ()))
        made += len(missing)
        say(f"{bench.case.name}, seed {seed}: {len(missing)} more models")
    return made


def _read(folder: Path) -> tuple[dict[Key, PosteriorLine], list[str]]:
    lines, broken = store.read(folder, PosteriorLine)
    return {line.key: line for line in lines}, broken


def _of_kind(lines: Sequence[PosteriorLine]) -> dict[str, Point]:
    """Where weights chose another kind of scores than InfoNCE: the best settings with InfoNCE's kind."""
    kind, found = next(line.scoring for line in lines if line.treatment == "infonce"), {}
    for line in lines:
        if line.treatment.startswith("posterior") and line.scoring != kind:
            able = [each for each in line.search if each[0] == kind and each[3] is not None]
            if able:
                _, temperature, decay, _ = max(able, key=lambda each: float(each[3] or 0))
                found[line.treatment + KIND] = Point(kind, float(temperature or 0), float(decay or 0))
    return found


def _key(case: TruthCase, name: str) -> Key:
    return case.name, case.exposure, case.hide, name, case.seed


def _chosen(bench: Bench, name: str, done: Mapping[Key, PosteriorLine], folder: Path, say: Say) -> Point:
    """The settings of a treatment: from its line of seed 0, else from a search, which adds that line."""
    line = done.get(_key(bench.case, name))
    if line is None:
        began, scores = time.perf_counter(), [_score(bench, name, point) for point in bench.effort.points]
        able = [(score, -place) for place, score in enumerate(scores) if score is not None]
        if not able:
            raise InputError(f"{bench.case.name}, {name}: every setting diverged; lower the learning rate.")
        point = bench.effort.points[-max(able)[1]]
        tried = [(*_parts(p), score) for p, score in zip(bench.effort.points, scores, strict=True)]
        line = _line(bench, name, point, tried)
        append(folder / f"{bench.case.name}.jsonl", line)
        took = time.perf_counter() - began
        say(
            f"{bench.case.name}, {TITLES[name]}: {point}, NDCG@20 {line.quality['ndcg@20']:.4f}, {took:.0f} s"
        )
    return Point(line.scoring, line.temperature, line.weight_decay)


def _score(bench: Bench, name: str, point: Point) -> float | None:
    try:
        return bench.fitted(name, point).score
    except TrainingError:
        return None


def _parts(point: Point) -> tuple[str, float, float]:
    return point.scoring, point.temperature, point.weight_decay


def _line(
    bench: Bench, name: str, point: Point, tried: Sequence[tuple[str, float, float, float | None]]
) -> PosteriorLine:
    case, began = bench.case, time.perf_counter()
    found = bench.fitted(name, point)
    loss = found.job.loss if isinstance(found.job.loss, InfoNCEPosterior) else None
    return PosteriorLine(
        case=case.name,
        exposure=case.exposure,
        hide=case.hide,
        treatment=name,
        seed=case.seed,
        tau=case.tau,
        prior=None if loss is None else float(np.mean(np.asarray(loss.tau, dtype=np.float64))),
        scoring=point.scoring,
        temperature=point.temperature,
        weight_decay=point.weight_decay,
        search=tried,
        score=found.score or 0.0,
        epoch=found.epoch,
        quality=quality(case, found.users, found.items),
        chance={} if loss is None else _chance(case, loss),
        seconds=time.perf_counter() - began,
    )


def _chance(case: TruthCase, loss: InfoNCEPosterior) -> dict[str, float]:
    """The mean of P over the pairs that are in truth positive, and over those that are not."""
    shape = case.train.n_users, case.train.n_items
    weights = loss.item_weights(shape, torch.device("cpu"))
    if weights is None:
        return {}
    p = -np.expm1(weights(torch.arange(case.train.n_users)).double().numpy())
    asked = case.unlabelled & ~mask_of(case.valid)
    return {
        "positive": float(p[asked & case.truth].mean()),
        "negative": float(p[asked & ~case.truth].mean()),
    }
