"""Backtest: results by period and strategy, as text, JSON, a figure and a page."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.backtesting.cells import PeriodResults
from truepair.reporting.backtesting.report import backtest_page, figure
from truepair.reporting.figures import standalone
from truepair.reporting.page import write_text
from truepair.storage.types import Json


class Backtest(PeriodResults):
    """Quality over time: `table()`, `summary()`, `to_json()`, `plot("figure.svg")`, `page("report.html")`."""

    def table(self) -> str:
        """A row a period: when, how many users are judged, what is new, and the mean of each strategy."""
        head = ["", "from", "users", "new people", "new items", *self.strategies]
        rows = [head]
        for period in self.periods:
            cells = [cell for cell in self.cells if cell.period == period.number]
            shares = [f"{share:.0%}" for share in (period.new_user_share, period.new_item_share)]
            values = [f"{cell.value:.4f}" for cell in cells]
            rows.append([str(period.number), period.date, f"{period.users:,}", *shares, *values])
        return "\n".join([_aligned(rows), "", _aligned(self.summary_rows("")), "", *self.notes()])

    def to_dict(self) -> Json:
        """Everything, as plain JSON values."""
        shares = ("new_user_share", "new_item_share", "newness")
        return {
            "metric": self.metric,
            "periods": [
                asdict(period) | {name: getattr(period, name) for name in shares} for period in self.periods
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
        write_text(path, standalone(figure(self)))

    def page(self, path: str | Path, title: str = "Backtest") -> None:
        """Write a report with figures and tables to an .html file."""
        backtest_page(self, title).write(Path(path))

    def __repr__(self) -> str:
        means = ", ".join(f"{line.strategy} {line.value:.4f}" for line in self.summary())
        return f"<Backtest: {len(self.periods)} periods, {self.metric} after the first: {means}>"


def _aligned(rows: list[list[str]]) -> str:
    """The first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<", *">" * (len(widths) - 1)]
    return "\n".join(
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in rows
    )
