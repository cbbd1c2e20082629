"""Contestants that came after the others: what they take over, and the few trials that each has.

The first contestants of a case were searched whole. Later ones take over what those had found:

LightGCN             the settings of MF with the same loss; trials of one, two and three hops
MF with more losses  the settings of InfoNCE; trials of what is the loss's own
InfoNCE with popularity on MovieLens: trials of settings like those of the plain call, beside its own search
blends with EASE     both models as they are; trials of the weight. With “InfoNCE with popularity” the
                     settings of EASE are searched, too

So few trials are named, not drawn, except for small cases' losses and that last blend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truepair.search.domains import Range, domain_of
from truepair_lab.lines import TrialLine
from truepair_lab.quality.blends import BEFORE, best_of
from truepair_lab.quality.cases import CASES
from truepair_lab.quality.contestants import (
    BLEND_SUFFIX,
    DEBIASED,
    HARD,
    INFONCE,
    POPULARITY,
    POSTERIOR,
    SHARED_SMALL,
    Model,
    fixed_of,
    own_space,
    parts_of,
    taken_over,
)
from truepair_lab.quality.settled import Settings
from truepair_lab.searching import Searched

Named = Mapping[str, Any]
PSL, BSL, DPL = "exact-psl", "exact-bsl", "exact-dpl"
# by case: losses of MF that take over the settings of InfoNCE, and blends of MF that were searched before
_LOSSES_OF = {
    "ml-100k": (DPL,),
    "ml-1m": (DPL, HARD, BSL),
    "kuairec": (PSL, BSL, *DEBIASED),
    "gowalla-tail": (DPL, BSL),
    "yelp2018-tail": (DPL, BSL),
}
_FIRST_BLENDS = {"gowalla-tail": (INFONCE, HARD, PSL), "yelp2018-tail": (INFONCE, PSL, POSTERIOR)}
_DRAWN, _DRAWN_WITH_EASE = 8, 40  # trials of a loss in a small case; of a blend with the settings of EASE
# of a blend, in units in which cosines are 1
_WEIGHTS, _WEIGHTS_LARGE = (0.03, 0.1, 0.3, 0.8, 2.0, 8.0), (0.1, 0.2, 0.4, 0.8)
_LARGE: dict[str, tuple[Named, ...]] = {
    DPL: tuple({"loss.tau": tau, "loss.margin": margin} for tau, margin in ((0.05, 7.0), (0.05, 10.5))),
    # the larger, the nearer to the softmax over the unlabelled
    BSL: tuple({"loss.positive_temperature": t} for t in (3.0, 8.0, 24.0, 64.0)),
}
_EASE: dict[str, Searched] = {
    "plus.l2": Range(30.0, 3000.0, log=True),
    "plus.user_power": Range(0.0, 0.6, most=1.0),
    "plus.item_power": Range(0.0, 0.6, most=1.0),
}
# settings that the plain call finds on MovieLens, and their neighbours: they compete on validation
_PLAIN: Named = {
    "learning_rate": 0.01, "weight_decay": 0.0, "encoder.dim": 512, "epochs": 40, "loss.temperature": 1.0,
}  # fmt: skip
_LIKE_PLAIN: dict[str, tuple[Named, ...]] = {
    case: tuple(
        {**_PLAIN, "batch_size": batch, "encoder.temperature": t, "encoder.popularity": popularity}
        for t in temperatures
        for popularity in (0.4, 0.8)
    )
    for case, batch, temperatures in (("ml-100k", 80, (0.2, 0.238)), ("ml-1m", 128, (0.141, 0.168)))
}


@dataclass(frozen=True)
class Plan:
    """The search of a late contestant: what all trials share, and named trials or a number of drawn ones."""

    fixed: Mapping[str, Any]
    named: tuple[Named, ...] = ()
    space: Mapping[str, Searched] = field(default_factory=dict)
    drawn: int = 0
    first: Mapping[str, Any] = field(default_factory=dict)


def is_late(case: str, model: Model) -> bool:
    """Whether a contestant of this case is searched as this module says."""
    encoder, method = model
    if encoder.startswith("lightgcn"):
        return not CASES[case].former
    if encoder.endswith(BLEND_SUFFIX):
        return not CASES[case].former and method not in _FIRST_BLENDS.get(case, (INFONCE,))
    return encoder == "mf" and method in _LOSSES_OF.get(case, ())


def more_trials(case: str, model: Model) -> tuple[Named, ...]:
    """Named trials beside those of a contestant's own search."""
    return _LIKE_PLAIN.get(case, ()) if model == ("mf", POPULARITY) else ()


def plan_of(case: str, model: Model, settings: Settings) -> Plan:
    """The search of a late contestant, with the settings that the others have."""
    if (parts := parts_of(model)) is not None:
        return _of_blend(CASES[case].large, model, *(best_of(settings, (case, *part)) for part in parts))
    if model[0] == "lightgcn":
        taken = best_of(settings, (case, "mf", model[1]))["parameters"]
        hops = (1, 2) if CASES[case].large and model[1] != INFONCE else (1, 2, 3)
        return Plan({**BEFORE, **taken, "encoder": "lightgcn"}, tuple({"encoder.hops": n} for n in hops))
    taken = best_of(settings, (case, "mf", INFONCE))["parameters"]
    if CASES[case].large:
        return Plan(taken_over(model, taken), _LARGE[model[1]])
    space = own_space(model[1], taken["loss.temperature"])
    shared = {name: taken[name] for name in SHARED_SMALL}
    return Plan(fixed_of(*model, False) | shared, space=space, drawn=_DRAWN)


def beyond(plan: Plan, best: TrialLine) -> tuple[Named, ...]:
    """Twice and four times the highest named weight of a blend, if that is the best."""
    highest = max((each.get("plus_weight", 0.0) for each in plan.named), default=0.0)
    if not highest or best.parameters.get("plus_weight", 0.0) < highest * 0.99:
        return ()
    return tuple({"plus_weight": highest * times} for times in (2.0, 4.0))


def _of_blend(large: bool, model: Model, run: Mapping[str, Any], ease: Mapping[str, Any]) -> Plan:
    scale = 1 / run["parameters"].get("encoder.temperature", 1.0)
    if model[1] != POPULARITY:
        weights = _WEIGHTS_LARGE if large else _WEIGHTS
        return Plan({}, tuple({"plus_weight": weight * scale} for weight in weights))
    own = {f"plus.{name.removeprefix('encoder.')}": v for name, v in ease["parameters"].items()}
    inside = {name for name in _EASE if name in own and domain_of(_EASE[name]).contains(own[name])}
    first = {name: own[name] for name in inside}
    space = {"plus_weight": Range(0.02 * scale, 20.0 * scale, log=True), **_EASE}
    return Plan({}, space=space, drawn=_DRAWN_WITH_EASE, first=first)
