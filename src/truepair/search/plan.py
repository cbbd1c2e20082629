"""The plan of a search for settings: short runs climb, a full run chooses the epoch and the blend."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.distributed.cost import step_work
from truepair.errors import StorageError, TrainingError
from truepair.evaluation import Validation
from truepair.models.factor_matrices import dense
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.recommender.holdout import cut_in_time
from truepair.sampling import Full
from truepair.search.blend_choice import (
    FEWEST_SOLVED,
    MOST_ITEMS,
    Judge,
    choose_blend,
    ranking_work,
    regularisation_work,
)
from truepair.search.settings_file import SettingsFile
from truepair.search.trend_choice import choose_trend
from truepair.search.trials import Trial
from truepair.spec import SEARCHED, Spec
from truepair.spec.defaults import default_batch_size
from truepair.training import FitResult, Job, fit, fit_many

FIRST_PLACE, FIRST_POPULARITY = 4, 0.8  # the middle of what datasets had: temperature .2
_WIDE, _STEP, _POPULARITY = 4, 2, 0.4  # steps: a factor of 2 in temperature, one of √2, one in popularity
_WIDE_PLACES, _PLACES = (-4, 12), (-8, 17)  # temperatures .05 to .8 in wide steps, .025 to 1.9 in all
_MOST_POPULARITY = 2.0
_BETTER = 1.002  # the ratio of scores of a step that is worth it


class Point(NamedTuple):
    """What a trial is about; `place` gives the temperature, .1 · 2^(place / 4), unless that is given."""

    place: int
    popularity: float
    dim: int
    epochs: int


def climb(
    first: Point,
    wanted: Collection[str],
    most: int,
    run: Callable[[Sequence[Point]], object],
    scores: Mapping[Point, float],
    is_late: Callable[[], bool] = lambda: False,
) -> Point:
    """Run points, and return the best: a wide row of temperatures, then steps to better neighbours.

    wanted   "temperature", "popularity", or both
    most     runs that may be made; the first row of temperatures is always made
    scores   of all points so far; `run` adds those of its points, as far as there is time
    is_late  whether the time of the climb is used up
    """
    row = [first]
    if "temperature" in wanted:
        row += [first._replace(place=first.place - _WIDE), first._replace(place=first.place + _WIDE)]
    run(row)
    made, best = len(row), _best(row, scores)
    # temperatures by factors of 2; the row grows as long as its last one is the best
    while "temperature" in wanted and made < most and not is_late():
        low, high = min(row).place, max(row).place
        further = best.place + (_WIDE if best.place == high else -_WIDE)
        if low < best.place < high or not _WIDE_PLACES[0] <= further <= _WIDE_PLACES[1]:
            break
        row.append(best._replace(place=further))
        run(row[-1:])
        made, best = made + 1, _best(row, scores)
    while (around := _around(best, wanted, scores)[: max(0, most - made)]) and not is_late():
        run(around)
        made += len(around)
        found = _best([best, *around], scores)
        if scores[found] <= _BETTER * scores[best]:
            break
        best = found
    return best


def _best(points: Sequence[Point], scores: Mapping[Point, float]) -> Point:
    """Of those that were run; there may be no time for the last ones."""
    return max(filter(scores.__contains__, points), key=scores.__getitem__)


def _around(point: Point, wanted: Collection[str], scores: Mapping[Point, float]) -> list[Point]:
    """Neighbours without a score, those in popularity first.

    Temperatures are lower and higher ones; only on the better side where both are known from afar.
    """
    found, steps = list[Point](), [_STEP, -_STEP]
    if "popularity" in wanted:
        for change in (_POPULARITY, -_POPULARITY):
            found.append(point._replace(popularity=round(point.popularity + change, 3)))
    if "temperature" in wanted:
        best_at = dict[int, float]()  # of any popularity
        for other, score in scores.items():
            best_at[other.place] = max(score, best_at.get(other.place, score))
        low, high = best_at.get(point.place - _WIDE), best_at.get(point.place + _WIDE)
        if low is not None and high is not None:
            steps = [_STEP if high >= low else -_STEP]
        for step in steps:
            found.append(point._replace(place=point.place + step))
    allowed, places = list[Point](), range(_PLACES[0], _PLACES[1] + 1)
    for each in found:
        if each.place in places and 0 <= each.popularity <= _MOST_POPULARITY and each not in scores:
            allowed.append(each)
    return allowed


_RATE, _EPOCHS = 0.01, 40  # of the full run
_SHORT_DIM, _SHORT_STEPS = 64, 400
_SHORT_EPOCHS = (5, 14)  # at least, at most
_SHORT_SHARE = 0.35  # of the full run's epochs, and of a budget, at most
_MOST_SHORT = 9  # short runs
_MOST_WORK = 2.5  # of the search, in trainings of the full size; by the clock 3 at most
_DIMS = (512, 256, 128, 64)
_MOST_BYTES = 3e9  # of all vectors in training, on a CPU
_BYTES = 24  # of a number of a vector in training: its gradient, Adam's two, and the best so far
_FEWER = 0.6  # of the full run's epochs: before a budget makes it narrower
_CLEARLY = 1.02  # a ratio of scores: a reason to leave the plan
_SOLVING = 4e-11  # seconds of EASE for each cube of items, on two cores


class Stopwatch:
    """The time since it was made, after `used` seconds of earlier, and what is left of a limit."""

    def __init__(self, limit: float | None, used: float = 0.0) -> None:
        self.limit, self._began = limit, time.perf_counter() - used

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a limit."""
        return float("inf") if self.limit is None else self.limit - self.seconds

    def is_late(self) -> bool:
        """Whether the short runs have used up their part of the limit."""
        return self.limit is not None and self.seconds > _SHORT_SHARE * self.limit


class RunSize(NamedTuple):
    """The data of a run, and the users of a step."""

    n_users: int
    n_items: int
    n_pairs: int
    batch: int
    columns: int | None = None  # of the catalogue that a step compares with; None: all

    @staticmethod
    def of(spec: Spec, data: Interactions) -> RunSize:
        """The size of a run on these interactions."""
        assert isinstance(spec.sampler, Full)  # nothing else is searched
        batch = spec.settings_for(len(data), data.n_users).batch_size
        return RunSize(data.n_users, data.n_items, len(data), batch, spec.sampler.columns_of(data.n_items))


def training_work(size: RunSize, dim: int, epochs: int) -> float:
    """Counted work of full-catalogue training in the unit of `step_work`, so that no clock has a say.

    What LightGCN adds is left out: it makes a short run cheaper beside a full one.
    """
    steps = -(-size.n_users // size.batch)
    return epochs * steps * step_work(*size[:4], dim, size.columns)


def largest_dim(device: torch.device, n_users: int, n_items: int) -> int:
    """The largest dimension that the memory of a GPU holds; on a CPU what keeps a training short."""
    if device.type == "cuda":
        most, limit = _DIMS[0], torch.cuda.mem_get_info(device)[0] / 2
    else:
        n_scores = n_users * n_items
        most, limit = 256 if n_scores <= 1e8 else 128 if n_scores <= 1e10 else 64, _MOST_BYTES
    most = min(most, int(limit / (_BYTES * (n_users + n_items))))
    return next((dim for dim in _DIMS if dim <= most), _DIMS[-1])


class SettingsSearch:
    """One search: after its `run`, `chosen`, `blend` and `trend` are known.

    part    what it learns from and is judged by
    whole   what the model will learn from: the train part, or all of which `users` are a sample
    chosen  fields of the encoder, of the settings and of the spec
    blend, trend
            facts about their choice, if there was one
    file    keeps its short runs, and the checkpoint of the full one
    """

    def __init__(
        self,
        spec: Spec,
        part: Split,
        whole: Interactions,
        clock: Stopwatch,
        progress: bool = False,
        tables: FeatureTables = NO_TABLES,
        users: Codes | None = None,
        file: SettingsFile | None = None,
    ) -> None:
        assert part.valid is not None
        self.train, self.valid, self.clock, self.progress = part.train, part.valid, clock, progress
        self.tables, self.users, self.file = tables, users, file
        self.judge = Validation(self.valid, self.train, spec.metric)
        self.n_judged = int((self.valid.user_counts > 0).sum())
        self.spec = spec if users is None else _of_sample(spec, self.train, whole.n_users)
        self.size, self.whole_size = RunSize.of(self.spec, self.train), RunSize.of(spec, whole)
        self.device = spec.settings.torch_device()
        self.chosen: dict[str, object] = {}
        self.blend: dict[str, object] | None = None
        self.trend: dict[str, object] | None = None
        self.wanted, self.cut = set(spec.searched), cut_in_time(part)
        if self.cut is None:  # what is judged is not the future
            self.wanted -= {"trend"}
        if "blend" in self.wanted and self.train.n_items > MOST_ITEMS:
            self.wanted -= {"blend"}
            self.blend = {"skipped": f"EASE has a number for each two of {self.train.n_items:,} items"}
        has_own_rate = not spec.given_rate and not self.wanted <= {"blend", "trend"}
        self.rate = {"learning_rate": _RATE} if has_own_rate else {}
        self.epochs = _EPOCHS if "epochs" in self.wanted else spec.settings.epochs
        self.full_dim = spec.trained.dim
        if "dim" in self.wanted:
            self.full_dim = largest_dim(self.device, whole.n_users, whole.n_items)
        self.most_work = _MOST_WORK * training_work(self.whole_size, self.full_dim, self.epochs)
        self.spent = 0.0  # counted work
        self.begun: Point | None = None  # the full run of an interrupted search with a budget
        self.trials: dict[Point, Trial] = {}
        self.scores: dict[Point, float] = {}
        self.most_runs = 0  # once it is known
        self.epoch_seconds: list[float] = []  # the shortest epoch of each run
        # what was run, also by an interrupted search: it is not run again
        self.kept: dict[tuple[object, ...], Trial] = {}

    # --- the plan --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the plan."""
        if not self.wanted:
            return
        point = self._short()
        if self.clock.limit is not None:
            point = self._timed(point, self.clock.limit)
        if {"temperature", "popularity"} & self.wanted:
            coming = self._work(point._replace(dim=self.full_dim, epochs=self.epochs))
            allowed = self.most_work - self.spent - coming
            if "blend" in self.wanted:
                allowed -= FEWEST_SOLVED * regularisation_work(self.train, self.valid)
            most = min(int(allowed / self._work(point)), _MOST_SHORT)
            self.most_runs = len(self.trials) + max(most, 3) + 1
            point = climb(point, self.wanted, most, self._try_points, self.scores, self.clock.is_late)
        full = self.begun or self._full(point)
        if self.clock.limit is not None and full is not None and self.file is not None:
            self.file.keep_runs(self.kept, full)  # the clock would choose another one
        if full is None:  # no time for a run that judges
            self.chosen = self._values(self._in_time(self.trials[self._best()]))
        elif not {"epochs", "blend", "trend"} & self.wanted:  # nothing is left to judge
            self.chosen = self._values(Trial(0, self._parameters(full), None, full.epochs, "complete"))
        else:
            checkpoint = None if self.file is None else self.file.full_run
            fitted: FitResult | TrainingError | None = self._run([full], checkpoint)[0]
            self._add(full)
            best = self._best()
            if isinstance(fitted, TrainingError) or self.scores[best] > _CLEARLY * self.scores[full]:
                self.chosen = self._values(self.trials[best])
                if "blend" in self.wanted:
                    self.blend = {"skipped": "a short run is better than the full one"}
                fitted = self._run([best])[0] if "trend" in self.wanted else None
            else:
                self.chosen = self._values(self.trials[full])
            if isinstance(fitted, FitResult) and {"blend", "trend"} & self.wanted:
                self._choose_additions(fitted, self.trials[full])

    def _short(self) -> Point:
        """A short run with the middle of what datasets had, or with what is given."""
        steps = -(-self.train.n_users // self.size.batch)
        fewest, most = _SHORT_EPOCHS
        share = max(1, round(_SHORT_SHARE * self.epochs))
        epochs = min(max(round(_SHORT_STEPS / steps), fewest), most, share)
        encoder = self.spec.trained
        popularity = FIRST_POPULARITY if "popularity" in self.wanted else encoder.popularity
        dim = _SHORT_DIM if "dim" in self.wanted else min(_SHORT_DIM, encoder.dim)
        return Point(FIRST_PLACE, popularity, dim, epochs)

    def _timed(self, point: Point, limit: float) -> Point:
        """The short run with as many epochs as suit the limit: how long does one take?"""
        if len(self.kept) > 1:  # of an interrupted search: the same runs again
            return point._replace(epochs=max(trial.parameters["epochs"] for trial in self.kept.values()))
        probe = point._replace(epochs=min(2, point.epochs))
        self._try_points([probe])
        return point._replace(epochs=max(1, min(point.epochs, int(0.05 * limit / self._epoch_seconds()))))

    def _epoch_seconds(self) -> float:
        """The median time of an epoch of a short run, without the compilation before a first one."""
        known = [trial.seconds / trial.parameters["epochs"] for trial in self.trials.values()]
        return float(statistics.median(self.epoch_seconds or known))

    def _full(self, point: Point) -> Point | None:
        """The full run: wider and longer, at a temperature one place lower; None if time is short.

        With a budget, it is as wide as lets it run twice, on held-out pairs and on everything, for most of
        its epochs.
        """
        full = Point(point.place - 1, point.popularity, self.full_dim, self.epochs)
        if self.clock.limit is None:
            return full
        per_epoch = self._epoch_seconds()
        runs = 1.1 * (1 + self._times_longer(point.dim))  # this one, and the one on everything
        dims = [dim for dim in _DIMS if dim <= self.full_dim] if "dim" in self.wanted else [self.full_dim]
        fewest = _FEWER if "epochs" in self.wanted else 1.0
        for dim in dims:
            seconds = per_epoch * training_work(self.size, dim, 1) / training_work(self.size, point.dim, 1)
            epochs = min(full.epochs, int(self.clock.left / (runs * seconds)))
            if epochs >= fewest * full.epochs:
                return full._replace(dim=dim, epochs=epochs)
        if "epochs" in self.wanted and epochs > point.epochs:
            return full._replace(dim=dims[-1], epochs=epochs)
        return None

    def _in_time(self, trial: Trial) -> Trial:
        """The trial with as many epochs as there is time for."""
        epochs, own = self.epochs, trial.parameters
        if "epochs" in self.wanted:
            per_epoch = trial.seconds / own["epochs"] * self._times_longer(own["dim"])
            epochs = max(1, min(int(self.clock.left / per_epoch), epochs))
        return replace(trial, parameters={**own, "epochs": epochs}, epoch=epochs)

    def _best(self) -> Point:
        best = max(self.scores, key=self.scores.__getitem__)
        if self.trials[best].score is None:
            raise TrainingError(list(self.trials.values())[-1].why)
        return best

    def _values(self, trial: Trial) -> dict[str, object]:
        """What is wanted of a trial; its rate, if none was given."""
        found = {name: trial.parameters[name] for name in SEARCHED[:4] if name in self.wanted} | self.rate
        if "epochs" in self.wanted and trial.epoch != trial.parameters["epochs"]:
            found["stop_after"] = trial.epoch
        return found

    def _choose_additions(self, fitted: FitResult, last: Trial) -> None:
        """Add the blend and the trend to what was chosen, where they are better."""
        seed = self.spec.settings.seed
        judge = Judge.of(self.train, self.valid, self.judge.metric, seed, self.device)
        users, items = dense("users", fitted.users), dense("items", fitted.items)
        scores = judge.trained_scores(users, items)
        if "blend" in self.wanted and self.blend is None:
            scores = self._choose_blend(judge, scores, last)
        if "trend" in self.wanted:
            self._choose_trend(judge, scores, items[:, : fitted.job.encoder.dim])  # no column of popularity

    def _choose_trend(self, judge: Judge, scores: Tensor, items: Tensor) -> None:
        """Add the trend to what was chosen, if it is better."""
        assert self.cut is not None
        found = choose_trend(judge, scores, items, self.train.log, self.cut)
        self.trend = {
            "alone": found.alone, "with trend": found.with_trend,
            "twice as popular lately": f"{found.doubled:.2g} times as likely",
        }  # fmt: skip
        no_gain = "" if found.trend else "; the gain is not larger than its error, so it is not used"
        self._say(f"with the trend {self.judge.metric} {found.alone:.4f} -> {found.with_trend:.4f}{no_gain}")
        if found.trend is not None:
            self.chosen["trend"] = found.trend

    def _choose_blend(self, judge: Judge, own: Tensor, last: Trial) -> Tensor:
        """Add the blend with EASE to what was chosen, if it is better; the scores with it."""
        left = self.clock.left - 1.1 * last.seconds * self._times_longer(last.parameters["dim"])
        most = int((self.most_work - self.spent) / regularisation_work(self.train, self.valid))
        has_time = left >= 3 * _SOLVING * self.train.n_items**3
        if not has_time or most < FEWEST_SOLVED:
            why = "EASE takes long beside the training" if has_time else "the budget leaves no time for it"
            self.blend = {"skipped": why}
            return own
        found = choose_blend(judge, own, self.train, last.parameters["temperature"], left, most)
        self.blend = {"alone": found.alone, "blended": found.blended, "tried": found.tried}
        no_gain = "" if found.ease else "; the gain is not larger than its error, so it is not used"
        self._say(f"with EASE {self.judge.metric} {found.alone:.4f} -> {found.blended:.4f}{no_gain}")
        if found.ease is not None:
            self.chosen |= {"blend": found.ease, "blend_weight": found.weight}
        return found.scores

    # --- work ------------------------------------------------------------------------------------------

    def _work(self, point: Point) -> float:
        """Counted, of a trial with its validations."""
        validations = -(-point.epochs // _validate_every(point.epochs))
        judged = ranking_work(self.n_judged, self.train.n_items, point.dim)
        return training_work(self.size, point.dim, point.epochs) + validations * judged

    def _times_longer(self, dim: int) -> float:
        """How many times as long an epoch takes on everything, by the counted work."""
        return training_work(self.whole_size, dim, 1) / training_work(self.size, dim, 1)

    # --- trials ----------------------------------------------------------------------------------------

    def _try_points(self, points: Sequence[Point]) -> None:
        """Run short runs: together on a GPU; else one after the other, as long as there is time."""
        together = self.clock.limit is None and self.device.type != "cpu"
        for some in [points] if together else [[point] for point in points]:
            if some[0] != points[0] and self.clock.is_late():
                break
            if new := [
                point
                for point in some
                if point not in self.kept or self.kept[point].parameters != self._parameters(point)
            ]:
                self._run(new)
                if self.file is not None:
                    self.file.keep_runs(self.kept)
            for point in some:
                self._add(point)

    def _run(
        self, points: Sequence[Point], checkpoint: Path | None = None
    ) -> list[FitResult | TrainingError]:
        """Run these points; with a checkpoint, one point that goes on from it."""
        began, jobs = self.clock.seconds, [self._job(point) for point in points]
        if checkpoint is None:
            found = fit_many(jobs, self.judge, engine=self.spec.engine)
        else:
            found = [_resumed(jobs[0], self.judge, self.spec.engine, checkpoint)]
        seconds = (self.clock.seconds - began) / len(points)
        for point, result in zip(points, found, strict=True):
            own = self._parameters(point)
            if isinstance(result, TrainingError):
                trial = Trial(0, own, None, point.epochs, "failed", str(result), seconds=seconds)
            else:
                self.epoch_seconds.append(min([record.seconds for record in result.history]))
                epoch, score = _last_good(result)
                trial = Trial(0, own, score, epoch, "complete", seconds=seconds)
            self.kept[point] = trial
        return found

    def _job(self, point: Point) -> Job:
        every = _validate_every(point.epochs)
        own = self.spec.varied(**self._parameters(point), **self.rate, patience=None, validate_every=every)
        return own.job(self.train, encoder=self.tables.given_to(own.trained, self.users))

    def _add(self, point: Point) -> None:
        """Count a run of this search, or of the one that was interrupted."""
        trial = self.trials[point] = self.kept[point]
        self.scores[point] = -1.0 if trial.score is None else trial.score
        self.spent += self._work(point)
        if self.progress:
            number = f"run {len(self.trials)}" + (f" of at most {self.most_runs}" if self.most_runs else "")
            what = ", ".join(f"{name} {value:g}" for name, value in trial.parameters.items())
            came = trial.why or f"{self.judge.metric} {trial.score:.4f}"
            self._say(f"{number}: {what}: {came}; {self._left()}")

    def _left(self) -> str:
        """How long the search and the training that follows may take, by the counted work."""
        work = self.most_work - self.spent + training_work(self.whole_size, self.full_dim, self.epochs)
        longest = min(self.clock.left, max(0.0, work) * self.clock.seconds / self.spent)
        return f"done in {longest:,.0f} s at most"

    def _parameters(self, point: Point) -> dict[str, float]:
        """What a trial has of its own; the temperature has three digits: what is printed repeats the run."""
        temperature = self.spec.trained.temperature
        if "temperature" in self.wanted:
            temperature = float(f"{0.1 * 2 ** (point.place / 4):.3g}")
        _, popularity, dim, epochs = point
        return {"temperature": temperature, "popularity": popularity, "dim": dim, "epochs": epochs}

    def _say(self, text: str) -> None:
        if self.progress:
            print(f"automatic settings: {text}", file=sys.stderr)


def _resumed(job: Job, judge: Validation, engine: str, checkpoint: Path) -> FitResult | TrainingError:
    """A run that goes on from its checkpoint; one of another run is replaced."""
    try:
        return fit(job, judge, engine=engine, checkpoint=checkpoint)
    except StorageError:
        if not checkpoint.exists():
            raise
        checkpoint.unlink()
        return _resumed(job, judge, engine, checkpoint)
    except TrainingError as error:
        return error


def _of_sample(spec: Spec, train: Interactions, n_users: int) -> Spec:
    """What the runs of a sample have of their own: a part of a given block, and Adam's state at hand."""
    batch = spec.batch_size
    if batch is not None:
        default = default_batch_size(spec.sampler, len(train), train.n_users)
        batch = max(batch * train.n_users // n_users, min(batch, default))
    return spec.varied(batch_size=batch, optimizer_state="device")


def _validate_every(epochs: int) -> int:
    """Eight times in a full run, once in a short one."""
    return max(1, epochs // 8) if epochs >= _EPOCHS else epochs


def _last_good(result: FitResult) -> tuple[int, float]:
    """The last epoch and its score, unless an earlier one is clearly better: then the best one."""
    scores = {record.epoch: record.score for record in result.history if record.score is not None}
    last, best = max(scores), max(scores, key=scores.__getitem__)
    epoch = best if scores[best] > _CLEARLY * scores[last] else last
    return epoch, scores[epoch]
