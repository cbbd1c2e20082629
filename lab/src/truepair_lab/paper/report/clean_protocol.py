"""Clean tables: every method tuned alike, its epoch chosen on validation, the test part looked at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from truepair_lab.lines import Contrast, Lines
from truepair_lab.markdown import joined, metric_name, short, table
from truepair_lab.paper.presets import DATA, ENCODERS, METHODS_OF, NO_ENCODER, REFERENCES
from truepair_lab.paper.report.names import dataset_name, in_order, model_name, not_run
from truepair_lab.paper.report.study_runs import NDCG, OTHER_TEXT, Cell, Study, study_of
from truepair_lab.statistics import (
    LEAST_SEEDS,
    UNKNOWN,
    Mean,
    contrast_text,
    difference,
    sign_of,
)

Model = tuple[str, str]  # encoder, method
EXPECTED: tuple[Model, ...] = (
    *((e, m) for e in ENCODERS for m in METHODS_OF[e]),
    *((NO_ENCODER, m) for m in REFERENCES),
)
HEADLINE = (NDCG, "recall@20", "precision@5")


@dataclass(frozen=True)
class Gap:
    """a - b on NDCG@20: over the same users where such a line is there, else by the seeds' spread."""

    value: float
    p: float | None
    text: str
    corrected: bool = False  # p is corrected by Holm over all comparisons of the dataset

    @property
    def sign(self) -> int | None:
        """1 or -1 where it is significant, 0 where not; None where no spread is known."""
        return sign_of(self.value, self.p)


@dataclass(frozen=True)
class Ranking:
    """The models of one dataset, the best first, with the lines that compare them."""

    dataset: str
    study: Study
    contrasts: tuple[Contrast, ...]

    @property
    def models(self) -> list[tuple[Model, Mean]]:
        """Every model that was run, and its NDCG@20."""
        run = [(e, m) for d, e, m, variant in self.study.cells if d == self.dataset and not variant]
        found = [(model, self.study.mean(self.dataset, *model)) for model in run]
        return sorted(((model, mean) for model, mean in found if mean), key=lambda pair: -pair[1].value)

    def best(self, reference: bool) -> Model | None:
        """The best reference point, or the best of those that are trained on samples."""
        return next((model for model, _ in self.models if (model[0] == NO_ENCODER) == reference), None)

    def gap(self, a: Model, b: Model) -> Gap | None:
        """How much a is above b; None where one of them was not run."""
        for line in self.contrasts:
            if (line.a, line.b) == (_key(a), _key(b)):
                return _over_users(line.difference, line.low, line.high, line.p_corrected)
            if (line.a, line.b) == (_key(b), _key(a)):
                return _over_users(-line.difference, -line.high, -line.low, line.p_corrected)
        means = [self.study.mean(self.dataset, *model) for model in (a, b)]
        if means[0] is None or means[1] is None:
            return None
        seeds = difference(means[0], means[1])
        return Gap(seeds.value, seeds.p(), f"{seeds}" + ("" if seeds.error is None else " (seeds alone)"))

    def mark(self, model: Model) -> str:
        """What stands behind a name whose settings are not the best trial's."""
        return self.study.mark(self.dataset, *model)


def rankings(lines: Lines) -> dict[str, Ranking]:
    """A ranking for each dataset with clean runs."""
    study = study_of(lines, "clean")
    return {name: Ranking(name, study, tuple(_contrasts(lines, study, name))) for name in study.datasets}


def _contrasts(lines: Lines, study: Study, dataset: str) -> Iterator[Contrast]:
    """Those of the split and of the very settings that are shown."""
    shown = {_key((e, m)): cell for (d, e, m, v), cell in study.cells.items() if d == dataset and not v}
    of = [c for c in lines.contrasts if c.dataset == dataset and c.metric == NDCG]
    for c in sorted(of, key=lambda c: (c.a, c.b, c.split)):
        sides = (c.a, c.a_digest), (c.b, c.b_digest)
        if all(name in shown and _is_of(shown[name], mark, c.split) for name, mark in sides):
            yield c


def _is_of(cell: Cell, checksum: str, split: str) -> bool:
    return cell.digests == {checksum} and {run.split for run in cell.runs} == {split}


def _key(model: Model) -> str:
    """As lines of comparisons name a model: "lightgcn dpl", "ease"."""
    return model[1] if model[0] == NO_ENCODER else " ".join(model)


def _over_users(value: float, low: float, high: float, p: float) -> Gap:
    return Gap(value, p, contrast_text(value, low, high, p), corrected=True)


def clean_tables(lines: Lines) -> str:
    """A ranking for each dataset."""
    found = rankings(lines)
    names = sorted({*(n for n in DATA if n != "yahoo-r3"), *found}, key=in_order(DATA))
    tables = [_of_dataset(found[name]) if name in found else _nothing(dataset_name(name)) for name in names]
    return joined(_CAPTION, *tables)


def _nothing(name: str) -> str:
    return f"#### {name}\n\n{not_run([name])}"


def _of_dataset(ranking: Ranking) -> str:
    run = [model for model, _ in ranking.models]
    missing = [model_name(*model) for model in EXPECTED if model not in run]
    notes = [OTHER_TEXT] if any(map(ranking.mark, run)) else []
    notes += [not_run(missing)] if missing else []
    return joined(f"#### {dataset_name(ranking.dataset)}", ranking_table(ranking), *notes)


_CAPTION = (
    f"{metric_name(NDCG)} on the test part, mean ± standard deviation over seeds. Differences are over the "
    "same users, each the mean of its seeds, with 95% intervals and p-values by Holm's correction. “Seeds "
    "alone”: only the seeds' spread is known (± one standard error, Welch's t). "
    f"“{UNKNOWN}”: fewer than {LEAST_SEEDS} seeds, or a reference point that was solved once; nothing is "
    "concluded from it."
)


def ranking_table(ranking: Ranking) -> str:
    """Every model by NDCG@20, against the best reference point and against BPR of the same encoder."""
    reference = ranking.best(reference=True)
    rows = []
    for place, (model, mean) in enumerate(ranking.models, 1):
        against = [reference, None if model[0] == NO_ENCODER else (model[0], "bpr")]
        gaps = [ranking.gap(model, b) if b and b != model else None for b in against]
        name = model_name(*model)
        named = (f"**{name}**" if place == 1 else name) + ranking.mark(model)
        rows.append([place, named, mean.n, mean, *(gap.text if gap else "–" for gap in gaps)])
    best = (
        f"the best reference point ({model_name(*reference)})"
        if reference
        else "a reference point (none run)"
    )
    return table(["", "model", "seeds", metric_name(NDCG), f"- {best}", "- BPR, same encoder"], rows)


def reference_lines(lines: Lines, datasets: Sequence[str]) -> str:
    """The reference points of these datasets by the clean protocol, to be read beside optimistic tables."""
    study, parts = study_of(lines, "clean"), []
    for dataset in datasets:
        run = [m for m in REFERENCES if study.mean(dataset, NO_ENCODER, m)]
        figures = [f"{model_name(NO_ENCODER, m)} {_headline(study, dataset, m)}" for m in run]
        parts += [f"{dataset_name(dataset)}: {', '.join(figures)}"] if figures else []
    if not parts:
        return ""
    metrics = ", ".join(map(metric_name, HEADLINE))
    return f"Reference points by the clean protocol, which is not optimistic ({metrics}). {'; '.join(parts)}."


def _headline(study: Study, dataset: str, method: str) -> str:
    means = [study.mean(dataset, NO_ENCODER, method, metric) for metric in HEADLINE]
    figures = " / ".join("–" if mean is None else short(mean.value) for mean in means)
    return figures + study.mark(dataset, NO_ENCODER, method)
