"""Probes: what a loss sees and does at a given model, against the truth.

share        of the items that a sampler draws as unlabelled, how many are in truth positive
probability  bias and spread of the estimate P̂ against P = mean over true negatives of σ(s⁺ − s)
gradient     of the loss's mean over anchors, against that of the same loss with τ = 0 and true negatives
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from truepair.losses import DPL, Loss
from truepair.randomness import random_bits, random_words, stream_key
from truepair.sampling import Batch, Draws, Matrices, Uniform, pair_scores
from truepair_lab.truth.cases import TruthCase
from truepair_lab.truth.treatments import PROBED, M, N, Treatment

ANCHORS, REPEATS = 600, 8  # rows that are probed, at most; draws of each
_KEY = 77

Found = dict[str, float | None]


class Probe:
    """A case and a treatment, bound once; `at` measures one model."""

    def __init__(self, case: TruthCase, treatment: Treatment) -> None:
        self.case, self.loss, self.n = case, treatment.loss(case), treatment.n
        self.truth = torch.from_numpy(case.truth.copy())
        self.known = torch.from_numpy(case.unlabelled.copy())
        self.negatives = torch.from_numpy(case.negatives.copy())
        self.draws = {name: Draws(case.train, sampler) for name, sampler in PROBED.items()}
        self.own = Draws(case.train, treatment.sampler)
        self.clean = Draws(case.pairs(~case.negatives), Uniform())  # whose draws are true negatives
        able = np.asarray(case.negatives.any(axis=1))[
            case.train.users
        ]  # the others have nothing to be compared with
        order = np.argsort(random_bits(stream_key(case.seed, _KEY), len(case.train)), kind="stable")
        self.anchors = torch.from_numpy(order[able[order]][:ANCHORS].copy())

    def at(self, matrices: Matrices) -> Found:
        """All measures at a model."""
        return self.shares(matrices) | self.probability(matrices) | self.gradient(matrices)

    # --- what is drawn -----------------------------------------------------------------------------

    def shares(self, matrices: Matrices) -> Found:
        """By sampler: positives among the draws whose label is known; None where no draw's is."""
        return {f"share {name}": self.share(draws, matrices) for name, draws in self.draws.items()}

    def share(self, draws: Draws, matrices: Matrices) -> float | None:
        """Over all anchors and repeats."""
        positive = known = 0
        for batch in self.batches(draws, 0, N, matrices):
            at = batch.users[:, None], batch.unlabelled
            known += int(self.known[at].sum())
            positive += int((self.known[at] & self.truth[at]).sum())
        return positive / known if known else None

    def batches(self, draws: Draws, m: int, n: int, matrices: Matrices) -> list[Batch]:
        """Every anchor once in each of the repeats."""
        keys = [stream_key(self.case.seed, _KEY, repeat) for repeat in range(REPEATS)]
        return [draws.batch(self.anchors, m, n, key, matrices) for key in keys]

    # --- the estimated probability -----------------------------------------------------------------

    @torch.no_grad()
    def probability(self, matrices: Matrices) -> Found:
        """Mean of P and of the estimates' bias, and the mean spread of one row's estimate.

        "plain" is mean_n σ(s⁺ − s_n); the loss's own estimate is the same, but for DPL and its kin.
        """
        true = self.true_probability(matrices)  # [A]
        batches = self.batches(self.own, M, self.n, matrices)
        plain = torch.stack([_plain(self.scored(matrices, batch)) for batch in batches])  # [R, A]
        own = plain
        if isinstance(self.loss, DPL):
            own = torch.stack([(-self.rows(self.loss, matrices, batch)).exp() for batch in batches])
        return {
            "p": float(true.mean()),
            "p plain bias": float((plain.mean(dim=0) - true).mean()),
            "p bias": float((own.mean(dim=0) - true).mean()),
            "p plain spread": float(plain.var(dim=0).mean().sqrt()),
            "p spread": float(own.var(dim=0).mean().sqrt()),
        }

    def true_probability(self, matrices: Matrices) -> Tensor:
        """P of each anchor, over all of its user's known true negatives."""
        users, pos = self.own.users[self.anchors], self.own.items[self.anchors]
        scores = matrices[0][users] @ matrices[1].T  # [A, I]
        above = torch.sigmoid(scores.gather(1, pos[:, None]) - scores)
        negative = self.negatives[users]
        return (above * negative).sum(dim=1) / negative.sum(dim=1)

    def scored(self, matrices: Matrices, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The scores of anchors, extra positives and unlabelled items."""
        rows = torch.cat([batch.pos[:, None], batch.extra, batch.unlabelled], dim=1)
        scores = pair_scores(matrices, batch.users, rows)
        m = batch.extra.shape[1]
        return scores[:, 0], scores[:, 1 : 1 + m], scores[:, 1 + m :]

    def rows(self, loss: Loss, matrices: Matrices, batch: Batch) -> Tensor:
        """The loss of each row."""
        return loss(*self.scored(matrices, batch), batch.users)

    # --- the gradient ------------------------------------------------------------------------------

    def gradient(self, matrices: Matrices) -> Found:
        """Direction and length of the training gradient g against the supervised one h.

        With g₁, g₂ from two independent halves of the draws, ⟨g₁, g₂⟩ is free of the draws' noise:

            cosine = ⟨g, h⟩ / √(⟨g₁, g₂⟩⟨h₁, h₂⟩),  length = √(⟨g₁, g₂⟩ / ⟨h₁, h₂⟩)

        "noise" is 1 − cos(g₁, g₂), how much two halves disagree. None where a gradient is all noise.
        """
        clean = dataclasses.replace(self.loss, tau=0.0) if self.loss.uses_prior else self.loss  # type: ignore[type-var]
        g = self.halves(lambda: self.batches(self.own, M, self.n, matrices), self.loss, matrices)
        h = self.halves(lambda: self.clean_batches(matrices), clean, matrices)
        gg, hh = float(g[0] @ g[1]), float(h[0] @ h[1])
        if gg <= 0 or hh <= 0:
            return {"cosine": None, "length": None, "noise": None}
        cosine = float((g[0] + g[1]) @ (h[0] + h[1])) / 4 / (gg * hh) ** 0.5
        noise = 1 - gg / float(g[0].norm() * g[1].norm())
        return {"cosine": cosine, "length": (gg / hh) ** 0.5, "noise": noise}

    def halves(
        self, batches: Callable[[], list[Batch]], loss: Loss, matrices: Matrices
    ) -> tuple[Tensor, Tensor]:
        """The gradient of the mean loss by both matrices, flat, from either half of the repeats."""
        drawn = batches()
        return tuple(self.slope(drawn[part::2], loss, matrices) for part in (0, 1))  # type: ignore[return-value]

    def slope(self, batches: list[Batch], loss: Loss, matrices: Matrices) -> Tensor:
        """The gradient, in float64 where sums are long."""
        free: Any = tuple(matrix.detach().clone().requires_grad_() for matrix in matrices)
        total = torch.stack([self.rows(loss, free, batch).mean() for batch in batches]).mean()
        return torch.cat([part.flatten() for part in torch.autograd.grad(total, free)]).double()

    def clean_batches(self, matrices: Matrices) -> list[Batch]:
        """The same anchors and extra positives, with true negatives as the unlabelled items."""
        drawn = self.batches(self.own, M, self.n, matrices)
        keys = [stream_key(self.case.seed, _KEY, 1, repeat) for repeat in range(REPEATS)]
        found = []
        for batch, key in zip(drawn, keys, strict=True):
            words = random_words(key, (len(batch.users), self.n), self.clean.device)
            found.append(batch._replace(unlabelled=self.clean._unlabelled_at(batch.users, words)))
        return found


def _plain(scores: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    pos, _, unlabelled = scores
    return torch.sigmoid(pos[:, None] - unlabelled).mean(dim=1)
