"""What is searched where nobody says otherwise: what all have, and what each kind has of its own."""

from __future__ import annotations

import dataclasses

from truepair.closed import ALL_ENCODERS, CLOSED
from truepair.errors import InputError, check_choice
from truepair.experiments.tuning.domains import Choice, Domain, Powers, Range, When
from truepair.losses import LOSSES
from truepair.sampling import SAMPLERS

# every model that is trained
COMMON: dict[str, Domain | When] = {
    "learning_rate": Range(5e-4, 2e-2, log=True),
    "weight_decay": Range(1e-8, 1e-3, log=True),
    "encoder.dim": Powers(32, 128),
    "n_unlabelled": Powers(1, 32),
    "encoder.scoring": Choice(["dot", "cosine"]),
    "encoder.temperature": When("encoder.scoring", "cosine", Range(0.05, 0.5, log=True)),
}

# fields of losses; a loss has those that it has. Extra positives are for those that use them.
LOSS_FIELDS: dict[str, Domain | When] = {
    "loss.tau": Range(1e-3, 0.4, log=True, most=0.9),
    "loss.temperature": Range(0.1, 2.0, log=True),
    "loss.beta": Range(0.1, 4.0, least=0.0),
}
EXTRA: dict[str, Domain | When] = {"n_extra": Powers(1, 16)}

# a sampler that chooses needs more candidates than it keeps, whatever is extended
POOLED: dict[str, Domain | When] = {
    "n_unlabelled": Powers(1, 8, most=8),
    "sampler.pool": Powers(16, 64, least=16),
}
SAMPLER_FIELDS: dict[str, dict[str, Domain | When]] = {
    "popularity": {"sampler.alpha": Range(0.25, 1.0, least=0.0)},
    "dns": POOLED,
    "bns": {**POOLED, "sampler.weight": Range(0.5, 20.0, log=True)},
}

ENCODER_FIELDS: dict[str, dict[str, Domain | When]] = {"lightgcn": {"encoder.hops": Choice([1, 2, 3])}}

# models without training have nothing but their own fields
SOLVED: dict[str, dict[str, Domain | When]] = {
    "ease": {"encoder.l2": Range(10.0, 1e4, log=True)},
    "itemknn": {"encoder.neighbours": Powers(16, 512), "encoder.shrink": Range(1.0, 1e3, log=True)},
}


def default_space(
    loss: str = "dpl", encoder: str = "mf", sampler: str = "uniform"
) -> dict[str, Domain | When]:
    """What is worth searching for this loss, encoder and sampler.

    >>> list(default_space("bpr"))[-1], list(default_space("dpl"))[-1]
    ('encoder.temperature', 'n_extra')
    """
    if check_choice("encoder", encoder, ALL_ENCODERS) in CLOSED:
        if encoder not in SOLVED:
            raise InputError(f"encoder = {encoder!r} has no parameters, so there is nothing to tune.")
        return dict(SOLVED[encoder])
    kind = LOSSES[check_choice("loss", loss, LOSSES)]
    check_choice("sampler", sampler, SAMPLERS)
    has = {f"loss.{field.name}" for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    own = {name: domain for name, domain in LOSS_FIELDS.items() if name in has}
    extra = EXTRA if kind.uses_extra else {}
    return {**COMMON, **own, **extra, **SAMPLER_FIELDS.get(sampler, {}), **ENCODER_FIELDS.get(encoder, {})}
