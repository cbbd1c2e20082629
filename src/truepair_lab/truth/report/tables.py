"""Tables: the lines of the truth lab as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truepair_lab.markdown import short, table
from truepair_lab.statistics import Mean, bold
from truepair_lab.truth.report.summary import BASELINE, GOAL, NDCG, Setting, title
from truepair_lab.truth.treatments import PROBED, REFERENCES, TREATMENTS

SAMPLERS = {"uniform": "uniform", "popularity": "popularity", "dns": "DNS", "bns": "BNS"}


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


def quality_table(setting: Setting) -> str:
    """Every treatment against true labels; the share of the distance that it closes."""
    closes = setting.closed(GOAL) is not None
    head = ["", "NDCG@20", "recall@20", "AUC", "NDCG@20 − BPR's"]
    head += ["gap to full supervision closed", "gap to true negatives closed"] if closes else []
    rows = []
    for name in setting.by_name:
        cells = [title(name), *(_text(setting.mean(name, m)) for m in (NDCG, "recall@20", "auc"))]
        gain = setting.gain(name)
        cells.append("" if name == BASELINE or gain is None else _difference(gain))
        if closes:
            cells += [
                "" if name == BASELINE else _percent(setting.closed(name, g)) for g in (GOAL, "clean-draws")
            ]
        rows.append(cells)
    return table(head, rows)


COMPARED = (
    ("DPL − BPR", "dpl", BASELINE),
    ("DPL − DPL with τ = 0: the correction itself", "dpl", "dpl-tau-0"),
    ("DPL with ½ for the extra positives − DPL", "dpl-half", "dpl"),
    ("DPL with each user's τ − DPL with one τ", "dpl-user", "dpl"),
)


def differences_table(settings: Sequence[Setting]) -> str:
    """NDCG@20 of one treatment less another's, seed by seed; a column a setting."""
    rows = []
    for name, a, b in COMPARED:
        means = [setting.difference(a, b) for setting in settings]
        if any(means):
            rows.append([name, *("–" if mean is None else _difference(mean) for mean in means)])
    return table(["NDCG@20", *(setting.title for setting in settings)], rows)


def draws_table(settings: Sequence[Setting]) -> str:
    """The share of draws that are in truth positive, at BPR's and at DPL's best epoch."""
    head = ["data", "true τ", *(f"{SAMPLERS[name]}" for name in PROBED)]
    rows = []
    for setting in settings:
        cells = [_text(setting.probe(BASELINE, f"share {name}"), 3) for name in PROBED]
        rows.append([setting.title, short(setting.lines[0].tau, 3), *cells])
    return table(head, rows)


def probability_table(setting: Setting) -> str:
    """Bias and spread of P̂, at each treatment's own best epoch."""
    head = [
        "",
        "P",
        "bias without correction",
        "bias",
        "spread without correction",
        "spread of a row",
        "clamped",
    ]
    measures = ("p", "p plain bias", "p bias", "p plain spread", "p spread")
    rows = []
    for name in (n for n in setting.by_name if n not in REFERENCES):
        cells = [_text(setting.probe(name, measure), 3) for measure in measures]
        clamped = [line.clamped for line in setting.by_name[name] if line.clamped is not None]
        rows.append([title(name), *cells, f"{np.mean(clamped):.1%}" if clamped else ""])
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


def settings_table(settings: Sequence[Setting]) -> str:
    """What validation chose; a weight decay at an end of what was tried is flagged."""
    head = ["data", "", "learning rate", "weight decay", "epoch, by seed"]
    rows = []
    for setting in settings:
        for name, lines in setting.by_name.items():
            chosen = lines[0].settings
            epochs = ", ".join(str(line.epoch) for line in lines)
            shown = [f"{chosen[part]:g}" for part in ("learning_rate", "weight_decay")]
            shown[1] += f" ({edge} tried)" if (edge := setting.edge(name)) else ""
            rows.append([setting.title, title(name), *shown, epochs])
    return table(head, rows)


def _text(mean: Mean | None, digits: int = 4) -> str:
    return "–" if mean is None else mean.text(digits)


def _difference(mean: Mean) -> str:
    return bold(mean.text(sign=True), mean.is_significant)


def _percent(mean: Mean | None) -> str:
    if mean is None:
        return "–"
    spread = "" if mean.sd is None else f" ± {100 * mean.sd:.0f}"
    return f"{round(100 * mean.value)}{spread}%"
