"""Dataset: what is known about a public dataset, where it comes from and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from truepair.data.datasets.parsers import Titles, Truth
from truepair.data.interactions import Interactions
from truepair.data.split import Split


@dataclass(frozen=True)
class DataFile:
    """A raw file of a dataset; the SHA-256 is None where no copy that we could check has it."""

    name: str
    sha256: str | None = None
    optional: bool = False
    """Whether the interactions can be had without it."""
    instead_of: str | None = None
    """The file whose place it can take."""


@dataclass(frozen=True)
class Archive:
    """Files in one folder of a zip archive."""

    url: str
    sha256: str | None
    folder: str
    files: tuple[str, ...]

    def origin(self, file: str) -> str:
        """Where a person finds this file."""
        return f"{self.folder}/{file} in {self.url}"


@dataclass(frozen=True)
class Addresses:
    """Files that have an address each, below one folder."""

    url: str
    files: tuple[str, ...]

    def origin(self, file: str) -> str:
        """Where a person finds this file."""
        return self.url + file


@dataclass(frozen=True)
class Wheel:
    """Files in a Python package, for machines that reach a package index only.

    `table` is RecBole's copy of the file `becomes`: the same lines below a header.
    """

    requirement: str
    folder: str
    table: str
    table_sha256: str
    becomes: str
    files: tuple[str, ...]

    @property
    def url(self) -> str:
        """What stands in for an address."""
        return f"pip download {self.requirement}"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What is known about a public dataset, and how to get and read it."""

    name: str
    about: str
    users: int
    items: int
    pairs: int
    files: tuple[DataFile, ...]
    page: str
    """The official address, for people."""
    sources: tuple[Archive | Addresses | Wheel, ...] = ()
    """Where a program gets the files, best first; empty if it cannot."""
    by_hand: str = ""
    """How a person gets the files, where a program cannot."""
    terms: str
    cite: str
    read: Callable[[Path], Interactions]
    read_split: Callable[[Path], Split] | None = None
    read_titles: Callable[[Path], Titles] | None = None
    read_truth: Callable[[Path, float | None], Truth] | None = None
    has_ratings: bool = True
    has_times: bool = False

    @property
    def has_split(self) -> bool:
        """Whether it comes with a train and a test part."""
        return self.read_split is not None

    @property
    def has_titles(self) -> bool:
        """Whether its items have names."""
        return self.read_titles is not None

    @property
    def has_truth(self) -> bool:
        """Whether there is a block of users and items whose labels are all known."""
        return self.read_truth is not None

    def file(self, name: str) -> DataFile:
        """The file of this name."""
        return next(file for file in self.files if file.name == name)

    def missing(self, folder: Path) -> list[DataFile]:
        """The files that the folder would need, itself or in another's place, to be read."""
        there = {file.instead_of or file.name for file in self.files if (folder / file.name).is_file()}
        return [f for f in self.files if not (f.optional or f.instead_of or f.name in there)]
