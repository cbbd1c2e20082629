"""The quality contest as a benchmark: what its final runs reached, as recorded; nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truepair_lab.benchmarks.outcome import Options, Outcome, Row, Skipped
from truepair_lab.markdown import metric_name
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.quality.cases import AIMS, CASES, NDCG
from truepair_lab.quality.contestants import BASELINES, Model, title
from truepair_lab.quality.settled import packaged_settings

Recorded = Mapping[Model, Mapping[str, Any]]


def contest_quality(options: Options) -> Outcome:
    """Full-catalogue training against EASE and iALS, from the lines of the contest; nothing is trained."""
    outcome = Outcome()
    for case in CASES:
        found = {
            place[1:]: best
            for place, best in packaged_settings().items()
            if place[0] == case and "test" in best
        }
        chosen = _chosen(found)
        if chosen is None:
            outcome.skipped.append(
                f"{case} has no recorded runs; `truepair-lab quality tune` and `run` make them"
            )
            continue
        outcome.rows += _rows(case, chosen, found)
        outcome.settings[case] = dict(found[chosen]["parameters"])
    if not outcome.rows:
        raise Skipped("no run of the contest is recorded; `truepair-lab quality tune` and `run` make them.")
    return outcome


def _chosen(found: Recorded) -> Model | None:
    """The trained contestant that validation chooses; what was not searched has no score."""
    trained = [model for model in found if model[0] != NO_ENCODER]
    searched = [model for model in trained if found[model]["validation"] is not None]

    def score(model: Model) -> tuple[bool, float]:
        """By the mean over validation parts where it is known."""
        return "parts" in found[model], found[model].get("parts", found[model]["validation"])

    return max(searched, key=score, default=None)


def _rows(case: str, chosen: Model, found: Recorded) -> list[Row]:
    """The figure against each baseline's, and against the aims."""
    what = f"{CASES[case].title}, {title(chosen)}: "
    test = {model: best["test"] for model, best in found.items()}
    value, sd, n = test[chosen][NDCG]
    note = f"mean of {n} seeds, spread {sd:.4f}"
    rows = [
        Row(
            what + metric_name(NDCG),
            value,
            "",
            title((NO_ENCODER, m)),
            test[NO_ENCODER, m][NDCG][0],
            note=note,
        )
        for m in BASELINES
        if (NO_ENCODER, m) in test
    ]
    for metric, aim in AIMS.get(case, {}).items():
        rows.append(Row(what + metric_name(metric), test[chosen][metric][0], "", bar=aim, at_least=True))
    return rows
