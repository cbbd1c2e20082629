"""Results of a search in words, as plain facts and as a page: the best trial, importance, cost."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from truepair.data.split import counted
from truepair.reporting.figures import Panel, Series, draw_points
from truepair.reporting.page import Figure, Page, Section, Table, Text
from truepair.search import domains
from truepair.search.journal import check_optuna, quietly
from truepair.search.running import SearchResult
from truepair.search.trials import Trial
from truepair.storage.types import Json

SHOWN = 10  # trials in the table
_ENOUGH = 10  # trials with a score, for saying what mattered
_TOP = 0.25  # the share of trials that counts as good


def scored(tuning: SearchResult) -> list[Trial]:
    """The trials with a score, pruned ones too, in the order they were started."""
    return [trial for trial in tuning.trials if trial.score is not None]


def best_trials(tuning: SearchResult, n: int = SHOWN) -> list[Trial]:
    """The best complete trials, best first."""
    complete = [trial for trial in tuning.trials if trial.state == "complete"]
    return sorted(complete, key=lambda trial: (-(trial.score or 0.0), trial.number))[:n]


def importance(tuning: SearchResult) -> dict[str, float]:
    """How much each parameter decides whether a trial is among the best quarter; the shares sum to 1.

    By PED-ANOVA: how far the parameter's distribution among the good trials is from that among all. Pruned
    trials count with what they had reached. Empty where fewer than ten trials have a score.
    """
    check_optuna()
    if len(scored(tuning)) < _ENOUGH:
        return {}
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    with quietly():
        study = optuna.create_study(direction="maximize")
        for trial in scored(tuning):
            chosen = {name: domains.domain_of(tuning.space[name]) for name in _chosen(tuning, trial)}
            places = {name: domains.place_of(one, trial.parameters[name]) for name, one in chosen.items()}
            ranges = {name: domains.distribution_of(one) for name, one in chosen.items()}
            study.add_trial(create_trial(params=places, distributions=ranges, value=trial.score))
        evaluator = PedAnovaImportanceEvaluator(target_quantile=_TOP)
        return get_param_importances(study, evaluator=evaluator)


def in_words(tuning: SearchResult, metric: str) -> str:
    """The search in a few sentences."""
    best, chosen = tuning.best, _chosen(tuning, tuning.best)
    of, at = counted(len(tuning.trials), "trial"), f" at epoch {best.epoch}" if best.epoch else ""
    lines = [f"The best of {of} is trial {best.number}: {metric} {best.score:.4f}{at}."]
    if (default := tuning.default) is not None:
        name = f"The default, trial {default.number}"
        if default.score is None:
            lines.append(f"{name}, failed: {default.why}.")
        elif default.number == best.number:
            lines.append("That is the default: no other trial was better.")
        else:
            lines.append(f"{name}, has {metric} {default.score:.4f}.")
    if tuning.lately is not None:
        lines.append(f"What is popular lately, with the best half-life, has {metric} {tuning.lately:.4f}.")
    lines.append("It has " + ", ".join(f"{name} = {shown(value)}" for name, value in chosen.items()) + ".")
    mattered = [f"{name} ({share:.0%})" for name, share in importance(tuning).items() if share >= 0.1]
    for what, names in (
        ("Most important", mattered),
        ("Extended, because the best lay at an edge", tuning.extended),
        ("The best still lies at an edge of", edges(tuning)),
    ):
        lines += [f"{what}: {', '.join(names)}."] if names else []
    return "\n".join([*lines, cost(tuning)])


def cost(tuning: SearchResult) -> str:
    """The number of trials by state, the reasons of failures, and the total time."""
    states = Counter(trial.state for trial in tuning.trials)
    seconds = sum(trial.seconds for trial in tuning.trials)
    counts = ", ".join(f"{states[state]} {state}" for state in ("complete", "pruned", "failed"))
    why = Counter(trial.why for trial in tuning.trials if trial.why)
    reasons = "".join(f"\nfailed {n} times: {text}" for text, n in why.most_common(5))
    if tuning.interrupted:
        reasons += f"\ninterrupted and run again: {counted(tuning.interrupted, 'trial')}"
    return f"{counts}; {seconds:.1f} seconds of training.{reasons}"


def edges(tuning: SearchResult) -> list[str]:
    """Parameters whose best value lies at an edge of a range that could be extended."""
    return list(domains.extend_space(tuning.space, tuning.best.parameters)[1])


def facts(tuning: SearchResult) -> Json:
    """Everything, as plain JSON."""
    return {
        "best": dataclasses.asdict(tuning.best),
        "parameters": tuning.parameters(),
        "importance": importance(tuning),
        "extended": list(tuning.extended),
        "at_an_edge": edges(tuning),
        "space": domains.plain_space(tuning.space),
        "trials": [dataclasses.asdict(trial) for trial in tuning.trials],
        "interrupted": tuning.interrupted,
    }


def rows_of(tuning: SearchResult, trials: Sequence[Trial], metric: str) -> list[Json]:
    """One row a trial: its score, and what was chosen for it."""
    rows = []
    for trial in trials:
        chosen = {name: shown(trial.parameters.get(name, "")) for name in tuning.space}
        score = f"{trial.score:.4f}"
        rows.append({"trial": trial.number, metric: score, "epoch": trial.epoch or "", **chosen})
    return rows


def page(tuning: SearchResult, metric: str, title: str) -> Page:
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
    "share of all; rough with fewer than a hundred trials. Scores are those of the validation part, which "
    "selected the best of many trials, so they are too optimistic: evaluate the final model on a test part."
)


def _parameters(tuning: SearchResult) -> Table:
    shares, rows = importance(tuning), []
    for name in sorted(tuning.space, key=lambda name: -shares.get(name, 0.0)):
        best, share = tuning.best.parameters.get(name, "–"), shares.get(name)
        rows.append([name, "–" if share is None else f"{share:.0%}", shown(best), _searched(tuning, name)])
    return Table(["", "importance", "best", "searched"], rows)


def _searched(tuning: SearchResult, name: str) -> str:
    domain = domains.domain_of(tuning.space[name])
    if isinstance(domain, domains.Choice):
        return ", ".join(map(str, domain.values))
    text = f"{shown(domain.low)} to {shown(domain.high)}"
    return f"{text}, extended" if name in tuning.extended else text


def _figure(tuning: SearchResult, metric: str) -> Figure:
    trials = scored(tuning)
    scores = [float(trial.score or 0.0) for trial in trials]
    best = trials.index(tuning.best)
    over_trials = Series([t.number for t in trials], scores, best=best, line=list(accumulate(scores, max)))
    panels = [Panel("trial", {"_": over_trials}, ylabel=metric)]
    for name, entry in tuning.space.items():
        domain = domains.domain_of(entry)
        those = [trial for trial in trials if name in trial.parameters]
        if those:
            x = [trial.parameters[name] for trial in those]
            x = list(map(str, x)) if isinstance(domain, domains.Choice) else x
            at = those.index(tuning.best) if tuning.best in those else None
            log = isinstance(domain, domains.Powers) or (isinstance(domain, domains.Range) and domain.log)
            points = Series(x, [float(t.score or 0.0) for t in those], best=at)
            label = metric if len(panels) % 3 == 0 else ""
            panels.append(Panel(name, {"_": points}, ylabel=label, log="x" if log else ""))
    alt = f"{metric} of every trial, over the trials and against {', '.join(tuning.space)}"
    caption = "Each point is a trial; the large one is the best. The line is the best so far."
    return Figure(draw_points(panels), alt, caption)


def _chosen(tuning: SearchResult, trial: Trial) -> Json:
    return {name: trial.parameters[name] for name in tuning.space if name in trial.parameters}


def shown(value: object) -> str:
    """A value as text, numbers with three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
