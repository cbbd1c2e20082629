"""Losses: functions of scores, one row at a time.

A row is a data entry (u, i, i₁…i_M, j₁…j_N) after scoring:

    pos         s⁺          [B]     the anchor, an item the user has
    extra       s'₁ … s'_M  [B, M]  more items of the same user (M may be 0)
    unlabelled  s₁ … s_N    [B, N]  items the user has no interaction with (N ≥ 1)

A loss is a frozen value with its parameters. Calling it gives one number a row, and the caller reduces.
It never sees an embedding. This package needs PyTorch and truepair's errors, nothing else, so that a loss can
be used in any training loop:

>>> loss = InfoNCE(temperature=0.2)
>>> pos, extra, unlabelled = torch.zeros(4), torch.zeros(4, 0), torch.zeros(4, 1)
>>> loss(pos, extra, unlabelled).mean()
tensor(0.6931)

Everything is computed from logarithms (logsigmoid, logsumexp), so scores of ±1e4 are safe in float32.

A loss states its family and its parameters once, in its class (see `base`): engines, the tuner's search
spaces, tables and tests read them there.
"""

from __future__ import annotations

import torch as torch

from truepair.losses.base import Family as Family
from truepair.losses.base import Loss as Loss
from truepair.losses.base import Pair as Pair
from truepair.losses.base import Row as Row
from truepair.losses.base import Rows as Rows
from truepair.losses.debiased import DCL as DCL
from truepair.losses.debiased import DPL as DPL
from truepair.losses.debiased import HCL as HCL
from truepair.losses.debiased import PRIOR_WORDS as PRIOR_WORDS
from truepair.losses.debiased import DPLHalf as DPLHalf
from truepair.losses.debiased import DPLHard as DPLHard
from truepair.losses.debiased import Prior as Prior
from truepair.losses.pairwise import BCE as BCE
from truepair.losses.pairwise import BPR as BPR
from truepair.losses.pairwise import CCL as CCL
from truepair.losses.pairwise import Pointwise as Pointwise
from truepair.losses.posterior_weighted import InfoNCEPosterior as InfoNCEPosterior
from truepair.losses.softmax import BSL as BSL
from truepair.losses.softmax import PSL as PSL
from truepair.losses.softmax import SL as SL
from truepair.losses.softmax import InfoNCE as InfoNCE

LOSSES: dict[str, type[Loss]] = {
    "infonce": InfoNCE,
    "infonce-posterior": InfoNCEPosterior,
    "sl": SL,
    "bsl": BSL,
    "psl": PSL,
    "bpr": BPR,
    "bce": BCE,
    "ccl": CCL,
    "dcl": DCL,
    "hcl": HCL,
    "dpl": DPL,
    "dpl-hard": DPLHard,
    "dpl-half": DPLHalf,
}
