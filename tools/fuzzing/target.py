"""A target: something that reads input, and the inputs that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True)
class Target:
    """What is attacked.

    run      reads an input, given as bytes, in a folder of its own. It may raise errors of truepair; any
             other exception is a finding.
    seeds    sound inputs whose bytes are changed; called once before the first input, so what all inputs
             need (trained models) is made there.
    cases    structured inputs, as plain values; `run` gets them as JSON. None: bytes are changed.
    share    how many of 1,000 inputs are for this target.
    """

    name: str
    run: Callable[[bytes, Path], object]
    seeds: Callable[[Path], list[bytes]]
    share: int
    cases: Callable[[], SearchStrategy[Any]] | None = None
