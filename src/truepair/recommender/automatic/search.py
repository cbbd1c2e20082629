"""The search for automatic settings: short runs climb, a full run chooses the epoch and the blend."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import TrainingError
from truepair.evaluation import Validation
from truepair.models.factor_matrices import dense
from truepair.recommender.automatic.blend_choice import (
    FEWEST_SOLVED,
    MOST_ITEMS,
    choose_blend,
    regularisation_work,
    solving_seconds,
)
from truepair.recommender.automatic.budget import Stopwatch
from truepair.recommender.automatic.climb import FIRST_PLACE, FIRST_POPULARITY, Climb, Point
from truepair.recommender.automatic.work import RunSize, ranking_work, training_work
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.sampling import Full
from truepair.spec import SEARCHED, Spec
from truepair.spec.defaults import default_batch_size
from truepair.training import FitResult, Job, fit_many

_RATE, _EPOCHS = 0.01, 40  # of the full run
_SHORT_DIM, _SHORT_STEPS = 64, 400
_SHORT_EPOCHS = (5, 14)  # at least, at most
_SHORT_SHARE = 0.35  # of the full run's epochs, at most
_MOST_SHORT = 9  # short runs
_MOST_WORK = 2.5  # of the search, in trainings of the full size; by the clock 3 at most
_DIMS = (512, 256, 128, 64)
_FEWER_SCORES = ((1e8, 256), (1e10, 128), (float("inf"), 64))  # the dimension on a CPU, by users x items
_MOST_BYTES = 3e9  # of all vectors in training, on a CPU
_BYTES = 24  # of a number of a vector in training: its gradient, Adam's two, and the best so far
_CLEARLY = 1.02  # a ratio of scores: a reason to leave the plan


@dataclass(frozen=True)
class ShortRun:
    """A trial: its score on the held-out pairs, and the epoch to stop after."""

    point: Point
    temperature: float
    score: float
    epoch: int
    seconds: float

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        _, popularity, dim, epochs = self.point
        return {
            "temperature": self.temperature, "popularity": popularity, "dim": dim, "epochs": epochs,
            "stop_after": self.epoch, "score": round(self.score, 6) if self.score >= 0 else None,
            "seconds": round(self.seconds, 3),
        }  # fmt: skip


class SettingsSearch:
    """One search; `result` runs it.

    part   what it learns from and is judged by
    users  whose pairs these are, and `whole` what the model will learn from; None: all, and `part`
    """

    def __init__(
        self,
        spec: Spec,
        part: Split,
        clock: Stopwatch,
        progress: bool,
        tables: FeatureTables = NO_TABLES,
        users: Codes | None = None,
        whole: Interactions | None = None,
    ) -> None:
        assert part.valid is not None
        self.spec, self.wanted, self.clock, self.progress = spec, spec.searched, clock, progress
        self.tables, self.users, self.train, self.valid = tables, users, part.train, part.valid
        self.judge = Validation(self.valid, self.train, spec.metric)
        whole = part.train if whole is None else whole
        self.n_users, self.whole_size = whole.n_users, self._size(len(whole), whole.n_users)
        if users is not None:
            self.spec = self._of_sample(spec)
        self.size = self._size(len(self.train), self.train.n_users)
        self.device = spec.settings.torch_device()
        self.trials: list[ShortRun] = []
        self.failure: TrainingError | None = None
        self.blend: dict[str, Any] | None = None
        if "blend" in self.wanted and self.train.n_items > MOST_ITEMS:
            self.wanted = tuple(name for name in self.wanted if name != "blend")
            self.blend = {"skipped": f"EASE has a number for each two of {self.train.n_items:,} items"}

    def _of_sample(self, spec: Spec) -> Spec:
        """What the runs of a sample have of their own: a part of a given block, and Adam's state at hand."""
        batch = spec.batch_size
        if batch is not None:
            default = default_batch_size(spec.sampler, len(self.train), self.train.n_users)
            batch = max(batch * self.train.n_users // self.n_users, min(batch, default))
        return spec.varied(batch_size=batch, optimizer_state="device")

    # --- the plan --------------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """What was chosen: fields of the encoder, of the settings and of the spec."""
        if not self.wanted:
            return {}
        point = self._first()
        if {"temperature", "popularity"} & set(self.wanted):
            point = self._climbed(point)
        full = self._full(point)
        if full is None:  # no time for a run that judges
            return self._as_parameters(self._in_time(self._best_trial()))
        if not {"epochs", "blend"} & set(self.wanted):  # nothing is left to judge
            return self._as_parameters(ShortRun(full, self._temperature(full), 0.0, full.epochs, 0.0))
        (fitted,) = self._run([full])
        last, best = self.trials[-1], self._best_trial()
        if best.score > _CLEARLY * last.score:
            self.blend = (
                {"skipped": "a short run is better than the full one"} if "blend" in self.wanted else None
            )
            return self._as_parameters(best)
        assert isinstance(fitted, FitResult)
        return self._as_parameters(last) | (self._blended(fitted) if "blend" in self.wanted else {})

    def _best_trial(self) -> ShortRun:
        best = max(self.trials, key=lambda trial: trial.score)
        if best.score < 0:
            raise self.failure or TrainingError("no run on held-out pairs has a score; set temperature.")
        return best

    def _in_time(self, trial: ShortRun) -> ShortRun:
        """The trial with as many epochs as there is time for."""
        per_epoch = trial.seconds / trial.point.epochs * self._times_longer(trial.point)
        most = self._fixed("epochs", _EPOCHS)
        epochs = max(1, min(int(self.clock.left / per_epoch), most)) if "epochs" in self.wanted else most
        return replace(trial, point=trial.point._replace(epochs=epochs), epoch=epochs)

    def _first(self) -> Point:
        """A short run with the middle of what datasets had, or with what is given."""
        steps = -(-self.train.n_users // self.size.batch)
        fewest, most = _SHORT_EPOCHS
        share = max(1, round(_SHORT_SHARE * self._fixed("epochs", _EPOCHS)))
        epochs = min(max(round(_SHORT_STEPS / steps), fewest), most, share)
        dim = min(_SHORT_DIM, self._fixed("dim", _SHORT_DIM))
        first = Point(FIRST_PLACE, self._fixed("popularity", FIRST_POPULARITY), dim, epochs)
        if self.clock.limit is None:
            return first
        share, probe = 0.05 * self.clock.limit, first._replace(epochs=1)
        self._run([probe])  # how long does an epoch take?
        if share / epochs < self.trials[0].seconds < 2 * share:
            self._run([probe])  # the first one may compile
        return first._replace(epochs=max(1, min(epochs, int(share / self.trials[-1].seconds))))

    def _climbed(self, point: Point) -> Point:
        """The best of as many short runs as the counted work allows."""
        allowed = self._work_left() - self._work(self._full_size(point))
        if "blend" in self.wanted:
            allowed -= FEWEST_SOLVED * regularisation_work(self.train, self.valid)
        most = min(int(allowed / self._work(point)), _MOST_SHORT)
        return Climb(self._run, self._scores, self._is_late, self.wanted, most).top(point)

    def _full(self, point: Point) -> Point | None:
        """The full run: wider and longer, at a temperature one place lower; None if time is short.

        With a budget, it is as wide as lets it run twice, on held-out pairs and on everything.
        """
        full = self._full_size(point)
        if self.clock.limit is None:
            return full
        timed = self.trials[1:] or self.trials  # the first one may compile
        per_epoch = max(trial.seconds / trial.point.epochs for trial in timed)
        runs = 1.1 * (1 + self._times_longer(point))  # this one, and the one on everything
        chosen = "dim" in self.wanted
        dims = [dim for dim in _DIMS if dim <= self.full_dim] if chosen else [self.full_dim]
        for dim in dims:
            seconds = per_epoch * max(1.0, dim / point.dim)  # rather too much
            if runs * full.epochs * seconds <= self.clock.left:
                return full._replace(dim=dim)
        fewer = int(self.clock.left / (runs * seconds))
        if "epochs" in self.wanted and fewer > point.epochs:
            return full._replace(dim=dims[-1], epochs=fewer)
        return None

    def _full_size(self, point: Point) -> Point:
        """The full run where time is no limit."""
        return Point(point.place - 1, point.popularity, self.full_dim, self._fixed("epochs", _EPOCHS))

    def _blended(self, fitted: FitResult) -> dict[str, Any]:
        """The blend with EASE, if it is better."""
        last = self.trials[-1]
        left = self.clock.left - 1.1 * last.seconds * self._times_longer(last.point)
        if left < 3 * solving_seconds(self.train.n_items):
            self.blend = {"skipped": "the budget leaves no time for it"}
            return {}
        most = int(self._work_left() / regularisation_work(self.train, self.valid))
        if most < FEWEST_SOLVED:
            self.blend = {"skipped": "EASE takes long beside the training"}
            return {}
        users, items = dense("users", fitted.users), dense("items", fitted.items)
        found = choose_blend(
            users, items, self.train, self.valid, self.judge.metric, self.trials[-1].temperature,
            self.spec.settings.seed, self.device, left, most,
        )  # fmt: skip
        self.blend = {"alone": found.alone, "blended": found.blended, "tried": found.tried}
        no_gain = "" if found.ease else "; the gain is not larger than its error, so it is not used"
        self._say(f"with EASE {self.judge.metric} {found.alone:.4f} -> {found.blended:.4f}{no_gain}")
        return {} if found.ease is None else {"blend": found.ease, "blend_weight": found.weight}

    @property
    def _has_own_rate(self) -> bool:
        return not self.spec.given_rate and set(self.wanted) != {"blend"}

    def _as_parameters(self, trial: ShortRun) -> dict[str, Any]:
        """What is asked for of a trial; its rate, if none was given."""
        values = trial.facts()
        found = {name: values[name] for name in SEARCHED if name in self.wanted and name in values}
        if self._has_own_rate:
            found["learning_rate"] = _RATE
        if "epochs" in self.wanted and trial.epoch < trial.point.epochs:
            found["stop_after"] = trial.epoch
        return found

    # --- sizes and time --------------------------------------------------------------------------------

    def _fixed(self, name: str, default: Any) -> Any:
        """The given value, or the default of what is chosen."""
        if name in self.wanted:
            return default
        return getattr(self.spec.settings if name == "epochs" else self.spec.encoder, name)

    @cached_property
    def full_dim(self) -> int:
        """The given one; the largest on a GPU that its memory holds; on a CPU what keeps a training short."""
        if "dim" not in self.wanted:
            return int(self._fixed("dim", 0))
        rows = self.n_users + self.train.n_items
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            return next((dim for dim in _DIMS if _BYTES * dim * rows <= free / 2), _DIMS[-1])
        short = next(dim for most, dim in _FEWER_SCORES if self.n_users * self.train.n_items <= most)
        return next((dim for dim in _DIMS if dim <= short and _BYTES * dim * rows <= _MOST_BYTES), _DIMS[-1])

    def _size(self, n_pairs: int, n_users: int) -> RunSize:
        sampler, n_items = self.spec.sampler, self.train.n_items
        assert isinstance(sampler, Full)  # nothing else is searched
        batch = self.spec.settings_for(n_pairs, n_users).batch_size
        return RunSize(n_users, n_items, n_pairs, batch, sampler.columns_of(n_items))

    def _times_longer(self, point: Point) -> float:
        """How many times as long an epoch takes on everything, by the counted work."""
        whole, own = (training_work(size, point.dim, 1) for size in (self.whole_size, self.size))
        return whole / own

    def _work(self, point: Point) -> float:
        """Counted, of a trial with its validations."""
        n_judged = int((self.valid.user_counts > 0).sum())
        validations = -(-point.epochs // _validate_every(point.epochs))
        judged = ranking_work(n_judged, self.train.n_items, point.dim)
        return training_work(self.size, point.dim, point.epochs) + validations * judged

    def _work_left(self) -> float:
        """Of what the search may do beside one training of the full size on everything."""
        full = training_work(self.whole_size, self.full_dim, self._fixed("epochs", _EPOCHS))
        return _MOST_WORK * full - sum(self._work(trial.point) for trial in self.trials)

    def _is_late(self) -> bool:
        """Whether the short runs have used up their part of the budget."""
        return self.clock.limit is not None and self.clock.seconds > 0.35 * self.clock.limit

    # --- trials ----------------------------------------------------------------------------------------

    def _run(self, points: Sequence[Point]) -> list[FitResult | TrainingError]:
        """Train and score these, together on a GPU; else one after the other, as long as there is time."""
        if len(points) > 1 and (self.clock.limit is not None or self.device.type == "cpu"):
            for place, point in enumerate(points):
                if not (place and self._is_late()):
                    self._run([point])
            return []
        jobs, before = [self._job(point) for point in points], self.clock.seconds
        results = fit_many(jobs, self.judge, engine=self.spec.engine) if jobs else []
        for point, result in zip(points, results, strict=True):
            seconds, temperature = (self.clock.seconds - before) / len(points), self._temperature(point)
            if isinstance(result, TrainingError):
                trial, outcome = ShortRun(point, temperature, -1.0, point.epochs, seconds), str(result)
                self.failure = result
            else:
                epoch, score = _last_good(result)
                trial = ShortRun(point, temperature, score, epoch, seconds)
                outcome = f"{self.judge.metric} {score:.4f}"
            self.trials.append(trial)
            self._say(
                f"temperature {temperature:g}, popularity {point.popularity:g}, dim {point.dim}, "
                f"{point.epochs} epochs: {outcome}"
            )
        return results

    def _job(self, point: Point) -> Job:
        _, popularity, dim, epochs = point
        rate = {"learning_rate": _RATE} if self._has_own_rate else {}
        own = self.spec.varied(
            temperature=self._temperature(point), popularity=popularity, dim=dim, epochs=epochs,
            patience=None, validate_every=_validate_every(epochs), **rate,
        )  # fmt: skip
        return own.job(self.train, encoder=self.tables.given_to(own.trained, self.users))

    def _temperature(self, point: Point) -> float:
        """.1 · 2^(place / 4), to three digits: what is printed repeats the run."""
        if "temperature" not in self.wanted:
            return float(self._fixed("temperature", None))
        return float(f"{0.1 * 2 ** (point.place / 4):.3g}")

    def _scores(self) -> dict[Point, float]:
        return {trial.point: trial.score for trial in self.trials}

    def _say(self, text: str) -> None:
        if self.progress:
            print(f"automatic settings: {text}", file=sys.stderr)


def _validate_every(epochs: int) -> int:
    """Eight times in a full run, once in a short one."""
    return max(1, epochs // 8) if epochs >= _EPOCHS else epochs


def _last_good(result: FitResult) -> tuple[int, float]:
    """The last epoch and its score, unless an earlier one is clearly better: then the best one."""
    scores = {record.epoch: record.score for record in result.history if record.score is not None}
    last, best = max(scores), max(scores, key=lambda epoch: scores[epoch])
    epoch = best if scores[best] > _CLEARLY * scores[last] else last
    return epoch, scores[epoch]
