"""`truepair data`, `prepare`, `doctor` and `demo`: datasets, prepared folders, this machine, a comparison."""

from __future__ import annotations

import importlib.util
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import truepair as tp
from truepair.cli.console import Console, aligned
from truepair.cli.options import DataDir, Seed, SourceText, option, refuse
from truepair.cli.sources import Reading, data_places, described, find_source, place_of
from truepair.data.sources.sql_urls import check_no_url, without_password
from truepair.errors import InputError
from truepair.storage.types import Json
from truepair.storage.versions import package_version

if TYPE_CHECKING:
    from truepair.data.datasets.dataset import Dataset


_DEMO = Path("truepair-demo.html")
_HAS = ("ratings", "times", "order", "split", "titles", "truth")
DatasetName = Annotated[str, typer.Argument(metavar="NAME", help="A name from `truepair data list`.")]


def list_datasets(*, data_dir: DataDir = None, console: Console) -> None:
    """List the datasets, and which of them are on this machine.

    Example:
      truepair data list --data-dir ~/datasets
    """
    from truepair.data.datasets.registry import DATASETS

    rows = [_facts(dataset, data_dir) for dataset in DATASETS.values()]
    short = [
        {name: row[name] for name in ("name", "users", "items", "pairs")}
        | {"here": "yes" if row["folder"] else "no", "about": row["about"]}
        for row in rows
    ]
    console.give(aligned(short), rows)


def info(name: DatasetName, *, data_dir: DataDir = None, console: Console) -> None:
    """Show the size, files, terms and citation of a dataset.

    Example:
      truepair data info ml-100k
    """
    from truepair.data.datasets.registry import find_dataset

    dataset = find_dataset(name)
    size, facts = dataset.size, _facts(dataset, data_dir)
    has = ", ".join(what for what in _HAS if facts[f"has_{what}"])
    how = f"no; `truepair data fetch {name}` gets it"
    if not dataset.sources:
        how = f"no, and it cannot be downloaded; put the files into <data-dir>/{dataset.folder}/"
    lines = [
        f"{name}: {dataset.about}",
        f"size:   {size.users:,} users, {size.items:,} items, {size.pairs:,} interactions",
        f"has:    {has or 'interactions only'}",
        f"here:   {facts['folder'] or how}",
        f"files:  {', '.join(facts['files'])}",
        f"page:   {dataset.page}",
        f"terms:  {dataset.terms}",
        f"cite:   {dataset.cite}",
    ]
    console.give("\n".join(lines + ([f"to get: {dataset.by_hand}"] if dataset.by_hand else [])), facts)


def fetch(name: DatasetName, *, data_dir: DataDir = None, console: Console) -> None:
    """Download the files of a dataset.

    Files that are in the data directory or the cache are not downloaded again.

    Example:
      truepair data fetch ml-100k
    """
    from truepair.data.datasets.loading import fetch as get
    from truepair.data.datasets.registry import find_dataset

    dataset, folder = find_dataset(name), get(name, data_dir, progress=not console.quiet)
    console.say(f"terms: {dataset.terms}\ncite:  {dataset.cite}")
    facts = {"name": name, "folder": folder, "terms": dataset.terms, "cite": dataset.cite}
    console.give(str(folder), facts)


def _facts(dataset: Dataset, data_dir: Path | None) -> Json:
    folder = place_of(dataset, data_dir)
    return {
        "name": dataset.name,
        "about": dataset.about,
        **dataset.size._asdict(),
        **{name: getattr(dataset, name) for name in ("page", "terms", "cite", "by_hand")},
        **{f"has_{what}": dataset.has(what) for what in _HAS},
        "files": [file.name for file in dataset.files],
        "folder": None if folder is None else str(folder),
    }


_PACKAGES = "truepair numpy scipy torch numba triton pyarrow safetensors typer pooch rich"
_EXTRAS = {
    "plots": ("matplotlib",),
    "tune": ("optuna",),
    "sql": ("adbc_driver_postgresql", "adbc_driver_sqlite", "duckdb"),
    "serve": ("fastapi", "uvicorn"),
    "bench": ("implicit", "cornac"),
    "tables": ("pandas", "polars"),
}


def doctor(*, data_dir: DataDir = None, console: Console) -> None:
    """Show versions, hardware, datasets, extras and the engine.

    Example:
      truepair doctor --json
    """
    versions = {"python": platform.python_version()} | {
        name: package_version(name) for name in _PACKAGES.split()
    }
    extras = {
        f"extra {name}": {package: importlib.util.find_spec(package) is not None for package in packages}
        for name, packages in _EXTRAS.items()
    }
    found = {"versions": versions, "machine": _machine(), "data": _data(data_dir), "extras": extras}
    lines = [f"{name}: {_line(value)}" for part in found.values() for name, value in part.items()]
    console.give("\n".join(lines), found)


def _machine() -> Json:
    import torch

    from truepair.training import ENGINES, Settings

    devices = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    return {
        "system": platform.platform(),
        "cpu threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
        "cuda devices": devices or None,
        "engines": list(ENGINES),
        "will train with": f"engine 'full' on {Settings().torch_device()}",  # by default
    }


def _data(data_dir: Path | None) -> Json:
    from truepair.data.datasets.registry import DATASETS

    there = {
        f"data in {source}": str(folder) if folder.is_dir() else f"{folder} (not there)"
        for source, folder in data_places(data_dir)
    }
    here = [name for name, dataset in DATASETS.items() if place_of(dataset, data_dir) is not None]
    not_here = [name for name in DATASETS if name not in here]
    return {**there, "datasets here": here or None, "datasets not here": not_here or None}


def _line(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {'found' if there else 'not installed'}" for name, there in value.items())
    if isinstance(value, list):
        return ", ".join(value)
    return "none" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Options of `prepare` alone."""

    output: Path | None = option("The folder to make. It must not exist.", "--output", "-o")
    memory: str = option("About how much memory may be used: 4GB, 800MB.", default="4GB", metavar="SIZE")
    temp: Path | None = option("A folder for what does not fit into memory. [default: beside --output]")
    test: float | None = option("Hold out a random share as the test part.", metavar="SHARE")
    valid: float = option("Hold out a random share of the rest for validation.", default=0.0, metavar="SHARE")
    seed: Seed = 0
    verify: bool = option("Compare the prepared folder SOURCE with its checksums.", "--verify", default=False)


def prepare(source: SourceText, args: PrepareOptions, reading: Reading, console: Console) -> None:
    """Prepare data once: distinct interactions as memory-mapped arrays.

    The folder replaces SOURCE in all other commands, which open it in milliseconds. The data need not fit
    into memory. The folder appears whole or not at all. After Ctrl-C or a kill, the same command goes on from
    the last finished step.

    Example:
      truepair prepare clicks/ -o clicks.prepared --memory 4GB --test 0.2
      truepair fit clicks.prepared -o model.truepair --test given
    """
    if args.verify:
        refuse({"--output": args.output, "--test": args.test}, "with --verify")
        found = tp.open_prepared(source, verify=True)
        console.give(f"{described(found)}\n{source} is as it was written", _sizes(found, source))
        return
    if args.output is None:
        raise InputError("--output is missing; name the folder to make: -o FOLDER.")
    check_no_url(args.output)
    if find_source(source) is not None:
        raise InputError(f"{source!r} names a dataset, which is read as it is; give a path or a URL.")
    how = {name: getattr(args, name) for name in ("memory", "temp", "test", "valid", "seed")}
    progress = not console.quiet
    made = tp.prepare_interactions(source, args.output, progress=progress, **how, **reading.for_files())
    facts = {"source": without_password(source), **_sizes(made, str(args.output))}
    console.done(f"{described(made)}\nprepared in {args.output}", facts)


def _sizes(found: tp.Interactions | tp.Split, folder: str) -> Json:
    parts = found.parts if isinstance(found, tp.Split) else {"all": found}
    first = next(iter(parts.values()))
    return {
        "folder": folder,
        "users": first.n_users,
        "items": first.n_items,
        "pairs": {name: len(part) for name, part in parts.items()},
        "hash": {name: part.hash for name, part in parts.items()},
    }


def demo(
    *,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of the report.")] = _DEMO,
    seed: Seed = 0,
    console: Console,
) -> None:
    """Compare the default model with others, and write a report.

    The others are popularity, EASE, BPR and DPL. The data is MovieLens-100k if it is here or can be
    downloaded, else simulated.

    Example:
      truepair demo --out report.html
    """
    from truepair.reporting.demo import run_demo

    result = run_demo(data_dir=data_dir, out=out, seed=seed, quiet=console.quiet or console.json)
    if console.json:
        console.give("", {"report": str(result.report)})
