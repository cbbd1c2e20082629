"""Pairs: coded rows, among which pairs repeat -> each pair once, by the policy for repeated rows.

A row has a key, user·n_items + item. The functions give the same result for all rows at once and for
blocks of users one after the other, so that `read_interactions` and `prepare` share them; `interactions_of`
applies them to a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from truepair.data.columns import Raw
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions, Origin, Step, checked_weights, trusted_interactions
from truepair.data.log import Log, Mask, Policy, Values, stable_order
from truepair.data.rows.weighting import clock_of, decay_of, pair_weights, row_strength

DUPLICATES = ("last", "first", "max", "strongest", "sum", "error")
"""Policies for rows that repeat a pair."""

_DECIDED_BY = {"max": ("rating", "time"), "strongest": ("strength", "weight", "time"), "error": ()}
"""Policy -> columns whose highest value decides, in order; the default is the time, then the row."""


class Merged(NamedTuple):
    """Distinct pairs."""

    keys: Codes  # rising
    columns: dict[str, Values]
    removed: int  # rows
    rows: Codes | None = None  # the row that each pair's columns come from; None if there are no columns


class Repeats(NamedTuple):
    """Pairs that occur in more than one row; all fields are about the one whose first row comes first."""

    key: int
    row: int
    rows: int
    others: int  # how many more pairs repeat


def interactions_of(log: Log, history: tuple[Step, ...] = ()) -> Interactions:
    """The pairs and dislikes of a log by its policy, as of its last event: a half-life counts back from the
    policy's `now`, or from the newest time of these events."""
    policy = log.policy
    columns = {"rating": log.rating, "weight": log.weight, "time": log.time}
    extra = {name: column for name, column in columns.items() if column is not None}
    if policy.half_life is not None or policy.duplicates == "sum":
        extra["weight"] = np.ones(len(log)) if log.weight is None else log.weight
    if policy.half_life is not None and len(log):
        assert log.time is not None
        clock = clock_of(policy, log.time.max(), Raw("the log", (), lambda positions: []))
        extra["decayed"] = extra["weight"] * decay_of(policy, log.time, clock)
    keys, disliked = log.keys.copy(), None
    if log.disliked is not None and len(log):
        liked, disliked = part_dislikes(keys, extra, log.disliked, policy.duplicates)
        keys, extra = keys[liked], {name: column[liked] for name, column in extra.items()}
    if len(keys):
        merged = merge(keys, extra, policy)
        keys, extra = merged.keys, merged.columns
    extra.pop("decayed", None)
    users, items = codes_of(keys, len(log.item_ids))
    fields = {**extra, "history": history, "time_kind": log.time_kind, "origin": Origin(policy, log)}
    disliked = disliked if disliked is not None and len(disliked) else None
    return trusted_interactions(users, items, log.user_ids, log.item_ids, disliked=disliked, **fields)


def merge(keys: Codes, extra: Mapping[str, Values], policy: Policy) -> Merged:
    """Each pair once, with the columns of the row that the policy keeps. `keys` may be sorted in place."""
    duplicates = policy.duplicates
    if not extra and duplicates != "sum":
        keys.sort()
        distinct = keys[_is_first(keys)]
        return Merged(distinct, {}, len(keys) - len(distinct))
    by_strength = duplicates == "strongest" and "decayed" in extra
    if by_strength:
        extra = {**extra, "strength": row_strength(policy, extra["weight"], extra["decayed"])}
    order, ordered, starts = group(keys, extra, duplicates)
    if duplicates == "sum":
        extra = _sum_weights(extra, order, starts)
    if len(starts) == len(keys):  # nothing repeats
        distinct, chosen = ordered, order
    else:
        chosen = order[starts] if duplicates == "first" else order[_ends(starts, len(keys))]
        distinct = ordered[starts]
    columns = {role: column[chosen] for role, column in extra.items()}
    decayed = columns.pop("decayed", None)
    if by_strength:
        del columns["strength"]
        columns["time"] = np.maximum.reduceat(extra["time"][order], starts)  # an old event moves no time back
    if "weight" in columns:
        columns["weight"] = checked_weights(pair_weights(policy, columns["weight"], decayed))
    return Merged(distinct, columns, len(keys) - len(starts), chosen)


def codes_of(keys: Codes, n_items: int) -> tuple[Codes, Codes]:
    """Users and items of the keys, which are overwritten: they may take much memory."""
    return np.divmod(keys, n_items, out=(np.empty_like(keys), keys))


def has_ties(users: Codes, time: Values) -> bool:
    """Whether two pairs of a user have the same time; the users rise."""
    if not len(time):
        return False
    moments = (time + 0.0).view(np.int64) if time.dtype.kind == "f" else time  # equal where the times are
    first, span, n = int(moments.min()), int(moments.max()) - int(moments.min()) + 1, int(users[-1]) + 1
    at_once = min(n, max(1, (2**63 - 1) // span))  # users with whom a time fits into 63 bits
    bounds = np.searchsorted(users, np.arange(0, n + at_once, at_once))
    for start, end in pairwise(bounds):
        # sorting numbers is several times faster than sorting their positions
        of_users = moments[start:end] - first
        if at_once > 1:
            of_users += users[start:end] % at_once * span
        of_users.sort()
        if (of_users[1:] == of_users[:-1]).any():
            return True
    return False


def repeats(keys: Codes, rows: Codes | None = None) -> Repeats | None:
    """The repeated pair that occurs first; None if all are distinct. `rows` are the rows' numbers, rising
    within each pair; by default, 0, 1, …"""
    order, ordered, starts = group(keys, {}, "error")
    sizes = np.diff(starts, append=len(keys))
    if not (several := sizes > 1).any():
        return None
    first_rows = order[starts] if rows is None else rows[order[starts]]
    at = int(np.where(several, first_rows, np.iinfo(np.int64).max).argmin())
    return Repeats(int(ordered[starts[at]]), int(first_rows[at]), int(sizes[at]), int(several.sum()) - 1)


def part_dislikes(
    keys: Codes, extra: Mapping[str, Values], disliked: Mask, duplicates: str
) -> tuple[Mask, Codes]:
    """Which rows are likes that count, and the rising keys of the disliked pairs.

    A pair with likes and dislikes is what its deciding row says: all its rows of the other kind go.
    """
    deciding_by = {role: extra[role] for role in ("time", "rating") if role in extra}
    by = duplicates if duplicates in ("first", "max") else "last"
    order, ordered, starts = group(keys, deciding_by, by)
    sizes = np.diff(starts, append=len(keys))
    deciding = order[starts] if duplicates == "first" else order[_ends(starts, len(keys))]
    pair_disliked = disliked[deciding]
    of_disliked_pair = np.empty(len(keys), dtype=bool)
    of_disliked_pair[order] = np.repeat(pair_disliked, sizes)
    return ~of_disliked_pair & ~disliked, ordered[starts][pair_disliked]


def group(keys: Codes, extra: Mapping[str, Values], duplicates: str) -> tuple[Codes, Codes, Codes]:
    """The order of rows with equal pairs adjacent and the preferred row last; the keys in this order; the
    start of each pair.

    Rows of a pair are in the order of the deciding columns, then of the rows themselves.
    """
    order, ordered = stable_order(keys)
    is_first = _is_first(ordered)
    starts = np.flatnonzero(is_first)
    by = [role for role in _DECIDED_BY.get(duplicates, ("time",)) if role in extra]
    if by and len(starts) < len(keys):
        # only rows of repeated pairs need their columns compared
        repeated = ~is_first
        repeated[:-1] |= repeated[1:]
        rows = order[repeated]
        order[repeated] = rows[np.lexsort([*(extra[role][rows] for role in reversed(by)), keys[rows]])]
    return order, ordered, starts


def _is_first(ordered: Codes) -> Mask:
    """Whether each of the sorted keys is the first of its value."""
    found = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=found[1:])
    return found


def _ends(starts: Codes, n: int) -> Codes:
    return np.append(starts[1:], n) - 1


def _sum_weights(extra: Mapping[str, Values], order: Codes, starts: Codes) -> dict[str, Values]:
    """The columns, where each row has the total weight of its pair, and the total of its decayed weights."""
    found = {"weight": np.asarray(extra.get("weight", np.ones(len(order))), dtype=np.float64)}
    found |= {"decayed": np.asarray(extra["decayed"])} if "decayed" in extra else {}
    sizes = np.diff(starts, append=len(order))
    totals: dict[str, Values] = {}
    for name, weight in found.items():
        totals[name] = np.empty_like(weight)
        totals[name][order] = np.repeat(np.add.reduceat(weight[order], starts), sizes)
    return {**extra, **totals}
