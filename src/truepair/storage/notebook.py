"""html_table: what a notebook shows of a value, for `_repr_html_`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """A title and a table as HTML, escaped; floats with four digits, whole numbers with separators.

    >>> html_table("Split", [["train", 1234]])
    '<p>Split</p><table><tbody><tr><th>train</th><td>1,234</td></tr></tbody></table>'
    """
    titles = "".join(f"<th>{_shown(name)}</th>" for name in head)
    body = ""
    for name, *values in rows:
        cells = "".join(f"<td>{_shown(value)}</td>" for value in values)
        body += f"<tr><th>{_shown(name)}</th>{cells}</tr>"
    titles = f"<thead><tr>{titles}</tr></thead>" if titles else ""
    return f"<p>{escape(title)}</p><table>{titles}<tbody>{body}</tbody></table>"


def _shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return escape(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
