"""Automatic settings: temperature, popularity, dimension, epochs and the blend with EASE, from the data.

Short runs on a hold-out climb to the best temperature and weight of popularity; runs of twice the size check
the neighbours; one full run chooses the epoch and the blend. All trials are scored on the same held-out
pairs. docs/automatic.md has the measurements behind the plan.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError, TrainingError
from truepair.evaluation import Validation
from truepair.models.encoders import ENCODERS
from truepair.models.factor_matrices import dense
from truepair.recommender.blend_choice import MOST_ITEMS, BlendChoice, choose_blend
from truepair.recommender.budget import Clock
from truepair.recommender.defaults import FULL_CATALOGUE, default_batch_size, is_full
from truepair.recommender.holdout import hold_out, like_test
from truepair.recommender.parameters import as_json
from truepair.recommender.parts import Parameters, parts_of
from truepair.training import FitResult, Job, Settings, fit_many

CHOSEN = ("temperature", "popularity", "dim", "epochs", "blend")
_HELD_OUT = 0.1  # of the pairs
_LEAST_USERS = 50  # with held-out pairs: fewer say nothing
_RATE = 0.01
_EPOCHS = 40
_SHORT_DIM = 64
_SHORT_STEPS, _SHORT_EPOCHS = 400, (5, 20)
_MOST_SHORT = 15  # trials
_FIRST_TEMPERATURES, _FIRST_POPULARITY = (0.05, 0.1, 0.2, 0.4, 0.8), 0.4
_TEMPERATURES, _POPULARITIES = (0.02, 2.0), (0.0, 2.0)
_BETTER, _CLEARLY = 1.002, 1.01  # ratios of scores: a step that is worth it; a reason to leave the plan
_RATIO, _STEP = 2**0.5, 0.4  # of temperatures, of popularities; halved twice


class Point(NamedTuple):
    """What a trial is about."""

    temperature: float
    popularity: float
    dim: int
    epochs: int


@dataclass(frozen=True)
class Trial:
    """A trial: its score on the held-out pairs, and the epoch that had it."""

    point: Point
    score: float
    epoch: int
    seconds: float


@dataclass(frozen=True)
class Choice:
    """The chosen parameters, as `Recommender` takes them, and what is told about the search."""

    parameters: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def line_of(parameters: Mapping[str, Any]) -> str:
    """The call that repeats a fit without the search."""
    return f"Recommender(auto=False, {', '.join(f'{k}={v!r}' for k, v in parameters.items())})"


def open_choices(parameters: Parameters, given: Collection[str]) -> list[str]:
    """What is chosen automatically: nothing where the loss, the sampler or the encoder is a special one."""
    plain = (
        parameters["auto"] and parameters["loss"] == "infonce" and is_full(parameters["sampler"])
        and isinstance(parameters["encoder"], str) and parameters["encoder"] in ENCODERS
        and parameters["scoring"] in (None, "cosine")
    )  # fmt: skip
    if not plain:
        return []
    found = [name for name in CHOSEN if name not in given]
    if {"stop_after", "patience", "validate_every", "optimizer", "schedule"} & set(given):
        found = [name for name in found if name != "epochs"]
    return found


def choose(
    parameters: Parameters, given: Collection[str], split: Split, budget: float | None, progress: bool
) -> Choice:
    """Search on the validation part of the split, or on a hold-out of its train part."""
    wanted = open_choices(parameters, given)
    if not wanted:
        return Choice()
    clock = Clock(budget)
    try:
        part = _judged_by(parameters, split)
        search = Search(parameters, wanted, part, clock, progress)
    except InputError as error:
        return Choice(facts={"automatic": {"skipped": str(error)}})
    chosen = search.result()
    facts = {
        "chosen": {name: as_json(value) for name, value in chosen.items()},
        "repeat": line_of(chosen),
        "hold out": part.recipe,
        "metric": parameters["metric"],
        "trials": [{**t.point._asdict(), "score": round(t.score, 6), "epoch": t.epoch,
                    "seconds": round(t.seconds, 3)} for t in search.trials],
        "blend": search.blend_facts,
        "seconds": round(clock.seconds, 3),
    }  # fmt: skip
    return Choice(chosen, {"automatic": facts})


def _judged_by(parameters: Parameters, split: Split) -> Split:
    """Train and the pairs that judge: the given validation part, or a hold-out that is like the test part."""
    if split.valid is not None:
        return Split(split.train, split.valid, split.test, split.recipe)
    how = parameters["hold_out"]
    part = hold_out(split.train, like_test(split) if how == "auto" else how, _HELD_OUT, parameters["seed"])
    assert part.valid is not None
    n = int((part.valid.user_counts > 0).sum())
    if n < _LEAST_USERS:
        raise InputError(
            f"{n} users have pairs that can be held out, and automatic settings need {_LEAST_USERS}"
        )
    return part


class Search:
    """One search; `result` runs it."""

    def __init__(
        self, parameters: Parameters, wanted: Sequence[str], part: Split, clock: Clock, progress: bool
    ) -> None:
        assert part.valid is not None
        self.parameters, self.wanted, self.train, self.valid = parameters, wanted, part.train, part.valid
        self.clock, self.progress = clock, progress
        self.judge = Validation(part.valid, part.train, parameters["metric"])
        self.device = Settings(device=parameters["device"]).torch_device()
        self.trials: list[Trial] = []
        self.blend_facts: dict[str, Any] | None = None
        self.rate = _RATE if parameters["learning_rate"] is None else parameters["learning_rate"]

    # --- the plan --------------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """The chosen parameters."""
        point = self._first()
        if {"temperature", "popularity"} & set(self.wanted):
            point = self._climbed(point)
            point = self._checked(point)
        full = point._replace(dim=self._dim(), epochs=self._epochs())
        fitted = self._run([full], keep=True)[0]
        best = self._final(full)
        chosen = self._as_parameters(best)
        if "blend" in self.wanted and isinstance(fitted, FitResult):
            chosen |= self._blend(fitted, full)
        return chosen

    def _first(self) -> Point:
        """Where the search begins: given parameters, or the middle of what datasets had."""
        t, g = (self._given("temperature", _FIRST_TEMPERATURES[1]), self._given("popularity", _FIRST_POPULARITY))
        steps = max(1, self.train.n_users // self._batch())
        fewest, most = _SHORT_EPOCHS
        epochs = min(max(round(_SHORT_STEPS / steps), fewest), most, self._epochs())
        return Point(t, g, min(_SHORT_DIM, self._dim()), epochs)

    def _climbed(self, point: Point) -> Point:
        """The best of the short runs: neighbours are tried, steps are halved where none is better."""
        wide = _FIRST_TEMPERATURES if "temperature" in self.wanted else (point.temperature,)
        first = [point._replace(temperature=t) for t in wide]
        self._run(first)
        point = self._best(first)
        for shrink in (1.0, 0.5):
            while True:
                around = [p for p in self._around(point, shrink) if p not in self._known()]
                if len(self.trials) + len(around) > _MOST_SHORT or not self._has_time(0.3):
                    return point
                self._run(around)
                best = self._best([point, *self._around(point, shrink)])
                if not self._is_better(best, point):
                    break
                point = best
        return point

    def _around(self, point: Point, shrink: float) -> list[Point]:
        found = []
        if "temperature" in self.wanted:
            ratio = _RATIO**shrink
            found += [point._replace(temperature=_rounded(point.temperature * r)) for r in (ratio, 1 / ratio)]
        if "popularity" in self.wanted:
            found += [
                point._replace(popularity=round(point.popularity + s * shrink, 3)) for s in (_STEP, -_STEP)
            ]
        (low, high), (least, most) = _TEMPERATURES, _POPULARITIES
        return [p for p in found if low <= p.temperature <= high and least <= p.popularity <= most]

    def _checked(self, point: Point) -> Point:
        """The best of runs of twice the size: longer runs want a lower temperature and less popularity."""
        larger = point._replace(dim=min(2 * point.dim, self._dim()), epochs=min(2 * point.epochs, self._epochs()))
        lower = []
        if "temperature" in self.wanted:
            lower.append(larger._replace(temperature=_rounded(point.temperature / _RATIO**0.5)))
        if "popularity" in self.wanted and point.popularity >= 0.2:
            lower.append(larger._replace(popularity=round(point.popularity / 2, 3)))
        if not lower or not self._has_time(0.4):
            return point
        self._run([larger, *lower])
        return self._best([larger, *lower])

    def _final(self, full: Point) -> Trial:
        """The full run, unless a smaller one is clearly better."""
        last, best = self.trials[-1], max(self.trials, key=lambda trial: trial.score)
        return best if best.score > _CLEARLY * last.score else last

    def _as_parameters(self, best: Trial) -> dict[str, Any]:
        values = best.point._asdict()
        found = {name: values[name] for name in ("temperature", "popularity", "dim", "epochs") if name in self.wanted}
        if self.parameters["learning_rate"] is None:
            found["learning_rate"] = self.rate
        if "epochs" in self.wanted and best.epoch < best.point.epochs:
            found["stop_after"] = best.epoch
        return found

    def _blend(self, fitted: FitResult, full: Point) -> dict[str, Any]:
        if self.train.n_items > MOST_ITEMS:
            self.blend_facts = {"skipped": f"more than {MOST_ITEMS:,} items: EASE's weights would be too large"}
            return {}
        users, items = dense("users", fitted.users), dense("items", fitted.items)
        found = choose_blend(users, items, self.train, self.valid, self.parameters["metric"],
                             full.temperature, self.parameters["seed"], self.device)  # fmt: skip
        self.blend_facts = {"alone": round(found.alone, 6), "blended": round(found.blended, 6), "tried": found.tried}
        self._say(f"blend with EASE: {found.alone:.4f} -> {found.blended:.4f}"
                  + ("" if found.ease else ", no gain beyond chance: not used"))  # fmt: skip
        return {} if found.ease is None else {"blend": found.ease, "blend_weight": round(found.weight, 6)}

    # --- sizes -----------------------------------------------------------------------------------------

    def _given(self, name: str, default: Any) -> Any:
        value = self.parameters[name]
        return default if name in self.wanted else FULL_CATALOGUE[name] if value is None else value

    def _batch(self) -> int:
        sampler = parts_of(self.parameters).sampler
        size = self.parameters["batch_size"]
        return size or default_batch_size(sampler, len(self.train), self.train.n_users)

    def _dim(self) -> int:
        """512 on a GPU; on a CPU what keeps a training short."""
        if "dim" not in self.wanted:
            return int(self._given("dim", None))
        if self.device.type == "cuda":
            return 512
        scores = self.train.n_users * self.train.n_items
        return 256 if scores <= 1e8 else 128

    def _epochs(self) -> int:
        return int(self._given("epochs", _EPOCHS))

    # --- trials ----------------------------------------------------------------------------------------

    def _run(self, points: Sequence[Point], keep: bool = False) -> list[Any]:
        """Train and score these; together on a GPU. Matrices are kept only where that is asked for."""
        jobs = [self._job(point) for point in points]
        before = self.clock.seconds
        found = fit_many(jobs, self.judge, engine=self.parameters["engine"], progress=False)
        seconds = (self.clock.seconds - before) / max(len(points), 1)
        for point, result in zip(points, found, strict=True):
            failed = isinstance(result, TrainingError)
            score = float("-inf") if failed or result.score is None else result.score
            self.trials.append(Trial(point, score, 0 if failed else _last_good(result), seconds))
            self._say(f"temperature {point.temperature:g}, popularity {point.popularity:g}, dim {point.dim}, "
                      f"{point.epochs} epochs: {self.judge.metric} {score:.4f} ({seconds:.1f} s)")  # fmt: skip
        return found if keep else []

    def _job(self, point: Point) -> Job:
        every = max(1, point.epochs // 8) if point.epochs == self._epochs() else point.epochs
        own = {**self.parameters, **point._asdict(), "learning_rate": self.rate, "stop_after": None,
               "validate_every": every, "patience": None}  # fmt: skip
        encoder, loss, sampler, settings = parts_of(own, len(self.train), self.train.n_users)
        return Job(encoder, loss, sampler, self.train, settings)

    def _known(self) -> dict[Point, float]:
        return {trial.point: trial.score for trial in self.trials}

    def _best(self, points: Sequence[Point]) -> Point:
        known = self._known()
        return max((p for p in points if p in known), key=lambda p: known[p])

    def _is_better(self, one: Point, other: Point) -> bool:
        known = self._known()
        return known[one] > _BETTER * known[other]

    def _has_time(self, share: float) -> bool:
        limit = self.clock.limit
        return limit is None or self.clock.seconds < share * limit

    def _say(self, text: str) -> None:
        if self.progress:
            print(f"automatic settings: {text}", file=sys.stderr)


def _last_good(result: FitResult) -> int:
    """The last epoch, unless an earlier one is clearly better: then the best one."""
    scores = {record.epoch: record.score for record in result.history if record.score is not None}
    last, best = max(scores), max(scores, key=lambda epoch: scores[epoch])
    return best if scores[best] > _CLEARLY * scores[last] else last


def _rounded(temperature: float) -> float:
    """Three digits: what is printed repeats the run."""
    return float(f"{temperature:.3g}")
