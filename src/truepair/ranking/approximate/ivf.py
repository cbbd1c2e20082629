"""An inverted file (IVF) of faiss: items in lists around centroids; a search looks through the nearest lists.

It is stored as plain arrays with a checksum and the digest of its items, not in faiss's own format: a changed
file of that can crash the process that reads it. Arrays are checked, and the index is assembled from them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from truepair.data.ids import Codes
from truepair.data.log import Mask
from truepair.errors import InputError, StorageError
from truepair.storage.tensor_file import read_tensors, write_tensors
from truepair.storage.types import Array

Floats = npt.NDArray[np.float32]
Arrays = dict[str, Array]
FaissIndex: TypeAlias = Any  # faiss has no types
NAME = "ivf"
_FILE, _VERSION = "truepair index", 1
_PER_LIST = 40  # items for each list that k-means sees: faiss warns below 39


def faiss_module() -> Any:
    """faiss, imported after torch: both bring OpenMP, and the first one to be loaded serves both."""
    assert torch is not None
    if find_spec("faiss") is None:
        raise InputError("an index needs faiss: pip install 'truepair[ann]', or use exact lists.")
    import faiss

    return faiss


def build(items: Floats) -> FaissIndex:
    """A new index of these unit vectors."""
    faiss = faiss_module()
    faiss.omp_set_num_threads(torch.get_num_threads())
    # 4√n lists: with half as many, k-means merges groups of items, and a search needs many more lists
    lists = max(min(4 * math.isqrt(len(items)), len(items) // _PER_LIST), 1)
    sample = np.random.default_rng(0).permutation(len(items))[: lists * _PER_LIST]
    means = faiss.Kmeans(items.shape[1], lists, niter=10, spherical=True, seed=1, min_points_per_centroid=1)
    means.train(items[np.sort(sample)])
    index = _empty(items.shape[1], means.centroids)
    index.add(items)
    return index


def efforts(index: FaissIndex) -> list[int]:
    """Numbers of lists that a search may look through, a quarter more each time.

    A quarter of all at most: beyond that looking at every item is faster.
    """
    found = [1]
    while found[-1] + max(found[-1] // 4, 1) <= index.nlist // 4:
        found.append(found[-1] + max(found[-1] // 4, 1))
    return found


def search(
    index: FaissIndex,
    queries: Floats,
    count: int,
    effort: int,
    allowed: Mask | None = None,
    threads: int = 1,
) -> Codes:
    """The `count` best items that the search finds for each query, best first; -1 where it finds fewer.

    `allowed` says which items may be found; others are passed over within the search.
    """
    faiss = faiss_module()
    faiss.omp_set_num_threads(threads)  # of the calling thread
    bits = None if allowed is None else np.packbits(allowed, bitorder="little")
    only = None if bits is None else faiss.IDSelectorBitmap(bits)
    _, items = index.search(queries, count, params=faiss.SearchParametersIVF(nprobe=effort, sel=only))
    return np.asarray(items, np.int64)


def _empty(dim: int, centroids: Floats) -> FaissIndex:
    faiss = faiss_module()
    coarse = faiss.IndexFlatIP(dim)
    coarse.add(centroids)
    # half precision, because a search waits for memory; what it finds is scored again exactly
    half, dot = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFScalarQuantizer(coarse, dim, len(centroids), half, dot, False)
    index.is_trained = True
    return index


# --- an index on disk ------------------------------------------------------------------------------------


def arrays_of(index: FaissIndex) -> Arrays:
    """What is stored of an index."""
    faiss = faiss_module()
    owner = np.empty(index.ntotal, np.int32)
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        if size:
            owner[faiss.rev_swig_ptr(index.invlists.get_ids(number), size)] = number
    coarse = faiss.downcast_index(index.quantizer)
    centroids = faiss.rev_swig_ptr(coarse.get_xb(), index.nlist * index.d)
    return {"centroids": centroids.reshape(index.nlist, index.d).copy(), "owner": owner}


def assemble(items: Floats, arrays: Arrays) -> FaissIndex:
    """The index from the items and what was stored; ValueError if they do not fit."""
    faiss = faiss_module()
    centroids, owner = arrays["centroids"], arrays["owner"]
    n, dim = items.shape
    if centroids.dtype != np.float32 or centroids.shape != (len(centroids), dim) or not len(centroids) > 0:
        raise ValueError(f"the centroids do not have {dim} dimensions")
    if not np.isfinite(centroids).all():
        raise ValueError("a centroid is not finite")
    if owner.dtype != np.int32 or owner.shape != (n,) or owner.min() < 0 or owner.max() >= len(centroids):
        raise ValueError(f"the lists of {n:,} items are not numbers below {len(centroids):,}")
    index = _empty(dim, np.ascontiguousarray(centroids))
    lists, codes = owner.astype(np.int64), np.arange(n)
    index.add_core(n, faiss.swig_ptr(items), faiss.swig_ptr(codes), faiss.swig_ptr(lists))
    return index


def write_index(path: Path, items: Floats, index: FaissIndex, say: Callable[[str], object]) -> None:
    """Keep an index of these items; if the file cannot be written, it is built again the next time."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays_of(index).items()}
    try:
        write_tensors(path, _FILE, _VERSION, tensors, {"kind": NAME, "items": _digest(items)})
    except (StorageError, OSError) as error:
        say(f"the index is not kept: {error}")


def read_index(path: Path, items: Floats, say: Callable[[str], object]) -> FaissIndex | None:
    """The index of a file, if it is of these items; None for all other files."""
    if not path.exists():
        return None
    try:
        tensors, facts = read_tensors(path, _FILE, _VERSION)
        if facts != {"kind": NAME, "items": _digest(items)}:
            return None
        return assemble(items, {name: tensor.numpy() for name, tensor in tensors.items()})
    except (StorageError, KeyError, ValueError) as error:
        say(f"the index {path} cannot be used, and is built again: {error}")
        return None


def _digest(items: Floats) -> str:
    found = hashlib.blake2b(repr(items.shape).encode(), digest_size=16)
    found.update(np.ascontiguousarray(items).data)
    return found.hexdigest()
