"""A report for people: one line a figure."""

from __future__ import annotations

import io
from typing import Any

from truepair_lab.benchmarks.running import Report, rows_of

_COLUMNS = ("benchmark", "what", "truepair", "peer", "its figure", "ratio", "bar", "")


def table(report: Report, width: int = 160) -> str:
    """The report as a text table, what was left out below it."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(*_COLUMNS, box=None, pad_edge=False)
    for name, row in rows_of(report):
        shown.add_row(*(cell.replace("[", r"\[") for cell in _cells(name, row)))
    sink = io.StringIO()
    console = Console(file=sink, width=width)
    if shown.row_count:
        console.print(shown)
    skipped = [f"left out: {text}" for facts in report["benchmarks"].values() for text in facts["skipped"]]
    lines = [line.rstrip() for line in sink.getvalue().splitlines()]
    return "\n".join([*lines, *dict.fromkeys(skipped)])


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    figures = [f"{number(row[which])} {row['unit']}".strip() for which in ("value", "peer_value")]
    what = f"{row['what']} ({row['note']})" if row["note"] else row["what"]
    bar = "" if row["bar"] is None else f"{'≥' if row['at_least'] else '≤'} {number(row['bar'])}"
    verdict = {None: "", True: "pass", False: "miss"}[row["passed"]]
    peer_value = "" if row["peer_value"] is None else figures[1]
    return [name, what, figures[0], row["peer"] or "", peer_value, number(row["ratio"]), bar, verdict]


def number(value: float | None) -> str:
    """Three digits, or nothing for nothing.

    >>> number(0.12345), number(1234.5), number(None)
    ('0.123', '1,234', '')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
