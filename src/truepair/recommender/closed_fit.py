"""Solving: an encoder without training and a split in; fitted matrices and the validation score out."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from truepair.data.split import Split
from truepair.evaluation import Validation
from truepair.models.closed_forms import ClosedForm
from truepair.models.matrices import Rows


@dataclass(frozen=True, eq=False, repr=False)
class Solved:
    """Matrices that were found without training (on the CPU), and how good they are on the validation part.

    It answers what a `FitResult` answers: no epoch was trained, so `epoch` is 0 and `history` is empty.
    """

    users: Rows  # [n_users, d]
    items: Rows  # [n_items, d]
    encoder: ClosedForm
    score: float | None  # the validation metric, where a validation part was given
    seconds: float
    engine: str = "closed form"
    epoch: int = 0
    history: tuple[()] = ()
    stopped_early: bool = False
    clamped: None = None
    n_saturated_users: int = 0

    def matrices(self) -> tuple[Rows, Rows]:
        """(users, items)."""
        return self.users, self.items

    def __repr__(self) -> str:
        told = "" if self.score is None else f", validation {self.score:.4f}"
        shapes = f"{tuple(self.users.shape)} x {tuple(self.items.shape)}"
        return f"<Solved: {self.encoder}, {shapes}, {self.seconds:.1f} s{told}>"


def solve(encoder: ClosedForm, split: Split, metric: str, device: torch.device) -> Solved:
    """Learn from the train part alone; the validation part, if there is one, is only judged by."""
    began = time.perf_counter()
    validation = None if split.valid is None else Validation(split.valid, split.train, metric)
    users, items = encoder.solve(split.train, device)
    there = Solved(users, items, encoder, None, 0.0)
    score = (
        None if validation is None else validation(there)
    )  # where the items are: on the GPU, if there is one
    here = items.cpu() if isinstance(items, torch.Tensor) else items
    return Solved(users, here, encoder, score, time.perf_counter() - began)
