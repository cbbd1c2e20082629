"""Metrics: functions of ranked lists, and their names, such as "ndcg@20"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from truepair.data.ids import Codes
from truepair.data.log import Floats as Floats
from truepair.data.log import Mask as Mask
from truepair.errors import InputError, check_choice

Hits = Mask

# --- per user: (hits (n, K), number of target items (n,)) -> one value per user (n,) ------------------
# hits[u, r] is whether position r (0 is the top) of u's list is a target item.


def precision(hits: Hits, n_target: Codes) -> Floats:
    """Hits / K."""
    return np.asarray(hits.mean(axis=1))


def recall(hits: Hits, n_target: Codes) -> Floats:
    """Hits / |target|; below 1 for a user with more than K target items, even in a perfect list."""
    return np.asarray(hits.sum(axis=1) / n_target)


def ndcg(hits: Hits, n_target: Codes) -> Floats:
    """DCG / ideal DCG, where DCG = Σ_r hit_r / log2(r + 1), r = 1 … K.

    The ideal list has its min(K, |target|) hits at the top.
    """
    discount = 1 / np.log2(np.arange(2, hits.shape[1] + 2))  # (K,)
    ideal = np.cumsum(discount)[np.minimum(n_target, hits.shape[1]) - 1]  # (n,)
    return np.asarray(hits @ discount / ideal)


def hit(hits: Hits, n_target: Codes) -> Floats:
    """1 if the list has a hit, else 0."""
    return np.asarray(hits.any(axis=1), dtype=np.float64)


def mrr(hits: Hits, n_target: Codes) -> Floats:
    """1 / position of the first hit; 0 without a hit."""
    return np.asarray(hits.any(axis=1) / (hits.argmax(axis=1) + 1))


def average_precision(hits: Hits, n_target: Codes) -> Floats:
    """Σ_r hit_r · precision@r / |target|, r = 1 … K.

    It divides by |target|, as trec_eval does; some papers divide by min(K, |target|).
    """
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)  # (n, K)
    return np.asarray((hits * precisions).sum(axis=1) / n_target)


METRICS: dict[str, Callable[[Hits, Codes], Floats]] = {
    "precision": precision,
    "recall": recall,
    "ndcg": ndcg,
    "hit": hit,
    "mrr": mrr,
    "map": average_precision,
}

# --- over all lists: (listed items (n, K), -1 for none; item popularity (n_items,)) -> one value -------


def coverage(listed: Codes, popularity: Codes) -> float:
    """The share of the catalogue that appears in at least one list."""
    return float((_times_listed(listed, popularity) > 0).mean())


def novelty(listed: Codes, popularity: Codes) -> float:
    """The mean of -log2((c_i + 1) / Σ_j (c_j + 1)) over all listed items, where c_i is the popularity."""
    times = _times_listed(listed, popularity)
    surprise = -np.log2((popularity + 1) / (popularity + 1).sum())
    return float(times @ surprise / times.sum())


def gini(listed: Codes, popularity: Codes) -> float:
    """The Gini coefficient of how often items are listed: 0 if all are listed equally often.

    Σ_i (2i - n - 1) t_i / (n Σ_i t_i), where t_1 ≤ … ≤ t_n are the counts of the n items.
    """
    times = np.sort(_times_listed(listed, popularity))
    n = len(times)
    return float((2 * np.arange(1, n + 1) - n - 1) @ times / (n * times.sum()))


def _times_listed(listed: Codes, popularity: Codes) -> Codes:
    return np.bincount(listed[listed >= 0], minlength=len(popularity))


CATALOGUE_METRICS: dict[str, Callable[[Codes, Codes], float]] = {
    "coverage": coverage,
    "novelty": novelty,
    "gini": gini,
}

# --- names ---------------------------------------------------------------------------------------------


def parse_metric(
    name: str, known: Iterable[str] = METRICS, ks: Sequence[int] | None = None
) -> tuple[str, int]:
    """The metric and K of a name such as "ndcg@20"; `ks`, if given, are the evaluated K.

    >>> parse_metric("ndcg@20")
    ('ndcg', 20)
    """
    known = list(known)
    parts = re.fullmatch(r"(\w+)@([1-9]\d*)", name) if isinstance(name, str) else None
    if parts is None:
        raise InputError(
            f"metric = {name!r} is not of the form name@K, such as 'ndcg@20'; names are {', '.join(known)}."
        )
    metric, k = check_choice("metric", parts[1], known), int(parts[2])
    if ks is not None and k not in ks:
        raise InputError(
            f"metric = {name!r} was not evaluated; K is one of {', '.join(map(str, ks))}. "
            f"Evaluate with ks=({', '.join(map(str, sorted({*ks, k})))})."
        )
    return metric, k
