"""Indexing: build or read an index, and measure on real users which effort gives the recall asked for."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from truepair.data.ids import Codes
from truepair.errors import check_choice, check_number, settle
from truepair.models.factor_matrices import Rows, n_rows
from truepair.ranking.approximate import ivf
from truepair.ranking.approximate.indexed_items import HeadAndTail, IndexedItems, Level, unit_items
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import PreparedItems, TopK, dense_rows

AUTO, EXACT = "auto", "exact"
CHOICES = (AUTO, EXACT, ivf.NAME)
EXACT_UP_TO = 200_000
"""Items up to which `auto` does not build an index: exact lists are fast enough."""
_DEPTHS = (20, 40, 80, 160, 320, 640, 1280, 2560)
_K = 10  # of the lists whose recall is checked in the end
_FASTER = 2.0  # than exact lists, or `auto` does without the index
_USERS = 128  # to choose by, and as many others to check by


class SampledUsers(NamedTuple):
    """Real users: their vectors, and the items that each must not get."""

    vectors: Rows
    hidden: Sequence[Codes]

    def half(self, which: int) -> SampledUsers:
        """Every second one."""
        return SampledUsers(self.vectors[which::2], self.hidden[which::2])


class Indexing(NamedTuple):
    """Items to ask for lists, and a sentence about the index."""

    items: IndexedItems | PreparedItems
    about: str
    kind: str = EXACT
    recall: float = 1.0


@dataclass(frozen=True)
class IndexChoice:
    """Whether lists use an index, and which recall it must have."""

    kind: str = AUTO
    recall: float = 0.99
    path: Path | None = None
    """Where the index is kept for the next start; None keeps none."""
    say: Callable[[str], object] = lambda text: None
    """Called with sentences on the progress."""

    def __post_init__(self) -> None:
        settle(self, kind=check_choice("index", self.kind, CHOICES))
        settle(self, recall=check_number("recall", self.recall, 0, 1, open_low=True))


def index_items(exact: PreparedItems, users: SampledUsers, choice: IndexChoice) -> Indexing:
    """The items with an index whose lists have at least the share `recall` of the exact lists' items.

    The recall is measured for lists of real users, of whom half choose the effort of a search, and the other
    half check it. If no effort is enough, or if `kind` = "auto" and an index is not worth it, the items are
    those given, whose lists are exact; the sentence says so.
    """
    kind, recall = choice.kind, choice.recall
    why_not = _obstacle(exact, users, kind)
    if why_not is not None:
        return Indexing(exact, f"lists are exact: {why_not}")
    started = time.perf_counter()
    found = _built(exact, choice.path, choice.say)
    chosen = _with_recall(found, users, recall)
    if chosen is None:
        return Indexing(exact, f"lists are exact: no effort of the index ivf reaches the recall {recall:g}.")
    if kind == AUTO and (ratio := _speed_up(chosen, users.half(1))) < _FASTER:
        return Indexing(
            exact, f"lists are exact: with the recall {recall:g}, the index ivf is {ratio:.1f} x as fast."
        )
    seconds = time.perf_counter() - started
    about = f"index ivf with the recall@{_K} {chosen.recall:.4f}, ready after {seconds:.1f} s"
    return Indexing(chosen, about, ivf.NAME, chosen.recall)


def _obstacle(exact: PreparedItems, users: SampledUsers, kind: str) -> str | None:
    """Why no index can or need be used; None if one can."""
    n = n_rows(exact.items)
    if kind == EXACT:
        return "no index was asked for."
    if not isinstance(exact.items, torch.Tensor) or not isinstance(users.vectors, torch.Tensor):
        return "an index needs a vector for each user and item, and this model has sparse rows."
    if exact.items.shape[1] < 2:
        return "an index needs a vector for each user and item, and this model has one number."
    if kind == AUTO and n <= EXACT_UP_TO:
        return f"{n:,} items are few enough."
    if kind == AUTO and find_spec("faiss") is None:
        return (
            f"an index of {n:,} items needs faiss; for more requests a second, pip install 'truepair[ann]'."
        )
    if len(users.hidden) < 2:
        return "the recall of an index is measured by the lists of at least two users."
    if n < 2:
        return "there is one item."
    return None


def _built(exact: PreparedItems, path: Path | None, say: Callable[[str], object]) -> IndexedItems:
    """The index of a file that fits these items, or a new one, which is written to the file."""
    rows = dense_rows(exact.items)
    split = HeadAndTail.of(rows)
    unit = unit_items(rows[split.tail])
    if path is not None and (index := ivf.read_index(path, unit, say)) is not None:
        return IndexedItems(exact, split, index)
    say(f"building the index ivf of {len(rows):,} items …")
    index = ivf.build(unit)
    if path is not None:
        ivf.write_index(path, unit, index, say)
    return IndexedItems(exact, split, index)


# --- recall ----------------------------------------------------------------------------------------------


def _with_recall(found: IndexedItems, users: SampledUsers, recall: float) -> IndexedItems | None:
    """With the least efforts that reach the recall; None if none does."""
    efforts = ivf.efforts(found.index)
    chosen = list(_levels(found, users.half(0), recall, efforts))
    judges = users.half(1)
    k = min(_K, n_rows(found.exact.items))
    truth = found.exact.top_k(judges.vectors, k, Hidden.of(judges.hidden))
    needed = np.median([k + len(codes) for codes in judges.hidden])
    while chosen and chosen[-1].depth >= needed:  # else most lists would be computed exactly
        tried = dataclasses.replace(found, levels=tuple(chosen))
        measured = _share(tried.top_k(judges.vectors, k, Hidden.of(judges.hidden)), truth)
        if measured >= recall:
            return dataclasses.replace(tried, recall=measured)
        following = dict(pairwise(efforts))  # the next effort; the last has none
        chosen = [Level(depth, following[effort]) for depth, effort in chosen if effort in following]
    return None


def _levels(
    found: IndexedItems, users: SampledUsers, recall: float, efforts: Sequence[int]
) -> Iterator[Level]:
    """For each depth the least effort whose search finds enough of that many best items."""
    n = n_rows(found.exact.items)
    depths = sorted({min(depth, n) for depth in _DEPTHS})
    nothing = [np.empty(0, np.int64)] * len(users.hidden)
    truth = found.exact.top_k(users.vectors, depths[-1], Hidden.of(nothing))
    rows = dense_rows(users.vectors)
    at = 0
    for depth in depths:
        while at < len(efforts):
            items = found.candidates(rows, depth, efforts[at])
            if _share_of_items(items, truth.items[:, :depth]) >= recall:
                yield Level(depth, efforts[at])
                break
            at += 1


def _share(lists: TopK, truth: TopK) -> float:
    """The share of the places of exact lists whose score a list reaches: of equal scores any item counts."""
    real = truth.items >= 0
    least = np.where(real, truth.scores, np.inf).min(axis=1, keepdims=True)
    hits = (lists.items >= 0) & (lists.scores >= least)
    return float(hits.sum() / max(real.sum(), 1))


def _share_of_items(items: Codes, truth: Codes) -> float:
    n = int(max(items.max(initial=0), truth.max(initial=0))) + 1
    rows = np.arange(len(items))[:, None] * n
    return float(np.isin((rows + truth).ravel(), (rows + items)[items >= 0]).mean())


def _speed_up(found: IndexedItems, users: SampledUsers) -> float:
    """How many times as fast as exact lists its lists are."""
    some = SampledUsers(users.vectors[:32], users.hidden[:32])
    times, hidden = [], Hidden.of(some.hidden)
    for items in (found.exact, found):
        items.top_k(some.vectors, _K, hidden)  # the first call of all compiles
        start = time.perf_counter()
        items.top_k(some.vectors, _K, hidden)
        times.append(time.perf_counter() - start)
    return times[0] / times[1]
