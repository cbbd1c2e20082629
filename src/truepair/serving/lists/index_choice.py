"""IndexChoice: whether the plain lists of a service use an index, and which recall it must have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truepair.errors import check_choice, check_number, settle
from truepair.ranking.approximate.indexing import AUTO, CHOICES, EXACT, Indexing, SampledUsers, index_items
from truepair.ranking.prepared_items import PreparedItems
from truepair.recommender.model import Model

__all__ = ["AUTO", "CHOICES", "EXACT", "IndexChoice"]

_USERS = 256  # by whose lists the recall is measured


@dataclass(frozen=True)
class IndexChoice:
    """What `--index` and `--recall` say."""

    kind: str = AUTO
    recall: float = 0.99
    path: Path | None = None
    """Where the index is kept for the next start; None keeps none."""
    say: Callable[[str], object] = lambda text: None
    """Called with sentences on the progress."""

    def __post_init__(self) -> None:
        settle(self, kind=check_choice("index", self.kind, CHOICES))
        settle(self, recall=check_number("recall", self.recall, 0, 1, open_low=True))

    def applied(self, exact: PreparedItems, model: Model) -> Indexing:
        """The items with an index, or as they are; the recall is measured for users with a trained vector."""
        codes = np.flatnonzero(model.trained)
        codes = np.sort(np.random.default_rng(0).permutation(codes)[:_USERS])
        hidden = [model.seen.items_of(code) for code in codes.tolist()]
        users = SampledUsers(model.scorer.rows(codes), hidden)
        return index_items(exact, users, self.kind, self.recall, self.path, self.say)
