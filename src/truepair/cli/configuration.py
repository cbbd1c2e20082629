"""Parameters from a TOML file, options and --set, where the later overrides the earlier -> a Recommender."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truepair.errors import InputError, check_choice

if TYPE_CHECKING:
    from truepair.recommender.estimator import Recommender

_DEFAULT = " [default: {default}]"


@dataclass(frozen=True)
class Training:
    """Parameters of `Recommender` with an option; None means not given."""

    encoder: Annotated[
        str | None, typer.Option(help="The encoder: {truepair.models.closed_forms.ALL_ENCODERS}." + _DEFAULT)
    ] = None
    sampler: Annotated[
        str | None, typer.Option(help="The sampler: {truepair.sampling.SAMPLERS}." + _DEFAULT)
    ] = None
    dim: Annotated[int | None, typer.Option(help="The length of the vectors." + _DEFAULT)] = None
    tau: Annotated[
        str | None,
        typer.Option(
            help="The prior, for losses that use it: a number, `density`, `auto` or `per-user`." + _DEFAULT
        ),
    ] = None
    epochs: Annotated[int | None, typer.Option(help="The maximum number of epochs." + _DEFAULT)] = None
    patience: Annotated[
        str | None,
        typer.Option(
            help="Stop after this many epochs without a better validation score; `none`: never." + _DEFAULT
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Pairs of a step; with the sampler `full`, users. By default it depends on the data."
        ),
    ] = None
    learning_rate: Annotated[float | None, typer.Option(help="The learning rate." + _DEFAULT)] = None
    weight_decay: Annotated[float | None, typer.Option(help="The L2 penalty on all vectors." + _DEFAULT)] = (
        None
    )
    n_unlabelled: Annotated[
        int | None,
        typer.Option(help="Unlabelled items drawn for each pair, by samplers that draw." + _DEFAULT),
    ] = None
    validation: Annotated[
        float | None,
        typer.Option(
            help="The share of the pairs held out to choose the epoch; 0 for none. For `tune` it is 0.1 by "
            "default, and scores the trials." + _DEFAULT
        ),
    ] = None
    hold_out: Annotated[
        str | None,
        typer.Option(
            help="Which pairs to hold out: {truepair.spec.HOLD_OUTS}. `last`: the latest of "
            "each user; `auto` is `last` where there are times and the test part is not random." + _DEFAULT
        ),
    ] = None
    metric: Annotated[str | None, typer.Option(help="The metric for validation and test." + _DEFAULT)] = None
    seed: Annotated[int | None, typer.Option(help="The seed of all random numbers." + _DEFAULT)] = None
    engine: Annotated[
        str | None, typer.Option(help="The training engine: auto, {truepair.training.ENGINES}." + _DEFAULT)
    ] = None
    device: Annotated[str | None, typer.Option(help="The device: auto, cpu, cuda." + _DEFAULT)] = None
    auto: Annotated[
        bool | None,
        typer.Option(
            "--auto/--no-auto",
            help="Choose temperature, popularity, dimension, epochs and the blend with EASE by short runs on "
            "held-out pairs, unless they are given; only for the loss infonce with the sampler full."
            + _DEFAULT,
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file of parameters; options and --set override it. If they change the loss, the "
            "file's loss.…, encoder.scoring and encoder.temperature are ignored; if they set the epochs or "
            "change the loss, encoder or sampler, its stop_after is ignored."
        ),
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any parameter of Recommender, or a field such as loss.tau or encoder.l2. Repeatable.",
        ),
    ] = None

    def recommender(self, **more: Any) -> Recommender:
        """The recommender of all these parameters; they are checked."""
        return checked_recommender(self.flat(**more))

    def flat(self, **more: Any) -> dict[str, Any]:
        """The given parameters, flat; `more` are further options. --set overrides options and the file."""
        from truepair.spec.parameters import overlay

        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("config", "set")}
        given = {name: value for name, value in {**options, **more}.items() if value is not None}
        given |= {name: _value(given[name]) for name in ("tau", "patience") if name in given}
        settings = overlay(read_settings(self.config), given)
        settings = overlay(settings, dict(map(assignment, self.set or [])))
        return {name: _plain(name, value) for name, value in settings.items()}


def checked_recommender(flat: dict[str, Any]) -> Recommender:
    """The recommender of flat parameters; they are checked before any data is read."""
    from truepair.recommender.estimator import Recommender

    model = Recommender.of(flat)
    _ = model.spec  # raises
    return model


def read_settings(path: Path | None) -> dict[str, Any]:
    """The parameters in a TOML file, flat; "none" means None where None is a value."""
    from truepair.spec.parameters import flatten, may_be_none

    found = flatten(read_toml(path))
    return {n: None if v == "none" and may_be_none(n) else v for n, v in found.items()}


def read_toml(path: Path | None) -> dict[str, Any]:
    """The contents of a TOML file; empty without a file."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}.") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the settings {path}: {reason}.") from error
    try:
        return _parsed(text)
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {str(error).removesuffix('.')}.") from error


def _parsed(text: str) -> dict[str, Any]:
    """The tables of a TOML text; a ValueError says what is wrong with it."""
    from truepair.storage.plain_values import every_value

    try:
        found = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its lists and tables are nested too deeply.") from error
    if any(isinstance(value, int) and value.bit_length() > 64 for value in every_value(found)):
        raise ValueError("an integer has more than 64 bits.")
    return found


def assignment(text: str) -> tuple[str, Any]:
    """The name and the value of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text!r} is not of the form key=value, such as dim=32.")
    return key.strip().replace("-", "_"), _value(value.strip())


def _value(text: str) -> Any:
    """A TOML value, None for `none`, or else the text itself."""
    if text.lower() == "none":
        return None
    try:
        return _parsed(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except ValueError as error:
        raise InputError(f"{text!r:.60} cannot be used as a value: {error}") from error


def _plain(name: str, value: Any) -> Any:
    """The value, if it is a number or a text; a loss, encoder or sampler is given by name."""
    from truepair.spec.parameters import PARTS, may_be_none

    if name == "blend" and value is None:
        return "none"
    if name in PARTS:
        return check_choice(name, value, PARTS[name])
    if not isinstance(value, str | int | float) and not (value is None and may_be_none(name)):
        raise InputError(f"{name} = {value!r} cannot be set on the command line; give a number or a name.")
    return value
