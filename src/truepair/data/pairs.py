"""Pairs: coded rows, among which pairs repeat -> each pair once, by the policy for repeated rows.

A row has a key, user·n_items + item. The functions give the same result for all rows at once and for
blocks of users one after the other, so that `read_interactions` and `prepare` share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.data.ids import Codes
from truepair.data.interactions import Values, checked_weights
from truepair.data.weighting import Weighting

DUPLICATES = ("last", "first", "max", "strongest", "sum", "error")
"""Policies for rows that repeat a pair."""

_AT_ONCE = 1 << 20  # keys

Mask = npt.NDArray[np.bool_]

_DECIDED_BY = {"max": ("rating", "time"), "strongest": ("weight", "time"), "error": ()}
"""Policy -> columns whose highest value decides, in order; the default is the time, then the row."""


class Merged(NamedTuple):
    """Distinct pairs."""

    keys: Codes  # rising
    columns: dict[str, Values]
    removed: int  # rows


class Repeats(NamedTuple):
    """Pairs that occur in more than one row; all fields are about the one whose first row comes first."""

    key: int
    row: int
    rows: int
    others: int  # how many more pairs repeat


def merge(keys: Codes, extra: Mapping[str, Values], duplicates: str, weighting: Weighting) -> Merged:
    """Each pair once, with the columns of the row that `duplicates` keeps. `keys` may be sorted in place."""
    if not extra and duplicates != "sum":
        keys.sort()
        distinct = keys[_is_first(keys)]
        return Merged(distinct, {}, len(keys) - len(distinct))
    order, ordered, starts = group(keys, extra, duplicates)
    if duplicates == "sum":
        extra = _sum_weights(extra, order, starts)
    chosen = order[starts] if duplicates == "first" else order[_ends(starts, len(keys))]
    columns: dict[str, Any] = {role: column[chosen] for role, column in extra.items()}
    decayed = columns.pop("decayed", None)
    if "weight" in columns:
        columns["weight"] = checked_weights(weighting.pair_weights(columns["weight"], decayed))
    return Merged(ordered[starts], columns, len(keys) - len(starts))


def codes_of(keys: Codes, n_items: int) -> tuple[Codes, Codes]:
    """Users and items of the keys, which are overwritten."""
    users = keys // n_items  # NumPy divides by one number fast; for remainders it does not
    for first in range(0, len(keys), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        keys[some] -= users[some] * n_items
    return users, keys


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
    order, ordered, starts = group(keys, deciding_by, "last" if duplicates == "strongest" else duplicates)
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
    order, ordered = _stable_order(keys)
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


def _stable_order(keys: Codes) -> tuple[Codes, Codes]:
    """The stable order of the keys, and the keys in this order."""
    bits = max(len(keys) - 1, 0).bit_length()
    if len(keys) and int(keys.max()).bit_length() + bits <= 63:
        # sorting numbers is several times faster than sorting their positions, so the positions ride along
        packed = keys << bits
        packed |= np.arange(len(keys))
        packed.sort()
        return packed & ((1 << bits) - 1), packed >> bits
    order = np.argsort(keys, kind="stable")
    return order, keys[order]


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
