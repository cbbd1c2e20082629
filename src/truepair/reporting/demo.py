"""Demo: BPR and DPL side by side on films that people rated, in under three minutes.

The settings were fixed beforehand, by looking at validation scores only; both losses get the same encoder,
the same draws and the same effort; validation picks the epoch; the test part is looked at once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from truepair.data.datasets.catalogue import load, load_titles
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.splitting import split_random
from truepair.errors import DownloadError, InputError, check_choice
from truepair.evaluation import Validation, compare_all, evaluate
from truepair.losses import BPR, DPL, Loss
from truepair.models.encoders import MF
from truepair.ranking.selection import top_k
from truepair.reporting.demo_page import demo_page, print_data, print_result
from truepair.reporting.demo_result import METRIC, DemoData, DemoResult, Person
from truepair.reporting.figures import check_plots
from truepair.sampling import Uniform
from truepair.training import FitResult, Settings, fit

DATASETS = ("ml-100k", "simulated")
LIST_LENGTH = 10
SETTINGS = Settings(
    epochs=60, batch_size=1024, n_extra=5, n_unlabelled=5, learning_rate=3e-3, weight_decay=1e-5, patience=8
)


def run_demo(
    *,
    data_dir: Path | None = None,
    out: Path = Path("truepair-demo.html"),
    seed: int = 0,
    quiet: bool = False,
    dataset: str = "ml-100k",
    epochs: int | None = None,
) -> DemoResult:
    """Train BPR and DPL, print how they compare and what they recommend to one person, write a report.

    MovieLens-100k where it can be had (see `truepair.data.datasets.catalogue.load`), else a simulated world.
    """
    check_plots()  # now rather than after training
    out = _checked_out(out)
    settings = replace(SETTINGS, seed=seed, epochs=SETTINGS.epochs if epochs is None else epochs)
    data = demo_data(check_choice("dataset", dataset, DATASETS), data_dir, seed, progress=not quiet)
    print_data(data, quiet)
    with _one_thread():
        fits = {name: _fit(loss, data, settings, quiet) for name, loss in _losses(data).items()}
    result = _judged(data, fits, out)
    demo_page(result).write(out)
    print_result(result, quiet)
    return result


# --- data ----------------------------------------------------------------------------------------------


def demo_data(dataset: str, data_dir: Path | None, seed: int, progress: bool = False) -> DemoData:
    """MovieLens-100k, or the simulated world where that is asked for or all there is."""
    if dataset == "simulated":
        return _simulated(seed)
    try:
        interactions = load("ml-100k", data_dir, progress)
    except DownloadError as error:
        return _simulated(seed, f"MovieLens-100k cannot be had here, so this is a simulated world. {error}")
    titles, notes = _titles(interactions, data_dir)
    return DemoData("MovieLens 100K", _split(interactions, seed), titles, notes=notes)


def _simulated(seed: int, *notes: str) -> DemoData:
    world = simulate_world(800, 600, tau=0.1, density=0.04, exposure="popularity", seed=seed)
    titles = tuple(map(str, world.observed.item_ids.ids.to_pylist()))
    return DemoData("a simulated world", _split(world.observed, seed), titles, world, notes)


def _split(interactions: Interactions, seed: int) -> Split:
    return split_random(interactions, test=0.2, valid=0.1, seed=seed)


def _titles(interactions: Interactions, data_dir: Path | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Titles by item code, and a note where there are only ids."""
    ids = interactions.item_ids.ids.to_pylist()
    try:
        known = load_titles("ml-100k", data_dir)
    except (DownloadError, InputError) as error:
        return tuple(f"item {item}" for item in ids), (f"There are no titles here: {error}",)
    return tuple(known.get(item, f"item {item}") for item in ids), ()


# --- training and judging ------------------------------------------------------------------------------


def _losses(data: DemoData) -> dict[str, Loss]:
    """DPL knows τ where the world tells it; else it takes the density of the training data."""
    return {"BPR": BPR(), "DPL": DPL() if data.world is None else DPL(tau=data.world.tau)}


@contextmanager
def _one_thread() -> Iterator[None]:
    """As fast as more threads on batches this small, and much faster where others want the cores too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fit(loss: Loss, data: DemoData, settings: Settings, quiet: bool) -> FitResult:
    split = data.split
    assert split.valid is not None
    validation = Validation(split.valid, exclude=split.train, metric=METRIC)
    encoder = MF(dim=64 if data.world is None else 32)
    return fit(encoder, loss, Uniform(), split.train, settings, validation, progress=not quiet)


def _judged(data: DemoData, fits: Mapping[str, FitResult], out: Path) -> DemoResult:
    tested = {name: evaluate(f, data.split) for name, f in fits.items()}
    (comparison,) = compare_all(tested, METRIC, baseline="BPR")
    person = _person(data, fits)
    if data.world is None:
        return DemoResult(out, data, fits, tested, comparison, person)
    hidden, observed = data.world.hidden, data.world.observed
    on_truth = {name: evaluate(f, hidden, exclude=observed) for name, f in fits.items()}
    (truth_comparison,) = compare_all(on_truth, METRIC, baseline="BPR")
    return DemoResult(out, data, fits, tested, comparison, person, on_truth, truth_comparison)


def _person(data: DemoData, fits: Mapping[str, FitResult]) -> Person:
    """The person with the median number of training items, of those with something held out: no choice."""
    train, test = data.split.train, data.split.test
    code = _median_person(train.user_counts, test.user_counts)
    history = _history(data.known, code)
    best = {
        name: top_k(f.users, f.items, LIST_LENGTH, rows=[code], exclude=data.known).items[0]
        for name, f in fits.items()
    }
    held_out = set(test.items_of(code).tolist())
    return Person(
        id=_name(train.user_ids.outside([code])[0].as_py()),
        history=tuple(data.titles[item] for item in history),
        n_held_out=len(held_out),
        lists={name: tuple(data.titles[item] for item in items) for name, items in best.items()},
        hits={
            name: frozenset(at for at, item in enumerate(items.tolist()) if item in held_out)
            for name, items in best.items()
        },
    )


def _name(user: object) -> str:
    return user if isinstance(user, str) else f"user {user}"


def _median_person(n_train: Codes, n_test: Codes) -> int:
    able = np.flatnonzero((n_test > 0) & (n_train > 0))
    return int(able[np.argsort(n_train[able], kind="stable")[len(able) // 2]])


def _history(known: list[Interactions], code: int) -> Codes:
    """The person's items; those of the highest rating first, where there are ratings."""
    items = np.concatenate([part.items_of(code) for part in known])
    ratings = [part.rating[part.users == code] for part in known if part.rating is not None]
    return items[np.argsort(-np.concatenate(ratings), kind="stable")] if ratings else items


def _checked_out(out: Path) -> Path:
    out = Path(out)
    if out.is_dir():
        raise InputError(f"out = {str(out)!r} is a folder; name a file, such as {str(out / 'demo.html')!r}.")
    return out
