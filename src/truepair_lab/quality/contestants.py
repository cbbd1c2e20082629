"""The contestants: what each has fixed, what is searched, and how much.

All that are trained use the full catalogue and, except for one, cosine scores. They share their ranges and
have their own parameters besides; the reference points have the ranges of the clean study. Lines call
full-catalogue training “exact”, as version 0.1 did: methods begin with `exact-`, the sampler is "exact".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truepair.errors import check_choice
from truepair.tuning import Choice, Powers, Range
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.report.names import ENCODER_NAMES, METHOD_NAMES
from truepair_lab.paper.running.search import fixed_reference
from truepair_lab.paper.running.search import space_of as paper_space
from truepair_lab.searching import Searched, trials_for

FULL = "exact-"  # as the lines have it
INFONCE, POSTERIOR = "exact-infonce", "exact-infonce-posterior"
METHODS_OF: dict[str, tuple[str, ...]] = {
    "mf": (
        "exact-infonce", "exact-dpl-hard", "exact-dpl", "exact-bpr", "exact-psl", "exact-bsl",
        "exact-infonce-posterior", "exact-infonce-popularity", "exact-infonce-dot",
    ),
    "lightgcn": ("exact-infonce", "exact-dpl-hard", "exact-psl"),
    "mf+ease": ("exact-infonce",),
    "lightgcn+ease": ("exact-infonce",),
    NO_ENCODER: ("ease", "ease-powers", "ials-scaled", "ials", "itemknn", "popularity"),
}  # fmt: skip
BLEND_SUFFIX = "+ease"  # a blend of two models, each with its best settings: only its weight is searched
ENCODERS = tuple(METHODS_OF)
METHODS = tuple(dict.fromkeys(method for of in METHODS_OF.values() for method in of))
REFERENCES = METHODS_OF[NO_ENCODER]
SCALED = "ials-scaled"
BASELINES = ("ease", "ease-powers", SCALED)  # every contestant is compared with these

TRIALS = {"mf": 30, "lightgcn": 15, "mf+ease": 12, "lightgcn+ease": 12, NO_ENCODER: 30}
TRIALS_LARGE = {"mf": 20, "lightgcn": 12}  # where a trial takes minutes of a CPU, seconds of a GPU
_FEW = 6  # where a trial trains twice, and all but one parameter is settled
EPOCHS = {"small": 60, "large": 40}  # of the cosine schedule; validation chooses where to stop
SWEEPS = {"small": 24, "large": 16}  # of iALS; validation chooses where to stop
SEEDS = 5  # training seeds 0, 1, …
OTHER_SEEDS = 3  # of settings that another choice would have made
_EVERY = 5  # epochs between two validations
_SOLVED = ("ease", "ease-powers", "itemknn", "popularity")  # the same whatever the seed

_NAMES = {  # nothing is sampled here
    "psl": "PSL", "bsl": "BSL", "dpl-hard": "DPL, hard weights", "infonce-posterior": "InfoNCE-posterior",
    "infonce-popularity": "InfoNCE with popularity", "infonce-dot": "InfoNCE, dot products",
    "ease-powers": "EASE with powers", "ials-scaled": "iALS", "ials": "iALS of implicit",
}  # fmt: skip

Model = tuple[str, str]  # encoder, method
MODELS: tuple[Model, ...] = tuple((encoder, method) for encoder, of in METHODS_OF.items() for method in of)
FULL_FAMILY, EASE_FAMILY, IALS_FAMILY = "full-catalogue", "EASE", "iALS"
FAMILIES: dict[str, tuple[Model, ...]] = {  # each is tuned with as many trials as the first
    FULL_FAMILY: tuple(model for model in MODELS if model[0] != NO_ENCODER),
    EASE_FAMILY: ((NO_ENCODER, "ease"), (NO_ENCODER, "ease-powers")),
    IALS_FAMILY: ((NO_ENCODER, SCALED),),
}
# how many of a search's best settings are scored on the other validation parts: one trained contestant is one
# of many of its family, so that families have about equally many
_SCORED_AGAIN = {
    "small": {"ease": 4, "ease-powers": 8, SCALED: 12},
    "large": {"ease": 1, "ease-powers": 2, SCALED: 3},
}

_BLOCK = {"small": Powers(64, 256), "large": Powers(256, 1024)}  # users
_DIM = {"small": Powers(64, 512, most=1024), "large": Powers(128, 512, most=512)}
_TEMPERATURE = Range(0.05, 0.4, log=True)
# Sparse data: any decay harms, popularity helps; elsewhere neither does much (docs/lab/full-catalogue-log.md)
_SPARSE: dict[str, dict[str, Searched]] = {
    "small": {"weight_decay": Range(1e-8, 1e-3, log=True)},
    "large": {"encoder.popularity": Range(0.0, 0.06, least=0.0, most=0.3)},
}
_TAU = Range(0.0, 0.6, most=0.9)
_OWN: dict[str, dict[str, Searched]] = {
    "infonce": {"loss.temperature": _TEMPERATURE},
    "infonce-popularity": {
        "loss.temperature": _TEMPERATURE,
        "encoder.popularity": Range(0.0, 0.3, least=0.0, most=2.0),
    },
    "infonce-dot": {"loss.temperature": Range(0.5, 8.0, log=True)},
    "infonce-posterior": {
        "loss.temperature": _TEMPERATURE,
        "loss.tau": Range(0.001, 0.3, log=True, most=0.9),
    },
    "dpl": {"encoder.temperature": _TEMPERATURE, "loss.tau": _TAU},
    "dpl-hard": {
        "encoder.temperature": _TEMPERATURE,
        "loss.tau": _TAU,
        "loss.beta": Range(0.3, 2.0, least=0.0),
    },
    "bpr": {"encoder.temperature": _TEMPERATURE},
    # with ψ(d) = e^d it would be the softmax at twice its temperature
    "psl": {"loss.temperature": Range(0.025, 0.2, log=True)},
    "bsl": {"loss.temperature": _TEMPERATURE, "loss.positive_temperature": Range(0.1, 2.0, log=True)},
}


_IALS: dict[str, Searched] = {
    "dim": Powers(16, 512),
    "unobserved": Range(0.003, 3.0, log=True),
    "regularization": Range(3e-4, 3.0, log=True),
    "exponent": Range(0.0, 1.5),
    "init_scale": Range(0.01, 1.0, log=True),
}


def space_of(encoder: str, method: str, large: bool) -> dict[str, Searched]:
    """What is searched."""
    check_choice("method", method, METHODS_OF[check_choice("encoder", encoder, METHODS_OF)])
    if method == "ease-powers":
        powers = {f"encoder.{side}_power": Range(0.0, 1.0, most=1.0) for side in ("user", "item")}
        return {"encoder.l2": Range(1.0, 1e6, log=True), **powers}
    if method == SCALED:
        return dict(_IALS)
    if encoder == NO_ENCODER:
        return paper_space(encoder, method)
    if encoder.endswith(BLEND_SUFFIX):
        return {"plus_weight": Range(0.02, 4.0, log=True)}
    if large and method == POSTERIOR:
        return {"loss.tau": Range(0.0005, 0.1, log=True)}
    shared: dict[str, Searched] = {
        "learning_rate": Range(1e-3, 3e-2, log=True),
        **_SPARSE[_size(large)],
        "encoder.dim": _DIM[_size(large)],
        "batch_size": _BLOCK[_size(large)],
    }
    if large and _is_dpl(method):
        shared["loss.margin"] = Range(0.0, 6.0, most=12.0)
    graph: dict[str, Searched] = {"encoder.hops": Choice((1, 2, 3))} if encoder == "lightgcn" else {}
    return shared | _OWN[method.removeprefix(FULL)] | graph


def fixed_of(encoder: str, method: str, large: bool) -> dict[str, Any]:
    """What is not searched; see `parameters.assembled`."""
    if method == SCALED:
        return {"epochs": SWEEPS[_size(large)], "validate_every": 4 if large else 2}
    if encoder == NO_ENCODER:
        return fixed_reference("ease" if method == "ease-powers" else method)
    loss = method.removeprefix(FULL)
    # of two temperatures the one would only multiply the other
    settled: dict[str, Any] = {} if "encoder.temperature" in _OWN[loss] else {"encoder.temperature": 1.0}
    if large:
        settled |= {"weight_decay": 0.0} | ({"loss.floor": 1e-6} if _is_dpl(method) else {})
    return {
        "encoder": encoder, "encoder.scoring": "dot" if loss == "infonce-dot" else "cosine",
        "loss": loss.removesuffix("-popularity").removesuffix("-dot"),
        "sampler": "exact", "schedule": "cosine", "epochs": EPOCHS[_size(large)],
        "validate_every": _EVERY, "patience": None, **settled,
    }  # fmt: skip


def _is_dpl(method: str) -> bool:
    """On sparse data it needs a margin, and a low floor: see docs/lab/full-catalogue-log.md."""
    return method.removeprefix(FULL).startswith("dpl")


def _size(large: bool) -> str:
    return "large" if large else "small"


def trials_of(encoder: str, space: Mapping[str, Searched], large: bool) -> int:
    """How many trials a search has, before ranges grow."""
    trials = (TRIALS | TRIALS_LARGE if large else TRIALS)[encoder]
    return _FEW if large and list(space) == ["loss.tau"] else trials_for(space, trials)


def equal_trials(model: Model, trials: int, counts: Mapping[Model, int]) -> int:
    """As many trials as give the family of a reference point those of the full-catalogue family, if these are
    more; `counts` has the trials of each contestant of the case."""
    family = next((of for name, of in FAMILIES.items() if name != FULL_FAMILY and model == of[-1]), ())
    if not family:
        return trials
    wanted = sum(counts.get(each, 0) for each in FAMILIES[FULL_FAMILY])
    return max(trials, wanted - sum(counts.get(each, 0) for each in family[:-1]))


def scored_again(model: Model, large: bool) -> int:
    """How many settings of a contestant are scored on the other validation parts."""
    return _SCORED_AGAIN[_size(large)].get(model[1], 0 if model[0] == NO_ENCODER else 2)


def twin_of(model: Model, large: bool) -> Model | None:
    """The contestant whose best settings are taken over: a large case searches only what is a loss's own."""
    return (model[0], INFONCE) if large and model[1] == POSTERIOR else None


def parts_of(model: Model) -> tuple[Model, Model] | None:
    """The two contestants whose scores a contestant sums, if it does."""
    encoder, method = model
    return (
        ((encoder.removesuffix(BLEND_SUFFIX), method), (NO_ENCODER, "ease-powers"))
        if encoder.endswith(BLEND_SUFFIX)
        else None
    )


def seeds_of(method: str, seeds: int | None) -> range:
    """The training seeds of a contestant; one for what no seed changes."""
    return range(1 if method in _SOLVED else SEEDS if seeds is None else seeds)


def title(model: Model) -> str:
    """A contestant as people write it.

    >>> title(("mf", "exact-infonce")), title(("-", "ease"))
    ('MF full-catalogue InfoNCE', 'EASE')
    """
    encoder, method = model
    loss = method.removeprefix(FULL)
    name = _NAMES.get(loss, METHOD_NAMES.get(loss, loss))
    trained, added = encoder.removesuffix(BLEND_SUFFIX), encoder.endswith(BLEND_SUFFIX)
    words = [ENCODER_NAMES.get(trained, trained), "full-catalogue" if method.startswith(FULL) else "", name]
    return " ".join(filter(None, words)) + (" + EASE" if added else "")
