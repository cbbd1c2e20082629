"""Tables: what the runs reached, beside what the paper printed, as Markdown.

Two protocols, never in one table: "paper" and "paper-tuned" show the best test epoch of each metric, which
is optimistic; `paper_clean` has the other, which looks at the test part once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from truepair.experiments.lines import Lines
from truepair.experiments.paper.cells import LOSSES, NDCG, Mean, Study, study_of
from truepair.experiments.paper.published import BARS, DATASETS, DOUBTED, MARK, METRICS, PUBLISHED, published
from truepair.experiments.paper.words import (
    ENCODERS,
    METHODS,
    NOT_RUN,
    dataset_name,
    details,
    in_order,
    metric_name,
    model_name,
    not_run,
    short,
    signed,
    table,
)

OPTIMISTIC = (
    "Optimistic: for each metric the best epoch on the test part, as the paper reports it. Our mean ± the "
    "seeds' standard deviation; in brackets the paper's figure."
)
REPRODUCED = tuple(name for name in DATASETS if name != "yahoo-r3")
YAHOO = "Yahoo!-R3 is not run: it is given only to researchers who sign an agreement."
HEADLINE = (NDCG, "recall@20", "precision@5")
Model = tuple[str, str]  # encoder, method

# --- the paper's tables --------------------------------------------------------------------------------


def reproduction(lines: Lines) -> str:
    """Tables II and III, ours beside the paper's: a table a dataset."""
    study = study_of(lines, "paper")
    names = sorted({*REPRODUCED, *study.datasets}, key=in_order(DATASETS))
    return "\n\n".join([*(_reproduced(study, name) for name in names), YAHOO])


def _reproduced(study: Study, dataset: str) -> str:
    title = f"#### {dataset_name(dataset)}"
    if dataset not in study.datasets:
        return f"{title}\n\n{not_run([dataset_name(dataset)])}"
    models = _models(study, dataset)
    last = f"{metric_name(NDCG)}, last epoch"
    head = ["encoder", "method", "seeds", *map(metric_name, HEADLINE), last]
    rows = [_reproduced_row(study, dataset, model) for model in models]
    full = [[*_named(m), *_beside(study, dataset, m, METRICS, "<br>")] for m in models]
    all_nine = table(["encoder", "method", *map(metric_name, METRICS)], full)
    missing = [model_name(*m) for m in models if study.mean(dataset, *m) is None]
    notes = [OPTIMISTIC, *_doubts(dataset), *([not_run(missing)] if missing else [])]
    return "\n\n".join([title, table(head, rows), *notes, details("All nine metrics", all_nine)])


def _models(study: Study, dataset: str) -> list[Model]:
    """What the paper has, and what was run beside it."""
    printed = [*((e, m) for e in ("mf", "lightgcn") for m in LOSSES), ("mf", "bns"), ("mf", "dpl-hard")]
    run = {(e, m) for d, e, m, variant in study.cells if d == dataset and not variant}
    by_encoder, by_method = in_order(ENCODERS), in_order(METHODS)
    return sorted({*printed, *run}, key=lambda model: (by_encoder(model[0]), by_method(model[1])))


def _named(model: Model) -> list[str]:
    return [ENCODERS.get(model[0], model[0]), METHODS.get(model[1], model[1])]


def _reproduced_row(study: Study, dataset: str, model: Model) -> list[object]:
    found, last = study.mean(dataset, *model), study.mean(dataset, *model, last=True)
    beside = _beside(study, dataset, model, HEADLINE, " ")
    return [*_named(model), found.n if found else NOT_RUN, *beside, last or NOT_RUN]


def _beside(study: Study, dataset: str, model: Model, metrics: Iterable[str], gap: str) -> list[str]:
    """Ours, and the paper's in brackets."""
    return [
        f"{study.mean(dataset, *model, metric) or NOT_RUN}{_theirs(dataset, model, metric, gap)}"
        for metric in metrics
    ]


def _theirs(dataset: str, model: Model, metric: str, gap: str = " ") -> str:
    printed = published(dataset, *model, metric)
    return "" if printed is None else f"{gap}({short(printed.value)}{MARK if printed.doubt else ''})"


def _doubts(dataset: str) -> list[str]:
    """Why cells of this dataset are marked; cells with one reason together."""
    cells: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (d, e, m, metric), why in DOUBTED.items():
        if d == dataset:
            cells[e, m, why].append(metric_name(metric))
    told = [f"{model_name(e, m)} {', '.join(metrics)}: {why}" for (e, m, why), metrics in cells.items()]
    if not told:
        return []
    return [f"{MARK} The paper's cell cannot be right, and no comparison uses it. {'; '.join(told)}."]


# --- bars ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reached:
    """A bar of the paper, and the best that DPL (plain or with hard samples) reached in each study."""

    dataset: str
    encoder: str
    bar: float
    authors: tuple[str, Mean] | None
    tuned: tuple[str, Mean] | None

    @property
    def best(self) -> float | None:
        """The better of the two."""
        return max((found[1].value for found in (self.authors, self.tuned) if found), default=None)

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; None where nothing was run."""
        return None if self.best is None else self.best >= self.bar


def reached(lines: Lines) -> list[Reached]:
    """Every bar, with the authors' settings and with tuned ones."""
    authors, tuned = study_of(lines, "paper"), study_of(lines, "paper-tuned")
    bars = {(d, e): PUBLISHED[d, e, "dpl"][NDCG] for d, e in BARS}
    return [
        Reached(d, e, bar, _best_dpl(authors, d, e), _best_dpl(tuned, d, e)) for (d, e), bar in bars.items()
    ]


def _best_dpl(study: Study, dataset: str, encoder: str) -> tuple[str, Mean] | None:
    found = [
        (model_name(e, m, variant), study.mean(d, e, m, variant=variant))
        for d, e, m, variant in study.cells
        if d == dataset and e == encoder and m in ("dpl", "dpl-hard")
    ]
    return max(((n, mean) for n, mean in found if mean), key=lambda pair: pair[1].value, default=None)


def bars_table(lines: Lines) -> str:
    """NDCG@20 against the paper's own DPL."""
    head = ["dataset", "encoder", "bar", "authors' settings", "tuned", "best - bar", "met"]
    rows = []
    for r in reached(lines):
        gap = NOT_RUN if r.best is None else signed(r.best - r.bar)
        met = {True: "yes", False: "**no**", None: NOT_RUN}[r.met]
        shown = [NOT_RUN if f is None else f"{f[1]} ({f[0]})" for f in (r.authors, r.tuned)]
        rows.append([dataset_name(r.dataset), ENCODERS[r.encoder], short(r.bar), *shown, gap, met])
    caption = (
        f"{metric_name(NDCG)}, the best of DPL and DPL with hard samples. Optimistic as the bars themselves: "
        "the best test epoch, and the better method, are chosen on the test part."
    )
    return f"{table(head, rows)}\n\n{caption}"


def tuned_table(lines: Lines) -> str:
    """Tuned settings under the paper's own protocol."""
    study = study_of(lines, "paper-tuned")
    if not study.cells:
        return "No run with tuned settings under the paper's protocol yet: `truepair paper run` adds them."
    rows = []
    for d, e, m, variant in sorted(study.cells, key=lambda spot: in_order(DATASETS)(spot[0])):
        found = [study.mean(d, e, m, metric, variant) for metric in HEADLINE]
        theirs = [_theirs(d, (e, m), metric) for metric in HEADLINE]
        last = study.mean(d, e, m, variant=variant, last=True)
        cells = [f"{ours or NOT_RUN}{paper}" for ours, paper in zip(found, theirs, strict=True)]
        n = next((mean.n for mean in found if mean), 0)
        rows.append([dataset_name(d), model_name(e, m, variant), n, *cells, last or NOT_RUN])
    head = ["dataset", "model", "seeds", *map(metric_name, HEADLINE), f"{metric_name(NDCG)}, last epoch"]
    return f"{table(head, rows)}\n\n{OPTIMISTIC}"
