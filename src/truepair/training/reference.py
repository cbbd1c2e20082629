"""The readable PyTorch loop: the specification that every fused engine is proved against."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.encoders import Encoder, StartedEncoder
from truepair.errors import InputError, StorageError, TrainingError, check_type, check_whole
from truepair.losses import Loss, Rows
from truepair.randomness import stream_key
from truepair.sampling import Batch, Draws, Matrices, Sampler
from truepair.training.checkpoints import check_same_job, describe_job, load_checkpoint, save_checkpoint
from truepair.training.progress import Progress, show_progress
from truepair.training.result import EpochRecord, EpochState, FitResult, Job, OnEpoch
from truepair.training.settings import Settings


def fit_reference(
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    interactions: Interactions,
    settings: Settings,
    on_epoch: OnEpoch | None = None,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool = False,
) -> FitResult:
    """Train, and give the fitted matrices.

    `on_epoch` is called every `settings.validate_every` epochs and after the last; a number it returns is
    the validation score: the matrices of the best epoch are kept, and `settings.patience` counts from it.
    `checkpoint` names a file to save to after every `checkpoint_every` epochs; if it is there already, the
    run goes on from it, and on the CPU ends with the same bits as a run that was never interrupted.
    """
    _check_types(encoder, loss, sampler, interactions, settings, on_epoch)
    checkpoint_every = check_whole("checkpoint_every", checkpoint_every, 1)
    job = Job(encoder, _with_known_prior(loss, interactions), sampler, interactions, settings)
    run = _Run(job, on_epoch, Path(checkpoint) if checkpoint is not None else None)
    metric = str(getattr(on_epoch, "metric", "validation"))
    with show_progress(progress, settings.epochs, run.epoch, run.steps, metric) as bar:
        while run.epoch < settings.epochs and not run.patience_is_over():
            run.train_epoch(bar)
            last = run.epoch == settings.epochs or run.patience_is_over()
            if run.checkpoint is not None and (last or run.epoch % checkpoint_every == 0):
                run.save()
    return run.result()


class _Run:
    """The state of a run between epochs."""

    def __init__(self, job: Job, on_epoch: OnEpoch | None, checkpoint: Path | None) -> None:
        settings = job.settings
        self.job, self.on_epoch, self.device = job, on_epoch, settings.torch_device()
        self.checkpoint, self.saved = checkpoint, 0  # the epoch that lies in the checkpoint
        self.draws = Draws(job.interactions, job.sampler, self.device)
        self.steps = math.ceil(len(self.draws.anchors) / settings.batch_size)
        self.model = job.encoder.start(job.interactions, settings.seed, self.device)
        self.optimizer = _optimizer(self.model, settings)
        self.history: list[EpochRecord] = []
        self.best: tuple[int, float, Matrices] | None = None  # epoch, score, matrices
        if checkpoint is not None and checkpoint.exists():
            self.restore(checkpoint)

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    def train_epoch(self, bar: Progress) -> None:
        settings, began = self.job.settings, time.perf_counter()
        rate = settings.learning_rate_at(self.epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        losses: list[Tensor] = []
        clamped: list[Tensor] = []
        for step, anchors in enumerate(self.draws.epoch(settings.seed, self.epoch, settings.batch_size)):
            rows = self.train_step(anchors, stream_key(settings.seed, self.epoch, step))
            losses.append(rows.loss.detach().sum())
            clamped += [rows.clamped.sum()] if rows.clamped is not None else []
            bar.step()
        share = float(torch.stack(clamped).sum()) / len(self.draws.anchors) if clamped else None
        loss = self.mean_loss(torch.stack(losses), rate)
        score = self.validate(loss)
        seconds = time.perf_counter() - began
        self.history.append(EpochRecord(self.epoch + 1, loss, share, score, rate, seconds))
        bar.epoch(self.history[-1])

    def train_step(self, anchors: Tensor, key: int) -> Rows:
        """Draw, score, differentiate, update."""
        settings, loss = self.job.settings, self.job.loss
        users, items = self.model()  # [n_users, d], [n_items, d]
        m = settings.n_extra if loss.uses_extra else 0
        batch = self.draws.batch(anchors, m, settings.n_unlabelled, key, (users.detach(), items.detach()))
        rows_items = torch.cat([batch.pos[:, None], batch.extra, batch.unlabelled], dim=1)  # [B, 1+M+N]
        scores = torch.einsum("bd,bcd->bc", F.embedding(batch.users, users), F.embedding(rows_items, items))
        rows = loss.rows(scores[:, 0], scores[:, 1 : 1 + m], scores[:, 1 + m :], batch.users)
        objective = rows.loss.mean() + self.penalty(batch, rows_items)
        self.optimizer.zero_grad()
        objective.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return rows

    def penalty(self, batch: Batch, rows_items: Tensor) -> Tensor | float:
        """½·l2·‖e‖² of every row that a data entry touches, mean over the entries."""
        settings, terms = self.job.settings, []
        if settings.l2_users:
            terms.append(settings.l2_users * F.embedding(batch.users, self.model.user).square().sum())
        if settings.l2_items:
            terms.append(settings.l2_items * F.embedding(rows_items, self.model.item).square().sum())
        return torch.stack(terms).sum() / (2 * len(batch.users)) if terms else 0.0

    def mean_loss(self, losses: Tensor, rate: float) -> float:
        """The mean over the rows, from the sums of the steps; an error with advice if there is none."""
        bad = (~losses.isfinite()).nonzero()
        if len(bad):
            step = int(bad[0, 0])
            raise self.diverged(f"the loss became {float(losses[step])}", step + 1, rate)
        if not all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
            raise self.diverged("a vector became infinite or NaN", self.steps, rate)
        return float(losses.double().sum()) / len(self.draws.anchors)

    def diverged(self, what: str, step: int, rate: float) -> TrainingError:
        """What happened, where, and what to try."""
        kept = f" {self.checkpoint} holds the run as it was after epoch {self.saved}." if self.saved else ""
        return TrainingError(
            f"{what} at epoch {self.epoch + 1}, step {step} of {self.steps}, with learning rate {rate:g}. "
            f"Lower learning_rate, or use scoring='cosine', which bounds the scores.{kept}"
        )

    def validate(self, loss: float) -> float | None:
        """Ask `on_epoch` for a score where one is due, and keep the best matrices."""
        epoch, settings = self.epoch + 1, self.job.settings
        if self.on_epoch is None or (epoch % settings.validate_every and epoch != settings.epochs):
            return None
        score = self.on_epoch(EpochState(epoch, loss, self.matrices))
        if score is None:
            return None
        if isinstance(score, str) or not math.isfinite(score):
            raise TrainingError(
                f"the validation score is {score!r} after epoch {epoch}; it must be a number."
            )
        if self.best is None or score > self.best[1]:
            self.best = epoch, float(score), self.matrices()
        return float(score)

    def patience_is_over(self) -> bool:
        patience = self.job.settings.patience
        if patience is None or self.best is None or self.history[-1].score is None:
            return False  # between two validations nothing is known
        return self.epoch - self.best[0] >= patience

    @torch.no_grad()
    def matrices(self) -> Matrices:
        users, items = self.model()
        return users.detach().clone(), items.detach().clone()

    def result(self) -> FitResult:
        epoch, _, (users, items) = self.best or (self.epoch, 0.0, self.matrices())
        return FitResult(
            users=users.cpu(),
            items=items.cpu(),
            history=tuple(self.history),
            epoch=epoch,
            stopped_early=self.epoch < self.job.settings.epochs,
            job=self.job,
            n_saturated_users=self.draws.n_saturated_users,
        )

    # --- checkpoints -------------------------------------------------------------------------------

    def save(self) -> None:
        assert self.checkpoint is not None
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for place, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{name}": torch.as_tensor(value) for name, value in state.items()}
        if self.best is not None:
            tensors |= {"best.users": self.best[2][0], "best.items": self.best[2][1]}
        facts = {
            "job": describe_job(self.job, self.on_epoch),
            "history": [asdict(record) for record in self.history],
            "best": None if self.best is None else self.best[:2],
        }
        save_checkpoint(self.checkpoint, tensors, facts)
        self.saved = self.epoch

    def restore(self, path: Path) -> None:
        tensors, facts = load_checkpoint(path)
        check_same_job(path, facts.get("job", {}), describe_job(self.job, self.on_epoch))
        try:
            self.take_over(_grouped(tensors), facts)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise StorageError(
                f"{path} is not a whole checkpoint: {error}. Delete it to start anew."
            ) from error

    def take_over(self, groups: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> None:
        self.model.load_state_dict(groups["model"])
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in groups.get("optimizer", {}).items():
            place, _, key = name.partition(".")
            state.setdefault(int(place), {})[key] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.history = [EpochRecord(**record) for record in facts["history"]]
        self.saved = self.epoch
        if self.epoch > self.job.settings.epochs:
            raise ValueError(f"{self.epoch} epochs are done, more than epochs = {self.job.settings.epochs}")
        if facts["best"] is not None:
            best = groups["best"]
            epoch, score = facts["best"]
            self.best = epoch, score, (best["users"].to(self.device), best["items"].to(self.device))


def _grouped(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        groups.setdefault(group, {})[rest] = tensor
    return groups


def _with_known_prior(loss: Loss, interactions: Interactions) -> Loss:
    tau = getattr(loss, "tau", None)
    if isinstance(tau, tuple) and len(tau) != interactions.n_users:
        raise InputError(
            f"tau has {len(tau)} values, one per user, but there are {interactions.n_users} users."
        )
    if interactions.density == 1:
        raise InputError("every user has every item, so nothing is unlabelled; there is nothing to learn.")
    return loss.with_density(interactions.density)


def _check_types(
    encoder: object, loss: object, sampler: object, data: object, settings: Settings, on_epoch: object
) -> None:
    check_type("encoder", encoder, Encoder, "give a value such as MF(dim=64)")
    check_type("loss", loss, Loss, "give a value such as DPL(tau=0.05)")
    check_type("sampler", sampler, Sampler, "give a value such as Uniform()")
    check_type("interactions", data, Interactions, "read it with read_interactions, or take split.train")
    check_type("settings", settings, Settings, "give a value such as Settings(epochs=100)")
    if on_epoch is not None and not callable(on_epoch):
        raise InputError(f"on_epoch = {on_epoch!r} cannot be called; give a Validation or a function.")
    if settings.patience is not None and on_epoch is None:
        raise InputError(f"patience = {settings.patience} needs on_epoch to give a validation score.")


def _optimizer(model: StartedEncoder, settings: Settings) -> torch.optim.Optimizer:
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    return kind(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
