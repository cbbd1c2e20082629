"""Folding in by InfoNCE over the full catalogue, one person at a time, in NumPy: a few milliseconds each.

The steps are those of `new_users.fold_in`, with gradients in closed form. For one person PyTorch spends most
of the time between its operations; here a step is two products with the items and little else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.models.encoders import Encoder
from truepair.training.settings import Settings

Floats = npt.NDArray[np.float32]
_SLOW, _FAST, _EPSILON = 0.999, 0.9, 1e-8  # of Adam, as in PyTorch
_HIGHEST = 80.0  # e^80 is a number of float32, and 1 / (1 + e^80) is 0 for all that it matters


@dataclass(frozen=True, eq=False)
class RowFoldIn:
    """What is the same for all people: the items, how a score is made, and the loss."""

    items: Floats  # [n_items, d], with a last column for popularity if the encoder has one
    encoder: Encoder
    temperature: float  # of InfoNCE
    settings: Settings
    n_pairs: float  # of training

    @cached_property
    def _vectors(self) -> Floats:
        """The items without the column of popularity."""
        return np.ascontiguousarray(self.items[:, :-1] if self.encoder.popularity else self.items)

    @cached_property
    def _additions(self) -> Floats | None:
        """The column of popularity, divided by the temperature."""
        return self.items[:, -1] / np.float32(self.temperature) if self.encoder.popularity else None

    def vectors(self, starts: Floats, history: Interactions, rates: list[float]) -> Floats:
        """The vectors [n_users, d] of the users of `history`, after a step of Adam for each rate."""
        weights, dislikes = history.weight_in_history, history.dislikes
        found = np.array(starts, dtype=np.float32)
        for user in range(history.n_users):
            own = slice(*history.indptr[user : user + 2])
            disliked = np.empty(0, np.int64) if dislikes is None else dislikes.items_of(user)
            weight = np.float32(1) if weights is None else weights[own]
            if 0 < len(history.items[own]) < history.n_items:
                self._move(found[user], history.items[own], weight, disliked, rates)
        return found

    def _move(
        self, vector: Floats, own: Codes, weight: Floats | np.float32, disliked: Codes, rates: list[float]
    ) -> None:
        """Move a vector in place, by a step of Adam for each rate."""
        first, second = np.zeros_like(vector), np.zeros_like(vector)
        l2 = self.settings.l2_users * len(own) / self.n_pairs + self.settings.weight_decay
        for step, rate in enumerate(
            rates, start=1
        ):  # numbers of Python: those of NumPy take several times as long
            gradient = self._gradient(vector, own, weight, disliked)
            if l2:
                gradient += l2 * vector
            first += (1 - _FAST) * (gradient - first)
            gradient *= gradient
            second += (1 - _SLOW) * (gradient - second)
            scale = np.sqrt(second)
            scale *= 1 / math.sqrt(1 - _SLOW**step)
            scale += _EPSILON
            np.divide(first, scale, out=scale)
            scale *= rate / (1 - _FAST**step)
            vector -= scale

    def _gradient(self, vector: Floats, own: Codes, weight: Floats | np.float32, disliked: Codes) -> Floats:
        """Of Σ_own weight · (log(e^{s⁺/t} + Σ_j e^{s_j/t}) − s⁺/t) / n_pairs, by the vector."""
        is_cosine = self.encoder.scoring == "cosine"
        length = max(math.sqrt(vector @ vector), 1e-12) if is_cosine else 1.0
        scale = 1 / (length * self.encoder.temperature) if is_cosine else 1.0
        scores = self._vectors @ (vector * (scale / self.temperature))
        if self._additions is not None:
            scores += self._additions
        of_own = scores[own]
        if len(disliked):
            scores[disliked] += math.log(self.settings.dislike_weight)
        scores[own] = -np.inf
        top = float(scores.max())
        scores -= top
        shares = np.exp(scores, out=scores)
        total = float(shares.sum())
        of_own -= top + math.log(total)
        push = np.exp(np.minimum(of_own, _HIGHEST, out=of_own), out=of_own)
        push += 1
        np.divide(weight, push, out=push)
        shares *= float(push.sum()) / total
        shares[own] = -push
        by_scaled: Floats = shares @ self._vectors
        by_scaled *= 1 / (self.temperature * self.n_pairs)
        if is_cosine:
            by_scaled -= (float(by_scaled @ vector) / length**2) * vector
            by_scaled *= scale
        return by_scaled
