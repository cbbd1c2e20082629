"""Settled: the chosen settings of the trials, the runs that have them, the file that comes with truepair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truepair_lab.lines import Key, Lines, RunLine, digest
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.running.plan import Wanted
from truepair_lab.quality.cases import CASES, NDCG, RECALL
from truepair_lab.quality.contestants import (
    BLEND_SUFFIX,
    INFONCE,
    OTHER_SEEDS,
    UNSEARCHED,
    Model,
    parts_of,
    seeds_of,
    twin_of,
    without_search,
)
from truepair_lab.quality.part_scores import Scored, choice_of, scored_trials
from truepair_lab.searching import Place, best_settings, read_settings, settings_json
from truepair_lab.statistics import Mean

STUDY = "quality"
STOP = "stop_after"  # among a run's parameters: the epoch that it ends with, of a schedule of `epochs`
Settings = Mapping[Place, Mapping[str, Any]]  # "parameters", "epoch", "validation"; "test" where it is known


def settings_of(lines: Lines) -> dict[Place, dict[str, Any]]:
    """The settings of each place: chosen among the trials at hand, else those that come with truepair."""
    return packaged_settings() | chosen_settings(lines)


def chosen_settings(lines: Lines) -> dict[Place, dict[str, Any]]:
    """The settings with the best mean over the validation parts; the best trial where there is one part."""
    found = best_settings(lines)
    for place, candidates in scored_trials(lines).items():
        choice = choice_of(candidates)
        assert choice is not None
        best = choice.by_mean
        found[place] = settings_of_trial(best) | {"parts": round(best.mean, 6)}
    for case, entry in CASES.items():
        if entry.large and not entry.former:
            _add_unsearched(found, case)
    return found


def _add_unsearched(found: dict[Place, dict[str, Any]], case: str) -> None:
    """Add the contestants that a case runs without a search, with the epoch of their twin.

    A blend has the settings of EASE that the other blends have: EASE's own search may have gone on since.
    """
    for model in UNSEARCHED:
        twin = (case, *(twin_of(model, True) or (parts_of(model) or (model,))[0]))
        if (case, *model) in found or twin not in found:
            continue
        best = found[twin]
        if model[0] == "lightgcn":  # the hops and the epoch are those of InfoNCE
            if (graph := found.get((case, "lightgcn", INFONCE))) is None:
                continue
            hops = {"encoder.hops": graph["parameters"]["encoder.hops"]}
            parameters, best = {**best["parameters"], "encoder": "lightgcn", **hops}, graph
        elif parts_of(model) is None:
            parameters = without_search(model, best["parameters"])
        elif (ease := _ease_of_blends(found, case)) is not None:
            parameters = without_search(model, {**best["parameters"], **ease})
        else:
            continue
        found[case, *model] = {"parameters": parameters, "epoch": best["epoch"], "validation": None}


def _ease_of_blends(found: Settings, case: str) -> dict[str, Any] | None:
    """What a blend has of EASE: as in a blend that was searched, or as EASE's own search found it."""
    for (name, encoder, _), best in sorted(found.items()):
        if name == case and encoder.endswith(BLEND_SUFFIX):
            return {key: v for key, v in best["parameters"].items() if key.split(".")[0] == "plus"}
    ease = found.get((case, NO_ENCODER, "ease-powers"))
    return None if ease is None else blend_parameters({"parameters": {}}, ease)


def blend_parameters(run: Mapping[str, Any], ease: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a blend without its weight, from the best settings of the run and of EASE."""
    named = {name.removeprefix("encoder."): value for name, value in ease["parameters"].items()}
    fields = {f"plus.{name}": value for name, value in named.items() if name != "encoder"}
    return {**run["parameters"], "plus": "ease", **fields}


def settings_of_trial(scored: Scored) -> dict[str, Any]:
    """The parameters, epoch and first validation score of a trial."""
    trial = scored.trial
    return {"parameters": dict(trial.parameters), "epoch": trial.epoch, "validation": trial.score}


def packaged_settings() -> dict[Place, dict[str, Any]]:
    """What truepair's own searches found, and what their runs reached; the lines are in results/quality."""
    return read_settings(__package__, "settled.json")


def settled_text(lines: Lines) -> str:
    """The text of settled.json for these lines."""
    runs = current_runs(lines)
    best = chosen_settings(lines)
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


def other_runs(case: str, models: Sequence[Model], lines: Lines, seeds: int | None) -> list[Wanted]:
    """The runs of settings that a validation part alone would choose, where its mean chooses others."""
    scored, found = scored_trials(lines), dict[Key, Wanted]()
    for model in models:
        choice = choice_of(scored.get((case, *model), ()))
        if choice is None:
            continue
        for each in choice.by_part:
            for seed in seeds_of(model[1], OTHER_SEEDS if seeds is None else min(seeds, OTHER_SEEDS)):
                wanted = Wanted(STUDY, case, *model, "", seed, final_parameters(settings_of_trial(each)))
                found.setdefault(wanted.key(""), wanted)
    return sorted(found.values(), key=lambda wanted: wanted.seed)


def runs_of(lines: Lines) -> dict[tuple[str, str, str, str], list[RunLine]]:
    """The runs of every place and settings, by the checksum of their parameters."""
    found: dict[tuple[str, str, str, str], list[RunLine]] = {}
    for run in sorted(lines.runs, key=lambda run: run.seed):
        if run.study == STUDY:
            place = run.dataset, run.encoder, run.method, run.digest
            found.setdefault(place, []).append(run)
    return found


def current_runs(lines: Lines) -> dict[Place, list[RunLine]]:
    """The final runs with the chosen settings, by seed; runs of other settings are left out."""
    runs = runs_of(lines)
    wanted = {place: digest(final_parameters(best)) for place, best in settings_of(lines).items()}
    return {place: runs[*place, mark] for place, mark in wanted.items() if (*place, mark) in runs}
