"""Causes: DPL on Gowalla and Yelp2018 with one of the authors' settings, or the split, changed."""

from __future__ import annotations

from truepair_lab.lines import Lines
from truepair_lab.markdown import joined, metric_name, table
from truepair_lab.paper.report.names import NOT_RUN, dataset_name, model_name, not_run
from truepair_lab.paper.report.published import published
from truepair_lab.paper.report.study_runs import NDCG, Study, study_of

DATASETS = ("gowalla", "yelp2018")
MODELS = (("mf", "dpl"), ("lightgcn", "dpl"), ("mf", "bpr"), ("mf", "infonce"))
CHANGES = {  # the variants, in the order of the table
    "": "nothing: weight decay of all rows in each step 1e-6, batch 1,024",
    "decay=5e-07": "weight decay 5e-7",
    "decay=1e-07": "weight decay 1e-7",
    "decay=1e-08": "weight decay 1e-8",
    "decay=0": "no weight decay",
    "rows=1e-06": "L2 of 1e-6 on the rows that a pair uses, in place of weight decay",
    "step=0.1": "the learning rate times .1, not .5, at epoch 100",
    "batch=8192": "batch 8,192",
    "split=2024": "a random split by another seed",
    "split=per-user": "a random fifth of each user's pairs as test part",
    "split=files": "the split that comes with the files",
}


def causes_table(lines: Lines) -> str:
    """NDCG@20 of each change beside the paper's figure."""
    base, changed = study_of(lines, "paper"), study_of(lines, "causes")
    if not changed.cells:
        return not_run(["the causes"])
    rows = [
        [model_name(*model), what, *(cell for d in DATASETS for cell in _cells(study, d, model, variant))]
        for model in MODELS
        for variant, what in CHANGES.items()
        for study in [changed if variant else base]
        if any((d, *model, variant) in study.cells for d in DATASETS)
    ]
    heads = [text for d in DATASETS for text in (dataset_name(d), "to the paper")]
    return joined(table(["model", "changed", *heads], rows), _CAPTION)


def _cells(study: Study, dataset: str, model: tuple[str, str], variant: str) -> list[object]:
    mean, printed = study.mean(dataset, *model, variant=variant), published(dataset, *model, NDCG)
    if mean is None or printed is None or printed.trusted is None:
        return [mean or NOT_RUN, "–"]
    return [mean, f"{mean.value / printed.trusted - 1:+.1%}"]


_CAPTION = (
    f"{metric_name(NDCG)} of the best test epoch (optimistic, as in the paper). One seed where no spread is "
    "shown."
)
