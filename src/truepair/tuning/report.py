"""Results of a search in words, as plain facts and as a page: the best trial, importance, cost."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from truepair.data.split import counted
from truepair.reporting.figures import Panel, Series, draw_points
from truepair.reporting.page import Figure, Page, Section, Table, Text
from truepair.tuning.domains import Choice, Powers, Range, domain_of, plain_space
from truepair.tuning.search_loop import Tuning
from truepair.tuning.study import check_optuna, quietly
from truepair.tuning.trials import Trial

if TYPE_CHECKING:
    import optuna

SHOWN = 10  # trials in the table
_ENOUGH = 10  # trials with a score, for saying what mattered
_TOP = 0.25  # the share of trials that counts as good


def scored(tuning: Tuning) -> list[Trial]:
    """The trials with a score, pruned ones too, in the order they were started."""
    return [trial for trial in tuning.trials if trial.score is not None]


def best_trials(tuning: Tuning, n: int = SHOWN) -> list[Trial]:
    """The best complete trials, best first."""
    complete = [trial for trial in tuning.trials if trial.state == "complete"]
    return sorted(complete, key=lambda trial: (-(trial.score or 0.0), trial.number))[:n]


def importance(tuning: Tuning) -> dict[str, float]:
    """How much each parameter decides whether a trial is among the best quarter; the shares sum to 1.

    By PED-ANOVA: how far the parameter's distribution among the good trials is from that among all. Pruned
    trials count with what they had reached. Empty where fewer than ten trials have a score.
    """
    check_optuna()
    if len(scored(tuning)) < _ENOUGH:
        return {}
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    with quietly():
        study = optuna.create_study(direction="maximize")
        study.add_trials([_for_optuna(tuning, trial) for trial in scored(tuning)])
        evaluator = PedAnovaImportanceEvaluator(target_quantile=_TOP)
        return get_param_importances(study, evaluator=evaluator)


def tendency(tuning: Tuning, name: str) -> float | None:
    """Spearman's rank correlation of a numeric parameter with the score; None where it says nothing."""
    from scipy.stats import rankdata

    pairs = [(t.parameters[name], t.score) for t in scored(tuning) if name in t.parameters]
    if isinstance(domain_of(tuning.space[name]), Choice) or len(pairs) < _ENOUGH:
        return None
    values, scores = (rankdata(column) for column in zip(*pairs, strict=True))
    if np.ptp(values) == 0 or np.ptp(scores) == 0:
        return None
    return float(np.corrcoef(values, scores)[0, 1])


def in_words(tuning: Tuning, metric: str) -> str:
    """The search in a few sentences."""
    best, chosen = tuning.best, _chosen(tuning, tuning.best)
    of, at = counted(len(tuning.trials), "trial"), f" at epoch {best.epoch}" if best.epoch else ""
    lines = [f"The best of {of} is trial {best.number}: {metric} {best.score:.4f}{at}."]
    lines += [_against_default(tuning, metric)] if tuning.default is not None else []
    lines.append("It has " + ", ".join(f"{name} = {shown(value)}" for name, value in chosen.items()) + ".")
    mattered = [f"{name} ({share:.0%})" for name, share in importance(tuning).items() if share >= 0.1]
    lines += ["Most important: " + ", ".join(mattered) + "."] if mattered else []
    lines += (
        [f"Extended, because the best lay at an edge: {', '.join(tuning.extended)}."]
        if tuning.extended
        else []
    )
    at_edge = edges(tuning)
    lines += [f"The best still lies at an edge of: {', '.join(at_edge)}."] if at_edge else []
    return "\n".join([*lines, cost(tuning)])


def _against_default(tuning: Tuning, metric: str) -> str:
    default = tuning.default
    assert default is not None
    if default.score is None:
        return f"The default, trial {default.number}, failed: {default.why}."
    if default.number == tuning.best.number:
        return "That is the default: no other trial was better."
    return f"The default, trial {default.number}, has {metric} {default.score:.4f}."


def cost(tuning: Tuning) -> str:
    """The number of trials by state, the reasons of failures, and the total time."""
    states = Counter(trial.state for trial in tuning.trials)
    seconds = sum(trial.seconds for trial in tuning.trials)
    counts = ", ".join(f"{states[state]} {state}" for state in ("complete", "pruned", "failed"))
    why = Counter(trial.why for trial in tuning.trials if trial.why)
    reasons = "".join(f"\nfailed {n} times: {text}" for text, n in why.most_common(5))
    again = (
        f"\ninterrupted and run again: {counted(tuning.interrupted, 'trial')}" if tuning.interrupted else ""
    )
    return f"{counts}; {seconds:.1f} seconds of training.{reasons}{again}"


def edges(tuning: Tuning) -> list[str]:
    """Parameters whose best value lies at an edge of a range that could be extended."""
    best = tuning.best.parameters
    found = [name for name in tuning.space if name in best]
    domains = {name: domain_of(tuning.space[name]) for name in found}
    return [name for name, domain in domains.items() if domain.extended(best[name]) != domain]


def facts(tuning: Tuning) -> dict[str, Any]:
    """Everything, as plain JSON."""
    return {
        "best": dataclasses.asdict(tuning.best),
        "parameters": tuning.parameters(),
        "importance": importance(tuning),
        "extended": list(tuning.extended),
        "at_an_edge": edges(tuning),
        "space": plain_space(tuning.space),
        "trials": [dataclasses.asdict(trial) for trial in tuning.trials],
        "interrupted": tuning.interrupted,
    }


def rows_of(tuning: Tuning, trials: Sequence[Trial], metric: str) -> list[dict[str, Any]]:
    """One row a trial: its score, and what was chosen for it."""
    return [
        {
            "trial": trial.number,
            metric: f"{trial.score:.4f}",
            "epoch": trial.epoch or "",
            **{name: shown(trial.parameters.get(name, "")) for name in tuning.space},
        }
        for trial in trials
    ]


def page(tuning: Tuning, metric: str, title: str) -> Page:
    """The report as a page."""
    rows = rows_of(tuning, best_trials(tuning), metric)
    table = Table(
        list(rows[0]), [list(row.values()) for row in rows], "The best complete trials, best first."
    )
    sections = [
        Section("The best trials", [table]),
        Section("Importance of parameters", [_parameters(tuning), Text(_HOW_TO_READ)]),
        Section("All trials", [_figure(tuning, metric), Text(cost(tuning))]),
    ]
    return Page(title, in_words(tuning, metric), sections)


_HOW_TO_READ = (
    "Importance: how much a parameter decides whether a trial is among the best quarter (PED-ANOVA), as a "
    "share of all. Tendency: the rank correlation with the score; above 0, higher values are better. "
    "Both are rough with fewer than a hundred trials. The scores are those of the validation part, which "
    "selected the best of many trials, so they are too optimistic: evaluate the final model on a test part."
)


def _parameters(tuning: Tuning) -> Table:
    shares, rows = importance(tuning), []
    for name in sorted(tuning.space, key=lambda name: -shares.get(name, 0.0)):
        lean = tendency(tuning, name)
        rows.append(
            [
                name,
                f"{shares[name]:.0%}" if name in shares else "–",
                "–" if lean is None else f"{lean:+.2f}",
                shown(tuning.best.parameters.get(name, "–")),
                _searched(tuning, name),
            ]
        )
    return Table(["", "importance", "tendency", "best", "searched"], rows)


def _searched(tuning: Tuning, name: str) -> str:
    domain = domain_of(tuning.space[name])
    if isinstance(domain, Choice):
        return ", ".join(map(str, domain.values))
    text = f"{shown(domain.low)} to {shown(domain.high)}"
    return f"{text}, extended" if name in tuning.extended else text


def _figure(tuning: Tuning, metric: str) -> Figure:
    trials = scored(tuning)
    scores = [float(trial.score or 0.0) for trial in trials]
    best = trials.index(tuning.best)
    over_trials = Series([t.number for t in trials], scores, best=best, line=list(accumulate(scores, max)))
    panels = [Panel("trial", {"_": over_trials}, ylabel=metric)]
    for name, entry in tuning.space.items():
        domain = domain_of(entry)
        those = [trial for trial in trials if name in trial.parameters]
        if those:
            x: list[Any] = [trial.parameters[name] for trial in those]
            x = list(map(str, x)) if isinstance(domain, Choice) else x
            at = those.index(tuning.best) if tuning.best in those else None
            log = isinstance(domain, Powers) or (isinstance(domain, Range) and domain.log)
            points = Series(x, [float(t.score or 0.0) for t in those], best=at)
            label = metric if len(panels) % 3 == 0 else ""
            panels.append(Panel(name, {"_": points}, ylabel=label, log="x" if log else ""))
    alt = f"{metric} of every trial, over the trials and against {', '.join(tuning.space)}"
    caption = "Each point is a trial; the large one is the best. The line is the best so far."
    return Figure(draw_points(panels), alt, caption)


def _chosen(tuning: Tuning, trial: Trial) -> dict[str, Any]:
    return {name: trial.parameters[name] for name in tuning.space if name in trial.parameters}


def shown(value: object) -> str:
    """A value as text, numbers with three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _for_optuna(tuning: Tuning, trial: Trial) -> optuna.trial.FrozenTrial:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import create_trial

    params: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    for name, value in _chosen(tuning, trial).items():
        domain = domain_of(tuning.space[name])
        params[name] = domain.scaled(value) if isinstance(domain, Powers) else value
        if isinstance(domain, Choice):
            distributions[name] = CategoricalDistribution(domain.values)
        elif isinstance(domain, Powers):
            distributions[name] = IntDistribution(domain.scaled(domain.low), domain.scaled(domain.high))
        else:
            distributions[name] = FloatDistribution(domain.low, domain.high, log=domain.log)
    return create_trial(params=params, distributions=distributions, value=trial.score)
