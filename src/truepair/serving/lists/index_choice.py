"""IndexChoice: whether the plain lists of a service use an index, and which recall it must have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truepair.data.interactions import Interactions
from truepair.errors import check_choice, check_number, settle
from truepair.evaluation.metrics import Mask
from truepair.models.factor_matrices import Rows, take_rows
from truepair.ranking.approximate.indexing import AUTO, CHOICES, EXACT, Indexing, People, index_items
from truepair.ranking.prepared_items import PreparedItems

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

    def applied(self, exact: PreparedItems, users: Rows, trained: Mask, seen: Interactions) -> Indexing:
        """The items with an index, or as they are; the recall is measured for users with a trained vector."""
        codes = np.flatnonzero(trained)
        codes = np.sort(np.random.default_rng(0).permutation(codes)[:_USERS])
        sample = People(take_rows(users, codes), [seen.items_of(code) for code in codes.tolist()])
        return index_items(exact, sample, self.kind, self.recall, self.path, self.say)
