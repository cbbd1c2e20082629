"""Answers: what a finished study says, written by hand; tests check its numbers against the lines.

An answer is for the very lines that it was written for. A page of other lines has its tables, and says that
they have no written answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

OTHER_LINES = "These are not the lines of the finished study: the tables stand without a written answer."


@dataclass(frozen=True)
class Answer:
    """The text, and the checksum of the lines it is about."""

    checksum: str
    text: str
    title: str = "Answer"

    def of(self, *lines: Iterable[object]) -> str:
        """The section of a page with these lines."""
        return f"## {self.title}\n\n{self.text if checksum(*lines) == self.checksum else OTHER_LINES}"


def checksum(*lines: Iterable[object]) -> str:
    """Of lines in any order."""
    text = "\n".join(sorted(repr(line) for part in lines for line in part))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
