"""Markdown: tables and folded blocks; how the pages write numbers; CSV files of what a page leaves out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from truepair.reporting.page import metric_name as metric_name  # one name for a metric, on every page


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = False) -> str:
    """A table; a vertical bar in a cell is escaped. With `numbers`, all but the first column align right."""
    rule = ["---", *(["---:" if numbers else "---"] * (len(head) - 1))]
    lines = [list(head), rule, *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV: numbers with six digits, nothing for None.

    >>> csv_text(["a", "b"], [[0.12345678, None]])
    'a,b\\n0.123457,\\n'
    """
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
    return sink.getvalue()


def details(summary: str, body: str) -> str:
    """A block that opens on a click."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def joined(*parts: str) -> str:
    """Paragraphs; empty ones are left out."""
    return "\n\n".join(part for part in parts if part)


def unread(broken: Sequence[str]) -> str:
    """The last paragraph of a page: which lines could not be read, if any."""
    return f"Lines that could not be read: {'; '.join(broken)}." if broken else ""


def short(value: float, digits: int = 4) -> str:
    """A figure without its leading zero, and without a minus before a zero.

    >>> short(0.43382), short(-0.012), short(1.5), short(-0.00001)
    ('.4338', '-.0120', '1.5000', '.0000')
    """
    text = f"{value:.{digits}f}"
    text = text.lstrip("-") if float(text) == 0 else text
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed(value: float, digits: int = 4) -> str:
    """A difference, always with its sign."""
    text = short(value, digits)
    return text if text.startswith("-") else f"+{text}"


def share(value: float) -> str:
    """A share with three significant digits; below a millionth it is 0.

    >>> share(0.10042), share(0.00000005), share(0.6)
    ('.1', '0', '.6')
    """
    return "0" if value < 1e-6 else f"{value:.3g}".replace("0.", ".", 1) if value < 1 else f"{value:.3g}"


def percent(value: float) -> str:
    """`4%`."""
    return f"{value:.0%}"


def plain(value: object) -> str:
    """A parameter, with three digits where it is no whole number.

    >>> plain(0.00123456), plain(32), plain(None)
    ('0.00123', '32', 'none')
    """
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as a person would say it.

    >>> duration(8.25), duration(600), duration(9000)
    ('8.2 s', '10.0 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
