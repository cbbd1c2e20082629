"""Console: remarks for people on stderr, results on stdout as text or JSON."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer


@dataclass(frozen=True)
class Console:
    """Where a command writes; its fields are options of every command."""

    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no progress and no remarks, only errors.")
    ] = False
    json: Annotated[bool, typer.Option("--json", help="Print the result to stdout as JSON.")] = False

    def say(self, text: str) -> None:
        """Print a remark to stderr."""
        if not self.quiet:
            typer.echo(text, err=True)

    def give(self, text: str, data: Any) -> None:
        """Print the result to stdout: the text, or with --json the data."""
        typer.echo(json_text.dumps(data, ensure_ascii=False, indent=2, default=str) if self.json else text)

    def done(self, text: str, data: Any) -> None:
        """`give`, for a command whose result is a file: --quiet suppresses the text."""
        if self.json or not self.quiet:
            self.give(text, data)


def aligned(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as a text table; numbers are aligned to the right.

    >>> print(aligned([{"item": "tea", "score": 0.5}, {"item": "jam", "score": 12.25}]))
    item    score
    tea    0.5000
    jam   12.2500
    """
    if not rows:
        return ""
    columns = [_column(name, [row[name] for row in rows]) for name in rows[0]]
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def _column(name: str, values: list[Any]) -> list[str]:
    cells = [name, *(f"{value:.4f}" if isinstance(value, float) else str(value) for value in values)]
    width = max(map(len, cells))
    right = all(isinstance(value, int | float) for value in values)
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]
