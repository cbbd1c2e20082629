"""The demo's results on the terminal and as a page."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from truepair.data.datasets.loading import find_dataset
from truepair.data.split import counted
from truepair.evaluation import Comparison, Evaluation
from truepair.reporting.demo_result import DEFAULT, METRIC, DemoData, DemoResult, ExampleUser, ModelComparison
from truepair.reporting.figures import Panel, Series, draw_bars, draw_curves
from truepair.reporting.page import Columns, Figure, Items, Page, Section, Table, Text, metric_name
from truepair.storage.versions import package_version
from truepair.training import FitResult

TERMINAL_METRICS = ("recall@20", "hit@20", "coverage@20")  # beside the main one
PAGE_METRICS = (
    *("ndcg@20", "recall@20", "precision@20", "hit@20"),
    *("mrr@20", "map@20", "coverage@20", "novelty@20"),
)
BAR_METRICS = ("ndcg@20", "recall@20", "precision@20", "map@20")  # of one scale
HISTORY_SHOWN = 12
_PACKAGES = ("truepair", "torch", "numpy", "scipy", "pyarrow", "matplotlib")
TEST, TRUTH = "held-out interactions", "all true preferences"
ABOUT = {
    DEFAULT: "the plain call, Recommender(): full-catalogue InfoNCE with automatic settings",
    "Popularity": "the items with the most users",
    "EASE": "a linear item-item model in closed form",
    "BPR": "pairwise ranking against one random unlabelled item",
    "DPL": "BPR corrected for positives among the unlabelled items: the paper's method",
}


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
    return f"On {on}, {DEFAULT} has an {metric_name(METRIC)} of {default:.4f}. It is {verdicts}."


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _with_interval(evaluation: Evaluation, metric: str) -> str:
    low, high = evaluation.interval(metric)
    return f"{evaluation.mean(metric):.4f} [{low:.4f}, {high:.4f}]"


def _p_value(found: Comparison) -> str:
    return f"{found.p_corrected:.2g}" if found.p_corrected >= 0.001 else "< 0.001"


def _judgements(result: DemoResult) -> dict[str, ModelComparison]:
    return {TEST: result.test} | ({} if result.truth is None else {TRUTH: result.truth})


# --- terminal ------------------------------------------------------------------------------------------


def print_data(data: DemoData, quiet: bool) -> None:
    """Print the data and its notes."""
    console = Console(quiet=quiet, highlight=False)
    for note in data.notes:
        console.print(note, style="yellow", markup=False)
    console.print(f"Data: {data.name}. {data.split}", markup=False)


def print_result(result: DemoResult, quiet: bool) -> None:
    """Print the comparison, the lists of one person, and the path of the report."""
    console = Console(quiet=quiet, highlight=False)
    for on, judgement in _judgements(result).items():
        console.print()
        console.print(_terminal_table(judgement, on))
        console.print(conclusion(judgement, on), markup=False)
    _print_person(console, result.person)
    console.print(f"\nReport: {result.report.resolve()}", markup=False, soft_wrap=True)


def _terminal_table(judgement: ModelComparison, on: str) -> RichTable:
    p_values = {found.a: _p_value(found) for found in judgement.comparisons}
    head = ["model", f"{metric_name(METRIC)} [95% interval]", *map(metric_name, TERMINAL_METRICS)]
    table = RichTable(*head, f"p vs {DEFAULT}", title=f"On {on}")
    for name, evaluation in judgement.evaluations.items():
        means = [f"{evaluation.mean(metric):.4f}" for metric in TERMINAL_METRICS]
        table.add_row(name, _with_interval(evaluation, METRIC), *means, p_values.get(name, ""))
    return table


def _print_person(console: Console, person: ExampleUser) -> None:
    console.print(f"\n{_known_items(person)} {'; '.join(person.history[:HISTORY_SHOWN])}", markup=False)
    table = RichTable("", *person.lists, title=_hit_counts(person))
    for at in range(max(map(len, person.lists.values()))):
        table.add_row(str(at + 1), *(_list_cell(person, name, at) for name in person.lists))
    console.print(table, markup=False)


def _list_cell(person: ExampleUser, name: str, at: int) -> str:
    entries = person.lists[name]
    if at >= len(entries):
        return ""
    return f"{escape(entries[at])}{' ✓' if at in person.hits[name] else ''}"


def _known_items(person: ExampleUser) -> str:
    shown = min(HISTORY_SHOWN, len(person.history))
    return f"{person.id.capitalize()} has {counted(len(person.history), 'known item')}, {shown} of them:"


def _hit_counts(person: ExampleUser) -> str:
    hits = ", ".join(f"{name} {len(found)}" for name, found in person.hits.items())
    return f"Hits (✓) among {counted(person.n_held_out, 'held-out item')}: {hits}"


# --- page ----------------------------------------------------------------------------------------------


def demo_page(result: DemoResult) -> Page:
    """The report."""
    lead = (
        "truepair's default model against two baselines without training, popularity and EASE, and two "
        "published losses, BPR and DPL."
    )
    judged = [_comparison(on, judgement) for on, judgement in _judgements(result).items()]
    sections = [*judged, _lists(result), _training(result), _data(result.data), _setup(result)]
    return Page(f"Five recommenders on {result.data.name}", lead, sections)


def _comparison(on: str, judgement: ModelComparison) -> Section:
    evaluations = judgement.evaluations
    places = [metric_name(metric) for metric in BAR_METRICS]
    bars = {name: _bars(found, colour) for colour, (name, found) in enumerate(evaluations.items())}
    n_users = evaluations[DEFAULT].n_users
    alt = f"Bars of the means in the table below, for {', '.join(places)}"
    caption = f"Means over {n_users:,} people; thin lines are 95% bootstrap intervals over people."
    rows = [[name, *(f"{e.mean(m):.4f}" for m in PAGE_METRICS)] for name, e in evaluations.items()]
    return Section(
        f"On {on}",
        [
            Text(conclusion(judgement, on), strong=True),
            Figure(draw_bars(Panel("", bars, places=places)), alt, caption),
            Table(["", *map(metric_name, PAGE_METRICS)], rows),
            _differences(judgement.comparisons),
            Text(_ON_TRUTH if on == TRUTH else _HOW_TO_READ),
        ],
    )


def _bars(found: Evaluation, colour: int) -> Series:
    low, high = zip(*(found.interval(metric) for metric in BAR_METRICS), strict=True)
    return Series(range(len(BAR_METRICS)), [found.mean(m) for m in BAR_METRICS], low, high, colour)


def _differences(comparisons: Sequence[Comparison]) -> Table:
    rows = [
        [found.a, f"{found.difference:+.4f}", f"[{found.low:+.4f}, {found.high:+.4f}]", _p_value(found)]
        for found in comparisons
    ]
    caption = "Differences are paired by person. p: sign-flip test with Holm's correction."
    return Table(["", f"{metric_name(METRIC)} less {DEFAULT}'s", "95% interval", "p"], rows, caption)


_HOW_TO_READ = (
    "The intervals of single means show how much a mean would vary with other people. All models are "
    "evaluated on the same people, so the table of differences is more precise than a "
    "comparison of overlapping bars. NDCG@20 was chosen as the metric before training. This is one split and "
    "one seed. The default model chooses its settings by the validation part; EASE has fixed ones. With both "
    "tuned, MovieLens-100k shows no significant difference between them (lab/docs/quality.md)."
)

_ON_TRUTH = (
    "In a simulated world all preferences are known, including those without an interaction. Here the lists "
    "are evaluated on all true positives that were not observed."
)


def _lists(result: DemoResult) -> Section:
    person = result.person
    known = Items(
        f"Known items of {person.id}",
        person.history[:HISTORY_SHOWN],
        note=f"{min(HISTORY_SHOWN, len(person.history))} of {len(person.history)}",
        ordered=False,
    )
    lists = [
        Items(name, entries, person.hits[name], "held out", counted(len(person.hits[name]), "hit"))
        for name, entries in person.lists.items()
    ]
    how = (
        f"This is the person with the median number of known items; {counted(person.n_held_out, 'item')} "
        "were held out. A hit is a held-out item in the list. One person is an example, not evidence."
    )
    return Section("Recommendations for one person", [Text(how), Columns([known, *lists])])


def _training(result: DemoResult) -> Section:
    fits = {name: model for name, model in result.models.items() if model.history}
    colours = {name: place for place, name in enumerate(result.models)}  # as in the bars
    losses = {name: _loss_curve(fit, colours[name]) for name, fit in fits.items()}
    scores = {name: _score_curve(fit, colours[name]) for name, fit in fits.items()}
    panels = [
        Panel("Training loss", losses, "epoch"),
        Panel(f"Validation {metric_name(METRIC)}", scores, "epoch"),
    ]
    rows = [
        [
            name,
            model.epoch or "–",
            len(model.history) or "–",
            f"{model.score:.4f}",
            f"{result.seconds[name]:.1f}",
        ]
        for name, model in result.models.items()
    ]
    head = ["", "epoch chosen", "epochs trained", f"validation {metric_name(METRIC)}", "seconds"]
    caption = (
        "A dot marks the epoch with the best validation score. The values of different losses cannot be "
        "compared. Validation scores are lower than test scores: fewer items of each person are held out."
    )
    compiled = "Seconds include compilation, which a machine does once."
    alt = "; ".join(f"{name}: best epoch {fit.epoch} of {len(fit.history)}" for name, fit in fits.items())
    figure = Figure(draw_curves(panels), alt, caption)
    return Section("Training", [figure, Table(head, rows, compiled)])


def _loss_curve(fit: FitResult, colour: int) -> Series:
    return Series([r.epoch for r in fit.history], [r.loss for r in fit.history], colour=colour)


def _score_curve(fit: FitResult, colour: int) -> Series:
    scored = [(r.epoch, r.score) for r in fit.history if r.score is not None]
    epochs, scores = zip(*scored, strict=True)
    return Series(epochs, scores, colour=colour, best=epochs.index(fit.epoch))


def _data(data: DemoData) -> Section:
    train = data.split.train
    rows: list[list[object]] = [
        ["people", f"{train.n_users:,}"],
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
        "The default model chooses its settings by short runs on the validation part. The others have fixed "
        "ones: those of BPR and DPL were chosen by validation scores before. The models learn from the train "
        "part, the validation part chooses the epoch, and the test part is used once."
    )
    if result.data.world is not None:
        how += " DPL is given the true prior of the simulated world."
    versions = ", ".join(f"{name} {package_version(name)}" for name in _PACKAGES)
    where = Text(f"Python {platform.python_version()}, {versions}, {platform.system()} {platform.machine()}.")
    return Section("Settings and versions", [Text(how), Table(["", ""], rows, numbers=False), where])
