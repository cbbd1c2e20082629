"""Judging: the lists of a model for the users of a period, against what they took in it.

The model may not know all of these users and items. Its lists hold items that it knows; users without a
trained pair get the most popular ones. What was taken counts in any case: an item that the model does not
know is a miss.
"""

from __future__ import annotations

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.evaluation import Evaluation, parse_metric
from truepair.evaluation.metrics import METRICS, Mask
from truepair.ranking.selection import has_pairs, top_k
from truepair.recommender.estimator import Recommender
from truepair.recommender.known_ids import history_of
from truepair.recommender.model_file import Model
from truepair.recommender.new_users import with_more_users


def judge(model: Recommender, target: Interactions, before: Interactions, metric: str) -> Evaluation:
    """The metric for each user of the target; pairs of `before` are not recommended again.

    Both have the codes of all interactions, which include those of the model.
    """
    name, k = parse_metric(metric)
    known = with_more_users(model.model_, target.user_ids)  # its codes of users are now those of the target
    codes = target.item_ids.codes(known.seen.item_ids, "item")  # of the model's items
    users = np.flatnonzero(target.user_counts)
    trained = history_of(known).users[users]
    listed = _lists(known, users, trained, _recoded(before, codes, known.seen), k)
    listed = np.where(listed < 0, -1, codes[listed])
    hits = has_pairs(target, np.repeat(users, k), listed.ravel()).reshape(listed.shape)
    values = METRICS[name](hits, target.user_counts[users])
    return Evaluation(
        users,
        {metric: values},
        catalogue={},
        ks=(k,),
        n_users_without_target=target.n_users - len(users),
        n_unseen_pairs=int((~np.isin(target.items, codes)).sum()),
        target=target.hash,
        cold_users=users[~trained],
        cold_per_user={metric: values[~trained]},
    )


def _lists(model: Model, users: Codes, trained: Mask, taken: Interactions, k: int) -> Codes:
    """The model's items for each user (n, k); the most popular ones for users without a trained pair."""
    listed = np.empty((len(users), k), dtype=np.int64)
    alike, popularity = np.ones((model.seen.n_users, 1)), model.popularity[:, None]
    listed[trained] = top_k(model.users, model.items, k, rows=users[trained], exclude=taken).items
    listed[~trained] = top_k(alike, popularity, k, rows=users[~trained], exclude=taken).items
    return listed


def _recoded(part: Interactions, codes: Codes, seen: Interactions) -> Interactions:
    """The pairs of items that the model knows, in its codes of items."""
    place = np.full(part.n_items, -1)
    place[codes] = np.arange(len(codes))
    known = place[part.items] >= 0
    return Interactions(part.users[known], place[part.items[known]], part.user_ids, seen.item_ids)
