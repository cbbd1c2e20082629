"""Domains of parameters: ranges, powers of two, choices, conditions. A space maps names to domains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from truepair.errors import InputError, check_number, check_type, check_whole, settle
from truepair.storage.plain_values import is_number
from truepair.storage.types import Json

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Value = str | int | float | bool | None
Flat = Mapping[str, Any]  # parameters by name, those of parts with a dot: see `truepair.spec.parameters`
EDGE = 0.05  # a range is extended if the best is this near to an edge, as a share of its width
_KEYS = ("low", "high", "log", "powers", "least", "most", "values", "when")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, searched evenly, or evenly in their logarithm.

    `least` and `most` are bounds that an extended range does not pass; where `low` is not below 0 and no
    `least` is given, it is 0.
    """

    low: float
    high: float
    log: bool = False
    least: float | None = None
    most: float | None = None
    step: ClassVar[float | None] = None  # of an extension, in the scale of `scaled`; None: half the width

    def __post_init__(self) -> None:
        low = check_number("low", self.low, 0 if self.log else -math.inf, open_low=self.log)
        settle(self, low=low, high=check_number("high", self.high, low, open_low=True))
        if self.least is not None:
            check_number("least", self.least, high=self.low)
        if self.most is not None:
            check_number("most", self.most, low=self.high)

    def scaled(self, value: float) -> float:
        """A value in the scale that is searched."""
        return math.log(value) if self.log else float(value)

    def unscaled(self, place: float) -> float:
        """The value at a place of that scale."""
        return math.exp(place) if self.log else place

    def contains(self, value: object) -> bool:
        """Whether it is a number in the range."""
        return is_number(value) and self.low <= value <= self.high  # type: ignore[operator]

    def middle(self) -> float:
        """The middle, in the scale that is searched."""
        return self.unscaled((self.scaled(self.low) + self.scaled(self.high)) / 2)

    def extended(self, value: float) -> Self:
        """With a step more at the edge that `value` lies at; the same where it lies at none."""
        low, high, at = self.scaled(self.low), self.scaled(self.high), self.scaled(value)
        width, changes = high - low, dict[str, Any]()
        step = width / 2 if self.step is None else self.step
        if at - low <= EDGE * width:
            least = 0 if self.least is None and self.low >= 0 else self.least
            changes["low"] = max(self.unscaled(low - step), -math.inf if least is None else least)
        if high - at <= EDGE * width:
            changes["high"] = min(self.unscaled(high + step), math.inf if self.most is None else self.most)
        return replace(self, **changes)


@dataclass(frozen=True)
class Powers(Range):
    """Powers of two from `low` to `high`, searched evenly in the exponent; bounds as in `Range`."""

    low: int
    high: int
    log: bool = field(default=False, init=False, repr=False)  # the scale is the exponent
    least: int | None = None
    most: int | None = None
    step: ClassVar[float] = 1

    def __post_init__(self) -> None:
        for name in ("low", "high", "least", "most"):
            value = getattr(self, name)
            if value is not None and (whole := check_whole(name, value, 1)) & (whole - 1):
                nearest = 1 << round(math.log2(whole))
                raise InputError(f"{name} = {whole} is no power of two; the nearest is {nearest}.")
        low, high = self.low, self.high
        super().__post_init__()
        settle(self, low=low, high=high)  # whole numbers

    def scaled(self, value: float) -> int:
        """The exponent."""
        return int(value).bit_length() - 1

    def unscaled(self, place: float) -> int:
        """The power of an exponent."""
        return 1 << max(int(place), 0)

    def contains(self, value: object) -> bool:
        """Whether it is a power of two in the range."""
        return type(value) is int and self.low <= value <= self.high and value & (value - 1) == 0


@dataclass(frozen=True)
class Choice:
    """One of these values: texts, numbers, True, False, None."""

    values: Sequence[Value]

    def __post_init__(self) -> None:
        values = (self.values,) if isinstance(self.values, str) else tuple(self.values)
        kinds = str | int | float | bool | None
        if not values or len(set(map(repr, values))) < len(values):
            raise InputError(f"values = {list(values)} must be one or more different values.")
        if bad := [value for value in values if not isinstance(value, kinds)]:
            raise InputError(f"values has {bad[0]!r}; give texts, numbers, True, False or None.")
        settle(self, values=values)

    def middle(self) -> Value:
        """The first: there is no middle."""
        return self.values[0]

    def contains(self, value: object) -> bool:
        """Whether it is one of the values."""
        return any(value == one and type(value) is type(one) for one in self.values)

    def extended(self, value: Value) -> Choice:
        """Itself: a choice has no edge."""
        return self


Domain = Range | Choice


@dataclass(frozen=True)
class When:
    """A domain that applies only if another parameter, named before it or fixed, has this value."""

    parameter: str
    value: Value
    domain: Domain

    def __post_init__(self) -> None:
        check_type("domain", self.domain, (Range, Choice), "give a Range, Powers or Choice")


Space = Mapping[str, Domain | When]


def domain_of(entry: Domain | When) -> Domain:
    """The domain, without its condition."""
    return entry.domain if isinstance(entry, When) else entry


def is_asked(entry: Domain | When, parameters: Flat) -> bool:
    """Whether the domain applies with these parameters."""
    return not isinstance(entry, When) or parameters.get(entry.parameter) == entry.value


def extend_space(space: Space, best: Flat) -> tuple[dict[str, Domain | When], tuple[str, ...]]:
    """The space, extended where the best lies at an edge, and the names of the extended parameters."""
    wider: dict[str, Domain | When] = {}
    for name, entry in space.items():
        domain = domain_of(entry).extended(best[name]) if name in best else domain_of(entry)
        wider[name] = replace(entry, domain=domain) if isinstance(entry, When) else domain
    return wider, tuple(name for name in wider if wider[name] != space[name])


def values_inside(space: Space, values: Flat, fixed: Flat) -> dict[str, object]:
    """The values that lie in the space; of the fields of a loss, encoder or sampler, all or none.

    >>> space = {"x": Choice([1, 2]), "a.y": Range(0, 1), "a.z": Range(0, 1)}
    >>> values_inside(space, {"x": 1, "a.y": 0, "a.z": 2}, {})
    {'x': 1}
    """
    asked = [name for name, entry in space.items() if is_asked(entry, {**fixed, **values})]
    inside = [name for name in asked if name in values and domain_of(space[name]).contains(values[name])]
    broken = {name.split(".")[0] for name in asked if name not in inside and "." in name}
    return {name: values[name] for name in inside if name.split(".")[0] not in broken}


def plain_space(space: Space) -> dict[str, Json]:
    """The space as plain JSON."""
    return {name: _plain(entry) for name, entry in space.items()}


def read_space(plain: Mapping[str, object]) -> dict[str, Domain | When]:
    """The space that `plain_space` gave, or that a TOML file holds.

    A domain is `{low, high, log}`, `{low, high, powers}` or `{values}`; any of them may
    have `least`, `most`, and `when = {other = value}`; a list is a choice.

    >>> read_space({"loss.tau": {"low": 0.01, "high": 0.1, "log": True, "most": 0.9}})
    {'loss.tau': Range(low=0.01, high=0.1, log=True, least=None, most=0.9)}
    """
    return {name: _read(name, entry) for name, entry in plain.items()}


def _plain(entry: Domain | When) -> Json:
    if isinstance(entry, When):
        return {**_plain(entry.domain), "when": {entry.parameter: entry.value}}
    if isinstance(entry, Choice):
        return {"values": list(entry.values)}
    kind = {"powers": True} if isinstance(entry, Powers) else {"log": entry.log}
    bounds = {"low": entry.low, "high": entry.high, **kind, "least": entry.least, "most": entry.most}
    return {name: value for name, value in bounds.items() if value is not None}


def _read(name: str, plain: object) -> Domain | When:
    if not isinstance(plain, Mapping | list):
        raise InputError(f"{name} = {plain!r} is no domain; give {{low = …, high = …}} or a list of values.")
    fields: Json = {"values": plain} if isinstance(plain, list) else dict(plain)
    if unknown := [key for key in fields if key not in _KEYS]:
        raise InputError(f"{name} has {unknown[0]!r}; a domain has {', '.join(_KEYS)}.")
    when = fields.pop("when", None)
    if when is not None:
        if not isinstance(when, Mapping) or len(when) != 1:
            raise InputError(f"{name}: when = {when!r} must name one parameter and its value.")
        ((parameter, value),) = when.items()
        return When(parameter, value, domain_of(_read(name, fields)))
    try:
        if "values" in fields:
            values = [fields["values"]] if isinstance(fields["values"], str) else fields["values"]
            if not isinstance(values, list | tuple):
                raise InputError(f"values = {values!r} is no list; write [{values!r}].")
            return Choice([None if value == "none" else value for value in values])
        return Powers(**fields) if fields.pop("powers", False) else Range(**fields)
    except (TypeError, InputError) as error:
        raise InputError(f"{name} = {plain} is no domain: {error}") from error


def distribution_of(domain: Domain) -> BaseDistribution:
    """The domain as Optuna knows it: a power of two by its exponent."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.values)
    if isinstance(domain, Powers):
        return IntDistribution(domain.scaled(domain.low), domain.scaled(domain.high))
    return FloatDistribution(domain.low, domain.high, log=domain.log)


def place_of(domain: Domain, value: Value) -> Value:
    """A value as Optuna knows it."""
    return domain.scaled(value) if isinstance(domain, Powers) and isinstance(value, int) else value
