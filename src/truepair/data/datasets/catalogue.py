"""Catalogue: public datasets by name -> Interactions, Split, titles, Truth.

Each is looked for in a local data directory, then in the cache, then downloaded; see `fetch`.
"""

from __future__ import annotations

from pathlib import Path

from truepair.data.datasets.dataset import DataFile, Dataset
from truepair.data.datasets.fetching import cache_dir, fetch, locate
from truepair.data.datasets.parsers import Titles, Truth, paper_split_titles_of
from truepair.data.datasets.registry import DATASETS, find_dataset
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError

__all__ = [
    "DATASETS",
    "DataFile",
    "Dataset",
    "Titles",
    "Truth",
    "cache_dir",
    "fetch",
    "find_dataset",
    "load",
    "load_split",
    "load_titles",
    "load_truth",
    "locate",
]


def load(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Interactions:
    """All pairs of a dataset, with ratings and times where it has them; of a given split, both parts.

    Ratings are kept, low ones too: `Interactions.with_min_rating` leaves those out. Of yahoo-r3 these are
    the pairs of users 1 to 5,400, who are in both files.
    """
    return find_dataset(name).read(fetch(name, data_dir, progress))


def load_split(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Split:
    """The train and test part that a dataset was published with."""
    read = find_dataset(name).read_split
    if read is None:
        raise _lacking(name, "given split", "has_split", "Split what `load` gives with a recipe.")
    return read(fetch(name, data_dir, progress))


def load_titles(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Titles:
    """Item id -> title, also for items that nobody rated."""
    read = find_dataset(name).read_titles
    if read is None:
        raise _lacking(name, "titles", "has_titles", "Its items are known by their ids only.")
    folder = fetch(name, data_dir, progress)
    if name == "ml-100k-paper-split" and not (folder / "item_map.csv").is_file():
        # the authors published no titles; they numbered the items of MovieLens anew
        return paper_split_titles_of(fetch("ml-100k", data_dir, progress))
    return read(folder)


def load_truth(
    name: str, data_dir: str | Path | None = None, progress: bool = False, threshold: float | None = None
) -> Truth:
    """The block of users and items whose labels are all known.

    Where there are ratings (jester5k), those above `threshold`, 0 if it is not given, are the positives.
    """
    read = find_dataset(name).read_truth
    if read is None:
        raise _lacking(name, "complete labels", "has_truth", "What nobody rated is unlabelled there.")
    return read(fetch(name, data_dir, progress), threshold)


def _lacking(name: str, what: str, has: str, remedy: str) -> InputError:
    those = ", ".join(repr(dataset.name) for dataset in DATASETS.values() if getattr(dataset, has))
    return InputError(f"dataset = {name!r} has no {what}; those that have: {those}. {remedy}")
