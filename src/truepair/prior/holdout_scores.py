"""Evidence: scores of held-out positives and of unlabelled pairs, from one short training.

A small MF is trained without a share of the positives. Its scores of them are compared with its scores of
unlabelled pairs. Training positives are not used: the model has fitted them, so they score too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.losses import BPR
from truepair.models.encoders import MF
from truepair.sampling import Uniform
from truepair.training import Job, Settings, fit

Floats = npt.NDArray[np.float64]

LEAST_PAIRS = 100  # fewer pairs give no estimate
HELD_OUT = 0.2  # the share of positives that is held out from the training
_SCORED = 4_000_000  # unlabelled pairs that are scored: all of them, or a sample of this size
_BLOCK = 1_000_000  # scores at a time …
_NUMBERS = 16_000_000  # … and numbers of their vectors


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores, standardised by the mean and the standard deviation of each user's unlabelled scores.

    `weights[k]` is the number of unlabelled pairs that the k-th score represents. `counts[u]` is the number
    of training positives of each user; users without any have no scores.
    """

    held_out_users: Codes  # [P]
    held_out_scores: Floats  # [P]
    users: Codes  # [N]
    scores: Floats  # [N]
    weights: Floats  # [N]
    counts: Codes  # [U]

    @property
    def separation(self) -> float:
        """The probability that a held-out positive scores above an unlabelled pair (ties count half)."""
        order = np.sort(self.scores)
        below = np.searchsorted(order, self.held_out_scores, "left")
        upto = np.searchsorted(order, self.held_out_scores, "right")
        return float((below + upto).mean() / 2 / len(order))


def gather(
    interactions: Interactions, dim: int, epochs: int, seed: int, engine: str, device: str, progress: bool
) -> Evidence:
    """Train without a fifth of the positives, then score these and the unlabelled pairs."""
    if len(interactions) < LEAST_PAIRS:
        raise InputError(
            f"{len(interactions):,} interactions are too few to estimate the prior; "
            f"at least {LEAST_PAIRS} are needed. Set tau to a number or to 'density'."
        )
    if len(interactions) == interactions.n_users * interactions.n_items:
        raise InputError("every user has every item: no pair is unlabelled, so there is no prior.")
    split = split_random(interactions, test=HELD_OUT, seed=seed)
    train, held_out = split.train, split.test
    settings = Settings(
        epochs=epochs,
        batch_size=min(max(len(train) // 64, 64), 1024),
        learning_rate=5e-3,
        # the gradient of a row shrinks with the number of rows, so the regularisation must as well
        weight_decay=0.1 / max(train.n_users, train.n_items),
        n_extra=0,
        n_unlabelled=4,
        seed=seed,
        device=device,
    )
    fitted = fit(Job(MF(dim=dim), BPR(), Uniform(), train, settings), engine=engine, progress=progress)
    return standardise(fitted.users, fitted.items, interactions, train, held_out, seed)


def standardise(
    users: Tensor, items: Tensor, known: Interactions, train: Interactions, held_out: Interactions, seed: int
) -> Evidence:
    """Scores minus their user's mean over unlabelled pairs, divided by the standard deviation."""
    parts = _unlabelled(users, items, known, np.flatnonzero(train.user_counts > 0), seed)
    of, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
    drawn = np.bincount(of, minlength=known.n_users)
    kept = drawn[held_out.users] > 0
    who, what = held_out.users[kept], held_out.items[kept]
    if not len(who):
        raise InputError(
            "no user has both training positives and unlabelled items, so the prior cannot be estimated; "
            "set tau to a number or to 'density'."
        )
    mean, spread = moments(users, items, known)
    left = known.n_items - known.user_counts
    return Evidence(
        who,
        (_scores(users, items, who, what) - mean[who]) / spread[who],
        of,
        (scores - mean[of]) / spread[of],
        left[of] / drawn[of],
        train.user_counts,
    )


def moments(users: Tensor, items: Tensor, known: Interactions) -> tuple[Floats, Floats]:
    """The mean and the standard deviation of each user's unlabelled scores, over all of them.

    Over all items Σs = u·Σv and Σs² = uᵀ(Σvvᵀ)u; the known pairs are subtracted. The standard deviation of a
    few drawn scores would be too low.
    """
    wide, tall = users.cpu().double().numpy(), items.cpu().double().numpy()
    own = _scores(users, items, known.users, known.items)
    n = np.maximum(known.n_items - known.user_counts, 1)
    total = wide @ tall.sum(axis=0) - np.bincount(known.users, own, known.n_users)
    squares = ((wide @ (tall.T @ tall)) * wide).sum(axis=1) - np.bincount(known.users, own**2, known.n_users)
    mean = total / n
    spread = np.sqrt(np.maximum(squares / n - mean**2, 0.0))
    return mean, np.where(spread > 1e-6, spread, 1.0)  # if all scores of a user are equal, all become 0


def _scores(users: Tensor, items: Tensor, of: Codes, what: Codes) -> Floats:
    parts, step = [], max(1, _NUMBERS // users.shape[1])
    for at in range(0, len(of), step):
        who, which = (torch.tensor(x[at : at + step], device=users.device) for x in (of, what))
        parts.append((users[who].double() * items[which].double()).sum(dim=1).cpu().numpy())
    return np.concatenate(parts) if parts else np.zeros(0)


def _unlabelled(
    users: Tensor, items: Tensor, known: Interactions, trained: Codes, seed: int
) -> Iterator[tuple[Codes, Floats]]:
    """(users, scores) of unlabelled pairs in blocks of users: all pairs, or equally many draws per user."""
    rng = np.random.default_rng(seed)
    n_items = known.n_items
    each = min(n_items, max(1, _SCORED // max(len(trained), 1)))
    if len(trained) > _SCORED // 16:
        trained, each = np.sort(rng.choice(trained, _SCORED // 16, replace=False)), min(16, n_items)
    step = max(1, _BLOCK // each)
    for start in range(0, len(trained), step):
        block = trained[start : start + step]
        if each == n_items:
            columns = np.tile(np.arange(n_items), (len(block), 1))
        else:
            columns = rng.integers(0, n_items, size=(len(block), each))
        of, item = np.repeat(block, columns.shape[1]), columns.reshape(-1)
        free = ~known.has(of, item)
        of, item = of[free], item[free]
        yield of, _scores(users, items, of, item)
