"""The default space: what is searched for every model, and for each kind of loss, encoder and sampler."""

from __future__ import annotations

from collections.abc import Callable

from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice
from truepair.losses import LOSSES, Family, Loss, Pair, Row
from truepair.losses.base import parameters_of
from truepair.models.closed_forms import ALL_ENCODERS, CLOSED
from truepair.sampling import SAMPLERS
from truepair.search.domains import (
    Choice,
    Domain,
    Flat,
    Powers,
    Range,
    Space,
    When,
    domain_of,
    is_asked,
    read_space,
    values_inside,
)
from truepair.spec import Spec
from truepair.spec.parameters import FIELDS, PARAMETERS, resolve
from truepair.storage.types import Json
from truepair.training import check_sampler

# 0 among them: on sparse data almost any decay harms
_DECAY = Choice([0.0, 1e-6, 1e-5, 1e-4])

# every model that is trained
COMMON: dict[str, Domain | When] = {
    "learning_rate": Range(5e-4, 2e-2, log=True),
    "weight_decay": _DECAY,
    "encoder.dim": Powers(32, 128),
    "n_unlabelled": Powers(1, 32),
    "encoder.scoring": Choice(["dot", "cosine"]),
    "encoder.temperature": When("encoder.scoring", "cosine", Range(0.05, 0.5, log=True)),
}

# the same in the engine "cpu", whose L2 is on the rows of an entry
ROW_STEPS: dict[str, Domain | When] = {
    "learning_rate": Range(0.02, 0.5, log=True),
    "l2_users": Choice([0.0, 0.01, 0.03, 0.1, 0.3]),
    **{name: entry for name, entry in COMMON.items() if name not in ("learning_rate", "weight_decay")},
}

# full-catalogue training: nothing is sampled; dot products where popularity explains most
FULL: dict[str, Domain | When] = {
    "learning_rate": Range(1e-3, 3e-2, log=True),
    "weight_decay": _DECAY,
    "batch_size": Powers(64, 256),
    "encoder.dim": Powers(64, 512, most=1024),
    "encoder.popularity": Range(0.0, 1.0),
    "encoder.scoring": Choice(["cosine", "dot"]),
    "encoder.temperature": When("encoder.scoring", "cosine", Range(0.05, 0.5, log=True)),
}
# rows without a lower bound for dot products, or with a floor that is stated for cosines
COSINES_ONLY = (Row.LOG_MEAN, Row.BILATERAL, Row.DEBIASED_SOFTMAX)
# the temperature of a softmax over dot products; with cosines the encoder's is searched, as by default
DOT_TEMPERATURE = When("encoder.scoring", "dot", Range(0.5, 8.0, log=True))

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
    loss: str = "infonce", encoder: str = "mf", sampler: str = "full", optimizer: str = "adam"
) -> dict[str, Domain | When]:
    """What is worth searching for this loss, encoder, sampler and optimizer.

    >>> list(default_space("bpr"))[-1], list(default_space("dpl", sampler="uniform"))[-1]
    ('encoder.temperature', 'n_extra')
    """
    if check_choice("encoder", encoder, ALL_ENCODERS) in CLOSED:
        if encoder not in SOLVED:
            raise InputError(f"encoder = {encoder!r} has no parameters, so there is nothing to tune.")
        return dict(SOLVED[encoder])
    kind = LOSSES[check_choice("loss", loss, LOSSES)]
    family: Family | None = vars(kind).get("family")
    check_sampler(kind(), SAMPLERS[check_choice("sampler", sampler, SAMPLERS)]())
    own = loss_space(kind)
    graph = ENCODER_FIELDS.get(encoder, {})
    # two temperatures would only multiply each other; PSL and CCL are made for cosines at temperature 1
    once: dict[str, Domain | When] = {}
    if sampler == "full" and family == Family(Pair.EXPONENTIAL, Row.SOFTMAX):  # InfoNCE, or of its form
        own["loss.temperature"] = DOT_TEMPERATURE
    elif "loss.temperature" in own or kind.needs_cosines:
        once["encoder.temperature"] = Choice([1.0])
    if kind.needs_cosines or (sampler == "full" and family is not None and family.row in COSINES_ONLY):
        once["encoder.scoring"] = Choice(["cosine"])
    if sampler == "full":
        own.pop("loss.surrogate", None)  # the others have no closed form, and are slow
        return {**FULL, **once, **own, **graph}
    extra = EXTRA if kind.uses_extra else {}
    common = COMMON if optimizer == "adam" else ROW_STEPS
    return {**common, **once, **own, **extra, **SAMPLER_FIELDS.get(sampler, {}), **graph}


def default_values(
    space: Space, fixed: Flat, train: Interactions, choose: Callable[[Spec], Spec] = lambda spec: spec
) -> Json | None:
    """What `Recommender` uses for the parameters of the space if they are not given; None if it refuses.

    Where it chooses settings automatically, `choose` does, and what it chose is part of the values. Otherwise
    values outside the space are left to `Recommender`.
    """
    try:
        spec = Spec.of(resolve(fixed))
    except InputError:
        return None
    searched = [FIELDS.get(name, name) for name in (*spec.searched, "learning_rate") if spec.searched]
    spec = choose(spec)
    owners: dict[str, object] = {"encoder": spec.encoder}
    if spec.is_trained:
        settings = spec.settings_for(len(train), train.n_users)
        owners |= {"loss": spec.loss, "sampler": spec.sampler, "": settings}
    found = {}
    for name in dict.fromkeys([*space, *searched]):
        part, _, field = FIELDS.get(name, name).rpartition(".")
        if hasattr(owners.get(part), field):
            found[name] = getattr(owners[part], field)
    return found if searched else values_inside(space, found, fixed)


def loss_space(kind: type[Loss]) -> dict[str, Domain | When]:
    """What is worth searching of a loss's own parameters: its class says so.

    >>> loss_space(LOSSES["infonce"])
    {'loss.temperature': Range(low=0.05, high=2.0, log=True, least=None, most=None)}
    """
    declared = parameters_of(kind).items()
    return read_space({f"loss.{name}": p.search for name, p in declared if p.search is not None})


def check_values(space: Space, fixed: Flat) -> None:
    """An error where the first trial, the middle of the space, or an end of a range cannot be trained.

    An end, or a value of a choice, is refused if it is bad both beside the middles of the others and beside
    the default values: then it is bad by itself.
    """
    known, middle = {**PARAMETERS, **fixed}, dict(fixed)
    for name, entry in space.items():
        middle |= {name: domain_of(entry).middle()} if is_asked(entry, {**known, **middle}) else {}
    if (why := _refusal(middle)) is not None:
        raise InputError(_blamed(space, middle, why) if _refusal(fixed) != why else why)
    for name, entry in space.items():
        beside = {}
        if isinstance(entry, When):
            if entry.parameter not in space and not is_asked(entry, known):
                continue  # it is never asked
            beside = {entry.parameter: entry.value}
        domain = domain_of(entry)
        for value in domain.values if isinstance(domain, Choice) else (domain.low, domain.high):
            reasons = [_refusal({**others, **beside, name: value}) for others in (middle, fixed)]
            if None not in reasons:
                raise InputError(f"{_description(name, entry)}, and {value!r} is not allowed: {reasons[1]}")


def _blamed(space: Space, middle: Flat, why: str) -> str:
    """The error of the middle, with the name of the range that it is from: the one it changes without."""
    for name in [name for name in space if name in middle]:
        if _refusal({other: value for other, value in middle.items() if other != name}) != why:
            which = "first value" if isinstance(domain_of(space[name]), Choice) else "middle"
            what = f"its {which}, {middle[name]!r}, is not allowed"
            return f"{_description(name, space[name])}, and {what}: {why}"
    return f"the middle of the space, where a search begins, is not allowed: {why}"


def _refusal(parameters: Flat) -> str | None:
    """Why these cannot be trained, if so."""
    try:
        Spec.of(resolve(parameters))
    except InputError as error:
        return str(error)
    return None


def _description(name: str, entry: Domain | When) -> str:
    domain = domain_of(entry)
    if isinstance(domain, Choice):
        return f"{name} is searched among {', '.join(map(repr, domain.values))}"
    return f"{name} is searched from {domain.low:g} to {domain.high:g}"
