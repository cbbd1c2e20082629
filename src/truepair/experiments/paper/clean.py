"""Clean tables: every method tuned alike, its epoch chosen on validation, the test part looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from truepair.experiments.lines import Contrast, Lines
from truepair.experiments.paper.cells import (
    NDCG,
    P_SURE,
    REFERENCES,
    SAMPLED,
    SURE,
    Mean,
    Study,
    difference,
    study_of,
)
from truepair.experiments.paper.published import DATASETS, METRICS
from truepair.experiments.paper.words import (
    NOT_RUN,
    dataset_name,
    in_order,
    metric_name,
    model_name,
    not_run,
    short,
    signed,
    table,
)

Model = tuple[str, str]  # encoder, method
EXPECTED: tuple[Model, ...] = (
    *((e, m) for e in ("mf", "lightgcn") for m in SAMPLED),
    *(("-", m) for m in REFERENCES),
)


@dataclass(frozen=True)
class Gap:
    """a - b on NDCG@20: over the same users where such a line is there, else by the seeds' spread."""

    value: float
    sign: int
    text: str


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
        return next((model for model, _ in self.models if (model[0] == "-") == reference), None)

    def gap(self, a: Model, b: Model) -> Gap | None:
        """How much a is above b; None where one of them was not run."""
        for line in self.contrasts:
            if (line.a, line.b) == (_key(a), _key(b)):
                return _told(line.difference, line.low, line.high, line.p_corrected)
            if (line.a, line.b) == (_key(b), _key(a)):
                return _told(-line.difference, -line.high, -line.low, line.p_corrected)
        means = [self.study.mean(self.dataset, *model) for model in (a, b)]
        if means[0] is None or means[1] is None:
            return None
        by_seeds = difference(means[0], means[1])
        return Gap(by_seeds.value, by_seeds.sign, f"{by_seeds} (seeds alone)")


def rankings(lines: Lines) -> dict[str, Ranking]:
    """A ranking for each dataset with clean runs."""
    study = study_of(lines, "clean")
    return {name: Ranking(name, study, tuple(_contrasts(lines, study, name))) for name in study.datasets}


def _contrasts(lines: Lines, study: Study, dataset: str) -> Iterator[Contrast]:
    """Those of the split that the runs are of."""
    splits = {run.split for spot, cell in study.cells.items() if spot[0] == dataset for run in cell.runs}
    of = [c for c in lines.contrasts if c.dataset == dataset and c.metric == NDCG and c.split in splits]
    yield from sorted(of, key=lambda c: (c.a, c.b, c.split))


def _key(model: Model) -> str:
    """As lines of comparisons name a model: "lightgcn dpl", "ease"."""
    return model[1] if model[0] == "-" else " ".join(model)


def _told(value: float, low: float, high: float, p: float) -> Gap:
    chance = "p < .001" if p < 0.001 else f"p = {short(p, 3)}"
    sign = 0 if p >= P_SURE or value == 0 else (1 if value > 0 else -1)
    return Gap(value, sign, f"{signed(value)} [{signed(low)}, {signed(high)}], {chance}")


def clean_tables(lines: Lines) -> str:
    """A ranking and all nine metrics for each dataset."""
    found = rankings(lines)
    names = sorted({*(n for n in DATASETS if n != "yahoo-r3"), *found}, key=in_order(DATASETS))
    return "\n\n".join(
        _of_dataset(found[name]) if name in found else _nothing(dataset_name(name)) for name in names
    )


def _nothing(name: str) -> str:
    return f"#### {name}\n\n{not_run([name])}"


def _of_dataset(ranking: Ranking) -> str:
    run = [model for model, _ in ranking.models]
    missing = [model_name(*model) for model in EXPECTED if model not in run]
    notes = [not_run(missing)] if missing else []
    parts = [ranking_table(ranking), _CAPTION, nine_metrics(ranking), _NINE, *notes]
    return "\n\n".join([f"#### {dataset_name(ranking.dataset)}", *parts])


_CAPTION = (
    f"{metric_name(NDCG)} on the test part, mean ± standard deviation over seeds. Differences are over the "
    "same users, each the mean of its seeds, with 95% intervals and p-values by Holm's correction. Where it "
    "says “seeds alone”, only the seeds' spread is known (± one standard error; more than "
    f"{SURE:g} of them count)."
)
_NINE = "The best of each column in bold."


def ranking_table(ranking: Ranking) -> str:
    """Every model by NDCG@20, against the best reference point and against BPR of the same encoder."""
    reference = ranking.best(reference=True)
    rows = []
    for place, (model, mean) in enumerate(ranking.models, 1):
        against = [reference, None if model[0] == "-" else (model[0], "bpr")]
        gaps = [ranking.gap(model, b) if b and b != model else None for b in against]
        name = model_name(*model)
        named = f"**{name}**" if place == 1 else name
        rows.append([place, named, mean.n, mean, *(gap.text if gap else "–" for gap in gaps)])
    best = (
        f"the best reference point ({model_name(*reference)})"
        if reference
        else "a reference point (none run)"
    )
    return table(["", "model", "seeds", metric_name(NDCG), f"- {best}", "- BPR, same encoder"], rows)


def nine_metrics(ranking: Ranking) -> str:
    """All metrics of all models; those that were expected and not run say so."""
    run = [model for model, _ in ranking.models]
    models = [*run, *(model for model in EXPECTED if model not in run)]
    means = {(m, k): ranking.study.mean(ranking.dataset, *m, k) for m in models for k in METRICS}
    best = {
        k: max(f.value for m in models if (f := means[m, k]))
        for k in METRICS
        if any(means[m, k] for m in run)
    }
    rows = [[model_name(*m), *(_bold(means[m, k], best.get(k)) for k in METRICS)] for m in models]
    return table(["model", *map(metric_name, METRICS)], rows)


def _bold(mean: Mean | None, best: float | None) -> str:
    if mean is None:
        return NOT_RUN
    return f"**{mean}**" if mean.value == best else str(mean)
