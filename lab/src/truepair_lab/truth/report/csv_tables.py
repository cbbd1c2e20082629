"""CSV files of the truth lab: what the page leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from truepair_lab.markdown import csv_text
from truepair_lab.statistics import Mean
from truepair_lab.truth.report.posterior import Trial, chosen_csv
from truepair_lab.truth.report.summary import BASELINE, GOAL, NDCG, Setting, title
from truepair_lab.truth.report.tables import MEASURES

_METRICS = (NDCG, "recall@20", "auc")


def csv_tables(settings: Sequence[Setting], trials: Sequence[Trial]) -> dict[str, str]:
    """File -> text."""
    found = {
        "truth-metrics.csv": _metrics(settings),
        "truth-probability.csv": _probability(settings),
        "truth-settings.csv": _settings(settings),
    }
    return found | ({"truth-posterior-settings.csv": chosen_csv(trials)} if trials else {})


def _each(settings: Sequence[Setting]) -> Iterator[tuple[Setting, str]]:
    return ((setting, name) for setting in settings for name in setting.by_name)


def _spread(*means: Mean | None) -> list[float | None]:
    """The value and the standard deviation of each."""
    return [x for mean in means for x in ((None, None) if mean is None else (mean.value, mean.sd))]


def _metrics(settings: Sequence[Setting]) -> str:
    names = (*_METRICS, "NDCG@20 − BPR's", "gap to full supervision closed", "gap to true negatives closed")
    head = ["data", "treatment", "seeds", *(part for name in names for part in (name, f"{name}, sd"))]
    rows = []
    for setting, name in _each(settings):
        gain = None if name == BASELINE else setting.gain(name)
        closed = [None if gain is None else setting.closed(name, goal) for goal in (GOAL, "clean-draws")]
        figures = _spread(*(setting.mean(name, metric) for metric in _METRICS), gain, *closed)
        rows.append([setting.title, title(name), len(setting.by_name[name]), *figures])
    return csv_text(head, rows)


def _probability(settings: Sequence[Setting]) -> str:
    head = ["data", "treatment", *(part for name in MEASURES for part in (name, f"{name}, sd")), "clamped"]
    rows = []
    for setting, name in _each(settings):
        means = [setting.probe(name, measure) for measure in MEASURES]
        if any(means):
            rows.append([setting.title, title(name), *_spread(*means), setting.clamped(name)])
    return csv_text(head, rows)


def _settings(settings: Sequence[Setting]) -> str:
    """What validation chose; a weight decay at an end of what was tried is marked."""
    head = ["data", "treatment", "learning rate", "weight decay", "at an end", "epochs"]
    rows = []
    for setting, name in _each(settings):
        lines = setting.by_name[name]
        chosen = [lines[0].settings[part] for part in ("learning_rate", "weight_decay")]
        epochs = " ".join(str(line.epoch) for line in lines)
        rows.append([setting.title, title(name), *chosen, setting.edge(name), epochs])
    return csv_text(head, rows)
