"""Parameters from a TOML file, options and --set, where the later overrides the earlier -> a Recommender."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import truepair as tp
from truepair.cli.options import option
from truepair.errors import InputError, check_choice
from truepair.storage.types import Json


def _defaulted(help: str) -> Any:
    """An option whose default is that of `Recommender`."""
    return option(f"{help} [default: {{default}}]")


@dataclass(frozen=True)
class Training:
    """Parameters of `Recommender` with an option; None means not given."""

    panel: ClassVar = "Training"

    encoder: str | None = _defaulted("The encoder: {truepair.models.closed_forms.ALL_ENCODERS}.")
    sampler: str | None = _defaulted("The sampler: {truepair.sampling.SAMPLERS}.")
    dim: int | None = _defaulted("The length of the vectors.")
    tau: str | None = _defaulted("The prior, for losses with one: a number, `density`, `auto`, `per-user`.")
    epochs: int | None = _defaulted("The maximum number of epochs.")
    patience: str | None = _defaulted("Stop after this many epochs without a better score; `none`: never.")
    batch_size: int | None = option(
        "Batch size, in interactions (in users with --sampler full). By default it depends on the data."
    )
    learning_rate: float | None = _defaulted("The learning rate.")
    weight_decay: float | None = _defaulted("The L2 penalty on all vectors.")
    n_unlabelled: int | None = _defaulted("Unlabelled items sampled for an interaction, unless all are used.")
    validation: float | None = _defaulted("A share held out to choose the epoch; `tune` scores trials by it.")
    hold_out: str | None = _defaulted(
        "Which interactions to hold out: {truepair.spec.HOLD_OUTS}. `last`: the latest of each user; `auto`: "
        "`last` where there are times and the test part is not random."
    )
    metric: str | None = _defaulted("The metric for validation and test.")
    seed: int | None = _defaulted("The seed of all random numbers.")
    engine: str | None = _defaulted("The training engine: auto, {truepair.training.ENGINES}.")
    device: str | None = _defaulted("The device: auto, cpu, cuda.")
    auto: bool | None = _defaulted(
        "Choose what is not given of temperature, popularity, dimension, epochs, the blend with EASE and the "
        "trend by short runs on held-out interactions; only for loss infonce with sampler full."
    )
    config: Path | None = option(
        "A TOML file of parameters; options and --set override it. If they change the loss, the file's "
        "loss.…, encoder.scoring and encoder.temperature are ignored; if they set the epochs or change the "
        "loss, encoder or sampler, its stop_after is ignored."
    )
    set: list[str] | None = option(
        "Any parameter, or a field such as loss.tau or encoder.l2. Repeatable.", "--set", metavar="KEY=VALUE"
    )

    def recommender(self, **more: object) -> tp.Recommender:
        """The recommender of all these parameters; they are checked before any data is read."""
        model = tp.Recommender.of(self.flat(**more))
        _ = model.spec  # raises
        return model

    def flat(self, **more: object) -> Json:
        """The given parameters, flat; `more` are further options. --set overrides options and the file."""
        from truepair.spec.parameters import flatten, may_be_none, overlay

        in_file = flatten(read_toml(self.config)).items()
        settings = {n: None if v == "none" and may_be_none(n) else v for n, v in in_file}
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("config", "set")}
        given = {name: value for name, value in {**options, **more}.items() if value is not None}
        given |= {name: _value(given[name]) for name in ("tau", "patience") if name in given}
        settings = overlay(settings, given)
        settings = overlay(settings, dict(map(assignment, self.set or [])))
        return {name: _plain(name, value) for name, value in settings.items()}


def read_toml(path: Path | None) -> Json:
    """The contents of a TOML file; empty without a file."""
    if path is None:
        return {}
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: no text, no TOML, or a NUL in the name
        reason = str(getattr(error, "strerror", None) or error).removesuffix(".")
        raise InputError(f"cannot read the settings {path} as TOML: {reason}.") from error


def _parsed(text: str) -> Json:
    """The tables of a TOML text; a ValueError says what is wrong with it."""
    from truepair.storage.plain_values import every_value

    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its lists and tables are nested too deeply.") from error
    if any(isinstance(value, int) and value.bit_length() > 64 for value in every_value(found)):
        raise ValueError("an integer has more than 64 bits.")
    return found


def assignment(text: str) -> tuple[str, object]:
    """The name and the value of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text!r} is not of the form key=value, such as dim=32.")
    return key.strip().replace("-", "_"), _value(value.strip())


def _value(text: str) -> object:
    """A TOML value, None for `none`, or else the text itself."""
    if text.lower() == "none":
        return None
    try:
        return _parsed(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:
        raise InputError(f"{text!r:.60} cannot be used as a value: {error}") from error


def _plain(name: str, value: object) -> object:
    """The value, if it is a number or a text; a loss, encoder or sampler is given by name."""
    from truepair.spec.parameters import PARTS, may_be_none

    if name in ("blend", "trend") and value is None:
        return "none"
    if name in PARTS:
        return check_choice(name, value, PARTS[name])
    if not isinstance(value, str | int | float) and not (value is None and may_be_none(name)):
        raise InputError(f"{name} = {value!r} cannot be set on the command line; give a number or a name.")
    return value
