"""The contents of a journal, checked before they are used: any program may have written the file."""

from __future__ import annotations

import math
from collections.abc import Mapping

import optuna
from optuna.distributions import check_distribution_compatibility

from truepair.search.domains import Domain, distribution_of, domain_of, read_space
from truepair.storage.plain_values import every_value, is_number

_Shape = Mapping[str, object]  # predicates or kinds of the values of a dict


def is_count(value: object) -> bool:
    """Whether it is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_process(value: object) -> bool:
    return is_count(value) and 0 < value < 2**31  # type: ignore[operator]


def _is_history(value: object) -> bool:
    whole = isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value)
    return whole and all(is_number(one) for each in value for one in each)  # type: ignore[attr-defined]


_OWNER: _Shape = {"host": str, "pid": _is_process, "started": object}
_OUTCOME: _Shape = {
    "state": lambda state: state in ("complete", "pruned", "failed"),
    "score": lambda score: score is None or is_number(score),
    "epoch": lambda epoch: epoch is None or is_count(epoch),
    "why": str, "engine": str, "seconds": is_number, "history": _is_history,
}  # fmt: skip


def check_study(study: optuna.Study) -> None:
    """Raise a ValueError if an attribute of the study or of a trial is not such as truepair writes."""
    facts = study.user_attrs
    every_value(facts)  # raises if they are nested too deeply
    directions = [direction.name for direction in study.directions]
    _check("what its study looks for", directions, directions == ["MAXIMIZE"])
    domains: dict[str, Domain] = {}
    if "meaning" in facts:
        _check("the meaning of its study", facts["meaning"], isinstance(facts["meaning"], dict))
        fixed = facts["meaning"].get("fixed parameters", {})
        _check("the fixed parameters", fixed, isinstance(fixed, dict))
        domains |= _domains(facts["meaning"].get("space"))
    extensions = facts.get("extensions", [])
    _check("extensions", extensions, isinstance(extensions, list))
    for each in extensions:
        names = each.get("names") if isinstance(each, dict) else None
        whole = isinstance(names, list) and all(isinstance(name, str) for name in names)
        _check("an extension", each, whole and is_count(each.get("more", 0)))
        domains |= _domains(each.get("space"))
    for trial in study.get_trials(deepcopy=False):
        _check_attributes(trial.user_attrs)
        _check_numbers(trial)
        for name in trial.distributions.keys() & domains.keys():
            _check_range(name, trial, domains[name])


def _domains(space: object) -> dict[str, Domain]:
    _check("the space", space, isinstance(space, dict))
    return {name: domain_of(entry) for name, entry in read_space(space).items()}  # type: ignore[arg-type]


def _check_range(name: str, trial: optuna.trial.FrozenTrial, domain: Domain) -> None:
    """Optuna refuses a range of another kind in a later trial."""
    try:
        check_distribution_compatibility(trial.distributions[name], distribution_of(domain))
    except ValueError:
        _check(f"the range of {name}", trial.distributions[name], False)


def _check_attributes(facts: Mapping[str, object]) -> None:
    every_value(dict(facts))
    parameters, owner, outcome = (facts.get(name, {}) for name in ("parameters", "owner", "outcome"))
    _check("the parameters of a trial", parameters, isinstance(parameters, dict))
    if "owner" in facts:
        _check("the owner of a trial", owner, _fits(owner, _OWNER, ("host", "pid")))
    if "outcome" in facts:
        whole = _fits(outcome, _OUTCOME, ("state", "score", "epoch"))
        _check("the outcome of a trial", outcome, whole)
        is_scored = outcome["score"] is not None or outcome["state"] == "failed"  # type: ignore[index]
        _check("the outcome of a trial", outcome, is_scored)


def _fits(value: object, shape: _Shape, needed: tuple[str, ...]) -> bool:
    """Whether it is a dict with the needed keys, and each of its values as the shape says."""
    if not isinstance(value, dict) or not set(needed) <= value.keys() <= shape.keys():
        return False
    return all(
        isinstance(one, kind) if isinstance(kind := shape[name], type) else kind(one)  # type: ignore[operator]
        for name, one in value.items()
    )


def _check_numbers(trial: optuna.trial.FrozenTrial) -> None:
    """What Optuna's sampler learns from: the score, the reports, and the parameters in their ranges."""
    if trial.state.name == "COMPLETE":
        values = trial.values
        whole = isinstance(values, list) and len(values) == 1 and is_number(values[0])
        _check("the score of a trial", values, whole)
    reports = trial.intermediate_values
    whole = isinstance(reports, dict) and all(map(is_count, reports))
    _check("the reports of a trial", reports, whole and all(map(is_number, reports.values())))
    for name, distribution in trial.distributions.items():
        place = distribution.to_internal_repr(trial.params[name])
        _check(f"{name} of a trial", trial.params[name], math.isfinite(place))


def _check(what: str, value: object, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{what} is {value!r:.80}")
