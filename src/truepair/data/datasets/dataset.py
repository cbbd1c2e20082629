"""Dataset: the description of a public dataset, its sources and its parsers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from truepair.data.datasets.parsers import Titles
from truepair.data.interactions import Interactions
from truepair.data.split import Split


@dataclass(frozen=True)
class DataFile:
    """A raw file of a dataset; `sha256` is None if no copy was available to compute it."""

    name: str
    sha256: str | None = None
    optional: bool = False
    """Whether the interactions can be read without it."""
    instead_of: str | None = None
    """The file that it can replace."""


@dataclass(frozen=True)
class Archive:
    """Files in one folder of a zip archive."""

    url: str
    sha256: str | None
    folder: str
    files: tuple[str, ...]

    def origin(self, file: str) -> str:
        """The location of this file, for messages."""
        return f"{self.folder}/{file} in {self.url}"


@dataclass(frozen=True)
class Addresses:
    """Files at addresses of their own: below one URL that ends in "/", else one file at that URL."""

    url: str
    files: tuple[str, ...]

    def origin(self, file: str) -> str:
        """The address of this file."""
        return self.url + file if self.url.endswith("/") else self.url


@dataclass(frozen=True)
class Wheel:
    """Files in a Python package, for machines that can reach only a package index.

    `table` is RecBole's copy of the file `becomes`: the same lines, below a header.
    """

    requirement: str
    folder: str
    table: str
    table_sha256: str
    becomes: str
    files: tuple[str, ...]

    @property
    def url(self) -> str:
        """The command that fetches the package, in place of an address."""
        return f"pip download {self.requirement}"


class Size(NamedTuple):
    """How many users, items and distinct interactions there are."""

    users: int
    items: int
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A public dataset: its size, files, sources, terms and parsers."""

    name: str
    about: str
    size: Size
    files: tuple[DataFile, ...]
    page: str
    """The official page."""
    sources: tuple[Archive | Addresses | Wheel, ...] = ()
    """Where the files can be downloaded, best source first; empty if they cannot."""
    by_hand: str = ""
    """How to get the files by hand, if they cannot be downloaded."""
    terms: str
    cite: str
    read: Callable[[Path], Interactions]
    read_split: Callable[[Path], Split] | None = None
    read_titles: Callable[[Path], Titles] | None = None
    columns: tuple[str, ...] = ("ratings",)
    """Ratings, times, an order of each user's interactions, or truth: a block whose labels are all known."""
    shared_folder: str = ""
    """The folder of the files, if it is not that of the dataset's name."""

    @property
    def folder(self) -> str:
        """The folder of the files in a local data directory and in the cache."""
        return self.shared_folder or self.name

    def has(self, what: str) -> bool:
        """Whether it has something of `columns`, a published split, or titles."""
        return what in self.columns or getattr(self, f"read_{what}", None) is not None

    def file(self, name: str) -> DataFile:
        """The file of this name."""
        return next(file for file in self.files if file.name == name)

    def missing(self, folder: Path) -> list[DataFile]:
        """The required files that the folder lacks; a file or its replacement counts as present."""
        present = {file.instead_of or file.name for file in self.files if (folder / file.name).is_file()}
        return [f for f in self.files if not (f.optional or f.instead_of or f.name in present)]
