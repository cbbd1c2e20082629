"""The usual values of parameters that nobody gave, and the given ones that nothing uses.

The usual values depend on whether items are drawn; docs/lab/full-catalogue-log.md has the evidence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from truepair.losses import LOSSES, Loss
from truepair.models.closed_forms import ClosedForm
from truepair.models.encoders import ENCODERS, Encoder
from truepair.sampling import Full, Sampler

WITHOUT_DRAWS: dict[str, Any] = {
    "dim": 128, "scoring": "cosine", "temperature": 0.15, "popularity": 0.0, "weight_decay": 0.0,
    "epochs": 40, "learning_rate": 5e-3, "schedule": "cosine", "patience": None, "validation": 0.0,
}  # fmt: skip
WITH_DRAWS: dict[str, Any] = {
    "dim": 64, "scoring": "dot", "temperature": 1.0, "popularity": 0.0, "weight_decay": 1e-5,
    "epochs": 200, "learning_rate": 3e-3, "schedule": "constant", "patience": 10, "validation": 0.1,
}  # fmt: skip


def usual(sampler: str | Sampler, loss: str | Loss = "") -> dict[str, Any]:
    """The usual values with a sampler and a loss, given by their names or themselves."""
    values = WITHOUT_DRAWS if is_full(sampler) else WITH_DRAWS
    kind = LOSSES.get(loss) if isinstance(loss, str) else type(loss)
    cosines = kind is not None and getattr(kind, "needs_cosines", False)
    return {**values, "scoring": "cosine", "temperature": 1.0} if cosines else values


def given_over(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The usual values, and over them what was given: anything but None, and a patience that is no word.

    >>> given_over({"epochs": 40, "patience": 10}, {"epochs": None, "patience": None, "seed": 1})
    {'epochs': 40, 'patience': None, 'seed': 1}
    """
    told = {name: value for name, value in given.items() if value is not None or name == "patience"}
    if told.get("patience") == "auto":
        del told["patience"]
    return {**values, **told}


def usual_batch(sampler: str | Sampler, n_pairs: int) -> int:
    """Users of a batch, one for each 1000 pairs, from 8 to 128; where items are drawn, pairs of a batch: a
    64th of them all, from 64 to 1024."""
    if is_full(sampler):
        return min(max(n_pairs // 1000, 8), 128)
    return min(max(n_pairs // 64, 64), 1024)


def is_full(sampler: str | Sampler) -> bool:
    """Whether nothing is drawn."""
    return sampler == "full" or isinstance(sampler, Full)


# --- given, and not used ---------------------------------------------------------------------------------


def unused(
    given: Collection[str], encoder: object, loss: object, sampler: str | Sampler, closed: ClosedForm | None
) -> dict[str, str]:
    """Those of the given parameters that nothing uses: the reason, and the remedy.

    `closed` is the encoder if it is one without training. It uses hardly any, and that is no error: people
    change the encoder alone to have a reference point. But a prior is given to a loss, and it has none.
    """
    if closed is not None:
        why = f"encoder = {closed} is not trained; leave it out, or give one of {', '.join(ENCODERS)}"
        return {name: why for name in ("tau", "plus") if name in given}
    alone = "" if "plus" in given else "nothing is added to the scores; leave it out, or give plus='ease'"
    reasons = {"tau": _without_prior(loss), "plus_weight": alone}
    if isinstance(encoder, Encoder):
        reasons |= dict.fromkeys(
            ("dim", "scoring", "temperature", "popularity"), _has_its_own("encoder", encoder)
        )
    if is_full(sampler):
        why = f"sampler = {sampler!r} compares with all items; leave it out, or give a sampler that draws"
        reasons |= dict.fromkeys(("n_extra", "n_unlabelled"), why)
    return {name: why for name, why in reasons.items() if why and name in given}


def _without_prior(loss: object) -> str:
    """Why a prior beside this loss is not used; nothing if it is."""
    kind = LOSSES.get(loss) if isinstance(loss, str) else type(loss)
    if kind is None or not issubclass(kind, Loss):
        return ""  # an error of its own
    if kind.uses_prior:
        return "" if isinstance(loss, str) else _has_its_own("loss", loss)
    have = ", ".join(name for name, other in LOSSES.items() if other.uses_prior)
    return f"loss = {loss!r} has no prior; {have} have"


def _has_its_own(part: str, value: object) -> str:
    kind = type(value).__name__
    return f"{part} = {kind}(…) has its own; give it there, as a field of {kind}, or give the {part} by name"
