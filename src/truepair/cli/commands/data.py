"""`truepair data`: the public datasets that truepair knows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from truepair.cli.console import Console, aligned
from truepair.cli.options import DataDir, unpacked
from truepair.cli.sources import place_of
from truepair.storage.types import Json

if TYPE_CHECKING:
    from pathlib import Path

    from truepair.data.datasets.dataset import Dataset

_HAS = ("ratings", "times", "order", "split", "titles", "truth")
DatasetName = Annotated[str, typer.Argument(metavar="NAME", help="A name from `truepair data list`.")]


@unpacked
def list_datasets(*, data_dir: DataDir = None, console: Console) -> None:
    """List the datasets, and which of them are on this machine.

    Example:
      truepair data list --data-dir ~/datasets
    """
    from truepair.data.datasets.loading import DATASETS

    rows = [_facts(dataset, data_dir) for dataset in DATASETS.values()]
    short = [
        {name: row[name] for name in ("name", "users", "items", "pairs")}
        | {"here": "yes" if row["folder"] else "no", "about": row["about"]}
        for row in rows
    ]
    console.give(aligned(short), rows)


@unpacked
def info(name: DatasetName, *, data_dir: DataDir = None, console: Console) -> None:
    """Show the size, files, terms and citation of a dataset.

    Example:
      truepair data info ml-100k
    """
    from truepair.data.datasets.loading import find_dataset

    dataset = find_dataset(name)
    facts = _facts(dataset, data_dir)
    has = ", ".join(what for what in _HAS if facts[f"has_{what}"])
    how = f"no; `truepair data fetch {name}` gets it"
    if not dataset.sources:
        how = f"no, and it cannot be downloaded; put the files into <data-dir>/{dataset.folder}/"
    lines = [
        f"{name}: {dataset.about}",
        f"size:   {dataset.users:,} users, {dataset.items:,} items, {dataset.pairs:,} interactions",
        f"has:    {has or 'interactions only'}",
        f"here:   {facts['folder'] or how}",
        f"files:  {', '.join(facts['files'])}",
        f"page:   {dataset.page}",
        f"terms:  {dataset.terms}",
        f"cite:   {dataset.cite}",
    ]
    console.give("\n".join(lines + ([f"to get: {dataset.by_hand}"] if dataset.by_hand else [])), facts)


@unpacked
def fetch(name: DatasetName, *, data_dir: DataDir = None, console: Console) -> None:
    """Download the files of a dataset.

    Files that are in the data directory or the cache are not downloaded again.

    Example:
      truepair data fetch ml-100k
    """
    from truepair.data.datasets.loading import fetch as get
    from truepair.data.datasets.loading import find_dataset

    dataset, folder = find_dataset(name), get(name, data_dir, progress=not console.quiet)
    console.say(f"terms: {dataset.terms}\ncite:  {dataset.cite}")
    facts = {"name": name, "folder": folder, "terms": dataset.terms, "cite": dataset.cite}
    console.give(str(folder), facts)


def _facts(dataset: Dataset, data_dir: Path | None) -> Json:
    folder = place_of(dataset, data_dir)
    plain = ("name", "about", "users", "items", "pairs", "page", "terms", "cite", "by_hand")
    names = [*plain, *(f"has_{what}" for what in _HAS)]
    return {name: getattr(dataset, name) for name in names} | {
        "files": [file.name for file in dataset.files],
        "folder": None if folder is None else str(folder),
    }
