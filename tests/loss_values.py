"""Values of every loss, with the parameters that change the path of the code: one list for all tests."""

import dataclasses
import math
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses

from truepair.losses import (
    BCE,
    BPR,
    BSL,
    CCL,
    DCL,
    DPL,
    HCL,
    LOSSES,
    PSL,
    SL,
    DPLHalf,
    DPLHard,
    Family,
    InfoNCE,
    Loss,
    Pair,
    Row,
)

EXAMPLES = {
    "infonce": [InfoNCE(temperature=0.7), InfoNCE(temperature=0.2)],
    "sl": [SL(temperature=0.7)],
    "bsl": [
        BSL(temperature=0.7, positive_temperature=0.4),
        BSL(temperature=0.5, positive_temperature=2.5),
        BSL(temperature=0.9, positive_temperature=20.0),
    ],
    "psl": [
        PSL(temperature=0.6),
        PSL(temperature=0.2),
        PSL(temperature=3.0),
        PSL(temperature=0.3, surrogate="relu"),
        PSL(temperature=1.7, surrogate="relu"),
        PSL(temperature=0.8, surrogate="atan"),
    ],
    "bpr": [BPR()],
    "bce": [BCE(), BCE(weight=3.5)],
    "ccl": [CCL(), CCL(weight=0.7, margin=-0.3)],
    "dcl": [DCL(tau=0.1, temperature=0.5), DCL(tau=0.3, temperature=1.3, min_score=-4.0)],
    "hcl": [
        HCL(tau=0.1, temperature=0.8, beta=0.6),
        HCL(tau=0.0, beta=2.0),
        HCL(tau=0.1, temperature=0.5, beta=0.0),
        HCL(tau=0.1, temperature=0.5, beta=2.5, min_score=-50.0),
    ],
    "dpl": [
        DPL(tau=0.0),
        DPL(tau=0.07),
        DPL(tau=0.4, floor=0.02),
        DPL(tau=0.3, floor=1e-30),
        DPL(tau=0.4, floor=0.2, clamp="relative"),
        DPL(tau=0.9, floor=0.05, clamp="relative"),
        DPL(tau=0.2, clamp="relative", margin=0.7),
    ],
    "dpl-hard": [
        DPLHard(tau=0.3, beta=1.5),
        DPLHard(tau=0.25, beta=0.3, clamp="relative"),
        DPLHard(tau=0.3, clamp="relative", floor=0.2, beta=0.0),
        DPLHard(tau=0.2, beta=4.0, floor=1e-30),
        DPLHard(tau=0.2, beta=2.0, margin=1.5),
    ],
    "dpl-half": [
        DPLHalf(tau=0.0),
        DPLHalf(tau=0.3, floor=0.02),
        DPLHalf(tau=0.3, floor=1e-30),
        DPLHalf(tau=0.9, floor=0.05, clamp="relative"),
    ],
}


@dataclasses.dataclass(frozen=True)
class WeightedInfoNCE(Loss):
    """InfoNCE whose unlabelled items have random weights from 0.05 to 1, by the hooks of `Loss`."""

    family: ClassVar[Family] = Family(Pair.EXPONENTIAL, Row.SOFTMAX)
    needs_items: ClassVar[bool] = True
    temperature: float = 0.5

    def item_weights(self, shape, device):
        weights = 0.05 + 0.95 * torch.rand(shape, generator=torch.Generator().manual_seed(0))
        table = weights.log().to(device)
        return lambda users, columns: table[users] if columns is None else table[users][:, columns]

    def weighted(self, pos, unlabelled, log_weights):
        log_sum = (unlabelled / self.temperature + log_weights).logsumexp(dim=1)
        log_mean = log_sum - log_weights.logsumexp(dim=1)
        return F.softplus(log_mean + math.log(unlabelled.shape[1]) - pos / self.temperature)

    def for_new_users(self):
        return InfoNCE(self.temperature)

    def _rows(self, pos, extra, unlabelled, users):
        return InfoNCE(self.temperature).rows(pos, extra, unlabelled, users)


FLOORED = [kind for kind in LOSSES.values() if kind.has_floor]
COMPARING = (Row.MEAN, Row.DEBIASED_MEAN, Row.DEBIASED_HALF)  # they compare each anchor with each score


def all_values(taus):
    """Every example, every loss with its defaults, and with one prior per user where it has a prior."""
    examples = [loss for name in LOSSES for loss in EXAMPLES[name]]
    return [*examples, *(one_of(kind) for kind in LOSSES.values()), *(kind(tau=taus) for kind in FLOORED)]


def one_of(kind, tau=0.1):
    """A loss with its defaults and this prior, if it has one."""
    return kind(tau=tau) if kind.uses_prior else kind()


def two_of_each(taus):
    """What training is tried with: two values of each loss, one of them with a prior per user."""
    found = []
    for name, kind in LOSSES.items():
        first, *_, last = [*EXAMPLES[name], EXAMPLES[name][-1]]
        found += dict.fromkeys([dataclasses.replace(first, tau=taus) if kind.has_floor else first, last])
    return found


def fused_values(kinds, taus):
    """The values that engines over sampled items have: no margin but CCL's; and small and large priors."""
    values = [loss for loss in all_values(taus) if type(loss) in kinds and not _is_full_only(loss)]
    return [*values, *(kind(tau=tau) for kind in FLOORED for tau in (0.0, 0.05, 0.4, 0.97))]


def _is_full_only(loss):
    return isinstance(loss, DPL) and loss.margin != 0
