"""The readable PyTorch loop: the specification that every fused engine is proved against."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses import InfoNCEPosterior, Rows
from truepair.models.encoders import StartedEncoder
from truepair.randomness import random_words, stream_key
from truepair.sampling import Batch, Draws, Full, Matrices
from truepair.training.item_weights import weights_of
from truepair.training.result import Job
from truepair.training.settings import Settings
from truepair.training.trainer import Engine, EpochTotals


class ModelTrainer:
    """The parts that engines share whose parameters are a PyTorch module."""

    def __init__(self, job: Job) -> None:
        self.job, self.device = job, job.settings.torch_device()
        self.model = job.encoder.start(job.interactions, job.settings.seed, self.device)
        self.optimizer = _optimizer(self.model, job.settings)

    def set_rate(self, rate: float) -> None:
        """The learning rate of the steps that come."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    @torch.no_grad()
    def matrices(self) -> Matrices:
        """Copies of the two matrices."""
        users, items = self.model()
        return users.detach().clone(), items.detach().clone()

    def is_finite(self) -> bool:
        """Whether every parameter is a finite number."""
        return all(bool(weights.isfinite().all()) for weights in self.model.parameters())

    def state(self) -> dict[str, Tensor]:
        """Parameters and optimizer state."""
        tensors: dict[str, Tensor] = dict(self.model.state_dict())
        for place, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{place}.{name}": torch.as_tensor(value) for name, value in state.items()}
        return tensors

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """What `state` gave."""
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, value in state.items():
            if name.startswith("optimizer."):
                _, place, key = name.split(".")
                optimizer.setdefault(int(place), {})[key] = value
        model = {name: value for name, value in state.items() if not name.startswith("optimizer.")}
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": optimizer})


class ReferenceTrainer(ModelTrainer):
    """Every encoder, loss, sampler and optimizer, on the CPU or on CUDA."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.draws = Draws(job.interactions, job.sampler, self.device)
        self.n_anchors, self.n_saturated_users = len(self.draws.anchors), self.draws.n_saturated_users
        self.steps = math.ceil(self.n_anchors / job.settings.batch_size)

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        settings = self.job.settings
        self.set_rate(rate)
        losses: list[Tensor] = []
        clamped: list[Tensor] = []
        for step, batch in enumerate(self.batches(epoch)):
            rows = self.train_step(batch, stream_key(settings.seed, epoch, step))
            losses.append(rows.loss.detach().sum())
            clamped += [rows.clamped.sum()] if rows.clamped is not None else []
            advance(1)
        return EpochTotals(torch.stack(losses), int(torch.stack(clamped).sum()) if clamped else None)

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """The anchors of each step."""
        return self.draws.epoch(self.job.settings.seed, epoch, self.job.settings.batch_size)

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


def _optimizer(model: StartedEncoder, settings: Settings) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "adagrad":
        return torch.optim.Adagrad(model.parameters(), lr=rate, weight_decay=decay)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
    return kind(model.parameters(), lr=rate, weight_decay=decay, fused=True)


class FullReferenceTrainer(ReferenceTrainer):
    """Exact sampling by its definition: each user's anchors with all the user's items and all others."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.users = torch.unique(self.draws.users[self.draws.anchors])
        self.weights = weights_of(job.loss, self.device)
        self.steps = math.ceil(len(self.users) / job.settings.batch_size)

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """All users who have anchors once, in the order of (seed, epoch), in pieces."""
        settings = self.job.settings
        words = random_words(stream_key(settings.seed, epoch), (len(self.users),), self.users.device)
        yield from torch.split(self.users[words.argsort(stable=True)], settings.batch_size)

    def train_step(self, users: Tensor, key: int) -> Rows:
        """Score, differentiate, update."""
        ours, items = self.model(users)
        known = self.draws.known_mask(users)
        each = [
            self.rows_of(user, scores, mask)
            for user, scores, mask in zip(users, ours @ items.T, known, strict=True)
        ]
        clamped = [rows.clamped for rows in each if rows.clamped is not None]
        rows = Rows(torch.cat([rows.loss for rows in each]), torch.cat(clamped) if clamped else None)
        objective = rows.loss.mean() + self.exact_penalty(users, known.sum(dim=1))
        self.optimizer.zero_grad()
        objective.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return rows

    def rows_of(self, user: Tensor, scores: Tensor, known: Tensor) -> Rows:
        """The user's anchors as data entries with M and N as large as they can be."""
        loss, own, others = self.job.loss, scores[known], scores[~known]
        if self.weights is not None and isinstance(loss, InfoNCEPosterior):
            log_weights = self.weights.log_weights(user[None])[0][~known]
            return Rows(
                loss.weighted(own, others.expand(len(own), -1), log_weights.expand(len(own), -1)), None
            )
        extra = own.expand(len(own), -1) if loss.uses_extra else own.new_zeros(len(own), 0)
        return loss.rows(own, extra, others.expand(len(own), -1), user.expand(len(own)))

    def exact_penalty(self, users: Tensor, counts: Tensor) -> Tensor | float:
        """½·l2·‖e‖² of every row that an anchor touches, mean over the anchors: all items, each time."""
        settings, terms = self.job.settings, []
        if settings.l2_users:
            norms = F.embedding(users, self.model.user).square().sum(dim=1)
            terms.append(settings.l2_users * (norms * counts).sum() / counts.sum())
        if settings.l2_items:
            terms.append(settings.l2_items * self.model.item.square().sum())
        return torch.stack(terms).sum() / 2 if terms else 0.0


def _start(job: Job) -> ReferenceTrainer:
    return FullReferenceTrainer(job) if isinstance(job.sampler, Full) else ReferenceTrainer(job)


def _lacks(job: Job) -> str | None:
    if isinstance(job.sampler, Full) and job.sampler.columns_of(job.interactions.n_items) is not None:
        return "it takes the whole catalogue, and cannot draw columns of it."
    return None


REFERENCE = Engine(start=_start, lacks=_lacks)
