"""Catalogue: public datasets by name -> Interactions, Split, titles, Truth.

A dataset is read from a local data directory, else from the cache, else downloaded; see `fetch`.
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
    """All interactions of a dataset, with ratings and times if it has them. Published parts are merged.

    All ratings are kept; `Interactions.with_min_rating` removes low ones. For yahoo-r3 these are the pairs
    of users 1 to 5,400, who are in both files.
    """
    return find_dataset(name).read(fetch(name, data_dir, progress))


def load_split(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Split:
    """The train and test parts as published with the dataset."""
    read = find_dataset(name).read_split
    if read is None:
        raise _missing_part(
            name,
            "published split",
            "has_split",
            "Split the interactions with one of the `split_…` functions.",
        )
    return read(fetch(name, data_dir, progress))


def load_titles(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Titles:
    """Item id -> title, including items without a rating."""
    read = find_dataset(name).read_titles
    if read is None:
        raise _missing_part(name, "titles", "has_titles", "Use the item ids.")
    folder = fetch(name, data_dir, progress)
    if name == "ml-100k-paper-split" and not (folder / "item_map.csv").is_file():
        # the authors published no titles, and renumbered the items of MovieLens
        return paper_split_titles_of(fetch("ml-100k", data_dir, progress))
    return read(folder)


def load_truth(
    name: str, data_dir: str | Path | None = None, progress: bool = False, threshold: float | None = None
) -> Truth:
    """The block of users and items in which every label is known.

    In a dataset with ratings (jester5k), those above `threshold` (default 0) are the positives.
    """
    read = find_dataset(name).read_truth
    if read is None:
        raise _missing_part(name, "complete labels", "has_truth", "Its unrated pairs are unlabelled.")
    return read(fetch(name, data_dir, progress), threshold)


def _missing_part(name: str, what: str, has: str, remedy: str) -> InputError:
    names = ", ".join(repr(dataset.name) for dataset in DATASETS.values() if getattr(dataset, has))
    return InputError(f"dataset = {name!r} has no {what}; available for: {names}. {remedy}")
