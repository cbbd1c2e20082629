"""What the demo says: on the terminal, and in its report."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table as RichTable

from truepair.data.datasets.catalogue import find_dataset
from truepair.data.split import counted
from truepair.evaluation import Comparison, Evaluation
from truepair.reporting.demo_result import METRIC, DemoData, DemoResult, Person
from truepair.reporting.figures import Bar, Curve, draw_bars, draw_curves
from truepair.reporting.page import Columns, Figure, Items, Page, Section, Table, Text
from truepair.training import FitResult

SHOWN = ("ndcg@20", "recall@20", "precision@20", "hit@20", "mrr@20", "map@20")
DRAWN = ("ndcg@20", "recall@20", "precision@20", "map@20")  # those whose bars have one scale
CATALOGUE = ("coverage@20", "novelty@20", "gini@20")
HISTORY_SHOWN = 12
CLICKS, TRUTH = "held-out interactions", "everything people truly like"


# --- in words ------------------------------------------------------------------------------------------


def in_words(found: Comparison, on: str) -> str:
    """The comparison as two plain sentences."""
    name = metric_name(found.metric)
    what = (
        f"On {on}, {found.a} scores {found.mean_a:.4f} in {name} and {found.b} {found.mean_b:.4f}: "
        f"a difference of {found.difference:+.4f}, 95% interval {found.low:+.4f} to {found.high:+.4f}."
    )
    if found.p_corrected >= 0.05:
        return f"{what} The choice of people alone can explain that (p = {found.p_corrected:.2g}): no winner."
    better = found.a if found.difference > 0 else found.b
    luck = f"p = {found.p_corrected:.2g}" if found.p_corrected >= 0.001 else "p < 0.001"
    verdict = f"of these two trained models, {better} is better"
    return f"{what} The choice of people alone hardly explains that ({luck}): {verdict}."


def metric_name(metric: str) -> str:
    """`ndcg@20` as people write it."""
    name, _, k = metric.partition("@")
    spelt = {"ndcg": "NDCG", "mrr": "MRR", "map": "MAP", "hit": "Hit rate"}.get(name, name.capitalize())
    return f"{spelt}@{k}"


def _figure_with_interval(evaluation: Evaluation, metric: str) -> str:
    low, high = evaluation.interval(metric)
    return f"{evaluation.mean(metric):.4f} [{low:.4f}, {high:.4f}]"


def _rows(evaluations: Mapping[str, Evaluation]) -> list[list[str]]:
    """A row a metric: its name and each model's figure."""
    found = evaluations.values()
    rows = [[metric_name(m), *(_figure_with_interval(e, m) for e in found)] for m in SHOWN]
    return rows + [[metric_name(m), *(f"{e.mean(m):.4f}" for e in found)] for m in CATALOGUE]


def _judgements(result: DemoResult) -> list[tuple[str, Mapping[str, Evaluation], Comparison]]:
    judged = [(CLICKS, result.evaluations, result.comparison)]
    if result.truth_comparison is not None:
        judged.append((TRUTH, result.on_truth, result.truth_comparison))
    return judged


# --- on the terminal -----------------------------------------------------------------------------------


def print_data(data: DemoData, quiet: bool) -> None:
    """What is learnt from."""
    console = Console(quiet=quiet, highlight=False)
    for note in data.notes:
        console.print(note, style="yellow", markup=False)
    console.print(f"Data: {data.name}. {data.split}", markup=False)


def print_result(result: DemoResult, quiet: bool) -> None:
    """The comparison, one person's lists, and where the report is."""
    console = Console(quiet=quiet, highlight=False)
    for on, evaluations, comparison in _judgements(result):
        table = RichTable("metric", *evaluations, title=f"On {on}, with 95% intervals over people")
        for row in _rows(evaluations):
            table.add_row(*row)
        console.print(table)
        console.print(in_words(comparison, on), markup=False)
    _print_person(console, result.person)
    console.print(f"\nThe report: {result.report.resolve()}", markup=False, soft_wrap=True)


def _print_person(console: Console, person: Person) -> None:
    shown = "; ".join(person.history[:HISTORY_SHOWN])
    console.print(f"\n{_who(person)} {shown}", markup=False)
    table = RichTable("", *person.lists, title=_hits_in_words(person))
    for at in range(max(map(len, person.lists.values()))):
        cells = [_marked(person, name, at) for name in person.lists]
        table.add_row(str(at + 1), *cells)
    console.print(table, markup=False)


def _marked(person: Person, name: str, at: int) -> str:
    from rich.markup import escape

    entries = person.lists[name]
    if at >= len(entries):
        return ""
    return f"{escape(entries[at])}{' ✓' if at in person.hits[name] else ''}"


def _who(person: Person) -> str:
    shown = min(HISTORY_SHOWN, len(person.history))
    return f"{person.id.capitalize()} is known to have {len(person.history)} items, {shown} of them:"


def _hits_in_words(person: Person) -> str:
    hits = ", ".join(f"{name} {len(found)}" for name, found in person.hits.items())
    return f"Of {person.n_held_out} held-out items these lists hold: {hits} (✓)"


# --- in the report -------------------------------------------------------------------------------------


def demo_page(result: DemoResult) -> Page:
    """The report."""
    lead = (
        "Two ways to learn from what people did. BPR ranks what a person has above what they have not; DPL "
        "does the same, but allows for what they would like and have not met yet."
    )
    judged = [_judged(*one) for one in _judgements(result)]
    sections = [*judged, _lists(result), _training(result), _data(result.data), _setup(result)]
    return Page(f"BPR and DPL on {result.data.name}", lead, sections)


def _judged(on: str, evaluations: Mapping[str, Evaluation], comparison: Comparison) -> Section:
    bars = {
        metric_name(m): {name: Bar(e.mean(m), *e.interval(m)) for name, e in evaluations.items()}
        for m in DRAWN
    }
    n_users = next(iter(evaluations.values())).n_users
    alt = "Bars of the first columns of the table below, for " + ", ".join(bars)
    caption = f"Means over {n_users:,} people; the thin lines are 95% bootstrap intervals over people."
    table = Table(["", *evaluations], _rows(evaluations), "[low, high]: the 95% bootstrap interval.")
    figure = Figure(draw_bars(bars), alt, caption)
    words = Text(in_words(comparison, on), strong=True)
    return Section(f"On {on}", [words, figure, table, Text(_ON_TRUTH if on == TRUTH else _HOW_TO_READ)])


_HOW_TO_READ = (
    "The intervals say how much a mean would vary with other people; as both models were judged on the same "
    "people, the difference above is compared person by person, and is surer than two overlapping bars "
    "look. NDCG@20 was chosen as the measure before anything was trained."
)


_ON_TRUTH = (
    "Only a simulated world can tell what people like and were never seen to click: here the lists are "
    "judged on all of it, without what the models had or were tested on before."
)


def _lists(result: DemoResult) -> Section:
    person = result.person
    known = Items(
        f"What {person.id} has",
        person.history[:HISTORY_SHOWN],
        note=f"{min(HISTORY_SHOWN, len(person.history))} of {len(person.history)}",
        ordered=False,
    )
    lists = [
        Items(
            f"{name} recommends",
            entries,
            person.hits[name],
            "held out",
            counted(len(person.hits[name]), "hit"),
        )
        for name, entries in person.lists.items()
    ]
    how = (
        f"The person with the median number of known items; {person.n_held_out} items of theirs were held "
        "out, and a list that finds one has a hit. One person is an example, not evidence."
    )
    return Section("One person, two lists", [Text(how), Columns([known, *lists])])


def _training(result: DemoResult) -> Section:
    panels = {
        "Training loss": {name: _loss_curve(f) for name, f in result.fits.items()},
        f"Validation {metric_name(METRIC)}": {name: _score_curve(f) for name, f in result.fits.items()},
    }
    rows = [
        [name, f.epoch, len(f.history), f"{f.score:.4f}", f"{sum(r.seconds for r in f.history):.1f}"]
        for name, f in result.fits.items()
    ]
    table = Table(["", "epoch chosen", "epochs trained", "validation", "seconds"], rows)
    caption = (
        "A dot marks the epoch that validation chose. The two losses are not comparable with each other, nor "
        "are validation scores with test scores: fewer items of each person are held out."
    )
    alt = "; ".join(f"{row[0]}: best validation {row[3]} at epoch {row[1]} of {row[2]}" for row in rows)
    return Section("Training", [Figure(draw_curves(panels, "epoch"), alt, caption), table])


def _loss_curve(fit: FitResult) -> Curve:
    return Curve([r.epoch for r in fit.history], [r.loss for r in fit.history])


def _score_curve(fit: FitResult) -> Curve:
    scored = [(r.epoch, r.score) for r in fit.history if r.score is not None]
    epochs, scores = zip(*scored, strict=True)
    return Curve(epochs, scores, epochs.index(fit.epoch))


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
    return Section("The data", [Table(["", ""], rows, numbers=False), *notes, *_terms(data)])


def _terms(data: DemoData) -> list[Text]:
    if data.world is not None:
        return [Text("The world is made up; nobody's data is in it.")]
    dataset = find_dataset("ml-100k")
    every = "A rating of any height counts as an interaction, as is usual for this dataset."
    return [Text(every), Text(f"Terms: {dataset.terms}"), Text(f"Cite: {dataset.cite}"), Text(dataset.page)]


def _setup(result: DemoResult) -> Section:
    job = next(iter(result.fits.values())).job
    rows: list[list[object]] = [["encoder", job.encoder], ["sampler", job.sampler]]
    rows += [[f"loss of {name}", fit.job.loss] for name, fit in result.fits.items()]
    rows += [[key, value] for key, value in dataclasses.asdict(job.settings).items()]
    how = "The same for both, fixed beforehand. The test part was looked at once."
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PARTS)
    where = Text(f"Python {platform.python_version()}, {versions}, {platform.system()} {platform.machine()}.")
    return Section("Settings and versions", [Text(how), Table(["", ""], rows, numbers=False), where])


_PARTS = ("truepair", "torch", "numpy", "scipy", "pyarrow", "matplotlib")
