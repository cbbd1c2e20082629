"""Reference points: what people use instead, behind one function. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import scipy.sparse as sp
import torch

from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.recommender.estimator import Recommender
from truepair_lab.paper import ials
from truepair_lab.paper.chebycf import ChebyCF, ItemGraph
from truepair_lab.reporting.machine import cpu_model

IALS, SCALED_IALS, CHEBYCF = "ials", "ials-scaled", "chebycf"
_ITERATIONS = 16  # sweeps over users and items


@dataclass(frozen=True, eq=False)
class Point:
    """Two matrices whose dot products are the scores, and what made them."""

    users: Any
    items: Any
    engine: str
    epochs: int


def solved(method: str, parameters: Mapping[str, Any], train: Interactions, seed: int = 0) -> Point:
    """A reference point fitted to `train`: a closed form of truepair, ChebyCF, or iALS,
    implicit's or the lab's."""
    if method == IALS:
        return _ials(parameters, train, seed)
    if method == SCALED_IALS:
        run, sweeps = scaled_ials(parameters, train, seed), parameters["stop_after"]
        for _ in range(sweeps):
            run.sweep()
        return Point(run.users, run.items, "iALS", sweeps)
    if method == CHEBYCF:
        return chebycf(parameters, _item_graph(train))
    encoder = Recommender.of(parameters).spec.closed_form
    assert encoder is not None
    users, items = encoder.solve(train, device=_device())
    return Point(users, items, "closed form", 1)


def chebycf(parameters: Mapping[str, Any], graph: ItemGraph) -> Point:
    """ChebyCF with these parameters: histories, and what each item adds to all scores."""
    weights = graph.weights(ChebyCF(**{field.name: parameters[field.name] for field in fields(ChebyCF)}))
    return Point(
        graph.data.csr(), weights.T, "closed form", 1
    )  # by columns: products with sparse rows read it


@lru_cache(maxsize=1)
def _item_graph(train: Interactions) -> ItemGraph:
    """Kept for the next trial: its eigenvectors take longer than all else."""
    return ItemGraph(train, _device())


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def scaled_ials(parameters: Mapping[str, Any], train: Interactions, seed: int = 0) -> ials.Sweeps:
    """A run of iALS with these parameters, before its first sweep."""
    own = {field.name: parameters[field.name] for field in fields(ials.IALS)}
    return ials.Sweeps(ials.IALS(**own), train, seed, _device())


def _ials(parameters: Mapping[str, Any], train: Interactions, seed: int) -> Point:
    """Implicit alternating least squares; every weight of a known pair is alpha."""
    try:
        from implicit.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise InputError("iALS comes from implicit: pip install 'truepair[bench]'.") from error
    # implicit has threads of its own, one a user; those of BLAS below them only slow it down
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(
            factors=parameters["factors"],
            regularization=parameters["regularization"],
            alpha=parameters["alpha"],
            iterations=_ITERATIONS,
            random_state=seed,
            use_gpu=False,
        )
        model.fit(sp.csr_matrix(train.csr()), show_progress=False)
    users, items = (torch.from_numpy(x) for x in (model.user_factors, model.item_factors))
    return Point(users.to(_device()), items.to(_device()), "implicit", _ITERATIONS)


def device_name() -> str:
    """The GPU's name, or the processor's and how many threads are used."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    threads = torch.get_num_threads()
    return f"{cpu_model()}, {threads} thread{'s' if threads > 1 else ''}"
