"""Tables: what the runs reached, beside what the paper printed, as Markdown.

Two protocols, never in one table: "paper" and "paper-tuned" show the best test epoch of each metric, which
is optimistic; `clean` has the other, which looks at the test part once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from truepair_lab.lines import Lines
from truepair_lab.markdown import joined, metric_name, short, table
from truepair_lab.paper.presets import DATA, ENCODERS, TABLE_2, TABLE_3
from truepair_lab.paper.report.clean_protocol import HEADLINE, reference_lines
from truepair_lab.paper.report.names import (
    ENCODER_NAMES,
    METHOD_NAMES,
    NOT_RUN,
    dataset_name,
    in_order,
    model_name,
    not_run,
)
from truepair_lab.paper.report.published import DOUBTED, MARK, TABLE_II, published
from truepair_lab.paper.report.study_runs import NDCG, OTHER_TEXT, Study, study_of
from truepair_lab.statistics import LEAST_SEEDS

OPTIMISTIC_CAPTION = (
    "Optimistic: the best test epoch of each metric, as in the paper. Mean ± standard deviation over seeds; "
    "in brackets the paper's figure."
)
YAHOO = "yahoo-r3"
REPRODUCED = tuple(name for name in DATA if name != YAHOO)
Model = tuple[str, str]  # encoder, method

# --- the paper's tables --------------------------------------------------------------------------------


def reproduction(lines: Lines) -> str:
    """Tables II and III, run again beside the paper's: a table a dataset."""
    study = study_of(lines, "paper")
    names = sorted({*REPRODUCED, *study.datasets}, key=in_order(DATA))
    found = [_reproduced(lines, study, name) for name in names]
    return joined(OPTIMISTIC_CAPTION, _few_seeds(study), *found, *_without_yahoo(lines))


def _few_seeds(study: Study) -> str:
    """Which cells of Table II have too few seeds."""
    means = {row: study.mean(*row) for row in TABLE_II}
    few = [
        f"{dataset_name(d)} {model_name(e, m)} ({mean.n})"
        for (d, e, m), mean in means.items()
        if mean and mean.n < LEAST_SEEDS
    ]
    if not few:
        return ""
    return (
        f"{len(few)} of the {len(TABLE_II)} cells of Table II have fewer than {LEAST_SEEDS} seeds, so that "
        f"their spread is not known: {', '.join(few)}."
    )


def _without_yahoo(lines: Lines) -> list[str]:
    if any(run.dataset == YAHOO for run in lines.runs):
        return []
    return [f"{dataset_name(YAHOO)} was not run: its files are given only to researchers who ask."]


def _reproduced(lines: Lines, study: Study, dataset: str) -> str:
    title, beside = f"#### {dataset_name(dataset)}", reference_lines(lines, [dataset])
    if dataset not in study.datasets:
        return joined(title, not_run([dataset_name(dataset)]), beside)
    models = _models(study, dataset)
    last = f"{metric_name(NDCG)}, last epoch"
    head = ["encoder", "method", "seeds", *map(metric_name, HEADLINE), last]
    rows = [_reproduced_row(study, dataset, model) for model in models]
    missing = [model_name(*m) for m in models if study.mean(dataset, *m) is None]
    notes = [beside, *_doubts(dataset), *([not_run(missing)] if missing else [])]
    return joined(title, table(head, rows), *notes)


def _models(study: Study, dataset: str) -> list[Model]:
    """What the paper has, and what was run beside it."""
    printed = [*((e, m) for e in ENCODERS for m in TABLE_2), *(("mf", m) for m in TABLE_3)]
    run = {(e, m) for d, e, m, variant in study.cells if d == dataset and not variant}
    by_encoder, by_method = in_order(ENCODER_NAMES), in_order(METHOD_NAMES)
    return sorted({*printed, *run}, key=lambda model: (by_encoder(model[0]), by_method(model[1])))


def _named(model: Model) -> list[str]:
    return [ENCODER_NAMES.get(model[0], model[0]), METHOD_NAMES.get(model[1], model[1])]


def _reproduced_row(study: Study, dataset: str, model: Model) -> list[object]:
    found, last = study.mean(dataset, *model), study.mean(dataset, *model, last=True)
    beside = _beside(study, dataset, model, HEADLINE)
    return [*_named(model), found.n if found else NOT_RUN, *beside, last or NOT_RUN]


def _beside(study: Study, dataset: str, model: Model, metrics: Iterable[str]) -> list[str]:
    """Our figure, and the paper's in brackets."""
    return [
        f"{study.mean(dataset, *model, metric) or NOT_RUN}{_in_paper(dataset, model, metric)}"
        for metric in metrics
    ]


def _in_paper(dataset: str, model: Model, metric: str) -> str:
    printed = published(dataset, *model, metric)
    return "" if printed is None else f" ({short(printed.value)}{MARK if printed.doubt else ''})"


def _doubts(dataset: str) -> list[str]:
    """Why cells of this dataset are marked; cells with one reason together."""
    cells: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (d, e, m, metric), why in DOUBTED.items():
        if d == dataset:
            cells[e, m, why].append(metric_name(metric))
    reasons = [f"{model_name(e, m)} {', '.join(metrics)}: {why}" for (e, m, why), metrics in cells.items()]
    if not reasons:
        return []
    return [
        f"{MARK} Cells of the paper that cannot be right, and that no comparison uses: {'; '.join(reasons)}."
    ]


# --- tuned settings -------------------------------------------------------------------------------------


def tuned_table(lines: Lines) -> str:
    """Tuned settings under the paper's own protocol."""
    study = study_of(lines, "paper-tuned")
    if not study.cells:
        return (
            "No run with tuned settings under the paper's protocol yet: `truepair-lab paper run` adds them."
        )
    rows = []
    for d, e, m, variant in sorted(study.cells, key=lambda spot: in_order(DATA)(spot[0])):
        found = [study.mean(d, e, m, metric, variant) for metric in HEADLINE]
        printed = [_in_paper(d, (e, m), metric) for metric in HEADLINE]
        last = study.mean(d, e, m, variant=variant, last=True)
        cells = [f"{own or NOT_RUN}{paper}" for own, paper in zip(found, printed, strict=True)]
        n = next((mean.n for mean in found if mean), 0)
        name = model_name(e, m, variant) + study.mark(d, e, m, variant)
        rows.append([dataset_name(d), name, n, *cells, last or NOT_RUN])
    head = ["dataset", "model", "seeds", *map(metric_name, HEADLINE), f"{metric_name(NDCG)}, last epoch"]
    others = OTHER_TEXT if any(cell.other for cell in study.cells.values()) else ""
    parts = [table(head, rows), reference_lines(lines, study.datasets), OPTIMISTIC_CAPTION, others]
    return "\n\n".join(filter(None, parts))
