"""Judging: models on events that none has learnt from, as the service would have ranked them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtr

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.evaluation import Evaluation
from truepair.evaluation.comparison import SIGNIFICANT
from truepair.evaluation.metrics import Floats
from truepair.randomness import random_bits
from truepair.recommender.estimator import Recommender
from truepair.recommender.lists import ListOptions
from truepair.recommender.model import Model
from truepair.reporting.backtesting.strategies import judge_lists
from truepair.serving.events.event import Kinds
from truepair.serving.events.reading import StoredHistory
from truepair.serving.id_texts import IdTexts
from truepair.serving.lists.histories import UserHistories
from truepair.serving.retraining.training_data import TrainingData, rows_by_user

MOST_USERS = 20_000
"""Users who are judged; of more, this many are sampled. To fold one in takes milliseconds."""

MARGIN = 0.02
"""A candidate has to lose less than this share of a former model's score."""

POWER = 0.8
"""How often enough users promote a candidate that is as good as the former model."""

EARLY = 0.001
"""The level of a decision by fewer users than are enough: it may be tried at each training."""


class LossTest(NamedTuple):
    """Whether a candidate loses less than a margin, by the users who judged."""

    p: float
    """Of the one-sided paired t-test that it loses the margin or more."""
    needed: int
    """How many users are enough for this margin."""


def loss_test(candidate: Floats, former: Floats, margin: float) -> LossTest:
    """Test whether the mean of d_u = candidate_u - (1 - margin) former_u is above 0.

    With n = ((z(.95) + z(.8)) sd(d) / (margin * mean of `former`))² users, a candidate that is as good as the
    former model passes at the level .05 in 80% of the cases.
    """
    kept = candidate - (1 - margin) * former
    mean, spread, allowed = kept.mean(), kept.std(ddof=1), margin * former.mean()
    p = stdtr(len(kept) - 1, -mean * np.sqrt(len(kept)) / spread) if spread else (1 - np.sign(mean)) / 2
    root = (ndtri(1 - SIGNIFICANT) + ndtri(POWER)) * spread
    needed = MOST_USERS if root >= allowed * np.sqrt(MOST_USERS) else int(np.ceil((root / allowed) ** 2))
    return LossTest(float(p), needed)


class Judgement(NamedTuple):
    """What was measured."""

    candidate: Evaluation
    running: Evaluation
    best: Evaluation  # of the best former model, which may be the running one
    metric: str

    def against(self, former: Evaluation, margin: float) -> LossTest:
        """The test of the candidate against the running or the best model."""
        return loss_test(self.candidate.values(self.metric), former.values(self.metric), margin)


def verdict(tests: Sequence[LossTest], users: int) -> str:
    """A candidate that passes every test is promoted; it is refused, if enough users have judged.

    With fewer, only what is beyond doubt is decided: p < EARLY. Otherwise the candidate waits for more.
    """
    is_enough = users >= max(test.needed for test in tests)
    if max(test.p for test in tests) < (SIGNIFICANT if is_enough else EARLY):
        return "promoted"
    return "refused" if is_enough or max(test.p for test in tests) > 1 - EARLY else "waited"


def judged(
    candidate: Recommender,
    running: Recommender,
    best: Recommender,
    data: TrainingData,
    kinds: Kinds,
    metric: str,
) -> Judgement:
    """Rank for each user of `data.judging` what they did not know, with each model.

    A model ranks as it is served: users are folded in with those of their events until the cut that it has
    not learnt from. What a user knew by then is left out of all lists.
    """
    target, before = _in_common_codes(data, candidate, running, best)
    rows, forgotten = rows_by_user(data.past), data.forgotten
    users = map(str, target.user_ids.outside(np.flatnonzero(target.user_counts)).to_pylist())
    past = {user: StoredHistory(rows.get(user, []), user in forgotten) for user in users}
    found = {
        one: _judged_as_served(one.model_, target, before, metric, past, kinds)
        for one in {candidate, running, best}
    }
    return Judgement(found[candidate], found[running], found[best], metric)


def n_users(data: TrainingData) -> int:
    """How many users can judge."""
    return 0 if data.judging is None else int((data.judging.user_counts > 0).sum())


def _in_common_codes(data: TrainingData, *models: Recommender) -> tuple[Interactions, Interactions]:
    """The target, and what was liked or disliked before; of the judged users alone, with the items of all."""
    target, known = data.judging, data.known
    assert target is not None
    chosen = dataclasses.replace(target.take(np.isin(target.users, _sampled(target))), disliked=None)
    users = IdMap.of(target.user_ids.outside(np.unique(chosen.users)), "user")
    items = known.item_ids.union(target.item_ids, "item")
    for model in models:
        items = items.union(model.seen_.item_ids, "item")
    keys = known.keys if known.disliked is None else np.union1d(known.keys, known.disliked)
    before = Interactions(*np.divmod(keys, known.n_items), known.user_ids, known.item_ids)
    return chosen.among(users, items), before.among(users, items)


def _sampled(target: Interactions) -> Codes:
    """The users who judge."""
    users = np.flatnonzero(target.user_counts)
    if len(users) > MOST_USERS:
        order = np.argsort(random_bits(0, len(users)), kind="stable")
        users = np.sort(users[order[:MOST_USERS]])
    return users


def _judged_as_served(
    model: Model,
    target: Interactions,
    before: Interactions,
    metric: str,
    past: dict[str, StoredHistory],
    kinds: Kinds,
) -> Evaluation:
    """The lists of the judged users, folded in with what the service knew about each, as it does it."""
    users, items = IdTexts.of(model.seen.user_ids, "user"), IdTexts.of(model.seen.item_ids, "item")
    histories = UserHistories(model, users, items, kinds)
    found = [histories.with_events(user, history) for user, history in past.items()]
    texts, options = list(past), ListOptions(exclude_seen=False)
    block = histories.listed(found, users.find(texts), users.typed(texts), options)
    return judge_lists(model, block, target, before, metric)
