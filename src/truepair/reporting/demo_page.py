"""The results of the demo, and their page."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truepair.data.datasets.registry import find_dataset
from truepair.data.interactions import Interactions
from truepair.data.simulation import World
from truepair.data.split import Split, counted
from truepair.evaluation import Comparison, Evaluation
from truepair.reporting.figures import Panel, Series, draw_bars
from truepair.reporting.page import Columns, Figure, Items, Page, Section, Table, Text, metric_name
from truepair.storage.versions import package_version
from truepair.training import FitResult

METRIC = "ndcg@20"
"""The metric that chooses the epoch and compares the models."""

DEFAULT = "Default"
"""The name of the default model, `Recommender()`, which may be blended with EASE."""

PAGE_METRICS = (
    *("ndcg@20", "recall@20", "precision@20", "hit@20"),
    *("mrr@20", "map@20", "coverage@20", "novelty@20"),
)
BAR_METRICS = ("ndcg@20", "recall@20", "precision@20", "map@20")  # of one scale
HISTORY_SHOWN = 12
_PACKAGES = ("truepair", "torch", "numpy", "scipy", "pyarrow", "matplotlib")
TEST, TRUTH = "held-out interactions", "all true preferences"
FUTURE = "the last fifth of the time"
TIMELESS, LATELY = "Default without its trend", "Popular lately"
ABOUT = {
    DEFAULT: "Recommender(): full-catalogue InfoNCE with automatic settings; a blend with EASE is one",
    "Popularity": "the items with the most users",
    "EASE": "a linear item-item model in closed form, with or without degree exponents",
    "BPR": "pairwise ranking against one random unlabelled item",
    "DPL": "BPR corrected for positives among the unlabelled items: the paper's method",
}


# --- results -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DemoData:
    """The split, the items' titles by code, and the simulated world if there is one."""

    name: str
    split: Split
    titles: tuple[str, ...]
    world: World | None = None
    notes: tuple[str, ...] = ()
    timed: Interactions | None = None
    """All interactions, where they have times: the future is a test, too."""

    @property
    def known(self) -> list[Interactions]:
        """The interactions that lists must not repeat: train and validation."""
        return [part for name, part in self.split.parts.items() if name != "test"]


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """An evaluation of each model by name, and a comparison of each other model with the default one."""

    evaluations: Mapping[str, Evaluation]
    comparisons: Sequence[Comparison]


@dataclass(frozen=True, eq=False)
class ExampleUser:
    """One user: the known items, the number of held-out items, and the lists of some models."""

    id: str
    history: tuple[str, ...]  # titles, the highest rated first if there are ratings
    n_held_out: int
    lists: Mapping[str, tuple[str, ...]]
    hits: Mapping[str, frozenset[int]]  # positions in the list, from 0, of held-out items


@dataclass(frozen=True, eq=False)
class DemoResult:
    """The results of the demo, and the path of its report.

    `comparisons` are on held-out interactions (`TEST`), on what came last (`FUTURE`) where there are times,
    and on all true preferences (`TRUTH`), which only a simulated world knows.
    """

    report: Path
    data: DemoData
    models: Mapping[str, FitResult]  # each with its validation score
    comparisons: Mapping[str, ModelComparison]
    example: ExampleUser


# --- sentences -----------------------------------------------------------------------------------------


def conclusion(judgement: ModelComparison, on: str) -> str:
    """The comparison of the default model with the others, in one or more sentences."""
    default = judgement.evaluations[DEFAULT].mean(METRIC)
    groups: dict[str, list[str]] = {}
    for found in judgement.comparisons:  # a: the other model, b: the default one
        verdict = "better than" if found.difference < 0 else "worse than"
        verdict = f"significantly {verdict}" if found.is_significant else "not significantly different from"
        groups.setdefault(verdict, []).append(f"{found.a} ({found.mean_a:.4f})")
    verdicts = "; it is ".join(f"{verdict} {_and(names)}" for verdict, names in groups.items())
    return f"On {on}, the {DEFAULT.lower()} has an {metric_name(METRIC)} of {default:.4f}. It is {verdicts}."


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def p_value(found: Comparison) -> str:
    """The corrected p-value as text."""
    return f"{found.p_corrected:.2g}" if found.p_corrected >= 0.001 else "< 0.001"


# --- page ----------------------------------------------------------------------------------------------


def demo_page(result: DemoResult) -> Page:
    """The report."""
    lead = (
        "truepair's default model against two baselines without training, popularity and EASE, and two "
        "published losses, BPR and DPL."
    )
    judged = [_comparison(on, judgement) for on, judgement in result.comparisons.items()]
    sections = [*judged, _lists(result), _data(result.data), _setup(result)]
    return Page(f"Five recommenders on {result.data.name}", lead, sections)


def _comparison(on: str, judgement: ModelComparison) -> Section:
    evaluations = judgement.evaluations
    places = [metric_name(metric) for metric in BAR_METRICS]
    bars = {name: _bars(found, colour) for colour, (name, found) in enumerate(evaluations.items())}
    n_users = evaluations[DEFAULT].n_users
    alt = f"Bars of the means in the table below, for {', '.join(places)}"
    caption = f"Means over {n_users:,} users; thin lines are 95% bootstrap intervals over users."
    rows = [[name, *(f"{e.mean(m):.4f}" for m in PAGE_METRICS)] for name, e in evaluations.items()]
    return Section(
        f"On {on}",
        [
            Text(conclusion(judgement, on), strong=True),
            Figure(draw_bars(Panel("", bars, places=places)), alt, caption),
            Table(["", *map(metric_name, PAGE_METRICS)], rows),
            _differences(judgement.comparisons),
            Text(_NOTES[on]),
        ],
    )


def _bars(found: Evaluation, colour: int) -> Series:
    low, high = zip(*(found.interval(metric) for metric in BAR_METRICS), strict=True)
    return Series(range(len(BAR_METRICS)), [found.mean(m) for m in BAR_METRICS], low, high, colour)


def _differences(comparisons: Sequence[Comparison]) -> Table:
    rows = [
        [found.a, f"{found.difference:+.4f}", f"[{found.low:+.4f}, {found.high:+.4f}]", p_value(found)]
        for found in comparisons
    ]
    caption = "Differences are paired by user. p: sign-flip test with Holm's correction."
    return Table(
        ["", f"{metric_name(METRIC)} less the {DEFAULT.lower()}'s", "95% interval", "p"], rows, caption
    )


_HOW_TO_READ = (
    "The intervals of single means show how much a mean would vary with other users. All models are "
    "evaluated on the same users, so the table of differences is more precise than a "
    "comparison of overlapping bars. NDCG@20 was chosen as the metric before training. This is one split and "
    "one seed. The settings of the default model and of EASE are chosen by the validation part. With more "
    "trials for both, MovieLens-100k shows no significant difference between them (lab/docs/quality.md)."
)

_ON_TRUTH = (
    "In a simulated world all preferences are known, including those without an interaction. Here the lists "
    "are evaluated on all true positives that were not observed."
)


_ON_FUTURE = (
    "Here the models learnt from what came before a moment, and users with a history before it are judged. "
    "The trend of the default (what is popular lately, and what a user did lately) and the half-life of what "
    "is popular lately were chosen before the moment."
)

_NOTES = {TEST: _HOW_TO_READ, FUTURE: _ON_FUTURE, TRUTH: _ON_TRUTH}


def _lists(result: DemoResult) -> Section:
    user = result.example
    known = Items(
        f"Known items of {user.id}",
        user.history[:HISTORY_SHOWN],
        note=f"{min(HISTORY_SHOWN, len(user.history))} of {len(user.history)}",
        ordered=False,
    )
    lists = [
        Items(name, entries, user.hits[name], "held out", counted(len(user.hits[name]), "hit"))
        for name, entries in user.lists.items()
    ]
    how = (
        f"This is the user with the median number of known items; {counted(user.n_held_out, 'item')} "
        "were held out. A hit is a held-out item in the list. One user is an example, not evidence."
    )
    return Section("Recommendations for one user", [Text(how), Columns([known, *lists])])


def _data(data: DemoData) -> Section:
    train = data.split.train
    rows: list[list[object]] = [
        ["users", f"{train.n_users:,}"],
        ["items", f"{train.n_items:,}"],
        ["density of train", f"{train.density:.2%}"],
        ["split", data.split.recipe],
        ["checksum of the split", data.split.hash],
    ]
    rows += [[f"pairs in {name}", f"{len(part):,}"] for name, part in data.split.parts.items()]
    if data.world is not None:
        rows += [["world", data.world.recipe], ["true prior τ", f"{data.world.tau:.4f}"]]
    notes = [Text(note) for note in (*data.notes, *data.split.notes)]
    return Section("Data", [Table(["", ""], rows, numbers=False), *notes, *_terms(data)])


def _terms(data: DemoData) -> list[Text]:
    if data.world is not None:
        return [Text("The world is simulated and contains no personal data.")]
    dataset = find_dataset("ml-100k")
    ratings = "Every rating counts as an interaction, high or low, as is customary for this dataset."
    return [Text(ratings), Text(f"Terms: {dataset.terms}"), Text(f"Cite: {dataset.cite}"), Text(dataset.page)]


def _setup(result: DemoResult) -> Section:
    rows: list[list[object]] = []
    for name, model in result.models.items():
        job = model.job
        rows += [[name, ABOUT[name]], ["", model.closed_form if job is None else job.encoder]]
        if job is not None:
            rows += [["", f"{job.loss}, {job.sampler}"], ["", job.settings], ["", f"engine {model.engine}"]]
    how = (
        "The default model chooses its settings by short runs on the validation part, and whether to add "
        "EASE's scores; EASE alone has the best of ten settings there. Those of BPR and DPL are fixed: they "
        "were chosen by validation scores before. The models learn from the train part, the validation part "
        "chooses the epoch, and the test part is used once."
    )
    if result.data.world is not None:
        how += " DPL is given the true prior of the simulated world."
    versions = ", ".join(f"{name} {package_version(name)}" for name in _PACKAGES)
    where = Text(f"Python {platform.python_version()}, {versions}, {platform.system()} {platform.machine()}.")
    return Section("Settings and versions", [Text(how), Table(["", ""], rows, numbers=False), where])
