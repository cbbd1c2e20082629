"""Merging: known interactions and new ones as one, by the rule for repeated events, with the ids of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from truepair.data.durations import units_per_second
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.log import Policy, Values, joined_log, positions
from truepair.data.rows.pairs import interactions_of, repeats
from truepair.errors import InputError


def merged(known: Interactions, new: Interactions) -> Interactions:
    """The pairs and dislikes of both, as if all events had been read together.

    The rule for repeats is that of the new interactions if they were read, else that of the known ones. Where
    one of both has no times, what is new is later, and known times become an order. Of ratings a model keeps
    none: with "max", the last event counts. An event without a weight has 1.
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
    is_ordered = logs[0].time is not None
    is_timed = all(log.time is not None and log.time_kind == "clock" for log in logs)
    if not is_timed:
        logs = [log.without(["time"]) for log in logs]
    if any(log.weight is not None for log in logs):
        logs = [log if log.weight is not None else replace(log, weight=np.ones(len(log))) for log in logs]
    if policy.half_life is not None and logs[0].time is None:
        raise InputError(f"half_life = {policy.half_life!r} needs times, and the new interactions have none.")
    log = replace(joined_log([replace(log, policy=policy) for log in logs]), policy=policy)
    if is_ordered and not is_timed:
        log = replace(log, time=positions(log.users), time_kind="order")
    if policy.duplicates == "error" and (found := repeats(log.keys.copy())) is not None:
        user, item = user_ids.ids[found.key // len(item_ids)], item_ids.ids[found.key % len(item_ids)]
        raise InputError(
            f"user {user.as_py()!r} has item {item.as_py()!r} already, and {found.others:,} other pairs are "
            "known, against duplicates='error'; give new pairs only, or duplicates='last'."
        )
    return interactions_of(log)


def continued(new: Interactions, latest: float) -> Interactions:
    """New interactions with times that go on after known ones, of which `latest` is the last: in their unit,
    and numbers of rows (`chronological`) after it."""
    if new.time is None or new.time_kind == "order" or not len(log := new.log):
        return new
    assert log.time is not None
    if "chronological" in (new.origin.policy.reading or {}):
        return new if log.time.min() > latest else _timed(new, lambda time: time + int(latest) + 1)
    newest = float(np.abs(log.time.astype(np.float64)).max())
    before, now = units_per_second(abs(latest)), units_per_second(newest)
    if (before is None) != (now is None):
        raise InputError(
            f"the known times go up to {latest:g}, and the new ones up to {newest:g}, and only one of both "
            "has the size of times since 1970; give times in the unit of the known ones."
        )
    ratio = (before or 1.0) / (now or 1.0)
    if ratio == 1:
        return new
    return _timed(new, lambda time: time * int(ratio) if ratio > 1 else time / round(1 / ratio))


def _timed(found: Interactions, change: Callable[[Values], Values]) -> Interactions:
    """The interactions with these times of their pairs and events."""
    origin = found.origin
    if (log := origin.log) is not None and log.time is not None:
        origin = origin._replace(log=replace(log, time=change(log.time)))
    assert found.time is not None
    return replace(found, time=change(found.time)).made_from(origin)


def _all_ids(what: str, known: IdMap, new: IdMap) -> IdMap:
    """The ids of both; an error that names the types if they are of two."""
    try:
        return known.union(new, what)
    except InputError:
        raise InputError(
            f"the known {what} ids are of type {known.ids.type}, such as {known.ids[0].as_py()!r}, and the "
            f"new ones of type {new.ids.type}, such as {new.ids[0].as_py()!r}; convert the new ones."
        ) from None
