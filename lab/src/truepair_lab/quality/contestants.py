"""The contestants: what each has fixed, what is searched, and how much.

All that are trained use the full catalogue and, except for one, cosine scores. They share their ranges and
have their own parameters besides; the reference points have the ranges of the clean study. In a large case a
loss takes over the settings of InfoNCE, its twin, and only what is its own is searched; the ranges of the
reference points there are those that the searches of the former protocol, of 30 to 43 trials, left open.

Lines call full-catalogue training “exact”, as version 0.1 did: methods begin with `exact-`, the sampler is
"exact".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import truepair_lab.posterior  # noqa: F401, it registers the loss "infonce-posterior"
from truepair.errors import check_choice
from truepair.search.domains import Choice, Powers, Range, domain_of
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.report.names import ENCODER_NAMES, METHOD_NAMES
from truepair_lab.paper.running.search import fixed_reference
from truepair_lab.paper.running.search import space_of as paper_space
from truepair_lab.searching import Searched, trials_for

FULL = "exact-"  # as the lines have it
INFONCE, POSTERIOR = "exact-infonce", "exact-infonce-posterior"
HARD, POPULARITY = "exact-dpl-hard", "exact-infonce-popularity"
DEBIASED = ("exact-dpl", HARD, POSTERIOR)  # they expect positives among the unlabelled
_LOSSES = (INFONCE, "exact-psl", "exact-bsl", *DEBIASED)
CONTROL = "exact-dpl-hard-tau0"  # the settings of DPL with hard weights, and no correction
METHODS_OF: dict[str, tuple[str, ...]] = {
    "mf": (
        "exact-infonce", "exact-dpl-hard", "exact-dpl", "exact-bpr", "exact-psl", "exact-bsl",
        "exact-infonce-posterior", POPULARITY, "exact-infonce-dot", CONTROL,
    ),
    "lightgcn": _LOSSES,
    "mf+ease": (*_LOSSES, POPULARITY),
    "lightgcn+ease": _LOSSES,
    NO_ENCODER: ("ease", "ease-powers", "ials-scaled", "ials", "chebycf", "itemknn", "popularity"),
}  # fmt: skip
BLEND_SUFFIX = "+ease"  # a blend of two models, each with its best settings: only its weight is searched
ENCODERS = tuple(METHODS_OF)
METHODS = tuple(dict.fromkeys(method for of in METHODS_OF.values() for method in of))
REFERENCES = METHODS_OF[NO_ENCODER]
SCALED, CHEBYCF = "ials-scaled", "chebycf"
BASELINES = ("ease", "ease-powers", SCALED, CHEBYCF)  # every contestant is compared with these

TRIALS = {"mf": 30, "lightgcn": 15, "mf+ease": 12, "lightgcn+ease": 12, NO_ENCODER: 30}
TRIALS_LARGE = {  # by method; a blend searches its weight alone
    INFONCE: 14, "exact-psl": 2, "exact-bsl": 2, "exact-dpl": 3, "exact-dpl-hard": 5, POSTERIOR: 2,
    "ease": 8, "ease-powers": 42, SCALED: 48, CHEBYCF: 48, "itemknn": 4,
}  # fmt: skip
_WEIGHTS_LARGE, _HOPS_LARGE = 6, 4  # trials of a blend's weight, and of LightGCN's hops and temperature
EPOCHS = {"small": 60, "large": 30}  # of the cosine schedule; validation chooses where to stop
SWEEPS = {"small": 24, "large": 8}  # of iALS; validation chooses where to stop
SEEDS = 5  # training seeds 0, 1, …
OTHER_SEEDS = 3  # of settings that another choice would have made
_EVERY = 5  # epochs between two validations
_SOLVED = ("ease", "ease-powers", CHEBYCF, "itemknn", "popularity")  # the same whatever the seed

_NAMES = {  # nothing is sampled here
    "psl": "PSL", "bsl": "BSL", "dpl-hard": "DPL, hard weights", "dpl-hard-tau0": "DPL, hard weights, τ = 0",
    "infonce-posterior": "InfoNCE-posterior",
    "infonce-popularity": "InfoNCE with popularity", "infonce-dot": "InfoNCE, dot products",
    "ease-powers": "EASE with degree exponents", "ials-scaled": "iALS", "ials": "iALS of implicit",
    "chebycf": "ChebyCF",
}  # fmt: skip

Model = tuple[str, str]  # encoder, method
MODELS: tuple[Model, ...] = tuple((encoder, method) for encoder, of in METHODS_OF.items() for method in of)
FULL_FAMILY, EASE_FAMILY, IALS_FAMILY, CHEBYCF_FAMILY = "full-catalogue", "EASE", "iALS", "ChebyCF"
FAMILIES: dict[str, tuple[Model, ...]] = {  # each is tuned with as many trials as the first
    FULL_FAMILY: tuple(model for model in MODELS if model[0] != NO_ENCODER),
    EASE_FAMILY: ((NO_ENCODER, "ease"), (NO_ENCODER, "ease-powers")),
    IALS_FAMILY: ((NO_ENCODER, SCALED),),
    CHEBYCF_FAMILY: ((NO_ENCODER, CHEBYCF),),
}
# how many of a search's best settings are scored on the other validation parts: one trained contestant is one
# of many of its family, so that families have about equally many
_SCORED_AGAIN = {
    "small": {"ease": 4, "ease-powers": 8, SCALED: 12, CHEBYCF: 12},
    "large": {"ease": 1, "ease-powers": 2, SCALED: 3, CHEBYCF: 3},
}

_TEMPERATURE = Range(0.05, 0.4, log=True)
_SMALL: dict[str, Searched] = {  # shared by all trained contestants
    "learning_rate": Range(1e-3, 3e-2, log=True),
    "weight_decay": Range(1e-8, 1e-3, log=True),
    "encoder.dim": Powers(64, 512, most=1024),
    "batch_size": Powers(64, 256),  # users
}
SHARED_SMALL = tuple(_SMALL)
# Sparse data: any decay harms, popularity helps (docs/full-catalogue-log.md). The encoder's temperature
# divides cosines alone, so that popularity is γ of cos/t + γ·log(1 + users of the item).
_LARGE: dict[str, Searched] = {
    "learning_rate": Range(5e-3, 2e-2, log=True),
    "encoder.temperature": Range(0.05, 0.2, log=True),
    "encoder.popularity": Range(0.0, 1.2, least=0.0, most=2.0),
    "encoder.dim": Powers(256, 512, most=512),
    "batch_size": Powers(256, 512),
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
    "dpl-hard-tau0": {"encoder.temperature": _TEMPERATURE, "loss.beta": Range(0.3, 2.0, least=0.0)},
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
_POWERS: dict[str, Searched] = {
    "encoder.l2": Range(1.0, 1e6, log=True),
    **{f"encoder.{side}_power": Range(0.0, 1.0, most=1.0) for side in ("user", "item")},
}
_CHEBYCF: dict[str, Searched] = {
    "order": Powers(4, 16),
    "flatness": Range(0.5, 12.0, log=True),
    "vectors": Powers(32, 512),
    "ideal": Range(0.0, 0.6, least=0.0),
    "power": Range(0.0, 0.6, least=0.0),
}
_POINTS_LARGE: dict[str, dict[str, Searched]] = {
    "ease": {"encoder.l2": Range(10.0, 1000.0, log=True)},
    "ease-powers": {
        "encoder.l2": Range(20.0, 800.0, log=True),
        **{f"encoder.{side}_power": Range(0.0, 0.5, most=1.0) for side in ("user", "item")},
    },
    SCALED: {
        "unobserved": Range(0.005, 0.2, log=True),
        "regularization": Range(5e-4, 1e-2, log=True),
        "exponent": Range(0.9, 1.6),
    },
    CHEBYCF: {name: domain for name, domain in _CHEBYCF.items() if name not in ("order", "vectors")}
    | {"vectors": Powers(128, 1024)},
}
# what the search of a large case begins with, where that is not the middle of its ranges: the settings of
# ChebyCF that are published for Gowalla; the shape that the former protocol chose
FIRST: dict[str, dict[str, Any]] = {
    CHEBYCF: {"flatness": 1.5, "vectors": 512, "ideal": 0.2, "power": 0.4},
    INFONCE: {"encoder.dim": 512, "batch_size": 256, "encoder.popularity": 0.8},
}
# contestants of a large case that are run without a search where none was made: see `without_search`
UNSEARCHED: tuple[Model, ...] = (
    *(("mf", loss) for loss in (*_LOSSES[1:], CONTROL)),
    *(("lightgcn", loss) for loss in _LOSSES[1:]),
    *((f"{encoder}+ease", loss) for encoder in ("mf", "lightgcn") for loss in _LOSSES),
)


def space_of(encoder: str, method: str, large: bool, temperature: float = 0.1) -> dict[str, Searched]:
    """What is searched; in a large case around the temperature of the twin."""
    check_choice("method", method, METHODS_OF[check_choice("encoder", encoder, METHODS_OF)])
    if encoder == NO_ENCODER:
        return _space_of_point(method, large)
    if encoder.endswith(BLEND_SUFFIX):  # the scores of EASE are below 1, cosines are divided by t
        scale = 1 / temperature if large else 1.0
        return {"plus_weight": Range(0.02 * scale, 4.0 * scale, log=True)}
    if large and method == CONTROL:
        return {}
    if large and method in _LOSSES:  # the others are in no large case
        return _large_space(encoder, method, temperature)
    graph: dict[str, Searched] = {"encoder.hops": Choice((1, 2, 3))} if encoder == "lightgcn" else {}
    return _SMALL | _OWN[method.removeprefix(FULL)] | graph


def own_space(method: str, temperature: float) -> dict[str, Searched]:
    """What is a loss's own, around the temperature of InfoNCE; DPL with a margin."""
    loss = method.removeprefix(FULL)
    around = Range(temperature / 2, temperature * 2, log=True)
    halved = Range(temperature / 4, temperature, log=True)  # of PSL: see `_OWN`
    margin: dict[str, Searched] = {"loss.margin": Range(0.0, 4.0, least=0.0)} if _is_dpl(method) else {}
    found = {
        name: (halved if loss == "psl" else around) if domain is _TEMPERATURE or name == "loss.temperature"
        else domain
        for name, domain in _OWN[loss].items()
    }  # fmt: skip
    return found | margin


def _space_of_point(method: str, large: bool) -> dict[str, Searched]:
    if large and method in _POINTS_LARGE:
        return dict(_POINTS_LARGE[method])
    own = {"ease-powers": _POWERS, SCALED: _IALS, CHEBYCF: _CHEBYCF}
    return dict(own[method]) if method in own else paper_space(NO_ENCODER, method)


def _large_space(encoder: str, method: str, t: float) -> dict[str, Searched]:
    """InfoNCE's own space for MF, what is a loss's own for the others, hops for LightGCN, and nothing for its
    other losses: they have what was found for MF and for its InfoNCE."""
    if encoder == "lightgcn":
        around = Range(t / 1.3, t * 1.3, log=True)
        return {"encoder.hops": Choice((1, 2, 3)), "encoder.temperature": around} if method == INFONCE else {}
    own: dict[str, dict[str, Searched]] = {
        "psl": {"loss.temperature": Range(t / 3, t * 3 / 4, log=True)},  # of cosines: see fixed_of
        "bsl": {"loss.positive_temperature": Range(1.0, 8.0, log=True)},
        "infonce-posterior": {"loss.tau": Range(0.0002, 0.02, log=True)},
        # uniform weights need about the margin that a softmax has, the logarithm of the number of items
        "dpl": {"loss.tau": Range(0.0, 0.4), "loss.margin": Range(5.0, 12.0, least=0.0, most=14.0)},
        "dpl-hard": {
            "encoder.temperature": Range(t, 2 * t, log=True),
            "loss.beta": Range(1.0, 3.0, least=0.0),
            "loss.tau": Range(0.0, 0.3),
            "loss.margin": Range(2.0, 6.0, least=0.0, most=14.0),
        },
    }
    return dict(_LARGE) if method == INFONCE else own[method.removeprefix(FULL)]


def fixed_of(encoder: str, method: str, large: bool) -> dict[str, Any]:
    """What is not searched; see `parameters.assembled`."""
    if method == SCALED:
        large_only = {"dim": 512, "init_scale": 0.1} if large else {}
        return {"epochs": SWEEPS[_size(large)], "validate_every": 4 if large else 2, **large_only}
    if method == CHEBYCF:
        return {"order": 8} if large else {}
    if encoder == NO_ENCODER:
        return fixed_reference("ease" if method == "ease-powers" else method)
    loss = method.removeprefix(FULL)
    # of two temperatures the one would only multiply the other
    settled: dict[str, Any] = {} if "encoder.temperature" in _OWN[loss] else {"encoder.temperature": 1.0}
    if method == CONTROL:
        settled["loss.tau"] = 0.0
    if large and method in _LOSSES:
        settled = {"weight_decay": 0.0} | (
            {"loss.floor": 1e-6} if _is_dpl(method) else {"loss.temperature": 1.0}
        )
    return {
        "encoder": encoder, "encoder.scoring": "dot" if loss == "infonce-dot" else "cosine",
        "loss": loss.removesuffix("-popularity").removesuffix("-dot").removesuffix("-tau0"),
        "sampler": "exact", "schedule": "cosine", "epochs": EPOCHS[_size(large)],
        "validate_every": _EVERY, "patience": None, **settled,
    }  # fmt: skip


def _is_dpl(method: str) -> bool:
    """On sparse data it needs a margin, and a low floor: see docs/full-catalogue-log.md."""
    return method.removeprefix(FULL).startswith("dpl")


def _size(large: bool) -> str:
    return "large" if large else "small"


def trials_of(model: Model, space: Mapping[str, Searched], large: bool) -> int:
    """How many trials a search has, before ranges grow."""
    encoder, method = model
    if not space:
        return 1
    if not large or method not in TRIALS_LARGE:
        return trials_for(space, TRIALS[encoder])
    if encoder.endswith(BLEND_SUFFIX):
        return _WEIGHTS_LARGE
    return _HOPS_LARGE if encoder == "lightgcn" else TRIALS_LARGE[method]


def equal_trials(model: Model, trials: int, counts: Mapping[Model, int], large: bool = False) -> int:
    """As many trials as give the family of a reference point those of the full-catalogue family that train,
    if these are more; `counts` has the trials of each contestant of the case. Weights of blends train nothing
    and do not count. In a large case `TRIALS_LARGE` says it."""
    if large:
        return trials
    family = next((of for name, of in FAMILIES.items() if name != FULL_FAMILY and model == of[-1]), ())
    if not family:
        return trials
    wanted = sum(counts.get(each, 0) for each in FAMILIES[FULL_FAMILY] if parts_of(each) is None)
    return max(trials, wanted - sum(counts.get(each, 0) for each in family[:-1]))


def scored_again(model: Model, large: bool) -> int:
    """How many settings of a contestant are scored on the other validation parts."""
    return _SCORED_AGAIN[_size(large)].get(model[1], 0 if model[0] == NO_ENCODER else 2)


def twin_of(model: Model, large: bool) -> Model | None:
    """The contestant whose settings are taken over: a large case searches only what is a contestant's own."""
    encoder, method = model
    if large and method == CONTROL:
        return encoder, HARD
    if not large or encoder not in ("mf", "lightgcn") or method not in _LOSSES or model == ("mf", INFONCE):
        return None
    return ("mf", INFONCE) if encoder == "mf" else ("mf", method)


def taken_over(model: Model, twin: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a twin as those of a contestant; what it searches replaces them."""
    encoder, method = model
    found = {**twin, "encoder": encoder}
    if encoder == "lightgcn":
        return found
    if method == CONTROL:
        return found | {"loss.tau": 0.0}
    found |= {
        name: value for name, value in fixed_of(encoder, method, True).items() if name.startswith("loss")
    }
    if _is_dpl(method):
        del found["loss.temperature"]
    if method == "exact-psl":  # it is a function of cosines: dividing them would change it
        t = found["encoder.temperature"]
        found |= {"encoder.temperature": 1.0, "encoder.popularity": t * found["encoder.popularity"]}
    return found


def without_search(model: Model, twin: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a contestant of a large case that was not searched: those of its twin, or of a blend's
    trained part, and the middle of its own ranges."""
    space = space_of(*model, True, twin["encoder.temperature"])
    taken = dict(twin) if model[0].endswith(BLEND_SUFFIX) else taken_over(model, twin)
    return taken | {name: domain_of(domain).middle() for name, domain in space.items()}


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
