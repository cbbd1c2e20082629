"""Settled: the best settings of the trials, the runs that have them, the file that comes with truepair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truepair_lab.lines import Lines, RunLine, digest
from truepair_lab.paper.running.plan import Wanted
from truepair_lab.quality.cases import NDCG, RECALL
from truepair_lab.quality.contestants import Model, seeds_of
from truepair_lab.searching import Place, best_settings, read_settings, settings_json
from truepair_lab.statistics import Mean

STUDY = "quality"
STOP = "stop_after"  # among a run's parameters: the epoch that it ends with, of a schedule of `epochs`
Settings = Mapping[Place, Mapping[str, Any]]  # "parameters", "epoch", "validation"; "test" where it is known


def settings_of(lines: Lines) -> dict[Place, dict[str, Any]]:
    """The best settings of each place: of the trials at hand, else those that come with truepair."""
    return packaged_settings() | best_settings(lines)


def packaged_settings() -> dict[Place, dict[str, Any]]:
    """What truepair's own searches found, and what their runs reached; the lines are in results/quality."""
    return read_settings(__package__, "settled.json")


def settled_text(lines: Lines) -> str:
    """The text of settled.json for these lines."""
    runs = current_runs(lines)
    best = best_settings(lines)
    return settings_json({place: best[place] | _reached(runs.get(place, ())) for place in best})


def _reached(runs: Sequence[RunLine]) -> dict[str, Any]:
    means = {metric: mean_of(runs, metric) for metric in (NDCG, RECALL)}
    means_of = {
        m: [round(mean.value, 6), round(mean.sd or 0.0, 6), mean.n] for m, mean in means.items() if mean
    }
    return {"test": means_of} if means_of else {}


def mean_of(runs: Sequence[RunLine], metric: str) -> Mean | None:
    """The mean over seeds; None without runs."""
    return Mean.of(run.metrics[metric] for run in runs)


def final_parameters(best: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a best trial, for learning from everything.

    The schedule keeps its length, for the rate of every epoch depends on it; training stops at the epoch that
    was chosen.
    """
    parameters = dict(best["parameters"])
    return parameters | ({STOP: best["epoch"]} if "epochs" in parameters else {})


def wanted_runs(case: str, models: Sequence[Model], settings: Settings, seeds: int | None) -> list[Wanted]:
    """The final runs of these contestants that have settings: one seed of everything first."""
    found = [
        Wanted(STUDY, case, *model, "", seed, final_parameters(settings[(case, *model)]))
        for model in models
        if (case, *model) in settings
        for seed in seeds_of(model[1], seeds)
    ]
    return sorted(found, key=lambda wanted: wanted.seed)


def current_runs(lines: Lines) -> dict[Place, list[RunLine]]:
    """The final runs with the best settings, by seed; runs of older settings are left out."""
    wanted = {place: digest(final_parameters(best)) for place, best in settings_of(lines).items()}
    found: dict[Place, list[RunLine]] = {}
    for run in sorted(lines.runs, key=lambda run: run.seed):
        place = run.dataset, run.encoder, run.method
        if run.study == STUDY and digest(run.parameters) == wanted.get(place):
            found.setdefault(place, []).append(run)
    return found
