"""Parameters from every source: Python calls, TOML, options and `--set`, tuning trials, stored files.

Outside of Python, parameters are *flat*: names of `Recommender`, and dotted names for fields of its parts.

    tables (TOML)          -- flatten -->       flat
    flat and flat          -- overlay -->       flat, the second over the first
    flat                   -- resolve -->       keyword arguments of Recommender
    keyword arguments      -- as_json -->       plain JSON for a model file
    JSON of a model file   -- from_json -->     keyword arguments
    keyword arguments      -- Spec.of -->       the spec, with all defaults

Each of them takes the names of earlier versions too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal, NoReturn, Self, TypeVar

from truepair.data.rows.options import ReadOptions
from truepair.errors import InputError, check_choice, did_you_mean
from truepair.losses import LOSSES, Loss, Prior
from truepair.models.closed_forms import ALL_ENCODERS, EASE, ClosedForm
from truepair.models.encoders import Encoder
from truepair.models.trend import Trend
from truepair.sampling import SAMPLERS, Sampler
from truepair.spec.defaults import FULL_CATALOGUE, PARTS_BY_DEFAULT, Given, with_defaults
from truepair.storage.plain_values import every_value, is_number
from truepair.storage.types import Json
from truepair.storage.versions import current_parameters

# parameters that have fields of their own, and their kinds by name
PARTS: dict[str, Mapping[str, type]] = {
    "loss": LOSSES,
    "encoder": ALL_ENCODERS,
    "sampler": SAMPLERS,
    "blend": {"ease": EASE},
    "trend": {"recent": Trend},
}
FIELDS = {  # fields that are parameters of Recommender too, for parts that are given by name
    "dim": "encoder.dim",
    "scoring": "encoder.scoring",
    "temperature": "encoder.temperature",
    "popularity": "encoder.popularity",
    "tau": "loss.tau",
}
BEFORE: Json = {"scoring": "dot", "temperature": 1.0, "popularity": 0.0, "auto": False}  # in older files
ELSEWHERE = {  # parameter -> its names in other libraries
    "dim": "factors n_factors num_factors no_components n_components embedding_size embedding_dim latent_dim "
    "rank k",
    "epochs": "iterations n_iterations n_iter max_iter n_epochs num_epochs max_epochs",
    "seed": "random_state random_seed",
    "learning_rate": "lr lr_all learn_rate alpha",
    "weight_decay": "regularization reg reg_all reg_weight lambda_reg l2",
    "batch_size": "train_batch_size",
}

_Class = TypeVar("_Class", bound=type)


def _with_known_names(kind: _Class) -> _Class:
    """The class, whose constructor takes parameters by their old names too, and checks all names."""
    init = kind.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def with_current_names(self: Any, **parameters: Any) -> None:
        parameters = current_parameters(parameters)
        check_names(parameters)
        init(self, **parameters)

    kind.__init__ = with_current_names  # type: ignore[misc]
    return kind


@_with_known_names
@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Parameters:
    """The parameters of a Recommender as they are given; as in scikit-learn, they are checked when used."""

    loss: str | Loss = "infonce"
    encoder: str | Encoder | ClosedForm = "mf"
    sampler: str | Sampler = "full"
    dim: int | None = None
    scoring: Literal["dot", "cosine"] | None = None
    temperature: float | None = None
    popularity: float | None = None
    tau: Prior = "density"
    blend: str | EASE | None = None
    blend_weight: float = 1.0
    trend: str | Trend | None = None
    validation: float | None = None
    metric: str = "ndcg@20"
    hold_out: str = "auto"
    engine: str = "auto"
    epochs: int | None = None
    stop_after: int | None = None
    batch_size: int | None = None
    n_extra: int = 5
    n_unlabelled: int = 5
    optimizer: Literal["adam", "sgd", "adagrad"] | None = None
    learning_rate: float | None = None
    schedule: Literal["constant", "step", "linear", "cosine"] | None = None
    decay_epoch: int = 100
    decay: float = 0.1
    weight_decay: float | None = None
    l2_users: float | None = None
    l2_items: float = 0.0
    dislike_weight: float = 1.0
    optimizer_state: Literal["device", "half", "host"] = "device"
    patience: int | Literal["auto"] | None = "auto"
    validate_every: int = 1
    seed: int = 0
    device: str = "auto"
    auto: bool = True

    @classmethod
    def of(cls, flat: Given) -> Self:
        """The object of flat parameters, as in configurations and trials: see `resolve`."""
        return cls().set_params(**resolve(flat))

    def get_params(self, deep: bool = True) -> Json:
        """All parameters by name."""
        return {name: getattr(self, name) for name in PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; an unknown one raises an error."""
        params = current_parameters(params)
        check_names(params)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> NoReturn:
        """For scikit-learn: raise and say what does the same here."""
        raise InputError("a Recommender has no score of rows; use tp.tune, or tp.k_folds to cross-validate.")

    def given(self) -> Json:
        """The parameters that differ from the defaults."""
        return {k: v for k, v in self.get_params().items() if repr(v) != repr(PARAMETERS[k])}


PARAMETERS: Json = {each.name: each.default for each in dataclasses.fields(Parameters)}
"""The parameters of a Recommender and their defaults."""


def check_names(given: Given) -> None:
    """Raise if one of them is not a parameter of a Recommender."""
    for name in given:
        if name not in PARAMETERS:
            if name in ReadOptions.__dataclass_fields__:
                raise InputError(f"{name!r} is no parameter of Recommender; give it to read_interactions.")
            same = next((ours for ours, theirs in ELSEWHERE.items() if name in theirs.split()), name)
            raise InputError(f"{name!r} is not a parameter of Recommender.{did_you_mean(same, PARAMETERS)}")


def may_be_none(name: str) -> bool:
    """Whether None is a value of this parameter: the default, or no patience."""
    return name in ("batch_size", "stop_after") or name in FULL_CATALOGUE


# --- flat parameters -------------------------------------------------------------------------------------


def flatten(tables: Given) -> Json:
    """Nested tables as flat parameters; the `kind` of a table is the value of the part itself.

    >>> flatten({"loss": {"kind": "dpl", "tau": 0.1}, "encoder.dim": 32, "epochs": 5})
    {'loss': 'dpl', 'loss.tau': 0.1, 'encoder.dim': 32, 'epochs': 5}
    """
    return current_parameters(_flat(tables, ""))


def _flat(tables: Given, inside: str) -> Json:
    found: Json = {}
    for name, value in tables.items():
        whole = inside if name == "kind" and inside else f"{inside}.{name}".lstrip(".")
        found |= _flat(value, whole) if isinstance(value, Mapping) else {whole: value}
    return found


def overlay(lower: Given, upper: Given) -> Json:
    """Flat parameters `upper` over `lower`; `dim` and `encoder.dim` are the same parameter.

    A part that `upper` changes loses its fields in `lower`. Scoring and temperature go with the loss, as
    `tune` chooses them together: a loss with its own temperature needs cosines at temperature 1. The last
    epoch that `tune` chose does not hold for other epochs, another loss, encoder or sampler.
    """
    lower, upper = current_parameters(lower), current_parameters(upper)
    changed = tuple(
        f"{part}." for part in PARTS if part in upper and upper[part] != lower.get(part, upper[part])
    )
    dropped = same_parameters(upper) | _chosen_by_tuning(lower, upper)
    dropped |= {"encoder.scoring", "encoder.temperature"} if "loss." in changed else set()
    kept = {n: value for n, value in lower.items() if not n.startswith(changed) and n not in dropped}
    return {**kept, **upper}


def _chosen_by_tuning(lower: Given, upper: Given) -> set[str]:
    """`stop_after`, and the `validation = 0` that goes with it, where `upper` makes them void."""
    if lower.get("stop_after") is None:
        return set()
    before = {**PARTS_BY_DEFAULT, **lower}
    if any(part in upper and upper[part] != before[part] for part in ("loss", "encoder", "sampler")):
        return {"stop_after", "validation"} if lower.get("validation") == 0 else {"stop_after"}
    return {"stop_after"} if "epochs" in upper else set()


def same_parameters(flat: Given) -> set[str]:
    """The other names of these parameters: `encoder.dim` for `dim`, and the reverse."""
    found = {FIELDS[name] for name in flat if name in FIELDS}
    return found | {name for name, field in FIELDS.items() if field in flat}


def by_fields(flat: Given) -> Json:
    """Flat parameters in which `dim`, `scoring`, `temperature`, `popularity` and `tau` are named as fields.

    >>> by_fields({"loss": "dpl", "tau": 0.1, "epochs": 5})
    {'loss': 'dpl', 'epochs': 5, 'loss.tau': 0.1}
    """
    found = current_parameters(flat)
    parts = {**PARTS_BY_DEFAULT, **found}
    for name, field in FIELDS.items():
        if found.get(name) is not None and field not in found:
            part = field.split(".")[0]
            if hasattr(_kind(part, parts[part]), name):
                found[field] = found.pop(name)
    return found


def resolve(flat: Given) -> Json:
    """Keyword arguments of `Recommender` from flat parameters.

    A part with named fields becomes an object; its other fields come from `dim`, `tau`, … and from the
    defaults of the sampler. A part without named fields stays a name.

    >>> resolve({"loss": "dpl", "loss.floor": 0.1, "tau": 0.2, "epochs": 5})["loss"]
    DPL(tau=0.2, floor=0.1, clamp='hard', margin=0.0)
    """
    given = {**PARTS_BY_DEFAULT, **current_parameters(flat)}
    fields: dict[str, Json] = {}  # those that are named, by part
    for dotted in [name for name in given if "." in name]:
        part, name = dotted.split(".", 1)
        check_choice("the part before the dot", part, list(PARTS))
        fields.setdefault(part, {})[name] = given.pop(dotted)
    known = with_defaults(given)
    for part, named in fields.items():
        if given[part] is None:
            names = ", ".join(PARTS[part])
            raise InputError(f"a field of {part} is given without {part}; set it to one of {names}.")
        kind = _kind(part, given[part])
        for name, field in FIELDS.items():
            if field == f"{part}.{name}" and name in known and name not in named and hasattr(kind, name):
                named[name] = known[name]
                given.pop(name, None)
        given[part] = _built(part, given[part], named)
    return given


def _kind(part: str, name: object) -> type:
    """The class of a part that is given by name."""
    if not isinstance(name, str):
        raise InputError(f"{part} = {name!r} must be a name where its fields are named.")
    return PARTS[part][check_choice(part, name, PARTS[part])]


def _built(part: str, name: object, fields: Given) -> object:
    """The object of this name and these fields."""
    kind = _kind(part, name)
    for field in fields:
        check_choice(f"a field of {part}", field, _field_names(kind))
    return kind(**fields)


def _field_names(kind: type) -> list[str]:
    """The fields that users set; training fills in those without a repr, and they are not stored."""
    return [f.name for f in dataclasses.fields(kind) if f.repr and f.init]


# --- stored parameters -------------------------------------------------------------------------------------


def as_json(value: object) -> object:
    """A parameter as plain JSON: a loss, encoder or sampler becomes its kind and fields.

    A value that no registry has becomes {"unknown": …}: it can be used, but not saved.
    """
    for registry in PARTS.values():
        for kind, made in registry.items():
            if type(value) is made:
                return {"kind": kind, **{name: _plain(getattr(value, name)) for name in _field_names(made)}}
    return _plain(value)


def _plain(value: object) -> object:
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, tensors
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    is_plain = value is None or isinstance(value, str | int | float | bool)
    return value if is_plain else {"unknown": repr(value)[:200]}


def check_saveable(stored: Given) -> None:
    """Raise if a parameter of `as_json`, or a field of one, could not be restored."""
    check_finite(stored)
    for name, value in _with_fields(stored).items():
        if unknown := [each["unknown"] for each in every_value(value) if isinstance(each, dict)]:
            remedy = f"Use one of {', '.join(PARTS.get(name, ()))}."
            if name == "loss":
                remedy = "Register its class: truepair.register_loss('name', Class); see docs/losses.md."
            if "." in name:
                remedy = "A field that is saved is a number, a text, True, False, None, or a tuple of them."
            raise InputError(f"{name} = {unknown[0]} cannot be saved: a file holds no code. {remedy}")


def check_finite(stored: Given) -> None:
    """Raise if a number of parameters of `as_json` is NaN or infinite, which JSON does not have."""
    for name, value in _with_fields(stored).items():
        if any(isinstance(each, float) and not is_number(each) for each in every_value(value)):
            raise InputError(f"{name} = {value!r:.200} cannot be saved; give a finite number, or None.")


def _with_fields(stored: Given) -> Json:
    """Parameters of `as_json`; those that have a kind are replaced by their fields, such as loss.tau."""
    found: Json = {}
    for name, value in stored.items():
        whole = isinstance(value, dict) and "kind" in value
        found |= {f"{name}.{field}": inside for field, inside in value.items()} if whole else {name: value}
    return found


def from_json(stored: Given) -> Json:
    """Keyword arguments of `Recommender` from the JSON of a model file; only registered kinds are built."""
    return {**BEFORE, **{name: _restored(name, value) for name, value in current_parameters(stored).items()}}


def _restored(name: str, value: object) -> object:
    kind = value.get("kind") if isinstance(value, dict) else value
    if name == "loss" and isinstance(kind, str) and kind not in LOSSES:
        raise InputError(
            f"loss = {kind!r:.60} is not known here; register it first: truepair.register_loss(name, Class)."
        )
    if not isinstance(value, dict):
        return _tuples(value)
    fields = {key: _tuples(field) for key, field in value.items()}
    return _built(name, fields.pop("kind"), fields)


def _tuples(value: object) -> object:
    """The value, with tuples for lists; only a whole parameter is an object."""
    if isinstance(value, dict):
        raise InputError(f"{value!r:.60} is no number, no text and no list of them.")
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
