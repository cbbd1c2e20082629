"""Automatic settings: temperature, popularity, dimension, epochs, blend and trend, from the data.

Short runs on held-out pairs climb to the best temperature and weight of popularity, one full run chooses the
epoch and the blend, and the caller trains on everything. docs/automatic.md has the measurements behind it.

Where there are many users, a sample of them is learnt from and judges. It is taken before anything is held
out, so that a search over a billion pairs touches those of the sample. The users are half as many as the
items at least: with few pairs for each item there is nothing to learn but popularity, and the search would
choose settings for that.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truepair.data.durations import budget_seconds
from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import EXTRA, Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import clock_times, split_temporal
from truepair.errors import InputError
from truepair.evaluation import parse_metric
from truepair.models.closed_forms import Popular
from truepair.randomness import random_order, stream_key
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.recommender.holdout import cut_in_time, hold_out, like_test, resolved
from truepair.search.plan import Point, SettingsSearch, Stopwatch
from truepair.search.settings_file import SettingsFile
from truepair.search.trend_choice import best_half_life
from truepair.spec import Spec
from truepair.spec.parameters import as_json
from truepair.storage.types import Json
from truepair.training import AUTO
from truepair.training.full.engine import check_state

MOST_USERS = 50_000  # who judge; and who are learnt from, unless there are many items
_ITEMS_OF_A_USER = 2
_HELD_OUT = 0.1  # of the pairs
_LATER = (0.1, 0.2, 0.3)  # of the pairs, by their time
_LEAST_USERS, _LEAST_PAIRS = 100, 1000  # with held-out pairs, to learn from: fewer say nothing
_LEAST_IN_TIME = 50  # who judge by what comes next: the trend has few numbers, and much to win


class _TooLittleError(InputError):
    """There is too little data to judge settings by."""


class AutomaticSettings(NamedTuple):
    """The spec with what was chosen, and facts for the model file."""

    spec: Spec
    facts: Json


def chosen_settings(
    spec: Spec,
    split: Split,
    budget: str | float | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    tables: FeatureTables = NO_TABLES,
) -> AutomaticSettings:
    """The automatic settings: those of the run that the checkpoint belongs to, or of a new search.

    The search is judged by the validation part of the split, or by a hold-out of its train part. `budget` is
    the time for the search and the training that follows.
    """
    limit = None if budget is None else budget_seconds(budget)
    settled = replace(spec, searched=(), given_rate=True)
    if isinstance(spec.encoder, Popular) and spec.encoder.half_life == "auto":
        return _popular_lately(settled, split)
    if not spec.searched:
        if limit is not None:
            raise InputError(f"budget = {budget!s:.60} has no effect: nothing is chosen here; leave it out.")
        return AutomaticSettings(settled, {})
    file = None if checkpoint is None else SettingsFile.of(checkpoint, spec, split, limit, tables)
    if file is not None and (before := file.read(settled)) is not None:
        return AutomaticSettings(*before)
    if spec.settings.optimizer_state != "device" and spec.engine in (AUTO, "full"):
        check_state(spec.job(split.train))  # an error now, and not after the search
    spec = replace(spec, metric=judging_metric(spec.metric, split.train.n_items))
    kept_file = None if spec.engine == "distributed" else file  # its ranks could read different ones
    kept, begun = ({}, None) if kept_file is None else kept_file.runs()
    clock = Stopwatch(limit, sum(run.seconds for run in kept.values()))
    users = some_users(split, spec.settings.seed)
    try:
        part = judging_parts(spec, split, users)
    except InputError as error:
        if spec.hold_out != "auto" and not isinstance(error, _TooLittleError):
            raise  # a hold-out that was set is not replaced
        if progress:
            print(f"automatic settings are skipped: {error}", file=sys.stderr)
        choice = AutomaticSettings(settled, {"automatic": {"skipped": str(error)}})
    else:
        whole = part.train if users is None else split.train
        search = SettingsSearch(spec, part, whole, clock, progress, tables, users, kept_file)
        search.kept, search.begun = kept, begun and Point(*begun)
        search.run()
        choice = _choice(settled, search, part.recipe)
    if file is not None:
        file.write({"facts": choice.facts})
        file.full_run.unlink(missing_ok=True)
    return choice


def _popular_lately(spec: Spec, split: Split) -> AutomaticSettings:
    """Popularity with the best half-life for what came last; without one where that cannot be judged."""
    clock_times(split.train, "half_life = 'auto'")
    metric = judging_metric(spec.metric, split.train.n_items)
    try:
        part = judging_parts(replace(spec, hold_out="time"), replace(split, valid=None))
        half_life = best_half_life(part, metric)
    except InputError as error:
        return AutomaticSettings(spec.with_half_life(None), {"automatic": {"skipped": str(error)}})
    facts = {"chosen": {"half_life": half_life}, "hold out": part.recipe, "metric": metric}
    return AutomaticSettings(spec.with_half_life(half_life), {"automatic": facts})


def _choice(settled: Spec, search: SettingsSearch, recipe: str) -> AutomaticSettings:
    """What a finished search chose, with its facts."""
    found, trials = settled.varied(**search.chosen), []
    chosen = {name: as_json(value) for name, value in search.chosen.items()}
    for trial in search.trials.values():
        score = None if trial.score is None else round(trial.score, 6)
        outcome = {"stop_after": trial.epoch, "score": score, "seconds": round(trial.seconds, 3)}
        trials.append({**trial.parameters, **outcome})
    if search.users is not None:
        recipe += f" of {len(search.users):,} of the {search.whole_size.n_users:,} users"
    facts = {
        "chosen": chosen,
        "repeat": found.call(),
        "hold out": recipe,
        "metric": search.judge.metric,
        "trials": trials,
        "blend": search.blend,
        "trend": search.trend,
        "seconds": round(search.clock.seconds, 3),
    }
    return AutomaticSettings(found, {"automatic": facts})


# --- what judges --------------------------------------------------------------------------------------


def judging_metric(metric: str, n_items: int) -> str:
    """The metric that judges trials: where a list would hold all items, lists of half of them.

    >>> judging_metric("ndcg@20", 1000), judging_metric("recall@20", 12)
    ('ndcg@20', 'recall@6')
    """
    name, k = parse_metric(metric)
    return metric if k < n_items else f"{name}@{max(1, n_items // 2)}"


def judging_parts(spec: Spec, split: Split, users: Codes | None = None) -> Split:
    """Train and validation of the search, of these users; raise if there is too little to judge by.

    The validation part is the given one, or held out in the way of the test part.
    """
    if users is not None:
        train, valid = only_users(split.train, users), split.valid
        valid = None if valid is None else only_users(valid, users)
        split = replace(split, train=train, valid=valid, test=train.take(np.zeros(len(train), bool)))
    how = like_test(split) if spec.hold_out == "auto" else spec.hold_out
    if split.valid:
        part = split
    elif how == "time" or (how == "auto" and resolved(split.train, how, _HELD_OUT) == "last"):
        part = _held_out_in_time(split.train, how, spec.settings.seed)
    else:
        part = hold_out(split.train, how, _HELD_OUT, spec.settings.seed)
    assert part.valid is not None
    n_judges = int(np.count_nonzero((part.valid.user_counts > 0) & (part.train.user_counts > 0)))
    fewest = _LEAST_USERS if cut_in_time(part) is None else _LEAST_IN_TIME
    judges = n_judges, fewest, "users with held-out pairs"
    for n, least, what in (judges, (len(part.train), _LEAST_PAIRS, "pairs to learn from")):
        if n < least:
            raise _TooLittleError(f"{n:,} {what} are too few to choose settings by; it takes {least:,}.")
    return judged_by_some(part, spec.settings.seed)


def _held_out_in_time(train: Interactions, how: str, seed: int) -> Split:
    """The last part of the time, more of it where few users have a past and a future: the judge is what comes
    next. With "auto", the last pairs of each user where there are few such users in a third of it."""
    if train.time_kind == "clock":
        for least, share in product((_LEAST_USERS, _LEAST_IN_TIME), _LATER):
            with suppress(InputError):  # all users are new
                part = split_temporal(train, test=share)
                judges = (part.test.user_counts > 0) & (part.train.user_counts > 0)
                if np.count_nonzero(judges) >= least:
                    return replace(part, valid=part.test, test=train.take(np.zeros(len(train), bool)))
    return hold_out(train, "last" if how == "auto" else how, _HELD_OUT, seed)


# --- a sample of many users ---------------------------------------------------------------------------


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
    if np.count_nonzero(part.valid.user_counts) <= MOST_USERS:
        return part
    order = _order(part.valid.n_users, seed)
    judges = order[part.valid.user_counts[order] > 0][:MOST_USERS]
    return replace(part, valid=part.valid.take(np.isin(part.valid.users, judges)))


def _order(n: int, seed: int) -> Codes:
    return random_order(stream_key(seed, int.from_bytes(b"users", "big")), n)


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
