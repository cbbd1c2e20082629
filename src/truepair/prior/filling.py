"""A loss whose τ is to be found: "auto" and "per-user" become numbers."""

from __future__ import annotations

from typing import Any

from truepair.data.interactions import Interactions
from truepair.losses import Loss
from truepair.prior.estimate import PriorEstimate, estimate_prior

ESTIMATED = "auto", "per-user"  # what τ may be besides numbers and "density"


def with_estimated_prior(
    loss: Loss, train: Interactions, *, seed: int = 0, progress: bool = False
) -> tuple[Loss, dict[str, Any] | None]:
    """The loss with its prior, and what is worth remembering of the estimate; None if none was asked for.

    A training that is resumed must find the prior it began with, also on another machine: the quick training
    is on the CPU, where it repeats, and numbers are rounded to three digits.
    """
    word = getattr(loss, "tau", None)
    if word not in ESTIMATED:
        return loss, None
    found = estimate_prior(train, resamples=0, seed=seed, device="cpu", progress=progress)
    tau = _rounded(found.tau) if word == "auto" else [_rounded(own) for own in found.user_tau]
    return loss.with_prior(tau), _told(str(word), found)


def _told(word: str, found: PriorEstimate) -> dict[str, Any]:
    numbers = {"tau": found.tau, "low": found.low, "high": found.high, "separation": found.separation}
    told = {name: _rounded(value) for name, value in (numbers | found.methods).items()}
    return {"asked": word, **told}


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
