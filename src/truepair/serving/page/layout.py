"""Layout: a place in the plane for each item, close to the items that are most like it.

The start are the two slowest ways to vary over the graph of neighbours (power iterations with its matrix of
averages). Then neighbours attract each other by 1/(1 + d²), and random others repel, as in UMAP (McInnes et
al., 2018) with a = b = 1. The same graph gives the same places.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from truepair.data.ids import Codes

Places = npt.NDArray[np.float64]
_STARTS, _ROUNDS, _OTHERS = 100, 250, 5  # power iterations; rounds of forces; random others in a round
_PUSH = 5.0  # of all others, beside one neighbour's pull
_FASTEST = 4.0  # no force moves a point further in a round


def layout(neighbours: Codes, seed: int = 0) -> Places:
    """Places [n, 2] within the unit square; neighbours [n, k] are codes 0 … n-1, -1 for none."""
    n = len(neighbours)
    if n < 3:
        return np.linspace([0.25, 0.5], [0.75, 0.5], n) if n > 1 else np.full((n, 2), 0.5)
    graph, random = _graph(neighbours), np.random.default_rng(seed)
    places = _start(graph, random)
    for round in range(_ROUNDS):
        speed = 1 - round / _ROUNDS
        places = places + speed * (_pull(graph, places) + _push(places, random))
    return _in_square(places)


def _graph(neighbours: Codes) -> sp.csr_array:
    """1 where one of two is a neighbour of the other."""
    n, k = neighbours.shape
    owners, others = np.repeat(np.arange(n), k), neighbours.ravel()
    owners, others = owners[others >= 0], others[others >= 0]
    one_way = sp.coo_array((np.ones(len(owners)), (owners, others)), shape=(n, n)).tocsr()
    both = sp.csr_array(one_way + one_way.T)
    both.data[:] = 1.0
    return both


def _start(graph: sp.csr_array, random: np.random.Generator) -> Places:
    n = graph.shape[0]
    own = sp.eye_array(n, format="csr")  # without itself, the average may swing between two halves
    averages = sp.csr_array(sp.diags_array(1 / (1 + graph.sum(axis=1))) @ (graph + own))
    places = random.standard_normal((n, 2))
    for _ in range(_STARTS):
        places = averages @ places
        places, _ = np.linalg.qr(places - places.mean(axis=0))
    return np.asarray(places * 10 / np.abs(places).max())


def _pull(graph: sp.csr_array, places: Places) -> Places:
    counts = np.diff(graph.indptr)
    owners = np.repeat(np.arange(len(counts)), counts)
    apart = places[graph.indices] - places[owners]
    force = apart * (2 / (1 + (apart**2).sum(axis=1)))[:, None]
    total = np.stack([np.bincount(owners, force[:, axis], len(places)) for axis in (0, 1)], axis=1)
    return np.clip(total / np.maximum(counts, 1)[:, None], -_FASTEST, _FASTEST)


def _push(places: Places, random: np.random.Generator) -> Places:
    others = random.integers(0, len(places), (len(places), _OTHERS))
    apart = places[:, None] - places[others]
    distance = (apart**2).sum(axis=2, keepdims=True)
    force = np.clip(apart * (2 / ((0.001 + distance) * (1 + distance))), -_FASTEST, _FASTEST)
    return np.asarray(_PUSH * force.mean(axis=1))


def _in_square(places: Places) -> Places:
    low, high = places.min(axis=0), places.max(axis=0)
    return np.asarray((places - (low + high) / 2) / max((high - low).max(), 1e-9) + 0.5)
