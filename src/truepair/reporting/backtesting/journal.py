"""The journal of a backtest: finished cells in a JSON-lines file, so that an interrupted run continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from truepair.errors import InputError, StorageError, check_choice
from truepair.reporting.backtesting.strategies import STRATEGIES, restored
from truepair.storage.atomic import atomic_write
from truepair.storage.plain_values import read_record
from truepair.storage.types import Json

_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class Cell:
    """The result of one strategy in one period: the mean of the metric over users, and its 95% interval."""

    period: int
    strategy: str
    value: float
    low: float
    high: float
    users: int
    known_users: int  # with a pair before the period: the same for all strategies
    known: float | None  # their mean; None without any
    new: float | None  # the mean of new users
    trained_users: int  # with a pair that the model was trained on; the others get the most popular items
    unknown_pairs: int  # judged pairs whose item the model does not know
    train_pairs: int  # pairs that the model knows
    seconds: float  # of training


def key_of(facts: Mapping[str, object]) -> str:
    """A checksum of everything that decides the cells of a backtest."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


class Journal:
    """Finished cells and the settings of the first period, in a file; without a path, in memory only."""

    def __init__(self, path: str | Path | None, key: str) -> None:
        self.path, self.key = None if path is None else Path(path), key
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
        lines = _whole_lines(path)
        if not lines:
            return
        if not isinstance(lines[0], dict) or "backtest" not in lines[0]:
            raise StorageError(f"{path} is no checkpoint of a backtest; give another file.")
        if lines[0]["backtest"] != self.key:
            raise StorageError(
                f"{path} is of a backtest with other data, periods or parameters. Give another checkpoint "
                "file, or delete this one."
            )
        for number, line in enumerate(lines[1:], 2):
            try:
                self._take(line)
            except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise StorageError(
                    f"line {number} of {path} is no result of a backtest: {error!r:.200}. Delete the file."
                ) from error

    def _take(self, line: Json) -> None:
        if set(line) == {"settings"}:
            restored(line["settings"])  # checks them
            self.settings = dict(line["settings"])
            return
        cell = read_record(Cell, line["cell"])
        check_choice("strategy", cell.strategy, STRATEGIES)
        self.cells[cell.period, cell.strategy] = cell


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
