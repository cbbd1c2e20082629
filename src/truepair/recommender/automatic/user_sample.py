"""A sample of the users where there are many: what a search learns from and is judged by.

It is taken before anything is held out, so that a search over a billion pairs touches those of the sample.
The users are half as many as the items at least: with few pairs for each item there is nothing to learn but
popularity, and the search would choose settings for that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import EXTRA, Interactions
from truepair.data.split import Split
from truepair.randomness import random_order, stream_key

MOST_USERS = 50_000  # who judge; and who are learnt from, unless there are many items
_ITEMS_OF_A_USER = 2


def some_users(split: Split, seed: int) -> Codes | None:
    """The users of the sample; None where there are few enough to take all.

    Those who can judge come first: who has a pair in the validation part or, without one, two pairs or more.
    """
    most = max(MOST_USERS, split.train.n_items // _ITEMS_OF_A_USER)
    if (n := split.train.n_users) <= most:
        return None
    can_judge = split.train.user_counts > 1 if split.valid is None else split.valid.user_counts > 0
    order = _order(n, seed)
    return np.sort(order[np.argsort(~can_judge[order], kind="stable")][:most])


def judged_by_some(part: Split, seed: int) -> Split:
    """The split with the held-out pairs of MOST_USERS users at most."""
    assert part.valid is not None
    order = _order(part.valid.n_users, seed)
    judges = order[part.valid.user_counts[order] > 0]
    if len(judges) <= MOST_USERS:
        return part
    return replace(part, valid=part.valid.take(np.isin(part.valid.users, judges[:MOST_USERS])))


def _order(n: int, seed: int) -> Codes:
    return random_order(stream_key(seed, int.from_bytes(b"users", "big")), n)


def split_of_users(split: Split, users: Codes | None) -> Split:
    """The train and the validation part of these users, who become the users 0, 1, …"""
    if users is None:
        return split
    train, nobody = only_users(split.train, users), np.empty(0, np.int64)
    valid = None if split.valid is None else only_users(split.valid, users)
    return replace(split, train=train, valid=valid, test=train.take(nobody))


def only_users(data: Interactions, users: Codes) -> Interactions:
    """The pairs of these users, given in rising order, who become the users 0, 1, …"""
    counts = data.user_counts[users]
    ends = np.cumsum(counts)
    rows = np.arange(ends[-1] if len(ends) else 0) + np.repeat(data.indptr[users] - ends + counts, counts)
    place = np.full(data.n_users, -1)
    place[users] = np.arange(len(users))
    columns: dict[str, Any] = {
        name: column[rows] for name in EXTRA if (column := getattr(data, name)) is not None
    }
    return Interactions(
        np.repeat(np.arange(len(users)), counts), data.items[rows], IdMap.range(len(users)), data.item_ids,
        **columns, time_kind=data.time_kind,
        disliked=data.recoded_dislikes(place, np.arange(data.n_items), data.n_items),
    )  # fmt: skip
