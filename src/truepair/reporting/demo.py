"""Demo: the default model against simple and published ones, on MovieLens-100k or a simulated world.

Every model learns from the train part. The validation part chooses the settings of the default model and of
EASE, and the epoch of the others, whose settings were fixed before; the test part is used once, at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from truepair.data.datasets.loading import load, load_titles
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_random, split_temporal
from truepair.errors import DownloadError, InputError
from truepair.evaluation import Evaluation, compare_all, evaluate
from truepair.models.closed_forms import EASE, Popular
from truepair.ranking.selection import top_k
from truepair.recommender.estimator import Recommender, with_model
from truepair.reporting import demo_page
from truepair.reporting.demo_page import DEFAULT, METRIC, DemoData, DemoResult, ExampleUser, ModelComparison
from truepair.reporting.figures import check_plots
from truepair.storage.types import Json
from truepair.training import FitResult, Settings
from truepair.training.module_trainer import threads_for

LISTED = (DEFAULT, "EASE", "Popularity")  # the models whose lists are shown
LIST_LENGTH = 10
PAIRWISE: Json = {
    "sampler": "uniform",
    "epochs": 60,
    "batch_size": 1024,
    "n_extra": 5,
    "n_unlabelled": 5,
    "learning_rate": 3e-3,
    "weight_decay": 1e-5,
    "patience": 8,
}
"""The training settings of the paper's methods, BPR and DPL; the default model has its own."""
EASES = [EASE(l2, power, power) for power in (0.0, 0.25) for l2 in (55.6, 167.0, 500.0, 1500.0, 4500.0)]
"""The settings of EASE that the validation part chooses from: with and without degree exponents."""


def run_demo(
    *,
    data_dir: Path | None = None,
    out: Path = Path("truepair-demo.html"),
    seed: int = 0,
    quiet: bool = False,
    epochs: int | None = None,
) -> DemoResult:
    """Compare the default model with popularity, EASE, BPR and DPL; print the results and write a report.

    The data is MovieLens-100k if it is available (see `truepair.data.datasets.loading.load`), else a
    simulated world. `epochs` limits the training of every model.
    """
    check_plots()  # before training
    if out.is_dir():
        raise InputError(f"out = {str(out)!r} is a folder; give a file, as {str(out / 'demo.html')!r}.")
    Settings(seed=seed, epochs=1 if epochs is None else epochs)  # for its checks, before any work
    console = Console(quiet=quiet, highlight=False)
    data = demo_data(data_dir, seed, progress=not quiet)
    print_data(data, console)
    models = _models(data, seed, epochs)
    with threads_for(0):  # one: as fast on data this small, and much faster on a busy machine
        fits = {name: _fitted(name, model, data, quiet) for name, model in models.items()}
        later = None if data.timed is None else _future(split_temporal(data.timed), seed, epochs, quiet)
    result = _evaluate(data, fits, later, out)
    demo_page.demo_page(result).write(out)
    print_result(result, console)
    return result


# --- data ----------------------------------------------------------------------------------------------


def demo_data(data_dir: Path | None, seed: int, progress: bool = False) -> DemoData:
    """MovieLens-100k, or a simulated world if MovieLens-100k is not available."""
    try:
        interactions = load("ml-100k", data_dir, progress)
    except DownloadError as error:
        note = f"MovieLens-100k is not available, so this is a simulated world. {error}"
        world = simulate_world(800, 600, tau=0.1, density=0.04, exposure="popularity", seed=seed)
        titles = tuple(map(str, world.observed.item_ids.ids.to_pylist()))
        return DemoData("a simulated world", _split(world.observed, seed), titles, world, (note,))
    titles, notes = _titles(interactions, data_dir)
    timed = None if interactions.time is None else interactions
    return DemoData("MovieLens 100K", _split(interactions, seed), titles, notes=notes, timed=timed)


def _split(interactions: Interactions, seed: int) -> Split:
    return split_random(interactions, test=0.2, valid=0.1, seed=seed)


def _titles(interactions: Interactions, data_dir: Path | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Titles by item code, and a note if only ids are known."""
    ids = interactions.item_ids.ids.to_pylist()
    try:
        known = load_titles("ml-100k", data_dir)
    except (DownloadError, InputError) as error:
        return tuple(f"item {item}" for item in ids), (f"Titles are not available: {error}",)
    return tuple(known.get(item, f"item {item}") for item in ids), ()


# --- training and evaluation ---------------------------------------------------------------------------


def _models(data: DemoData, seed: int, epochs: int | None) -> dict[str, list[Recommender]]:
    """The models by name; of several the validation part chooses one.

    DPL gets the true τ of a simulated world; else it uses the density of the train part.
    """
    limit: Json = {} if epochs is None else {"epochs": epochs}
    pairwise: Json = {**PAIRWISE, "dim": 64 if data.world is None else 32, "seed": seed, **limit}
    tau: Json = {} if data.world is None else {"tau": data.world.tau}
    return {
        DEFAULT: [Recommender(metric=METRIC, seed=seed, **limit)],
        "Popularity": [Recommender(metric=METRIC, encoder="popular")],
        "EASE": [Recommender(metric=METRIC, encoder=ease) for ease in EASES],
        "BPR": [Recommender(metric=METRIC, loss="bpr", **pairwise)],
        "DPL": [Recommender(metric=METRIC, loss="dpl", **pairwise, **tau)],
    }


def _fitted(name: str, models: list[Recommender], data: DemoData, quiet: bool) -> FitResult:
    """The best fit; its scores are those of the whole model, a blend included."""
    if not quiet:
        print(f"training {name}", file=sys.stderr)
    scores = [
        each.fit(data.split, progress=not quiet).facts_["metrics"][f"validation {METRIC}"] for each in models
    ]
    score = max(scores)
    model = models[scores.index(score)]
    users, items = model.matrices()
    blended: Json = {} if model.spec_.blend is None else {"engine": "full, blended with EASE"}
    return replace(model.result_, users=users, items=items, score=score, **blended)


def _future(split: Split, seed: int, epochs: int | None, quiet: bool) -> dict[str, Evaluation]:
    """The default, with and without its trend, and what is popular lately, for users with a history."""
    limit: Json = {} if epochs is None else {"epochs": epochs}
    if not quiet:
        print("training for the future", file=sys.stderr)
    default = Recommender(metric=METRIC, seed=seed, **limit).fit(split, progress=not quiet)
    models = {
        DEFAULT: default,
        demo_page.TIMELESS: with_model(default.model_.timeless()),
        demo_page.LATELY: Recommender(encoder=Popular("auto"), metric=METRIC).fit(split),
    }
    return {name: evaluate(model, split, cold="separate") for name, model in models.items()}


def _evaluate(
    data: DemoData, models: Mapping[str, FitResult], later: dict[str, Evaluation] | None, out: Path
) -> DemoResult:
    found = {demo_page.TEST: {name: evaluate(model, data.split) for name, model in models.items()}}
    if later is not None:
        found[demo_page.FUTURE] = later
    if data.world is not None:
        hidden, observed = data.world.hidden, data.world.observed
        found[demo_page.TRUTH] = {name: evaluate(m, hidden, exclude=observed) for name, m in models.items()}
    comparisons = {
        on: ModelComparison(each, compare_all(each, METRIC, baseline=DEFAULT)) for on, each in found.items()
    }
    return DemoResult(out, data, models, comparisons, _example(data, models))


def _example(data: DemoData, models: Mapping[str, FitResult]) -> ExampleUser:
    """The user with the median number of train items among those with a test item."""
    train, test = data.split.train, data.split.test
    code = _median_user(train.user_counts, test.user_counts)
    id = train.user_ids.outside([code])[0].as_py()
    held_out = test.items_of(code)
    best = {
        name: top_k(*models[name].matrices(), LIST_LENGTH, rows=[code], exclude=data.known).items[0]
        for name in LISTED
    }
    return ExampleUser(
        id=id if isinstance(id, str) else f"user {id}",
        history=tuple(data.titles[item] for item in _history(data.known, code)),
        n_held_out=len(held_out),
        lists={name: tuple(data.titles[item] for item in items) for name, items in best.items()},
        hits={
            name: frozenset(np.flatnonzero(np.isin(items, held_out)).tolist()) for name, items in best.items()
        },
    )


def _median_user(n_train: Codes, n_test: Codes) -> int:
    able = np.flatnonzero((n_test > 0) & (n_train > 0))
    return int(able[np.argsort(n_train[able], kind="stable")[len(able) // 2]])


def _history(known: list[Interactions], code: int) -> Codes:
    """The user's items, the highest rated first if there are ratings."""
    items = np.concatenate([part.items_of(code) for part in known])
    ratings = [part.rating[part.users == code] for part in known if part.rating is not None]
    return items[np.argsort(-np.concatenate(ratings), kind="stable")] if ratings else items


# --- terminal ------------------------------------------------------------------------------------------


def print_data(data: DemoData, console: Console) -> None:
    """Print the data and its notes."""
    for note in data.notes:
        console.print(note, style="yellow", markup=False)
    console.print(f"Data: {data.name}. {data.split}", markup=False)


def print_result(result: DemoResult, console: Console) -> None:
    """Print the comparison, and the path of the report."""
    for on, judgement in result.comparisons.items():
        console.print(demo_page.conclusion(judgement, on), markup=False)
    console.print(f"\nReport: {result.report.resolve()}", markup=False, soft_wrap=True)
