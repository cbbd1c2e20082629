"""Pages: sections of text, tables and figures -> one self-contained HTML file.

All text is escaped. A page has no scripts and loads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Protocol

from truepair.errors import InputError
from truepair.storage.atomic import atomic_write


class Block(Protocol):
    """An element of a section."""

    def html(self) -> str:
        """The element as HTML, with all text escaped."""


@dataclass(frozen=True)
class Text:
    """A paragraph; `strong` is for the main result."""

    text: str
    strong: bool = False

    def html(self) -> str:
        """A paragraph."""
        kind = ' class="strong"' if self.strong else ""
        return f"<p{kind}>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Table:
    """A head (hidden if empty) and rows of cells; `numbers` right-aligns all columns but the first."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    numbers: bool = True

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise InputError(f"a row has {len(row)} cells, but the head has {len(self.head)}: {row}")

    def html(self) -> str:
        """A table that scrolls horizontally on a narrow screen."""
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in self.head)
        head = f"<thead><tr>{cells}</tr></thead>" if any(self.head) else ""
        body = "".join(f"<tr>{self._row(row)}</tr>" for row in self.rows)
        kind = "numbers" if self.numbers else "words"
        table = f"{caption}{head}<tbody>{body}</tbody>"
        return f'<div class="scroll"><table class="{kind}">{table}</table></div>'

    @staticmethod
    def _row(cells: Sequence[object]) -> str:
        first, *others = (escape(str(cell)) for cell in cells)
        return f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others)


@dataclass(frozen=True)
class Items:
    """A list with a heading; the entries in `marked` are highlighted with the text `mark`."""

    heading: str
    entries: Sequence[str]
    marked: frozenset[int] = frozenset()
    mark: str = ""
    note: str = ""
    ordered: bool = True

    def html(self) -> str:
        """A list."""
        tag = "ol" if self.ordered else "ul"
        entries = "".join(f"<li>{self._entry(at)}</li>" for at in range(len(self.entries)))
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f"<div><h3>{escape(self.heading)}</h3>{note}<{tag}>{entries}</{tag}></div>"

    def _entry(self, at: int) -> str:
        text = escape(self.entries[at])
        return f"{text} <mark>{escape(self.mark)}</mark>" if at in self.marked else text


@dataclass(frozen=True)
class Columns:
    """Blocks side by side, or below each other on a narrow screen."""

    blocks: Sequence[Block]

    def html(self) -> str:
        """A grid."""
        return f'<div class="columns">{"".join(block.html() for block in self.blocks)}</div>'


@dataclass(frozen=True)
class Figure:
    """A trusted SVG (it is not escaped), a description of it, and a caption."""

    svg: str
    alt: str
    caption: str = ""

    def html(self) -> str:
        """A figure with `alt` for screen readers."""
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        picture = f'<div class="scroll" role="img" aria-label="{escape(self.alt)}">{self.svg}</div>'
        return f"<figure>{picture}{caption}</figure>"


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    heading: str
    blocks: Sequence[Block]

    def html(self) -> str:
        """A section."""
        return f"<section><h2>{escape(self.heading)}</h2>{''.join(b.html() for b in self.blocks)}</section>"


@dataclass(frozen=True)
class Page:
    """A title, a lead sentence, and sections."""

    title: str
    lead: str
    sections: Sequence[Section]

    def html(self) -> str:
        """The whole document."""
        body = "".join(section.html() for section in self.sections)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style></head>"
            f'<body><main><h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p>{body}'
            "</main></body></html>\n"
        )

    def write(self, path: Path) -> Path:
        """Write the document, whole or not at all."""
        return write_text(path, self.html())


def metric_name(metric: str) -> str:
    """`ndcg@20` as NDCG@20."""
    name, _, k = metric.partition("@")
    label = {"ndcg": "NDCG", "mrr": "MRR", "map": "MAP", "hit": "Hit rate"}.get(name, name.capitalize())
    return f"{label}@{k}"


def write_text(path: Path, text: str) -> Path:
    """Write a page or a figure, whole or not at all."""
    with atomic_write(path, "the report") as file:
        file.write(text.encode())
    return path


_STYLE = """
:root { --ink: #1c2126; --soft: #59636e; --line: #d5dae0; --paper: #ffffff; --wash: #f4f6f8;
  --series-1: #c2571a; --series-2: #0f6e8c; --series-3: #5b7f2b; --series-4: #7a4fa3; --series-5: #7d6b52;
  --hit: #dff0d8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b1; --line: #3a424b;
  --paper: #15191e; --wash: #1d2329; --series-1: #f0935a; --series-2: #56b7d6; --series-3: #a3c96b;
  --series-4: #c3a1e6; --series-5: #c9b799; --hit: #2c4a2c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .75rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 .25rem; }
p { max-width: 44rem; margin: .5rem 0; white-space: pre-line; overflow-wrap: anywhere; }
.lead { font-size: 1.15rem; color: var(--soft); }
.strong { font-weight: 600; }
.note, caption, figcaption { color: var(--soft); font-size: .9rem; text-align: left; }
caption { caption-side: bottom; padding-top: .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .75rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem 1.25rem .35rem 0; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
thead th { border-bottom: 2px solid var(--line); font-weight: 600; }
tbody th { font-weight: 500; white-space: nowrap; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
table.numbers th + th, table.numbers td { text-align: right; white-space: nowrap; }
figure { margin: 1rem 0; }
figure svg { display: block; width: 100%; min-width: 30rem; height: auto; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 1.25rem; }
.columns > div { background: var(--wash); border-radius: .5rem; padding: 1rem 1.1rem; }
ol, ul { margin: .5rem 0 0; padding-left: 1.6rem; }
li { margin: .2rem 0; overflow-wrap: anywhere; }
mark { background: var(--hit); color: inherit; border-radius: .25rem; padding: .05rem .4rem;
  font-size: .82rem; white-space: nowrap; }
"""
