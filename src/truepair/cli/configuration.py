"""Parameters: a TOML file, options and --set, in that order of rising weight -> a Recommender."""

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
    """Parameters of `Recommender` that have an option of their own; None is not given."""

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
    epochs: Annotated[int | None, typer.Option(help="At most so many epochs." + _DEFAULT)] = None
    patience: Annotated[
        str | None,
        typer.Option(
            help="Stop so many epochs after the best on what is held out; `none` trains all." + _DEFAULT
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Pairs a step, or users with exact sampling; by the size of the data if not given."
        ),
    ] = None
    learning_rate: Annotated[float | None, typer.Option(help="The step size." + _DEFAULT)] = None
    weight_decay: Annotated[float | None, typer.Option(help="L2 on all parameters." + _DEFAULT)] = None
    n_unlabelled: Annotated[
        int | None, typer.Option(help="Unlabelled items a pair; for samplers that draw." + _DEFAULT)
    ] = None
    validation: Annotated[
        float | None,
        typer.Option(
            help="The share of the pairs held out to choose the epoch; 0 for none. `tune` chooses by it: "
            "0.1 there." + _DEFAULT
        ),
    ] = None
    metric: Annotated[str | None, typer.Option(help="What to choose and judge by." + _DEFAULT)] = None
    seed: Annotated[int | None, typer.Option(help="The seed of every draw." + _DEFAULT)] = None
    engine: Annotated[
        str | None, typer.Option(help="How to train: auto, {truepair.training.ENGINES}." + _DEFAULT)
    ] = None
    device: Annotated[str | None, typer.Option(help="Where to train: auto, cpu, cuda." + _DEFAULT)] = None
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file of parameters; options and --set override it. Where they name another loss, "
            "the file's loss.…, encoder.scoring and encoder.temperature are not used."
        ),
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any parameter of Recommender, or a field such as encoder.l2, loss.tau; may be repeated.",
        ),
    ] = None

    def recommender(self, **more: Any) -> Recommender:
        """The recommender that all of this describes, with its parameters checked."""
        return recommender_of_flat(self.flat(**more))

    def flat(self, **more: Any) -> dict[str, Any]:
        """What was given, by flat names: a field of the loss, encoder or sampler is `loss.tau`."""
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("config", "set")}
        given = {name: value for name, value in {**options, **more}.items() if value is not None}
        given |= {name: _value(given[name]) for name in ("tau", "patience") if name in given}
        settings = _over(_over(read_settings(self.config), given), dict(map(assignment, self.set or [])))
        return {name: _plain(name, value) for name, value in settings.items()}


def recommender_of_flat(flat: dict[str, Any]) -> Recommender:
    """The recommender of flat parameters, checked."""
    from truepair.tuning.runner import recommender_of

    model = recommender_of(flat)  # an unknown one is an error
    model.check()  # before anything is read
    return model


def read_settings(path: Path | None) -> dict[str, Any]:
    """The parameters in a TOML file, flat; `none` is None where that is allowed."""
    found = flattened(read_toml(path))
    return {n: None if v == "none" and _may_be_none(n) else v for n, v in found.items()}


def _may_be_none(name: str) -> bool:
    from truepair.recommender.defaults import WITHOUT_DRAWS

    return name == "batch_size" or name in WITHOUT_DRAWS


def flattened(tables: dict[str, Any], inside: str = "") -> dict[str, Any]:
    """Tables by dotted names; a table's `kind` is what the table itself is.

    >>> flattened({"loss": {"kind": "dpl", "tau": 0.1}, "encoder.dim": 32, "epochs": 5})
    {'loss': 'dpl', 'loss.tau': 0.1, 'encoder.dim': 32, 'epochs': 5}
    """
    found: dict[str, Any] = {}
    for name, value in tables.items():
        whole = inside if name == "kind" and inside else f"{inside}.{name}".lstrip(".")
        found |= flattened(value, whole) if isinstance(value, dict) else {whole: value}
    return found


def _over(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    """`upper` over `lower`, where `dim` and `encoder.dim` are one.

    What is named anew loses its former fields. `tune` chooses scoring and temperature with the loss, so they
    go with it: a loss with a temperature of its own wants cosines at 1, which is bad for all others.
    """
    from truepair.recommender.parameters import FIELDS, PARTS

    anew = tuple(
        f"{part}." for part in PARTS if part in upper and upper[part] != lower.get(part, upper[part])
    )
    gone = {FIELDS[name] for name in upper if name in FIELDS}
    gone |= {name for name, field in FIELDS.items() if field in upper}
    gone |= {"encoder.scoring", "encoder.temperature"} if "loss." in anew else set()
    kept = {name: value for name, value in lower.items() if not name.startswith(anew) and name not in gone}
    return {**kept, **upper}


def read_toml(path: Path | None) -> dict[str, Any]:
    """The keys and values of a TOML file; none without a file."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the settings {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}.") from error


def assignment(text: str) -> tuple[str, Any]:
    """The name and the value of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text!r} is not of the form key=value, such as dim=32.")
    return key.strip().replace("-", "_"), _value(value.strip())


def _value(text: str) -> Any:
    """A value as TOML has it, `none` for None, or the text itself."""
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _plain(name: str, value: Any) -> Any:
    """The value, if it can stand in a line: a loss, encoder or sampler goes by its name."""
    from truepair.recommender.parameters import PARTS, current_name

    if name in PARTS:
        return check_choice(name, current_name(name, value), PARTS[name])
    if not isinstance(value, str | int | float) and not (value is None and _may_be_none(name)):
        raise InputError(f"{name} = {value!r} cannot be set from here; give a number, or a name.")
    return value
