"""The loop around every engine: validation, the best epoch, patience, checkpoints, progress, divergence."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from truepair.errors import StorageError, TrainingError, check_whole
from truepair.sampling import Matrices
from truepair.storage.atomic import remove_unfinished
from truepair.training.checkpoints import (
    check_epochs,
    check_same_job,
    checked_contents,
    describe_job,
    load_checkpoint,
    save_checkpoint,
)
from truepair.training.job import Job
from truepair.training.progress import Progress, show_progress
from truepair.training.result import EpochRecord, EpochState, FitResult, OnEpoch, StopTraining
from truepair.training.trainer import EpochTotals, Trainer

_LONG = 5.0  # seconds of a checkpoint


def run_to_the_end(run: Run, checkpoint_every: int, progress: bool, keep_start: bool = False) -> FitResult:
    """Train until the epochs or the patience are over. `keep_start`: the result has a `start`."""
    checkpoint_every = check_whole("checkpoint_every", checkpoint_every, 1)
    metric = str(getattr(run.on_epoch, "metric", "validation"))
    epochs, steps = run.last_epoch, run.trainer.steps
    with show_progress(progress, epochs, run.epoch, steps, metric) as bar:
        while not run.is_over():
            run.train_epoch(bar)
            if run.checkpoint is not None and (run.is_over() or run.is_due(checkpoint_every)):
                run.save()
    return run.result(keep_start)


class Run:
    """The state of a run between epochs; goes on from the file `checkpoint` where there is one."""

    def __init__(
        self, job: Job, engine: str, trainer: Trainer, on_epoch: OnEpoch | None, checkpoint: Path | None
    ) -> None:
        self.job, self.engine, self.trainer, self.on_epoch = job, engine, trainer, on_epoch
        self.checkpoint, self.saved = checkpoint, 0  # the epoch that lies in the checkpoint
        self.last_save = (0.0, 0.0)  # when it began, and how long it took
        self.history: list[EpochRecord] = []
        self.best: tuple[int, float, Matrices] | None = None  # epoch, score, matrices
        self.stopped = False  # by `on_epoch`
        if job.start is not None:
            trainer.begin(job.start)
        if checkpoint is not None:
            self.continue_from(checkpoint)

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    @property
    def rate(self) -> float:
        """The learning rate of the epoch that comes."""
        return self.job.settings.learning_rate_at(self.epoch)

    @property
    def last_epoch(self) -> int:
        """The last epoch of the schedule, or an earlier one that `on_epoch` names as its `last_epoch`."""
        return min(self.job.settings.epochs, getattr(self.on_epoch, "last_epoch", self.job.settings.epochs))

    def is_over(self) -> bool:
        """Whether the epochs or the patience are over, or `on_epoch` has ended the run."""
        return self.stopped or self.epoch >= self.last_epoch or self.patience_is_over()

    def train_epoch(self, bar: Progress) -> None:
        """One epoch."""
        began = time.perf_counter()
        totals = self.trainer.train(self.epoch, self.rate, bar.step)
        self.finish_epoch(totals, began)
        bar.epoch(self.history[-1])

    def finish_epoch(self, totals: EpochTotals, began: float) -> None:
        """Check, validate and record an epoch that was trained."""
        n, rate = self.trainer.n_anchors, self.rate
        loss = self.mean_loss(totals.losses, rate)
        clamped = None if totals.clamped is None else totals.clamped / n
        score = self.validate(loss)
        seconds = time.perf_counter() - began
        self.history.append(EpochRecord(self.epoch + 1, loss, clamped, score, rate, seconds))

    def mean_loss(self, losses: Tensor, rate: float) -> float:
        """The mean over the rows, from the sums of the steps; an error with advice if there is none."""
        bad = (~losses.isfinite()).nonzero()
        if len(bad):
            step = int(bad[0, 0])
            raise self.diverged(f"the loss became {float(losses[step])}", step + 1, rate)
        if not self.trainer.is_finite():
            raise self.diverged("a vector became infinite or NaN", self.trainer.steps, rate)
        return float(losses.double().sum()) / self.trainer.n_anchors

    def diverged(self, what: str, step: int, rate: float) -> TrainingError:
        """What happened, where, and what to try."""
        kept = f" {self.checkpoint} holds the run as it was after epoch {self.saved}." if self.saved else ""
        return TrainingError(
            f"{what} at epoch {self.epoch + 1}, step {step} of {self.trainer.steps}, "
            f"with learning rate {rate:g}. Lower learning_rate, or use scoring='cosine', "
            f"which bounds the scores.{kept}"
        )

    def validate(self, loss: float) -> float | None:
        """Ask `on_epoch` for a score where one is due, and keep the best matrices."""
        epoch, settings = self.epoch + 1, self.job.settings
        if self.on_epoch is None or (epoch % settings.validate_every and epoch != self.last_epoch):
            return None
        try:
            score = self.on_epoch(self.state_after(epoch, loss))
        except StopTraining as stop:
            score, self.stopped = stop.score, True
        score = self.agreed(score)
        if score is None:
            return None
        if isinstance(score, str) or not math.isfinite(score):
            raise TrainingError(
                f"the validation score is {score!r} after epoch {epoch}; it must be a number."
            )
        if self.best is None or score > self.best[1]:
            self.best = epoch, float(score), self.kept()
        return float(score)

    def state_after(self, epoch: int, loss: float) -> EpochState:
        """What `on_epoch` sees."""
        return EpochState(epoch, loss, self.trainer.matrices)

    def agreed(self, score: float | None) -> float | None:
        """The score that counts, and whether the run has stopped: a process alone agrees with itself."""
        return score

    def kept(self) -> Matrices:
        """The matrices to keep of the best epoch."""
        return self.trainer.matrices()

    def whole(self, kept: Matrices) -> Matrices:
        """The matrices of a result, from those that were kept."""
        return kept

    def patience_is_over(self) -> bool:
        """Whether the best epoch lies too far back."""
        patience = self.job.settings.patience
        if patience is None or self.best is None or self.history[-1].score is None:
            return False  # between two validations nothing is known
        return self.epoch - self.best[0] >= patience

    def result(self, keep_start: bool = False) -> FitResult:
        """The matrices of the best epoch, or of the last.

        Parameters and moments are those of the last epoch, so a result of an earlier one has no `start`.
        """
        epoch, _, kept = self.best or (self.epoch, 0.0, self.kept())
        users, items = self.whole(kept)
        return FitResult(
            users=users.cpu(),
            items=items.cpu(),
            history=tuple(self.history),
            epoch=epoch,
            score=self.history[epoch - 1].score,
            stopped_early=self.epoch < self.last_epoch,
            job=self.job,
            engine=self.engine,
            n_saturated_users=self.trainer.n_saturated_users,
            start=self.trainer.reached() if keep_start and epoch == self.epoch else None,
        )

    # --- checkpoints -------------------------------------------------------------------------------

    def continue_from(self, path: Path) -> None:
        """Go on from a checkpoint, where there is one."""
        remove_unfinished(path)
        if path.exists():
            self.restore(path)

    def is_due(self, checkpoint_every: int) -> bool:
        """Whether it is time for a checkpoint: those that take long take a tenth of the time at most."""
        began, seconds = self.last_save
        waited = seconds < _LONG or time.perf_counter() - began >= 10 * seconds
        return waited and self.epoch % checkpoint_every == 0

    def save(self) -> None:
        """Write the checkpoint."""
        assert self.checkpoint is not None
        began = time.perf_counter()
        tensors = {f"trainer.{name}": value for name, value in self.trainer.state().items()}
        if self.best is not None:
            tensors |= {"best.users": self.best[2][0], "best.items": self.best[2][1]}
        save_checkpoint(self.checkpoint, tensors, self.facts())
        self.saved, self.last_save = self.epoch, (began, time.perf_counter() - began)

    def facts(self) -> dict[str, Any]:
        """What a checkpoint says beside its tensors."""
        return {
            "job": describe_job(self.job, self.on_epoch) | {"engine": self.engine},
            "history": [asdict(record) for record in self.history],
            "best": None if self.best is None else self.best[:2],
        }

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint of the same job."""
        tensors, facts = load_checkpoint(path)
        job = describe_job(self.job, self.on_epoch) | {"engine": self.engine}
        check_same_job(path, facts["job"], job)
        check_epochs(path, facts, self.job.settings.epochs)
        try:
            contents = checked_contents(tensors, facts, self.job, self.trainer)
            self.trainer.restore(contents.state)
        except (KeyError, ValueError, RuntimeError) as error:
            raise StorageError(
                f"{path} is not a whole checkpoint: {error}. Delete it to start anew."
            ) from error
        self.history, self.best, self.saved = contents.history, contents.best, len(contents.history)
