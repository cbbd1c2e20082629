"""The contents of a journal, checked before they are used: any program may have written the file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from truepair.storage.plain_values import every_value, is_number
from truepair.search.domains import Choice, Domain, Powers, domain_of, read_space
from truepair.search.trials import Outcome

if TYPE_CHECKING:
    import optuna


def check_study(study: optuna.Study) -> None:
    """Raise a ValueError if an attribute of the study or of a trial is not such as truepair writes."""
    every_value(study.user_attrs)  # raises if they are nested too deeply
    directions = [direction.name for direction in study.directions]
    _check("what its study looks for", directions, directions == ["MAXIMIZE"])
    domains: dict[str, Domain] = {}
    if "meaning" in study.user_attrs:
        domains |= _check_meaning(study.user_attrs["meaning"])
    extensions = study.user_attrs.get("extensions", [])
    _check("extensions", extensions, isinstance(extensions, list))
    for each in extensions:
        names = each.get("names") if isinstance(each, Mapping) else None
        whole = isinstance(names, list) and all(isinstance(name, str) for name in names)
        _check("an extension", each, whole and _is_count(each.get("more", 0)))
        domains |= _check_space(each.get("space"))
    for trial in study.get_trials(deepcopy=False):
        _check_trial(trial.user_attrs)
        _check_numbers(trial)
        for name, range_ in trial.distributions.items():
            _check(f"the range of {name}", range_, name not in domains or _is_of(range_, domains[name]))


def _check_meaning(meaning: Any) -> dict[str, Domain]:
    _check("the meaning of its study", meaning, isinstance(meaning, Mapping))
    fixed = meaning.get("fixed parameters", {})
    _check("the fixed parameters", fixed, isinstance(fixed, Mapping))
    return _check_space(meaning.get("space"))


def _check_space(space: Any) -> dict[str, Domain]:
    """The domains of the space."""
    _check("the space", space, isinstance(space, Mapping))
    return {name: domain_of(entry) for name, entry in read_space(space).items()}


def _is_of(range_: Any, domain: Domain) -> bool:
    """Whether Optuna's range of a trial goes with a domain: it refuses another kind in a later trial."""
    kind = type(range_).__name__
    if isinstance(domain, Choice):
        return kind == "CategoricalDistribution" and list(range_.choices) == list(domain.values)
    if isinstance(domain, Powers):
        return kind == "IntDistribution" and not range_.log
    return kind == "FloatDistribution" and range_.log == domain.log


def _check_trial(facts: Mapping[str, Any]) -> None:
    every_value(dict(facts))
    parameters: Any = facts.get("parameters", {})
    owner: Any = facts.get("owner")
    outcome: Any = facts.get("outcome")
    _check("the parameters of a trial", parameters, isinstance(parameters, Mapping))
    if "owner" in facts:
        whole = isinstance(owner, Mapping) and isinstance(owner.get("host"), str)
        _check("the owner of a trial", owner, whole and _is_process(owner.get("pid")))
    if "outcome" in facts:
        _check("the outcome of a trial", outcome, isinstance(outcome, Mapping) and _is_outcome(outcome))


def _check_numbers(trial: optuna.trial.FrozenTrial) -> None:
    """What Optuna's sampler learns from: the score, the reports, and the parameters in their ranges."""
    if trial.state.name == "COMPLETE":
        values = trial.values
        _check("the score of a trial", values, isinstance(values, list) and len(values) == 1)
        _check("the score of a trial", values, is_number(values[0]))
    reports = trial.intermediate_values
    whole = (
        isinstance(reports, dict) and all(map(_is_count, reports)) and all(map(is_number, reports.values()))
    )
    _check("the reports of a trial", reports, whole)
    for name, distribution in trial.distributions.items():
        place = distribution.to_internal_repr(trial.params[name])
        _check(f"{name} of a trial", trial.params[name], math.isfinite(place))


def _is_outcome(facts: Mapping[str, Any]) -> bool:
    history, state, score = facts.get("history", []), facts.get("state"), facts.get("score")
    return (
        {"state", "score", "epoch"} <= set(facts) <= {field.name for field in dataclasses.fields(Outcome)}
        and state in ("complete", "pruned", "failed")
        and (is_number(score) or (score is None and state == "failed"))
        and (facts["epoch"] is None or _is_count(facts["epoch"]))
        and all(isinstance(facts.get(name, ""), str) for name in ("why", "engine"))
        and is_number(facts.get("seconds", 0.0))
        and isinstance(history, list)
        and all(isinstance(each, list) and len(each) == 2 and all(map(is_number, each)) for each in history)
    )


def _is_process(number: Any) -> bool:
    return _is_count(number) and 0 < number < 2**31


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check(what: str, value: Any, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{what} is {value!r:.80}")
