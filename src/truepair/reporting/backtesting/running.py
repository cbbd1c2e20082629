"""backtest: train for one period after the other, and judge each model on the period that follows.

Finished results are kept in a journal, so that an interrupted run continues.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from truepair.errors import InputError, StorageError, check_choice, check_type
from truepair.evaluation import parse_metric
from truepair.evaluation.metrics import Floats
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import as_interactions, read_alike
from truepair.reporting.backtesting.periods import Period, Timeline
from truepair.reporting.backtesting.results import Backtest
from truepair.reporting.backtesting.strategies import STRATEGIES, Cell, PeriodModels, judge, restored, stated
from truepair.storage.atomic import atomic_write
from truepair.storage.plain_values import read_record
from truepair.storage.types import Json, Source

_MOST_BYTES = 1 << 26  # of a journal
SETTINGS = ("first", "each")
"""Automatic settings: chosen for the first period and kept, or chosen for each."""


def backtest(
    interactions: Source,
    model: Recommender | None = None,
    *,
    every: str | float | None = None,
    train: str | float | None = None,
    periods: int | None = None,
    strategies: Sequence[str] = tuple(STRATEGIES),
    metric: str | None = None,
    settings: Literal["first", "each"] = "first",
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
) -> Backtest:
    """Replay the past: at the start of each period, train on what came before, and judge on the period.

    interactions  an `Interactions` with clock times, or any source that `read_interactions` takes.
    model         a `Recommender`, whose parameters are used; by default `Recommender()`. If it is fitted,
                  a source is read as the data of the fit were.
    every         the length of a period: "7d", "12h", "2w", or a number in the unit of the time column. The
                  last period ends with the data. By default "7d".
    periods       the number of periods. With `every`, the last ones; without it, the time is cut into this
                  many periods with equally many pairs, after a first part that is only learnt from.
    train         the window that `retrain`, `popularity` and `recent` learn from, such as "90d"; by default
                  everything before the period. `update` does not forget: it starts with the first window.
    strategies    "retrain": a new model for each period. "timeless": the same without its trend. "update":
                  the model of the period before, updated by `Recommender.update`. "nothing": the model of the
                  first period. "popularity": the items with the most users. "recent": those that are popular
                  lately, with the half-life that was best before the period.
    metric, seed  by default those of the model.
    settings      automatic settings are chosen for the "first" period and kept, or chosen for "each" by
                  `retrain`.
    checkpoint    a file for finished cells; the same call continues after an interruption.

    A period is judged for every user with a pair of a known item in it. All strategies leave out what the
    user had before the period. Users without a trained pair get the most popular items. Users with and
    without a pair before the period are reported apart. Pairs of items that nobody had before are counted,
    but not judged: no model can recommend them.

    >>> from truepair import Recommender, simulate_drift
    >>> world = simulate_drift(60, 50, periods=4, pairs=20)
    >>> model = Recommender(dim=8, epochs=3, auto=False)
    >>> found = backtest(world, model, every="1w", strategies=["retrain", "popularity"])
    >>> len(found.periods), found.strategies
    (3, ['retrain', 'popularity'])
    """
    chosen, names = _model(model, metric, seed), _names(strategies)
    check_choice("settings", settings, SETTINGS)
    fitted = getattr(model, "model_", None)
    pairs = as_interactions(interactions) if fitted is None else read_alike(interactions, fitted.seen)
    if pairs.disliked is not None and pairs.stored_log is None:
        raise InputError(
            "the interactions have dislikes, which have no times, so that those of later periods would be "
            "known; read them without dislikes."
        )
    timeline = Timeline(pairs, every, train, periods)
    facts: Json = {
        "data": pairs.hash,
        "periods": [asdict(period) for period in timeline.periods],
        "parameters": stated(chosen),
        "settings": settings,
    }
    journal = Journal(checkpoint, facts)
    models = PeriodModels(timeline, chosen, settings == "each", journal.settings)
    cells = []
    for period, name in itertools.product(timeline.periods, names):
        cell = journal.cells.get((period.number, name))
        if cell is None:
            cell = _cell(models, name, period, chosen.metric)
            journal.add(cell, models.settings)
        cells.append(cell)
        if progress:
            print(_progress_line(cell, len(timeline.periods), chosen.metric), file=sys.stderr)
    facts |= {"every": every, "train": train, "left out": timeline.left_out, "chosen": models.settings}
    del facts["periods"]
    return Backtest(chosen.metric, tuple(timeline.periods), tuple(cells), facts)


def _model(model: Recommender | None, metric: str | None, seed: int | None) -> Recommender:
    """A new recommender with the parameters of the model, which stays as it is."""
    if model is not None:
        check_type("model", model, Recommender, "give a Recommender, fitted or not: its parameters are used")
    given = {name: value for name, value in (("metric", metric), ("seed", seed)) if value is not None}
    chosen = Recommender(**({} if model is None else model.get_params())).set_params(**given)
    parse_metric(chosen.metric)
    _ = chosen.spec  # raises
    return chosen


def _names(strategies: Sequence[str]) -> list[str]:
    names = [strategies] if isinstance(strategies, str) else list(strategies)
    for name in names:
        check_choice("strategies", name, STRATEGIES)
    if not names or len(set(names)) < len(names):
        raise InputError(
            f"strategies = {names} must be one or more different names of {', '.join(STRATEGIES)}."
        )
    return names


def _cell(models: PeriodModels, strategy: str, period: Period, metric: str) -> Cell:
    """Train, then judge."""
    model, seconds = STRATEGIES[strategy].model(models, period)
    before = models.timeline.before(period)
    found = judge(model, models.timeline.target(period), before, metric)
    values, known = found.values(metric), before.user_counts[found.users] > 0
    return Cell(
        period.number,
        strategy,
        found.mean(metric),
        *found.interval(metric),
        users=found.n_users,
        known_users=int(known.sum()),
        known=_mean(values[known]),
        new=_mean(values[~known]),
        trained_users=found.n_users - len(found.cold_users),
        unknown_pairs=found.n_unseen_pairs,
        train_pairs=len(model.seen_),
        seconds=round(seconds, 3),
    )


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _progress_line(cell: Cell, n: int, metric: str) -> str:
    return (
        f"period {cell.period} of {n}, {cell.strategy}: {metric} {cell.value:.4f}, "
        f"trained on {cell.train_pairs:,} pairs in {cell.seconds:.1f} s"
    )


# --- the journal ---------------------------------------------------------------------------------------


class Journal:
    """Finished cells and the settings of the first period, in a file; without a path, in memory only."""

    def __init__(self, path: str | Path | None, facts: Json) -> None:
        self.path = None if path is None else Path(path)
        # a checksum of everything that decides the cells
        self.key = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
        self.settings: Json | None = None
        self.cells: dict[tuple[int, str], Cell] = {}
        if self.path is not None and self.path.exists():
            self._read(self.path)
        self._write()  # what cannot be written is an error now rather than after hours

    def add(self, cell: Cell, settings: Mapping[str, object] | None) -> None:
        """Keep a finished cell, and the settings of the first period once they are known."""
        self.cells[cell.period, cell.strategy] = cell
        if self.settings is None and settings is not None:
            self.settings = dict(settings)
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        settled = [] if self.settings is None else [{"settings": self.settings}]
        cells = ({"cell": asdict(cell)} for cell in self.cells.values())
        with atomic_write(self.path, "the checkpoint") as file:
            for line in [{"backtest": self.key}, *settled, *cells]:
                file.write((json.dumps(line) + "\n").encode())

    def _read(self, path: Path) -> None:
        head, *lines = _whole_lines(path) or [{"backtest": self.key}]
        if not isinstance(head, dict) or "backtest" not in head:
            raise StorageError(f"{path} is no checkpoint of a backtest; give another file.")
        if head["backtest"] != self.key:
            raise StorageError(
                f"{path} is of a backtest with other data, periods or parameters. Give another checkpoint "
                "file, or delete this one."
            )
        for number, line in enumerate(lines, 2):
            try:
                if set(line) == {"settings"}:
                    restored(line["settings"])  # checks them
                    self.settings = dict(line["settings"])
                    continue
                cell = read_record(Cell, line["cell"])
                self.cells[cell.period, check_choice("strategy", cell.strategy, STRATEGIES)] = cell
            except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise StorageError(
                    f"line {number} of {path} is no result of a backtest: {error!r:.200}. Delete the file."
                ) from error


def _whole_lines(path: Path) -> list[Json]:
    """The lines of a file as JSON values; a last line that was cut off is left out."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise StorageError(f"{path} is too large for a checkpoint of a backtest; give another file.")
        *whole, _ = path.read_bytes().split(b"\n")
        return [json.loads(line) for line in whole]
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise StorageError(
            f"{path} is no checkpoint of a backtest ({error!s:.200}); give another file."
        ) from error
