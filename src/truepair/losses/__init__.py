"""Losses: functions of scores, one row at a time.

A row is a data entry (u, i, i₁…i_M, j₁…j_N) after scoring:

    pos         s⁺          [B]     the anchor, an item the user has
    extra       s'₁ … s'_M  [B, M]  more items of the same user; None if there are none (M = 0)
    unlabelled  s₁ … s_N    [B, N]  items the user has no interaction with (N ≥ 1)

A loss is a frozen value with its parameters. Calling it gives one number a row, and the caller reduces.
It never sees an embedding. This package needs PyTorch and truepair's errors, nothing else, so that a loss can
be used in any training loop:

>>> loss = InfoNCE(temperature=0.2)
>>> pos, unlabelled = torch.zeros(4), torch.zeros(4, 1)
>>> loss(pos, extra=None, unlabelled=unlabelled).mean()
tensor(0.6931)

Everything is computed from logarithms (logsigmoid, logsumexp), so scores of ±1e4 are safe in float32.

A loss states its family and its parameters once, in its class (see `base`): engines, the tuner's search
spaces, tables and tests read them there.
"""

from __future__ import annotations

import dataclasses
import re

import torch as torch

from truepair.errors import InputError, check_type
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
from truepair.losses.softmax import BSL as BSL
from truepair.losses.softmax import PSL as PSL
from truepair.losses.softmax import SL as SL
from truepair.losses.softmax import InfoNCE as InfoNCE

LOSSES: dict[str, type[Loss]] = {
    "infonce": InfoNCE,
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


def register_loss(name: str, kind: type[Loss]) -> None:
    """Make a loss of your own known by a name: models with it can be saved, and chosen by the name.

    `kind` is a frozen dataclass derived from `Loss`, each of whose fields has a default. Register it in every
    program that loads such a model, before loading: a model file holds the name and the fields, never code.
    A class that is defined again, as by a cell of a notebook that runs again, replaces the earlier one.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Mine(BPR):
    ...     slope: float = 2.0
    >>> register_loss("mine", Mine)
    >>> LOSSES.pop("mine").__name__
    'Mine'
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise InputError(f"name = {name!r} must be lower-case letters, digits, - and _, such as 'hinge'.")
    check_type("kind", kind, type, "give the class itself, such as Hinge")
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    if not issubclass(kind, Loss) or not frozen:
        raise InputError(f"{kind.__name__} must be a @dataclass(frozen=True) that is derived from Loss.")
    absent = (dataclasses.MISSING, dataclasses.MISSING)
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    if bare := [f.name for f in fields if (f.default, f.default_factory) == absent]:
        raise InputError(f"{kind.__name__} has fields without a default: {', '.join(bare)}; give them one.")
    if "kind" in (names := [f.name for f in fields]):
        raise InputError(f"{kind.__name__} has a field `kind`, the name of the loss in files; rename it.")
    if kind.uses_prior and "tau" not in names:
        raise InputError(f"{kind.__name__} has uses_prior = True but no field tau; add tau = 0.1, say.")
    try:
        kind()
    except Exception as error:  # from code of the caller, so of any type
        raise InputError(f"{kind.__name__}() cannot be constructed: {error}") from error
    again = name in LOSSES and _definition(LOSSES[name]) == _definition(kind)
    for taken, other in LOSSES.items():
        if again and taken == name:
            continue
        if (taken == name) != (other is kind):
            raise InputError(f"{taken!r} is {other.__name__} already; choose another name, or another class.")
    LOSSES[name] = kind


def _definition(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
