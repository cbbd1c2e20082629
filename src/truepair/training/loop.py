"""The loop around every engine: validation, the best epoch, patience, checkpoints, progress, divergence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from torch import Tensor

from truepair.errors import StorageError, TrainingError, check_whole
from truepair.sampling import Matrices
from truepair.storage.atomic import remove_unfinished
from truepair.storage.notebook import progress_bar
from truepair.storage.tensor_file import write_tensors
from truepair.storage.types import Json
from truepair.training import checkpoints
from truepair.training.job import EpochTotals, Job, Trainer
from truepair.training.result import EpochRecord, EpochState, FitResult, OnEpoch, StopTraining

_LONG = 5.0  # seconds of a checkpoint


# One epoch of each of these runs at once; the other argument gets the number of steps done.
TrainEpoch = Callable[[Sequence["Run"], Callable[[int], None]], list[EpochTotals]]


def run_to_the_end(
    runs: Sequence[Run],
    train_epoch: TrainEpoch | None,
    progress: bool = False,
    checkpoint_every: int = 1,
    keep_start: bool = False,
) -> list[FitResult | TrainingError]:
    """Train runs at once, each until its epochs or its patience are over. One run needs no `train_epoch`.

    A run that diverges gives its error, and the others continue. `keep_start`: results have a `start`.
    """
    checkpoint_every = check_whole("checkpoint_every", checkpoint_every, 1)
    metric = str(getattr(runs[0].on_epoch, "metric", "validation"))
    metric = metric if len(runs) == 1 else f"{len(runs)} runs, best validation"
    first, epochs = runs[0], max([run.last_epoch for run in runs])
    outcomes: dict[Run, FitResult | TrainingError] = {}
    with show_progress(progress, epochs, first.epoch, first.trainer.steps, metric) as (advance, show):
        while True:
            for run in runs:
                if run not in outcomes and run.is_over():
                    outcomes[run] = run.result(keep_start)
            if not (going := [run for run in runs if run not in outcomes]):
                return [outcomes[run] for run in runs]
            began = time.perf_counter()
            if train_epoch is None:
                all_totals = [first.trainer.train(first.epoch, first.rate, advance)]
            else:
                all_totals = train_epoch(going, advance)
            for run, totals in zip(going, all_totals, strict=True):
                try:
                    run.finish_epoch(totals, began)
                except TrainingError as error:
                    outcomes[run] = error
                    continue
                if run.checkpoint is not None and (run.is_over() or run.is_due(checkpoint_every)):
                    run.save()
            if progress and (record := _latest(runs)):
                show(record)


def _latest(runs: Sequence[Run]) -> EpochRecord | None:
    """For the progress bar: the last epoch of the run that is furthest, with the best score of all."""
    furthest = max(runs, key=lambda run: run.epoch)
    if not furthest.history:
        return None
    best = max((run.best[1] for run in runs if run.best is not None), default=None)
    return furthest.history[-1] if len(runs) == 1 else replace(furthest.history[-1], score=best)


class Run:
    """The state of a run between epochs; goes on from the file `checkpoint` where there is one."""

    def __init__(
        self, job: Job, engine: str, trainer: Trainer, on_epoch: OnEpoch | None, checkpoint: Path | None
    ) -> None:
        self.job, self.engine, self.trainer, self.on_epoch = job, engine, trainer, on_epoch
        self.kept = trainer.matrices  # what is kept of the best epoch
        epochs = job.settings.epochs  # `on_epoch` may end it earlier
        self.last_epoch = min(epochs, getattr(on_epoch, "last_epoch", epochs))
        self.checkpoint, self.saved = checkpoint, 0  # the epoch that lies in the checkpoint
        self.last_save = (0.0, 0.0)  # when it began, and how long it took
        self.history: list[EpochRecord] = []
        self.best: tuple[int, float, Matrices] | None = None  # epoch, score, matrices
        self.network: Callable[[], dict[str, Tensor]] = getattr(trainer, "network", dict)
        self.best_network: dict[str, Tensor] = {}  # of encoders that have one
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

    def is_over(self) -> bool:
        """Whether the epochs or the patience are over, or `on_epoch` has ended the run."""
        if self.stopped or self.epoch >= self.last_epoch:
            return True
        patience = self.job.settings.patience
        if patience is None or self.best is None or self.history[-1].score is None:
            return False  # between two validations nothing is known
        return self.epoch - self.best[0] >= patience

    def finish_epoch(self, totals: EpochTotals, began: float) -> None:
        """Check, validate and record an epoch that was trained."""
        n, losses = self.trainer.n_anchors, totals.losses
        bad = (~losses.isfinite()).nonzero()
        if len(bad):
            step = int(bad[0, 0])
            raise self.diverged(f"the loss became {float(losses[step])}", step + 1)
        if not self.trainer.is_finite():
            raise self.diverged("a vector became infinite or NaN", self.trainer.steps)
        loss = float(losses.double().sum()) / n
        clamped = None if totals.clamped is None else totals.clamped / n
        score = self.validate(loss)
        seconds = time.perf_counter() - began
        self.history.append(EpochRecord(self.epoch + 1, loss, clamped, score, self.rate, seconds))

    def diverged(self, what: str, step: int) -> TrainingError:
        """What happened, where, and what to try."""
        kept = f" {self.checkpoint} holds the run as it was after epoch {self.saved}." if self.saved else ""
        return TrainingError(
            f"{what} at epoch {self.epoch + 1}, step {step} of {self.trainer.steps}, "
            f"with learning rate {self.rate:g}. Lower learning_rate, or use scoring='cosine', "
            f"which bounds the scores.{kept}"
        )

    def validate(self, loss: float) -> float | None:
        """Ask `on_epoch` for a score where one is due, and keep the best matrices."""
        epoch, settings = self.epoch + 1, self.job.settings
        if self.on_epoch is None or (epoch % settings.validate_every and epoch != self.last_epoch):
            return None
        score = self.ask(self.on_epoch, EpochState(epoch, loss, self.trainer.matrices))
        if score is None:
            return None
        if isinstance(score, str) or not math.isfinite(score):
            raise TrainingError(f"the validation score is {score!r} after epoch {epoch}, not a number.")
        if self.best is None or score > self.best[1]:
            self.best, self.best_network = (epoch, float(score), self.kept()), self.network()
        return float(score)

    def ask(self, on_epoch: OnEpoch, state: EpochState) -> float | None:
        """The score by `on_epoch`, which may end the run."""
        try:
            return on_epoch(state)
        except StopTraining as stop:
            self.stopped = True
            return stop.score

    def result(self, keep_start: bool = False) -> FitResult:
        """The matrices of the best epoch, or of the last.

        Parameters and moments are those of the last epoch, so a result of an earlier one has no `start`.
        """
        epoch, _, (users, items) = self.best or (self.epoch, 0.0, self.kept())
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
            network=self.best_network if self.best else self.network(),
            start=self.trainer.reached() if keep_start and epoch == self.epoch else None,
        )

    # --- checkpoints -------------------------------------------------------------------------------

    @property
    def described(self) -> Json:
        """All that the numbers of the run depend on."""
        return checkpoints.describe_job(self.job, self.on_epoch) | {"engine": self.engine}

    def is_due(self, checkpoint_every: int) -> bool:
        """Whether it is time for a checkpoint: those that take long take a tenth of the time at most."""
        began, seconds = self.last_save
        waited = seconds < _LONG or time.perf_counter() - began >= 10 * seconds
        return waited and self.epoch % checkpoint_every == 0

    def save(self) -> None:
        """Write the checkpoint."""
        assert self.checkpoint is not None
        began = time.perf_counter()
        write_tensors(self.checkpoint, checkpoints.KIND, checkpoints.VERSION, self.tensors(), self.facts())
        self.saved, self.last_save = self.epoch, (began, time.perf_counter() - began)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint."""
        tensors = {f"trainer.{name}": value for name, value in self.trainer.state().items()}
        if self.best is not None:
            tensors |= {"best.users": self.best[2][0], "best.items": self.best[2][1]}
            tensors |= {checkpoints.BEST_NETWORK + name: value for name, value in self.best_network.items()}
        return tensors

    def facts(self) -> Json:
        """What a checkpoint says beside its tensors."""
        return {
            "job": self.described,
            "history": [asdict(record) for record in self.history],
            "best": None if self.best is None else self.best[:2],
        }

    def continue_from(self, path: Path) -> None:
        """Go on from a checkpoint of the same job, where there is one."""
        remove_unfinished(path)
        if not path.exists():
            return
        tensors, facts = checkpoints.load_checkpoint(path)
        checkpoints.check_same_job(path, facts, self.described, self.job.settings.epochs)
        try:
            self.restore(checkpoints.checked_contents(tensors, facts, self.job, self.trainer))
            prefix = checkpoints.BEST_NETWORK
            best = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            self.best_network = best
        except (KeyError, ValueError, RuntimeError) as error:
            raise StorageError(
                f"{path} is not a whole checkpoint: {error}. Delete it to start anew."
            ) from error

    def restore(self, contents: checkpoints.Contents) -> None:
        """Go on from these contents."""
        state, self.history, self.best = contents
        self.trainer.restore(state)
        self.saved = len(self.history)


# --- progress ------------------------------------------------------------------------------------------


@contextmanager
def show_progress(
    shown: bool, epochs: int, done: int, steps: int, metric: str
) -> Iterator[tuple[Callable[[int], None], Callable[[EpochRecord], None]]]:
    """A bar on stderr over what is left of `epochs` of `steps` batches each, if `shown`.

    Gives what receives the number of finished batches, and what receives every epoch.
    """
    if not shown:
        yield lambda steps: None, lambda record: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with progress_bar(*columns) as bar:
        task = bar.add_task(f"epoch {done}/{epochs}", total=epochs * steps, completed=done * steps)
        yield (
            lambda steps: bar.advance(task, steps),
            lambda record: bar.update(task, description=describe_epoch(record, epochs, metric)),
        )


def describe_epoch(record: EpochRecord, epochs: int, metric: str) -> str:
    """One line about an epoch."""
    facts = [f"epoch {record.epoch}/{epochs}", f"loss {record.loss:.4f}"]
    facts += [f"{metric} {record.score:.4f}"] if record.score is not None else []
    facts += [f"clamped {record.clamped:.1%}"] if record.clamped is not None else []
    return "  ".join(facts)
