"""CSV files of the paper's study: every metric, the settings of every run, every search."""

from __future__ import annotations

import json

from truepair_lab.lines import Lines
from truepair_lab.markdown import csv_text, metric_name
from truepair_lab.paper.presets import METRICS, STUDIES
from truepair_lab.paper.report.names import dataset_name, model_name
from truepair_lab.paper.report.published import DOUBTED, published
from truepair_lab.paper.report.study_runs import NDCG, study_of
from truepair_lab.paper.report.tuning_effort import HEAD, searches

METRICS_FILE, SETTINGS_FILE, SEARCHES_FILE = "paper-metrics.csv", "paper-settings.csv", "paper-searches.csv"


def csv_tables(lines: Lines) -> dict[str, str]:
    """File -> text."""
    return {
        METRICS_FILE: _metrics(lines),
        SETTINGS_FILE: _settings(lines),
        SEARCHES_FILE: csv_text(HEAD, searches(lines)),
    }


def _metrics(lines: Lines) -> str:
    """A row a cell: mean and standard deviation over seeds and, beside the paper's protocol, the paper's."""
    names = [part for m in map(metric_name, METRICS) for part in (m, f"{m}, sd", f"{m}, the paper")]
    rows = []
    for name in STUDIES:
        study = study_of(lines, name)
        for (d, e, m, variant), cell in study.cells.items():
            figures: list[float | None] = []
            for metric in METRICS:
                mean = study.mean(d, e, m, metric, variant)
                printed = published(d, e, m, metric) if name in ("paper", "paper-tuned") else None
                figures += [None, None] if mean is None else [mean.value, mean.sd]
                figures.append(None if printed is None else printed.value)
            doubted = " ".join(metric_name(cell[3]) for cell in DOUBTED if cell[:3] == (d, e, m))
            last = study.mean(d, e, m, variant=variant, last=True)
            place = [name, dataset_name(d), model_name(e, m), variant, len(cell.runs)]
            rows.append([*place, *figures, None if last is None else last.value, cell.clamped, doubted])
    head = ["study", "dataset", "model", "variant", "seeds", *names, f"{metric_name(NDCG)}, last epoch"]
    return csv_text([*head, "rows at the floor", "doubted in the paper"], rows)


def _settings(lines: Lines) -> str:
    """The parameters of the runs, once for each setting; sweeps and ablations say theirs by name."""
    rows = []
    for name in ("paper", "paper-tuned", "clean"):
        for (d, e, m, variant), cell in study_of(lines, name).cells.items():
            parameters = json.dumps(dict(cell.runs[0].parameters), sort_keys=True)
            rows.append([name, dataset_name(d), model_name(e, m), variant, parameters])
    return csv_text(["study", "dataset", "model", "variant", "parameters"], rows)
