"""Judging: the lists of a model for the users of a period, against what they took in it.

The model may not know all of these users and items. Its lists hold items that it knows; users without a
trained pair get the most popular ones. What was taken counts in any case: an item that the model does not
know is a miss.
"""

from __future__ import annotations

import numpy as np

from truepair.data.interactions import Interactions
from truepair.evaluation import Evaluation, parse_metric
from truepair.evaluation.metrics import METRICS
from truepair.ranking.hidden import Hidden
from truepair.ranking.selection import checked_k, has_pairs
from truepair.recommender.estimator import Recommender
from truepair.recommender.lister import ListedUsers, known_users
from truepair.recommender.lists import model_lister
from truepair.recommender.model import Model


def judge(model: Recommender, target: Interactions, before: Interactions, metric: str) -> Evaluation:
    """The metric for each user of the target; pairs of `before` are not recommended again.

    Both have the codes of all interactions, which include those of the model.
    """
    users, fitted = np.flatnonzero(target.user_counts), model.model_
    own = fitted.seen.user_ids.find(target.user_ids, "user")[users]  # -1: the model does not know the user
    block = known_users(fitted, target.user_ids.outside(users), own, exclude_seen=False)
    return judge_lists(fitted, block, target, before, metric)


def judge_lists(
    fitted: Model, block: ListedUsers, target: Interactions, before: Interactions, metric: str
) -> Evaluation:
    """The same for users as the lister takes them: those of the target with a pair, in their order."""
    name, k = parse_metric(metric)
    checked_k(k, fitted.seen.n_items)
    users = np.flatnonzero(target.user_counts)
    codes = target.item_ids.codes(fitted.seen.item_ids, "item")  # of the model's items
    place = np.full(before.n_items, -1)  # of each item among those that the model knows
    place[codes] = np.arange(len(codes))
    hidden = Hidden.joined([block.hidden, Hidden.pairs_of(before, users).recoded(place)], len(users))
    listed = model_lister(fitted).top_k(block._replace(hidden=hidden), k).items
    listed = np.pad(listed, ((0, 0), (0, k - listed.shape[1])), constant_values=-1)
    listed, trained = np.where(listed < 0, -1, codes[listed]), ~block.popular
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
