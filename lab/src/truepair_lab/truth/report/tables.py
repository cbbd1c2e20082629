"""Tables: the lines of the truth lab as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from truepair_lab.markdown import short, table
from truepair_lab.statistics import Mean, bold
from truepair_lab.truth.report.summary import BASELINE, COMPARED, Setting, title
from truepair_lab.truth.treatments import EVERY, PROBED, TREATMENTS

SAMPLERS = {"uniform": "uniform", "popularity": "popularity", "dns": "DNS", "bns": "BNS"}
MEASURES = ("p", "p plain bias", "p bias", "p plain spread", "p spread")


def cases_table(settings: Sequence[Setting]) -> str:
    """What is known, learnt from and judged; means over seeds where they vary."""
    head = ["data", "users x items", "learnt from", "true τ", "users judged", "positives judged", "seeds"]
    rows = []
    for setting in settings:
        line = setting.lines[0]
        facts = line.facts
        seeds = len({each.seed for each in setting.lines})
        size = f"{facts['users']:,} x {facts['items']:,}"
        counts = [f"{facts[name]:,}" for name in ("judged users", "judged positives")]
        rows.append([setting.title, size, f"{facts['train']:,}", short(line.tau, 3), *counts, str(seeds)])
    return table(head, rows)


def quality_table(settings: Sequence[Setting]) -> str:
    """BPR's NDCG@20, and what every other treatment adds to it; the share of the gap that it closes."""
    names = [n for n in EVERY if n != BASELINE and any(n in setting.by_name for setting in settings)]
    rows = [[title(BASELINE), *(_text(setting.mean(BASELINE)) for setting in settings)]]
    rows += [[f"{title(name)} − BPR", *(_gain(setting, name) for setting in settings)] for name in names]
    return table(["NDCG@20", *(setting.title for setting in settings)], rows)


def _gain(setting: Setting, name: str) -> str:
    closed = setting.closed(name)
    share = "" if closed is None else f" ({_percent(closed.value)})"
    return _difference(setting, name, BASELINE) + share


def differences_table(settings: Sequence[Setting]) -> str:
    """NDCG@20 of one treatment less another's, seed by seed; a column a setting."""
    rows = []
    for name, a, b in COMPARED:
        if any(setting.difference(a, b) for setting in settings):
            rows.append([name, *(_difference(setting, a, b) for setting in settings)])
    return table(["NDCG@20", *(setting.title for setting in settings)], rows)


def draws_table(settings: Sequence[Setting]) -> str:
    """The share of draws that are in truth positive, at BPR's and at DPL's best epoch."""
    head = ["data", "true τ", *(f"{SAMPLERS[name]}" for name in PROBED)]
    rows = []
    for setting in settings:
        cells = [_text(setting.probe(BASELINE, f"share {name}"), 3) for name in PROBED]
        rows.append([setting.title, short(setting.lines[0].tau, 3), *cells])
    return table(head, rows)


def probability_table(settings: Sequence[Setting], name: str = "dpl") -> str:
    """Bias and spread of P̂ of one treatment, at its best epoch; a row a setting."""
    head = ["data", "P", "bias without correction", "bias", "spread without", "spread of a row", "clamped"]
    rows = []
    for setting in settings:
        if name in setting.by_name:
            clamped = setting.clamped(name)
            cells = [_text(setting.probe(name, measure), 3) for measure in MEASURES]
            rows.append([setting.title, *cells, "" if clamped is None else f"{clamped:.1%}"])
    return table(head, rows)


def gradient_table(settings: Sequence[Setting]) -> str:
    """Cosine and length ratio, a column a setting."""
    head = ["", *(setting.title for setting in settings)]
    rows = []
    for name in (n for n in TREATMENTS if any(n in setting.by_name for setting in settings)):
        cells = []
        for setting in settings:
            cosine, length = (setting.probe(name, measure) for measure in ("cosine", "length"))
            cell = "–" if cosine is None or length is None else f"{cosine.value:.3f} · {length.value:.2f}"
            cells.append(cell)
        rows.append([title(name), *cells])
    noise = [_text(setting.probe(BASELINE, "noise"), 2) for setting in settings]
    return table(head, [*rows, ["noise, BPR", *noise]])


def _text(mean: Mean | None, digits: int = 4) -> str:
    return "–" if mean is None else mean.text(digits)


def _difference(setting: Setting, a: str, b: str) -> str:
    mean = setting.difference(a, b)
    return "–" if mean is None else bold(mean.text(sign=True), (a, b) in setting.significant)


def _percent(value: float) -> str:
    return f"{round(100 * value)}%"
