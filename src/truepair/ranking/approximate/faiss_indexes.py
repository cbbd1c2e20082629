"""INDEXES: the kinds of indexes of faiss: how each is built, searched, and stored as plain arrays.

Nothing is stored in faiss's own format: a changed file of it can crash the process that reads it. Arrays are
checked, and the index is assembled from them and the items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from truepair.errors import InputError
from truepair.storage.types import Array

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]
Arrays = dict[str, Array]
FaissIndex: TypeAlias = Any  # faiss has no types
_PER_LIST = 40  # items for each list that k-means sees: faiss warns below 39
_DEGREE, _BREADTH = 24, 80  # of HNSW: neighbours of an item, and candidates while it is built


class Kind(NamedTuple):
    """A kind of index."""

    build: Callable[[Floats], FaissIndex]
    efforts: Callable[[FaissIndex], Iterator[int]]
    """What a search may cost, cheapest first."""
    options: Callable[..., object]
    """(effort, number of results, which items) -> the parameters of a search."""
    arrays: Callable[[FaissIndex], Arrays]
    """What is stored of an index."""
    assemble: Callable[[Floats, Arrays], FaissIndex]
    """The index from the items and what was stored; ValueError if they do not fit."""


def check_extra() -> None:
    """Raise if faiss is not installed."""
    if find_spec("faiss") is None:
        raise InputError("an index needs faiss: pip install 'truepair[ann]', or use exact lists.")


def faiss_module() -> Any:
    """faiss, imported after torch: both bring OpenMP, and the first one to be loaded serves both."""
    assert torch is not None
    check_extra()
    import faiss

    return faiss


def search(
    kind: str,
    index: FaissIndex,
    queries: Floats,
    count: int,
    effort: int,
    allowed: npt.NDArray[np.bool_] | None = None,
    threads: int = 1,
) -> Codes:
    """The `count` best items that the search finds for each query, best first; -1 where it finds fewer.

    `allowed` says which items may be found; others are passed over within the search.
    """
    faiss = faiss_module()
    faiss.omp_set_num_threads(threads)  # of the calling thread
    bits = None if allowed is None else np.packbits(allowed, bitorder="little")
    only = None if bits is None else faiss.IDSelectorBitmap(bits)
    _, items = index.search(queries, count, params=INDEXES[kind].options(effort, count, only))
    return np.asarray(items, np.int64)


# --- IVF: items in lists around centroids; a search looks through the lists that are nearest -------------


def _lists_for(n_items: int) -> int:
    """4√n: with half as many, k-means merges groups of items, and a search needs many more lists."""
    return max(min(4 * math.isqrt(n_items), n_items // _PER_LIST), 1)


def _empty_ivf(dim: int, centroids: Floats) -> FaissIndex:
    faiss = faiss_module()
    coarse = faiss.IndexFlatIP(dim)
    coarse.add(centroids)
    # half precision, because a search waits for memory; what it finds is scored again exactly
    half, dot = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFScalarQuantizer(coarse, dim, len(centroids), half, dot, False)
    index.is_trained = True
    return index


def _build_ivf(items: Floats) -> FaissIndex:
    faiss = faiss_module()
    faiss.omp_set_num_threads(torch.get_num_threads())
    lists = _lists_for(len(items))
    sample = np.random.default_rng(0).permutation(len(items))[: lists * _PER_LIST]
    means = faiss.Kmeans(items.shape[1], lists, niter=10, spherical=True, seed=1, min_points_per_centroid=1)
    means.train(items[np.sort(sample)])
    index = _empty_ivf(items.shape[1], means.centroids)
    index.add(items)
    return index


def _ivf_arrays(index: FaissIndex) -> Arrays:
    faiss = faiss_module()
    owner = np.empty(index.ntotal, np.int32)
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        if size:
            owner[faiss.rev_swig_ptr(index.invlists.get_ids(number), size)] = number
    coarse = faiss.downcast_index(index.quantizer)
    centroids = faiss.rev_swig_ptr(coarse.get_xb(), index.nlist * index.d)
    return {"centroids": centroids.reshape(index.nlist, index.d).copy(), "owner": owner}


def _assemble_ivf(items: Floats, arrays: Arrays) -> FaissIndex:
    faiss = faiss_module()
    centroids, owner = arrays["centroids"], arrays["owner"]
    n, dim = items.shape
    if centroids.dtype != np.float32 or centroids.shape != (len(centroids), dim) or not len(centroids) > 0:
        raise ValueError(f"the centroids do not have {dim} dimensions")
    if not np.isfinite(centroids).all():
        raise ValueError("a centroid is not finite")
    if owner.dtype != np.int32 or owner.shape != (n,) or owner.min() < 0 or owner.max() >= len(centroids):
        raise ValueError(f"the lists of {n:,} items are not numbers below {len(centroids):,}")
    index = _empty_ivf(dim, np.ascontiguousarray(centroids))
    lists, codes = owner.astype(np.int64), np.arange(n)
    index.add_core(n, faiss.swig_ptr(items), faiss.swig_ptr(codes), faiss.swig_ptr(lists))
    return index


# --- HNSW: a graph of near items; a search walks towards the user ----------------------------------------


def _empty_hnsw(dim: int) -> FaissIndex:
    faiss = faiss_module()
    index = faiss.IndexHNSWFlat(dim, _DEGREE, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = _BREADTH
    return index


def _build_hnsw(items: Floats) -> FaissIndex:
    faiss_module().omp_set_num_threads(torch.get_num_threads())
    index = _empty_hnsw(items.shape[1])
    index.add(items)
    return index


def _hnsw_arrays(index: FaissIndex) -> Arrays:
    faiss, graph = faiss_module(), index.hnsw
    found = {"levels": graph.levels, "neighbours": graph.neighbors}
    arrays: Arrays = {name: faiss.vector_to_array(vector) for name, vector in found.items()}
    return {**arrays, "entry": np.array([graph.entry_point], np.int64)}


def _assemble_hnsw(items: Floats, arrays: Arrays) -> FaissIndex:
    faiss, n = faiss_module(), len(items)
    levels, neighbours, entry = arrays["levels"], arrays["neighbours"], arrays["entry"]
    index = _empty_hnsw(items.shape[1])
    per_level = faiss.vector_to_array(index.hnsw.cum_nneighbor_per_level)  # up to each level
    if levels.dtype != np.int32 or levels.shape != (n,) or levels.min() < 1:
        raise ValueError(f"the levels are not those of {n:,} items")
    if levels.max() >= len(per_level):
        raise ValueError("a level is too high")
    offsets = np.concatenate([[0], np.cumsum(per_level[levels], dtype=np.int64)])
    if neighbours.dtype != np.int32 or neighbours.shape != (offsets[-1],):
        raise ValueError("the graph does not have a place for each neighbour")
    if neighbours.min(initial=0) < -1 or neighbours.max(initial=-1) >= n:
        raise ValueError(f"a neighbour is no item below {n:,}")
    if entry.dtype != np.int64 or entry.shape != (1,) or not 0 <= entry[0] < n:
        raise ValueError("the graph has no entry")
    _check_levels(levels, neighbours, offsets, per_level)
    if levels[entry[0]] != levels.max():
        raise ValueError("the entry is not on the highest level")
    graph = index.hnsw
    faiss.copy_array_to_vector(levels, graph.levels)
    faiss.copy_array_to_vector(offsets.astype(np.uint64), graph.offsets)
    faiss.copy_array_to_vector(neighbours, graph.neighbors)
    graph.entry_point, graph.max_level = int(entry[0]), int(levels.max()) - 1
    index.storage.add(items)
    index.ntotal = n
    return index


def _check_levels(levels: Codes, neighbours: Codes, offsets: Codes, per_level: Codes) -> None:
    """ValueError if an item has a neighbour on a level that the neighbour does not reach."""
    for level in range(1, int(levels.max())):
        for item in np.flatnonzero(levels > level):
            start = offsets[item]
            near = neighbours[start + per_level[level] : start + per_level[level + 1]]
            if (levels[near[near >= 0]] <= level).any():
                raise ValueError(f"an item of level {level} has a neighbour below it")


# --- the kinds -------------------------------------------------------------------------------------------


def _rising(first: int, last: int) -> Iterator[int]:
    """Efforts, a quarter more each time."""
    while first <= last:
        yield first
        first += max(first // 4, 1)


def _ivf_options(effort: int, count: int, only: object = None) -> object:
    return faiss_module().SearchParametersIVF(nprobe=effort, sel=only)


def _hnsw_options(effort: int, count: int, only: object = None) -> object:
    return faiss_module().SearchParametersHNSW(efSearch=max(effort, count), sel=only)


# lists of IVF up to a quarter of all, beyond which looking at every item is faster; candidates of HNSW
INDEXES: dict[str, Kind] = {
    "ivf": Kind(
        _build_ivf,
        lambda index: _rising(1, max(index.nlist // 4, 1)),
        _ivf_options,
        _ivf_arrays,
        _assemble_ivf,
    ),
    "hnsw": Kind(_build_hnsw, lambda index: _rising(16, 4096), _hnsw_options, _hnsw_arrays, _assemble_hnsw),
}
"""By name: items in lists around centroids, built in seconds; a graph of near items, built in minutes."""
