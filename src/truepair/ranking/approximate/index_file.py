"""An index on disk: arrays with a checksum and the digest of the items; nothing in the file is trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from truepair.errors import StorageError
from truepair.ranking.approximate.faiss_indexes import INDEXES, Arrays, FaissIndex
from truepair.storage.tensor_file import read_tensors, write_tensors

KIND, VERSION = "truepair index", 1


def write_index(
    path: Path, kind: str, items: npt.NDArray[np.float32], arrays: Arrays, say: Callable[[str], object]
) -> None:
    """Keep an index of these items; if the file cannot be written, it is built again the next time."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        write_tensors(path, KIND, VERSION, tensors, {"kind": kind, "items": _digest(items)})
    except (StorageError, OSError) as error:
        say(f"the index is not kept: {error}")


def read_index(
    path: Path, kind: str, items: npt.NDArray[np.float32], say: Callable[[str], object]
) -> FaissIndex | None:
    """The index of a file, if it is of this kind and of these items; None for all other files."""
    if not path.exists():
        return None
    try:
        tensors, facts = read_tensors(path, KIND, VERSION)
        if facts != {"kind": kind, "items": _digest(items)}:
            return None
        return INDEXES[kind].assemble(items, {name: tensor.numpy() for name, tensor in tensors.items()})
    except (StorageError, KeyError, ValueError) as error:
        say(f"the index {path} cannot be used, and is built again: {error}")
        return None


def _digest(items: npt.NDArray[np.float32]) -> str:
    found = hashlib.blake2b(repr(items.shape).encode(), digest_size=16)
    found.update(np.ascontiguousarray(items).data)
    return found.hexdigest()
