"""Treatments: what is trained on a case, in one table. Losses with a τ get the true one, or a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from truepair.data.interactions import Interactions
from truepair.losses import BPR, DCL, DPL, HCL, DPLHalf, DPLHard, InfoNCE, Loss
from truepair.sampling import BNS, DNS, Popularity, Sampler, Uniform
from truepair_lab.truth.cases import Mask, TruthCase, mask_of

M = N = 5  # extra positives and unlabelled items of a row
HIGHEST_TAU = 0.9  # a wrong τ stays below it

# The samplers whose draws are counted, for every model. DNS and BNS keep N of a pool.
PROBED: dict[str, Sampler] = {
    "uniform": Uniform(),
    "popularity": Popularity(1.0),
    "dns": DNS(pool=5 * N),
    "bns": BNS(pool=5 * N, in_batch=True),
}


@dataclass(frozen=True)
class Labels:
    """What a supervised model may know: its anchors, and the pairs that are never drawn as negatives."""

    anchors: Mask
    excluded: Mask


@dataclass(frozen=True)
class Treatment:
    """A way to train. `labels` is None for those that see the observed pairs alone."""

    title: str
    loss: Callable[[TruthCase], Loss]
    sampler: Sampler = field(default_factory=Uniform)
    n: int = N  # unlabelled items of a row
    labels: Callable[[TruthCase], Labels] | None = None
    settings_of: str | None = None  # the treatment whose settings it takes, instead of a search of its own


def _times(factor: float) -> Callable[[TruthCase], Loss]:
    return lambda case: DPL(min(factor * case.tau, HIGHEST_TAU))


def _bpr(case: TruthCase) -> Loss:
    return BPR()


TREATMENTS: dict[str, Treatment] = {
    "bpr": Treatment("BPR", _bpr),
    "infonce": Treatment("InfoNCE", lambda case: InfoNCE()),
    "dcl": Treatment("DCL", lambda case: DCL(case.tau)),
    "hcl": Treatment("HCL", lambda case: HCL(case.tau)),
    "bns": Treatment("BNS", _bpr, BNS(pool=5, in_batch=True), n=1),  # as published
    "dpl": Treatment("DPL", lambda case: DPL(case.tau)),
    "dpl-hard": Treatment("DPL, hard weights", lambda case: DPLHard(case.tau)),
    "dpl-tau-0": Treatment("DPL, τ = 0", lambda case: DPL(0.0)),
    "dpl-tau-half": Treatment("DPL, τ × ½", _times(0.5)),
    "dpl-tau-2": Treatment("DPL, τ × 2", _times(2)),
    "dpl-tau-5": Treatment("DPL, τ × 5", _times(5)),
    "dpl-half": Treatment("DPL with ½", lambda case: DPLHalf(case.tau)),
    "dpl-user": Treatment("DPL, each user's τ", lambda case: DPL(case.user_tau)),
}
"""What learns from observed pairs alone."""


# --- supervised: BPR with labels -----------------------------------------------------------------------


def _clean_draws(case: TruthCase) -> Labels:
    """Observed anchors; draws are true negatives, and never a judged pair."""
    return Labels(mask_of(case.train), case.truth | case.judged | case.spare)


def _supervised(case: TruthCase) -> Labels:
    """All positives but the judged ones as anchors; draws as above."""
    held_out = case.judged | mask_of(case.valid)
    return Labels(case.truth & ~held_out, case.truth | case.judged | case.spare)


def _clean_draws_with_judged(case: TruthCase) -> Labels:
    """Observed anchors; draws are true negatives, judged ones too: what is never drawn gives itself away."""
    return Labels(mask_of(case.train), case.truth | case.spare)


def _all_labels(case: TruthCase) -> Labels:
    """Every label, those that judge too: what the model can hold in memory."""
    return Labels(case.truth & ~mask_of(case.valid), case.truth | case.spare)


REFERENCES: dict[str, Treatment] = {
    "clean-draws": Treatment("true negatives only", _bpr, labels=_clean_draws),
    "supervised": Treatment("fully supervised", _bpr, labels=_supervised),
    "clean-draws-told": Treatment(
        "true negatives only, judged ones too",
        _bpr,
        labels=_clean_draws_with_judged,
        settings_of="clean-draws",
    ),
    "all-labels": Treatment(
        "all labels, judged ones too", _bpr, labels=_all_labels, settings_of="supervised"
    ),
}
"""BPR that knows labels. The first two never touch a judged pair; the others saw the answers."""

EVERY = TREATMENTS | REFERENCES


def excluded_pairs(case: TruthCase, labels: Labels) -> Interactions:
    """What a supervised model's draws avoid, its anchors among it; a user with no negative left has none."""
    return case.pairs(np.asarray(labels.excluded | labels.anchors))
