"""SequenceTrainer: steps of a block of users, each of whose positions predicts the next event."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from truepair.errors import InputError
from truepair.losses import InfoNCE, Rows
from truepair.models.encoders import SequenceEncoder, StartedSequence
from truepair.models.start import Side, Start
from truepair.randomness import random_words, stream_key
from truepair.sampling import Draws, Full
from truepair.sampling.draws import epoch_order
from truepair.training.job import EpochTotals, Job
from truepair.training.module_trainer import ModuleTrainer, StepLosses
from truepair.training.sequences.losses import (
    Columns,
    Gradients,
    catalogue_rows,
    row_gradients,
    sampled_rows,
    softmax_gradients,
)

_LAYER_WORK = 12  # products of d x d numbers for a state and a layer
_POOL = 16  # steps whose users are sorted by the length of their histories
_POSITIONS, _EXTRA, _ITEMS = 1, 2, 3  # of a step's random numbers


class Positions(NamedTuple):
    """The positions of a step."""

    states: Tensor  # [R, d], scaled for scoring
    targets: Tensor  # [R], the items of the next events
    places: Tensor  # [R], where these are among all events
    users: Tensor  # [R]


class SequenceTrainer(ModuleTrainer):
    """Encoders that read order, with the full catalogue or with sampled items."""

    model: StartedSequence  # type: ignore[assignment]

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        encoder, data, log = job.encoder, job.interactions, job.interactions.log
        assert isinstance(encoder, SequenceEncoder)
        self.encoder, self.histories = encoder, self.model.histories
        counts = self.histories.counts(encoder.length + 1) - 1  # [n_users], positions
        self.draws = None if isinstance(job.sampler, Full) else Draws(data, job.sampler, self.device)
        trained = counts > 0
        if self.draws is not None:
            trained &= self.draws.free > 0
        self.entries, self.counts = trained.nonzero()[:, 0], counts
        if not len(self.entries):
            raise InputError("no user has two events, so that no event predicts another; give more events.")
        most = encoder.positions or encoder.length
        self.n_anchors = int(counts[self.entries].clamp(max=most).sum())
        self.n_saturated_users = int(((counts > 0) & ~trained).sum())
        columns = job.sampler.columns_of(data.n_items) or data.n_items if isinstance(job.sampler, Full) else 1
        states = int(counts.sum()) / self.steps  # of a step
        self.work = 3 * states * encoder.dim * (columns + _LAYER_WORK * encoder.layers * encoder.dim)
        self.weights: Tensor | None = None  # of each event
        if log.weight is not None and len(weight := log.weight[log.liked]) and weight.min() < weight.max():
            self.weights = torch.tensor(weight / weight.mean(), dtype=torch.float32, device=self.device)
        self.column_ends: Tensor | None = None
        if isinstance(job.sampler, Full) and job.sampler.columns_of(data.n_items) is not None:
            chances = job.sampler.item_weights(data.item_counts)
            self.column_ends = torch.tensor(np.cumsum(chances / chances.sum()), device=self.device)

    def batches(self, epoch: int) -> Generator[Tensor]:
        """The users of each step, whose histories are about equally long."""
        settings = self.job.settings
        order, size = epoch_order(self.entries, settings.seed, epoch), settings.batch_size
        pools = [pool[self.counts[pool].argsort(stable=True)] for pool in torch.split(order, _POOL * size)]
        blocks = [block for pool in pools for block in torch.split(pool, size)]
        places = torch.arange(len(blocks))
        for place in epoch_order(places, stream_key(settings.seed, epoch) >> 1, epoch).tolist():
            yield blocks[place]

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All users once; the dropout of a step is a function of the seed, the epoch and the step."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            return super().train(epoch, rate, advance)

    def train_step(self, users: Tensor, key: int) -> StepLosses:
        """Encode, score, differentiate, update."""
        torch.manual_seed(key)
        vectors = self.model.vectors()
        at = self.positions(users, key, vectors)
        items = vectors if self.model.addition is None else torch.cat([vectors, self.model.addition], dim=1)
        shares = torch.full((len(at.targets),), 1 / len(at.targets), device=self.device)
        if self.weights is not None:
            shares = shares * self.weights[at.places]
        found = self.gradients(at._replace(states=at.states.detach()), items.detach(), shares, key)
        self.optimizer.zero_grad()
        torch.autograd.backward([at.states, items], [found.by_states, found.by_items])
        self.optimizer.step()
        losses = found.losses if self.weights is None else found.losses * self.weights[at.places]
        return losses, found.clamped

    def positions(self, users: Tensor, key: int, vectors: Tensor) -> Positions:
        """The positions of these users that are trained on, with their states."""
        places, known = self.histories.last(users, self.encoder.length + 1)
        chosen = known[:, 1:]
        if (most := self.encoder.positions) is not None and most < chosen.shape[1]:
            words = random_words(stream_key(key, _POSITIONS), tuple(chosen.shape), self.device)
            best = words.masked_fill(~chosen, -1).topk(most, dim=1).indices
            chosen = chosen & torch.zeros_like(chosen).scatter_(1, best, True)
        states = self.model.states(self.histories.items[places[:, :-1]], vectors)
        rows = chosen.nonzero()[:, 0]
        places = places[:, 1:][chosen]
        return Positions(
            self.encoder.scaled(states[chosen]), self.histories.items[places], places, users[rows]
        )

    def gradients(self, at: Positions, items: Tensor, shares: Tensor, key: int) -> Gradients:
        """The losses of positions and their gradients."""
        loss = self.job.loss
        if self.draws is not None:
            candidates, m = self.candidates(at, self.draws, key)

            def of_sample(part: slice, states: Tensor, items: Tensor) -> Rows:
                return sampled_rows(loss, states, items, candidates[part], m, at.users[part])

            return row_gradients(at.states, items, shares, candidates.shape[1] * items.shape[1], of_sample)
        if type(loss) is InfoNCE:
            rows = at.states, items, at.targets, shares
            return softmax_gradients(*rows, loss.temperature, self.columns(key))

        def of_catalogue(part: slice, states: Tensor, items: Tensor) -> Rows:
            return catalogue_rows(loss, states, items, at.targets[part], at.users[part])

        return row_gradients(at.states, items, shares, len(items), of_catalogue)

    def candidates(self, at: Positions, draws: Draws, key: int) -> tuple[Tensor, int]:
        """The target, M later items of the same history (the target may be among them) and N sampled items of
        each position: [R, 1 + M + N], and M."""
        settings = self.job.settings
        m, n = settings.n_extra if self.job.loss.uses_extra else 0, len(at.targets)
        left = (self.histories.starts[at.users + 1] - at.places)[:, None]  # the target and what follows
        later = at.places[:, None] + random_words(stream_key(key, _EXTRA), (n, m), self.device) % left
        sampled = draws.unlabelled(at.users, settings.n_unlabelled, stream_key(key, _ITEMS))
        return torch.cat([at.targets[:, None], self.histories.items[later], sampled], dim=1), m

    def columns(self, key: int) -> Columns | None:
        """Sampled columns of a large catalogue; None: all of it."""
        if self.column_ends is None:
            return None
        assert isinstance(self.job.sampler, Full)
        n = self.job.sampler.columns_of(len(self.column_ends))
        assert n is not None
        words = random_words(stream_key(key, _ITEMS), (n,), self.device).double() / 2**63
        items = torch.searchsorted(self.column_ends, words).clamp(max=len(self.column_ends) - 1)
        chances = self.column_ends.diff(prepend=self.column_ends.new_zeros(1))[items]
        return Columns(items, -(n * chances).log().float())

    # --- parameters ------------------------------------------------------------------------------------

    def network(self) -> dict[str, Tensor]:
        """The weights beside the item vectors."""
        return self.model.weights()

    def begin(self, start: Start) -> None:
        """Start from these item vectors, and these weights of the network if there are any."""
        self.model.begin(start)

    def reached(self) -> Start:
        """The rows of users, the item vectors and the network now, without moments."""
        users, items = (Side(matrix[:, : self.encoder.dim].cpu()) for matrix in self.matrices())
        return Start(
            users, items._replace(vectors=self.model.item.detach().cpu().clone()), network=self.network()
        )
