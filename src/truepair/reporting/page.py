"""Pages: sections of text, tables and figures -> one self-contained HTML file.

The template `page.html` escapes all text. A page has no scripts and loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from truepair.storage.atomic import atomic_write
from truepair.storage.templates import rendered


@dataclass(frozen=True)
class Text:
    """A paragraph; `strong` is for the main result."""

    text: str
    strong: bool = False
    kind: ClassVar = "text"


@dataclass(frozen=True)
class Table:
    """A head (hidden if empty) and rows of cells; `numbers` right-aligns all columns but the first."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    numbers: bool = True
    kind: ClassVar = "table"


@dataclass(frozen=True)
class Items:
    """A list with a heading; the entries in `marked` are highlighted with the text `mark`."""

    heading: str
    entries: Sequence[str]
    marked: frozenset[int] = frozenset()
    mark: str = ""
    note: str = ""
    ordered: bool = True
    kind: ClassVar = "items"


@dataclass(frozen=True)
class Figure:
    """A trusted SVG (it is not escaped), a description of it for screen readers, and a caption."""

    svg: str
    alt: str
    caption: str = ""
    kind: ClassVar = "figure"


@dataclass(frozen=True)
class Columns:
    """Blocks side by side, or below each other on a narrow screen."""

    blocks: Sequence[Text | Items]
    kind: ClassVar = "columns"


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    heading: str
    blocks: Sequence[Text | Table | Items | Figure | Columns]


@dataclass(frozen=True)
class Page:
    """A title, a lead sentence, and sections."""

    title: str
    lead: str
    sections: Sequence[Section]

    def html(self) -> str:
        """The whole document."""
        return rendered("truepair.reporting", "page.html", page=self)

    def write(self, path: Path) -> Path:
        """Write the document, whole or not at all."""
        return write_text(path, self.html())


def metric_name(metric: str) -> str:
    """`ndcg@20` as NDCG@20."""
    name, _, k = metric.partition("@")
    label = {"ndcg": "NDCG", "mrr": "MRR", "map": "MAP", "hit": "Hit rate"}.get(name, name.capitalize())
    return f"{label}@{k}"


def text_table(columns: Iterable[tuple[Sequence[str], bool]]) -> str:
    """Columns of cells as lines of text; each column says whether it is aligned to the right."""
    padded = []
    for cells, right in columns:
        width = max(map(len, cells))
        padded.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*padded, strict=True))


def write_text(path: Path, text: str) -> Path:
    """Write a page or a figure, whole or not at all."""
    with atomic_write(path, "the report") as file:
        file.write(text.encode())
    return path
