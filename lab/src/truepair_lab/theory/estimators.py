"""The estimator P̂ as it is shipped, and wrong ones on purpose: a check that passes them is no check."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from truepair.losses import DPL, DPLHalf, Loss, Rows
from truepair_lab.theory.scores import Array

TINY = 1e-12
"""A floor that only a P̂ ≤ 0 can meet: below it exp(−loss) is P̂ no more."""


class Draw(NamedTuple):
    """Rows of scores."""

    tau: float
    pos: Array  # [B], the anchors
    extra: Array  # [B, M]
    unlabelled: Array  # [B, N]
    spare: Array  # [B, M], unlabelled scores for who mistakes them for extra positives


def shipped(draw: Draw, floor: float = TINY) -> Rows:
    """`truepair.losses.DPL` itself: −log max(P̂, floor) of each row, and which rows met the floor."""
    return _rows(DPL(tau=draw.tau, floor=floor), draw, draw.extra)


def _undivided(draw: Draw) -> Rows:
    rows = shipped(draw)
    return Rows(rows.loss - math.log1p(-draw.tau), rows.clamped)


def _half(draw: Draw) -> Rows:
    return _rows(DPLHalf(tau=draw.tau, floor=TINY), draw, draw.extra)


def _doubled(draw: Draw) -> Rows:
    return _rows(DPL(tau=min(2 * draw.tau, 0.9), floor=TINY), draw, draw.extra)


def _mixed(draw: Draw) -> Rows:
    return _rows(DPL(tau=draw.tau, floor=TINY), draw, draw.spare)


def _uncorrected(draw: Draw) -> Rows:
    return _rows(DPL(tau=0.0, floor=TINY), draw, draw.extra)


WRONG: dict[str, Callable[[Draw], Rows]] = {
    "no correction (τ = 0)": _uncorrected,
    "no division by 1 − τ": _undivided,
    "½ for the extra positives": _half,
    "τ doubled": _doubled,
    "extra positives drawn from the unlabelled": _mixed,
}
"""Each is wrong for a fixed anchor where 0 < τ; at τ = 0 all are right."""

HALF = "½ for the extra positives"


def _rows(loss: Loss, draw: Draw, extra: Array) -> Rows:
    return loss.rows(*(torch.from_numpy(scores) for scores in (draw.pos, extra, draw.unlabelled)))
