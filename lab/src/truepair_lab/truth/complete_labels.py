"""Complete labels: the positives of a block of users and items in which every label is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from truepair.data.datasets.loading import load
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions


def positives_of(name: str, data_dir: Path | None) -> Interactions:
    """Those of "kuairec" or "jester5k"; any other pair of the block's users and items is a known negative."""
    found = load(name, data_dir)
    return found if name == "kuairec" else rated_above_0(found)


def rated_above_0(rated: Interactions) -> Interactions:
    """The users who rated every item, and their ratings above 0."""
    complete = np.flatnonzero(rated.user_counts == rated.n_items)
    rating = np.asarray(rated.rating)
    keep = np.isin(rated.users, complete) & (rating > 0)
    users = np.searchsorted(complete, rated.users[keep])
    user_ids = IdMap(rated.user_ids.outside(complete))
    return Interactions(users, rated.items[keep], user_ids, rated.item_ids, rating[keep])
