"""Peers: other libraries doing the same work, set up as their own users would.

They come with `pip install 'truepair[bench]'`; one that is absent is named, and left out.
"""

from __future__ import annotations

import contextlib
import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from truepair.data.interactions import Interactions
from truepair.ranking.prepared_items import Matrix
from truepair_lab.benchmarks.outcome import Measure, Skipped

_RATE, _REGULARIZATION = 0.05, 0.01
_USERS_AT_A_TIME = 1000


def epoch_of_implicit(train: Interactions, dim: int, threads: int) -> Measure:
    """Seconds of one epoch of implicit's BPR, as it reports them itself, without its set-up."""
    bpr = _imported("implicit.bpr").BayesianPersonalizedRanking
    model = bpr(
        factors=dim, iterations=1, learning_rate=_RATE, regularization=_REGULARIZATION, num_threads=threads
    )
    matrix, seconds_of = csr_of(train), []

    def epoch() -> float:
        with _quiet():
            model.fit(
                matrix, show_progress=False, callback=lambda epoch, seconds, *rest: seconds_of.append(seconds)
            )
        return float(seconds_of[-1])

    return epoch


def epoch_of_cornac(train: Interactions, dim: int, threads: int) -> Measure:
    """Seconds of one epoch of Cornac's BPR, without its setting up."""
    with _quiet():
        models, data = _imported("cornac.models"), _imported("cornac.data")
    seconds_of: list[float] = []

    class Timed(models.BPR):  # type: ignore[misc, name-defined]
        def _fit_sgd(self, *given: Any) -> Any:
            began = time.perf_counter()
            result = super()._fit_sgd(*given)
            seconds_of.append(time.perf_counter() - began)
            return result

    names = [dict(zip(range(n), range(n), strict=True)) for n in (train.n_users, train.n_items)]
    triples = (train.users.copy(), train.items.copy(), np.ones(len(train)))
    known = data.Dataset(train.n_users, train.n_items, *names, triples)
    model = Timed(
        k=dim, max_iter=1, learning_rate=_RATE, lambda_reg=_REGULARIZATION, num_threads=threads, verbose=False
    )

    def epoch() -> float:
        with _quiet():
            model.fit(known)
        return seconds_of[-1]

    return epoch


EPOCHS: dict[str, Callable[[Interactions, int, int], Measure]] = {
    "implicit": epoch_of_implicit,
    "cornac": epoch_of_cornac,
}


def lists_of_implicit(
    users: Matrix, items: Matrix, train: Interactions, k: int, threads: int
) -> dict[str, Measure]:
    """Seconds of implicit's `recommend` for all users with these factors, by ways to call it.

    Its authors advise one BLAS thread beside its own; both ways round are tried, all users in one call, and
    some in each.
    """
    model = _imported("implicit.bpr").BayesianPersonalizedRanking(factors=1)
    model.user_factors, model.item_factors = np.asarray(users), np.asarray(items)
    matrix, n = csr_of(train), len(users)

    def measure(own_threads: int, blas_threads: int, at_a_time: int) -> Measure:
        def recommend() -> float:
            model.num_threads = own_threads
            began = time.perf_counter()
            with _quiet(), _imported("threadpoolctl").threadpool_limits(blas_threads, "blas"):
                for start in range(0, n, at_a_time):
                    rows = np.arange(start, min(start + at_a_time, n))
                    model.recommend(rows, matrix[rows] if at_a_time < n else matrix, N=k)
            return time.perf_counter() - began

        return recommend

    threaded = {
        "own threads": (threads, 1),
        "BLAS threads": (1, threads),
        "own and BLAS threads": (threads, threads),
    }
    sizes = {"in one call": n} | ({f"{_USERS_AT_A_TIME:,} a call": _USERS_AT_A_TIME} if n > 1000 else {})
    return {
        f"{name}, {size}": measure(*counts, at_a_time)
        for name, counts in threaded.items()
        for size, at_a_time in sizes.items()
    }


def csr_of(train: Interactions) -> sp.csr_matrix:
    """A users x items matrix of ones that a peer may write to."""
    ones = np.ones(len(train), np.float32)
    return sp.csr_matrix(
        (ones, train.items.astype(np.int32), train.indptr.astype(np.int32)), (train.n_users, train.n_items)
    )


def _imported(module: str) -> Any:
    """A peer's module, or the news that it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Skipped(
            f"{module.partition('.')[0]} cannot be imported ({error}); pip install 'truepair[bench]'"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of peers: their habits are not what is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
