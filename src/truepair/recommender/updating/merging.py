"""Merging: known interactions and new ones as one, by the rule for repeated events, with the ids of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.log import Policy, joined_log, positions
from truepair.data.rows.pairs import interactions_of, repeats
from truepair.errors import InputError


def merged(known: Interactions, new: Interactions, in_order: bool = False) -> Interactions:
    """The pairs and dislikes of both, as if all events had been read together.

    The rule for repeats is that of the new interactions if they were read, else that of the known ones. Where
    one of both has no times, what is new is later. Of ratings a model keeps none: with "max", the last event
    counts. An event without a weight has 1. `in_order`: where there are no times of a clock, the order of
    events is kept as places in histories.
    """
    user_ids = _all_ids("user", known.user_ids, new.user_ids)
    item_ids = _all_ids("item", known.item_ids, new.item_ids)
    before, policy = known.origin.policy, new.origin.policy
    if policy.reading is None:
        policy = replace(before, now=None) if policy == Policy() else replace(policy, reading=before.reading)
    if policy.changes_weights and known.origin.log is None:
        how = "half_life" if policy.half_life else "counts"
        raise InputError(f"weights by {how} need all events, and this model holds pairs only; fit it again.")
    logs = [part.among(user_ids, item_ids).log for part in (known, new)]
    if any(log.time is None or log.time_kind == "order" for log in logs):
        logs = [log.without(["time"]) for log in logs]
    if any(log.weight is not None for log in logs):
        logs = [log if log.weight is not None else replace(log, weight=np.ones(len(log))) for log in logs]
    if policy.half_life is not None and logs[0].time is None:
        raise InputError(f"half_life = {policy.half_life!r} needs times, and the new interactions have none.")
    log = replace(joined_log([replace(log, policy=policy) for log in logs]), policy=policy)
    if in_order and log.time is None:
        log = replace(log, time=positions(log.users), time_kind="order")
    if policy.duplicates == "error" and (found := repeats(log.keys.copy())) is not None:
        user, item = user_ids.ids[found.key // len(item_ids)], item_ids.ids[found.key % len(item_ids)]
        raise InputError(
            f"user {user.as_py()!r} has item {item.as_py()!r} already, and {found.others:,} other pairs are "
            "known, against duplicates='error'; give new pairs only, or duplicates='last'."
        )
    return interactions_of(log)


def _all_ids(what: str, known: IdMap, new: IdMap) -> IdMap:
    """The ids of both; an error that names the types if they are of two."""
    try:
        return known.union(new, what)
    except InputError:
        raise InputError(
            f"the known {what} ids are of type {known.ids.type}, such as {known.ids[0].as_py()!r}, and the "
            f"new ones of type {new.ids.type}, such as {new.ids[0].as_py()!r}; convert the new ones."
        ) from None
