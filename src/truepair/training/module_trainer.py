"""What trainers share whose parameters are a PyTorch module: optimizer, epoch loop, L2 penalty, state."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor, nn

from truepair.models.encoders import StartedEncoder
from truepair.models.start import Side, Start
from truepair.randomness import stream_key
from truepair.sampling import Matrices
from truepair.sampling.draws import epoch_batches
from truepair.training.dislikes import with_dislikes
from truepair.training.job import EpochTotals, Job
from truepair.training.settings import Settings

_SMALL_WORK = 2e8  # of a step, by `step_work`: up to here, one thread
_MOMENTS = ("exp_avg", "exp_avg_sq")  # as PyTorch's Adam names them


# Of each of a step's anchors its loss [A], and whether it met the loss's floor (None where there is none).
# More may follow.
StepLosses = tuple[Tensor, Tensor | None, *tuple[Tensor, ...]]


class ModuleTrainer(ABC):
    """The model and its optimizer, and epochs of steps; a subclass defines the batches and the step."""

    entries: Tensor  # the anchors, or the users, of which each step takes `batch_size`
    prefetched: Callable[[Iterable[Tensor]], Generator[Tensor]] | None = None  # what a step needs, before it
    work = math.inf  # of a step on the CPU, where it is counted

    def __init__(self, job: Job, model: StartedEncoder | None = None) -> None:
        """`model` has the first parameters; by default those that the encoder starts with."""
        self.job = job if job.interactions.disliked is None else with_dislikes(job)
        self.device = job.settings.torch_device()
        self.has_l2 = job.settings.l2_users > 0 or job.settings.l2_items > 0
        start = job.encoder.start
        self.model = start(job.interactions, job.settings.seed, self.device) if model is None else model
        self.optimizer = self.optimizer_of(self.model.parameters())

    def optimizer_of(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of the settings for these parameters."""
        settings = self.job.settings
        rate, decay = settings.learning_rate, settings.weight_decay
        if settings.optimizer == "adagrad":
            return torch.optim.Adagrad(parameters, lr=rate, weight_decay=decay)
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.SGD
        return kind(parameters, lr=rate, weight_decay=decay, fused=True)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return math.ceil(len(self.entries) / self.job.settings.batch_size)

    @abstractmethod
    def train_step(self, batch: Tensor, key: int) -> StepLosses:
        """Score, differentiate, update; `key` names the random numbers of the step."""

    def batches(self, epoch: int) -> Generator[Tensor]:
        """The entries of each step."""
        found = epoch_batches(self.entries, self.job.settings.seed, epoch, self.job.settings.batch_size)
        return found if self.prefetched is None else self.prefetched(found)

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        seed, losses, clamped = self.job.settings.seed, list[Tensor](), list[Tensor]()
        # a thread may make batches ahead; it ends with them, also after an error or Ctrl-C
        with threads_for(self.work), closing(self.batches(epoch)) as batches:
            for step, batch in enumerate(batches):
                loss, at_floor, *_ = self.train_step(batch, stream_key(seed, epoch, step))
                losses.append(loss.detach().sum())
                if at_floor is not None:
                    clamped.append(at_floor.sum())
                advance(1)
        return EpochTotals(torch.stack(losses), int(torch.stack(clamped).sum()) if clamped else None)

    def descend(self, objective: Tensor) -> None:
        """One step of the optimizer."""
        self.optimizer.zero_grad()
        objective.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

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
        """Continue from what `state` returned."""
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, value in state.items():
            if name.startswith("optimizer."):
                _, place, key = name.split(".")
                optimizer.setdefault(int(place), {})[key] = value
        model = {name: value for name, value in state.items() if not name.startswith("optimizer.")}
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": optimizer})

    def begin(self, start: Start) -> None:
        """Start from these vectors and moments."""
        state = {"user": start.users.vectors, "item": start.items.vectors}
        for place, side in enumerate(start.sides().values() if start.has_moments else ()):
            state[f"optimizer.{place}.step"] = torch.tensor(float(start.steps))
            for name, moment in zip(_MOMENTS, (side.first, side.second), strict=True):
                assert moment is not None
                state[f"optimizer.{place}.{name}"] = moment.clone()  # PyTorch would change the given one
        self.restore(self.state() | state)

    def reached(self) -> Start:
        """The vectors and moments now."""
        state = self.state()
        steps = int(state.get("optimizer.0.step", 0)) if self.job.settings.optimizer == "adam" else 0
        sides = []
        for place, side in enumerate(("user", "item")):
            names = [side, *(f"optimizer.{place}.{moment}" for moment in _MOMENTS)]
            sides.append(Side(*[state[name].detach().cpu() for name in (names if steps else [side])]))
        return Start(sides[0], sides[1], steps)


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Within, PyTorch has one thread where a step is small, else as many as before.

    A step is many short operations, and PyTorch's threads wait for each other at the end of each. Beside
    another busy process a thread may have to wait for its turn on the processor each time, so that a small
    step takes many times as long on two threads as on one. The number of threads depends on the size of the
    step alone, never on a clock: results of a seed stay the same.
    """
    before = torch.get_num_threads()
    small = work <= _SMALL_WORK and before > 1
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if small:
            torch.set_num_threads(before)


def l2_penalty(
    model: StartedEncoder,
    settings: Settings,
    users: Tensor,
    counts: Tensor | None = None,
    items: Tensor | None = None,
    n_entries: Tensor | float = 1.0,
) -> Tensor:
    """½·l2·‖e‖² of every vector that a data entry touches, mean over the entries.

    users [B] have `counts` [B] entries each (None: one), or entries of these weights. An entry touches its
    row of `items` [B, C]; without `items`, the whole catalogue, so that the mean is the sum over all items.
    One of the two L2 penalties must be above 0.
    """
    terms = []
    if settings.l2_users:
        terms.append(l2_of_users(settings.l2_users, F.embedding(users, model.user), counts, n_entries))
    if settings.l2_items:
        if items is None:
            terms.append(settings.l2_items * model.item.square().sum() / 2)
        else:
            squares = F.embedding(items, model.item).square()  # [B, C, d]
            total = squares.sum() if counts is None else (squares.sum(dim=(1, 2)) * counts).sum()
            terms.append(settings.l2_items * total / n_entries / 2)
    return torch.stack(terms).sum()


def l2_of_users(l2: float, vectors: Tensor, counts: Tensor | None, n_entries: Tensor | float) -> Tensor:
    """½·l2·‖e‖² of users' vectors [B, d] with `counts` [B] entries each (None: one), mean over entries."""
    norms = vectors.square().sum(dim=1)
    total = norms.sum() if counts is None else (norms * counts).sum()
    return l2 * total / n_entries / 2
