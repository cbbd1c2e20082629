"""`truepair doctor`: versions, hardware, datasets and extras of this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.cli.sources import data_places, place_of
from truepair.storage.types import Json
from truepair.storage.versions import package_version

_PACKAGES = "truepair numpy scipy torch numba triton pyarrow safetensors typer pooch rich"
_EXTRAS = {
    "plots": ("matplotlib",),
    "tune": ("optuna",),
    "sql": ("adbc_driver_postgresql", "adbc_driver_sqlite", "duckdb"),
    "serve": ("fastapi", "uvicorn"),
    "bench": ("implicit", "cornac"),
    "tables": ("pandas", "polars"),
}


@unpacked
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
    from truepair.data.datasets.loading import DATASETS

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
