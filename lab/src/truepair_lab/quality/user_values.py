"""NDCG@20 of every user, kept beside the lines, so that differences can be computed again.

A file `values-<case>.npz` has an array for each contestant and its settings: the mean over seeds of each user
that is judged, as 16-bit whole numbers, 65535 for 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from truepair.storage.atomic import atomic_write
from truepair_lab.lines import RunLine
from truepair_lab.paper.running.runs import per_user_file

Values = npt.NDArray[np.float64]
_ONE = 65535


def values_file(folder: Path, case: str) -> Path:
    """Where the values of a case are kept."""
    return folder / f"values-{case}.npz"


def values_name(run: RunLine) -> str:
    """The name of an array: contestant and checksum of its settings."""
    return f"{run.encoder} {run.method} {run.digest}"


def has_values(folder: Path, run: RunLine) -> bool:
    """Whether the values of this run are at hand, alone or in the mean of its seeds."""
    return per_user_file(folder, run).exists() or values_name(run) in _names(values_file(folder, run.dataset))


def _names(path: Path) -> Sequence[str]:
    if not path.exists():
        return ()
    with np.load(path, allow_pickle=False) as found:
        return tuple(found.files)


def read_values(folder: Path, case: str) -> dict[str, Values]:
    """The values of every contestant and its settings, by name."""
    path = values_file(folder, case)
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name] / float(_ONE) for name in found.files}


def keep_values_of(folder: Path, case: str, settings: Iterable[Sequence[RunLine]]) -> None:
    """Keep the values of these settings, the mean over the runs that have any, and no others; where no run
    has values of its own any more, those in the file stay."""
    before, found = read_values(folder, case), dict[str, Values]()
    for runs in settings:
        files = [path for run in runs if (path := per_user_file(folder, run)).exists()]
        if files:
            each = [np.load(path, allow_pickle=False) for path in files]
            found[values_name(runs[0])] = np.mean(each, axis=0, dtype=np.float64)
        elif values_name(runs[0]) in before:
            found[values_name(runs[0])] = before[values_name(runs[0])]
    if found:
        write_values(values_file(folder, case), found)


def write_values(path: Path, values: Mapping[str, Values]) -> None:
    """Write the values of a case, by name."""
    whole = {name: np.rint(values[name] * _ONE).astype(np.uint16) for name in sorted(values)}
    with atomic_write(path) as file:
        np.savez_compressed(file, **whole)  # type: ignore[arg-type]
