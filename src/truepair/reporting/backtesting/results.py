"""Backtest: results by period and strategy, as text, JSON, a figure and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from truepair.data.split import counted
from truepair.errors import InputError, check_choice
from truepair.reporting.backtesting.periods import Period
from truepair.reporting.backtesting.strategies import STRATEGIES, Cell
from truepair.reporting.figures import Panel, Series, draw_bands, standalone
from truepair.reporting.page import Figure, Page, Section, Table, Text, metric_name, text_table, write_text
from truepair.storage.types import Json

_COLOURS = {name: place for place, name in enumerate(STRATEGIES)}
_OTHER = len(STRATEGIES)  # the colour of what does not belong to a strategy
_SHARES = {
    "New items in the catalogue, %": "newness",
    "Pairs of new users, %": "new_user_share",
    "Pairs of new items, %": "new_item_share",
}


@dataclass(frozen=True)
class Summary:
    """A strategy over all periods after the first, in which all trained strategies have the same model."""

    strategy: str
    value: float  # the mean over periods
    known: float | None  # the mean of users with a pair before the period, weighted by their number
    to_retrain: float | None  # the value as a share of retraining's
    seconds: float
    time_to_retrain: float | None  # the seconds as a share of retraining's


@dataclass(frozen=True, eq=False, repr=False)
class Backtest:
    """Quality over time: `table()`, `summary()`, `to_json()`, `plot("figure.svg")`, `page("report.html")`.

    `cells` are in the order of periods, then of strategies.
    """

    metric: str
    periods: tuple[Period, ...]
    cells: tuple[Cell, ...]
    facts: Mapping[str, object] = field(default_factory=dict)  # data, cuts, parameters, chosen settings

    @property
    def strategies(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(cell.strategy for cell in self.cells))

    def of(self, strategy: str) -> list[Cell]:
        """The results of a strategy, by period."""
        check_choice("strategy", strategy, self.strategies)
        return [cell for cell in self.cells if cell.strategy == strategy]

    def summary(self) -> list[Summary]:
        """One line a strategy: means over the periods after the first, and the time beside retraining's."""
        later = {name: self.of(name)[1:] for name in self.strategies}
        value = {name: sum(cell.value for cell in cells) / len(cells) for name, cells in later.items()}
        seconds = {name: sum(cell.seconds for cell in cells) for name, cells in later.items()}

        def share(of: Mapping[str, float], name: str) -> float | None:
            return of[name] / of["retrain"] if of.get("retrain") else None

        return [
            Summary(n, value[n], _known_mean(cells), share(value, n), seconds[n], share(seconds, n))
            for n, cells in later.items()
        ]

    def table(self) -> str:
        """A row a period: when, how many users are judged, what is new, and the mean of each strategy."""
        shown = ["", "from", "users", "new users", "new items", *self.strategies]
        rows = [shown, *([row[name] for name in shown] for row in self._period_rows())]
        tables = [_aligned(rows), _aligned(self._summary_rows(""))]
        return "\n".join([*(line for table in tables for line in (table, "")), *self._notes()])

    def to_dict(self) -> Json:
        """Everything, as plain JSON values."""
        return {
            "metric": self.metric,
            "periods": [
                asdict(period) | {name: getattr(period, name) for name in _SHARES.values()}
                for period in self.periods
            ],
            "cells": [asdict(cell) for cell in self.cells],
            "summary": [asdict(line) for line in self.summary()],
            "facts": dict(self.facts),
        }

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    def plot(self, path: str | Path) -> None:
        """Draw quality, newness and training time over the periods to an .svg file."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise InputError(f"{path} has no suffix of a figure; end the name in .svg.")
        write_text(path, standalone(self._figure()))

    def page(self, path: str | Path, title: str = "Backtest") -> None:
        """Write a report with figures and tables to an .html file."""
        lead = (
            f"{counted(len(self.periods), 'period')}, from {self.periods[0].date} on: each model learns from "
            "what came before a period, and is judged on the period."
        )
        facts = Table(["", ""], [[name, str(value)] for name, value in self.facts.items()], numbers=False)
        sections = [
            Section("Quality over time", self._quality_blocks()),
            Section("Strategies", self._strategy_blocks()),
            Section("Known and new users", [self._user_table()]),
            Section("How it was measured", [*map(Text, self._notes()), facts]),
        ]
        Page(title, lead, sections).write(Path(path))

    def __repr__(self) -> str:
        means = ", ".join(f"{line.strategy} {line.value:.4f}" for line in self.summary())
        return f"<Backtest: {len(self.periods)} periods, {self.metric} after the first: {means}>"

    # --- rows and texts of the tables ----------------------------------------------------------------------

    def _period_rows(self) -> list[dict[str, str]]:
        return [
            {
                "": str(period.number),
                "from": period.date,
                "users": f"{period.users:,}",
                "pairs": f"{period.pairs:,}",
                "not judged": f"{period.new_item_pairs:,}",
                "new users": f"{period.new_user_share:.0%}",
                "new items": f"{period.new_item_share:.0%}",
                "newness": f"{period.newness:.0%}",
                **{cell.strategy: f"{cell.value:.4f}" for cell in self.cells if cell.period == period.number},
            }
            for period in self.periods
        ]

    def _summary_rows(self, missing: str) -> list[list[str]]:
        """A head, and the summary of each strategy; `missing` stands for what there is not."""
        rows = [["periods 2 on", self.metric, "known users", "of retrain", "seconds", "of retrain"]]
        for line in self.summary():
            known = _shown(line.known, ".4f", missing)
            value, time = (_shown(share, ".1%", missing) for share in (line.to_retrain, line.time_to_retrain))
            rows.append([line.strategy, f"{line.value:.4f}", known, value, f"{line.seconds:.1f}", time])
        return rows

    def _notes(self) -> list[str]:
        """How to read the numbers."""
        unknown = sum(period.new_item_pairs for period in self.periods)
        pairs = sum(period.pairs for period in self.periods)
        return [
            f"{self.metric}: means over the users of a period. New users, new items: shares of its pairs.",
            f"{unknown:,} of {pairs:,} pairs are of items that nobody had before the period: no model could "
            "recommend them, and they are not judged.",
        ]

    # --- the figure and the page ---------------------------------------------------------------------------

    def _figure(self) -> str:
        """Quality and training time of each strategy, and what is new, by period; as SVG."""
        name, cells = metric_name(self.metric), {way: self.of(way) for way in self.strategies}
        # seconds: the first period has the search for settings, and is the same for all
        later = {way: those[1:] for way, those in cells.items() if way in ("retrain", "update")}
        panels = [
            Panel(name, {way: _series(those, "value") for way, those in cells.items()}),
            Panel(f"{name}, known users", {way: _series(those, "known") for way, those in cells.items()}),
            Panel("Seconds of training", {way: _series(those, "seconds") for way, those in later.items()}),
        ]
        x = [period.number for period in self.periods]
        for title, share in _SHARES.items():
            y = [100 * getattr(period, share) for period in self.periods]
            panels.append(Panel(title, {"_": Series(x, y, y, y, _OTHER)}, xlabel="period"))
        return draw_bands(panels, columns=3)

    def _quality_blocks(self) -> list[Text | Figure | Table]:
        name = metric_name(self.metric)
        alt = f"{name} of {', '.join(self.strategies)} by period, as in the table below"
        caption = (
            "Bands are 95% bootstrap intervals over users. Training time is shown from the second period on. "
            "A new user or item has no pair before the period."
        )
        rows = self._period_rows()
        explained = (
            "Not judged: pairs of items that nobody had before. New users and new items are shares of the "
            "period's pairs; newness is the share of new items in the catalogue at its end."
        )
        table = Table(list(rows[0]), [list(row.values()) for row in rows], explained)
        return [Text(self._conclusion(), strong=True), Figure(self._figure(), alt, caption), table]

    def _conclusion(self) -> str:
        """The means of the strategies over the periods after the first, in a sentence."""
        lines = self.summary()
        best = max(lines, key=lambda line: line.value)
        others = ", ".join(f"{line.strategy} {line.value:.4f}" for line in lines if line is not best)
        text = f"Over the periods after the first, {best.strategy} has the highest {metric_name(self.metric)}"
        return f"{text}, {best.value:.4f}" + (f" ({others})." if others else ".")

    def _strategy_blocks(self) -> list[Table | Text]:
        head, *rows = self._summary_rows("–")
        head[:2] = ["", metric_name(self.metric)]
        caption = (
            "The mean over the periods after the first, in which all trained strategies have the same model."
        )
        about = [Text(f"{name}: {STRATEGIES[name].about}.") for name in self.strategies]
        return [Table(head, rows, caption), *about]

    def _user_table(self) -> Table:
        rows = [
            [
                f"{cell.strategy}, period {cell.period}",
                f"{cell.value:.4f} [{cell.low:.4f}, {cell.high:.4f}]",
                f"{cell.known_users:,}",
                _shown(cell.known, ".4f", "–"),
                f"{cell.users - cell.known_users:,}",
                _shown(cell.new, ".4f", "–"),
                f"{cell.trained_users:,}",
                f"{cell.unknown_pairs:,}",
            ]
            for way in self.strategies
            for cell in self.of(way)
        ]
        head = ["", "all users", "known", "mean", "new", "mean", "trained", "items unknown"]
        caption = (
            "Known users have a pair before the period, new users have none. Trained: users with a pair that "
            "the model was trained on; the others get the most popular items. Items unknown: judged pairs "
            "whose item the model does not know, which count as misses."
        )
        return Table(head, rows, caption)


def _series(cells: list[Cell], name: str) -> Series:
    """A strategy's value by period, where there is one; the mean of all users has a band."""
    shown = [cell for cell in cells if getattr(cell, name) is not None]
    low, high = ("low", "high") if name == "value" else (name, name)
    y, below, above = ([getattr(cell, each) for cell in shown] for each in (name, low, high))
    return Series([cell.period for cell in shown], y, below, above, _COLOURS[cells[0].strategy])


def _known_mean(cells: list[Cell]) -> float | None:
    n = sum(cell.known_users for cell in cells)
    return sum(cell.known * cell.known_users for cell in cells if cell.known is not None) / n if n else None


def _shown(value: float | None, form: str, missing: str) -> str:
    """A number as text, or the text for a missing one."""
    return missing if value is None else format(value, form)


def _aligned(rows: list[list[str]]) -> str:
    """The first column to the left, all others to the right."""
    return text_table((column, place > 0) for place, column in enumerate(zip(*rows, strict=True)))
