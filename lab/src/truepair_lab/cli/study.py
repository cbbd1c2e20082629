"""What the commands of a study with a folder of lines share: options, the session's line, the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console

COMMAS = ", separated by commas. [default: all]"
Lines = Annotated[Path, typer.Option(help="The folder of the results, as files of JSON lines.")]
Part = Annotated[
    bool, typer.Option("--part", hidden=True, help="One of several processes: no comparisons, no session.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The page to write, as Markdown.")]
Figures = Annotated[
    Path | None, typer.Option(help="The folder for the figures. [default: `figures` beside the page]")
]


def _count(lines: Path) -> int:
    from truepair_lab.paper.running.steps import count_lines

    return count_lines(lines)


@dataclass
class Work:
    """The work of one command: how many lines it adds to a folder, and how long it takes."""

    study: str
    lines: Path
    began: float = field(default_factory=time.perf_counter)
    before: int = field(init=False)

    def __post_init__(self) -> None:
        self.before = _count(self.lines)

    def finish(self, words: Sequence[str], console: Console) -> None:
        """Store a line on the work done and its time, and show it; `words` are the step and its options."""
        from truepair_lab.paper.running.steps import keep_session

        made, seconds = _count(self.lines) - self.before, time.perf_counter() - self.began
        keep_session(self.lines, " ".join([self.study, *words]), made, self.began)
        text = f"{made} new lines in {seconds:.0f} s, kept in {self.lines}; "
        text += f"`truepair-lab {self.study} report` shows them"
        console.done(text, {"made": made, "seconds": seconds, "lines": str(self.lines)})


def write_page(lines: Path, rebuild: Callable[[], Path], console: Console) -> None:
    """Rebuild the page of a folder of lines, and say which lines could not be read."""
    from truepair_lab.lines import read_lines

    for text in read_lines(lines).broken:
        console.say(f"left out: {text}")
    page = rebuild()
    console.done(str(page), {"page": str(page)})
