"""What notebooks show: values as HTML, tables of Arrow too, and progress bars that need no widgets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:  # it is loaded when the first bar is shown
    from rich.progress import Progress, ProgressColumn

_ROWS = 20  # of a table of Arrow


def html_table(
    title: str, rows: Iterable[Sequence[object]], head: Sequence[object] = (), notes: Iterable[str] = ()
) -> str:
    """A title, a table and notes as HTML, escaped; floats with four digits, whole numbers with separators.

    >>> html_table("Split", [["train", 1234]])
    '<p>Split</p><table><tbody><tr><th>train</th><td>1,234</td></tr></tbody></table>'
    """
    titles = "".join(f"<th>{_shown(name)}</th>" for name in head)
    body = ""
    for name, *values in rows:
        cells = "".join(f"<td>{_shown(value)}</td>" for value in values)
        body += f"<tr><th>{_shown(name)}</th>{cells}</tr>"
    titles = f"<thead><tr>{titles}</tr></thead>" if titles else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<p>{escape(title)}</p><table>{titles}<tbody>{body}</tbody></table>{below}"


def _shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return escape(f"{value!s:.100}")
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def show_arrow_tables() -> None:
    """In a notebook, show tables of Arrow as HTML from now on, unless they are shown in another way."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and pa.Table not in (html := shell.display_formatter.formatters["text/html"]):
        html.for_type(pa.Table, _arrow_html)


def _arrow_html(table: pa.Table) -> str:
    shown = table.slice(0, _ROWS)
    rows = zip(range(len(shown)), *(column.to_pylist() for column in shown.columns), strict=True)
    return html_table(f"{len(table):,} rows", rows, ["", *table.column_names])


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on stderr. In a notebook it is a line of text that overwrites itself; rich alone needs ipywidgets
    there. Its lines have one width, since notebooks do not erase what is behind a shorter one."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_jupyter:
        return Progress(*columns, console=console)
    plain = Console(
        stderr=True,
        force_jupyter=False,
        force_terminal=True,
        legacy_windows=False,
        color_system=None,
        width=100,
    )
    return Progress(*columns, console=plain, expand=True, refresh_per_second=2)
