"""Exchangeability: whether held-out pairs are a random part of all pairs, or unlike those of train.

Under a random split, which of a user's n pairs are the h held-out ones is chance, whether the share was drawn
for each user or for all pairs together. Then, for any value x of a pair that does not depend on the choice,
the sum of x over all held-out pairs has

    mean      Σ_u h_u·x̄_u
    variance  Σ_u h_u·(1 − h_u/n_u)·s²_u        s²_u = Σ (x − x̄_u)² / (n_u − 1)

which are exact, and the sum is close to normal. The values are the popularity of the pair's item and, where
there are times of a clock, the pair's place in the user's history and the item's first appearance. They are
computed from train and held-out pairs together, so that each pair counts alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.log import Floats, Mask

LEVEL = 1e-3  # of all statistics of a split together
LEAST_PAIRS = 100  # held out: with fewer, the sum is not close to normal
LEAST_POPULARITY = 5  # many published splits leave out pairs of items that train does not have: rare ones
MOST_PAIRS = 4_000_000  # of more, the pairs of every second, third, … user are used
POPULAR = 0.1  # of all pairs are those of the popular items


@dataclass(frozen=True)
class Difference:
    """What was observed of the held-out pairs, and what is expected of a random split.

    Both are means over the held-out pairs; for popular items, the share of their pairs that is held out.
    `z` is their difference in standard deviations; `p` is two-sided, and corrected for the number of
    statistics.
    """

    statistic: str
    observed: float
    expected: float
    z: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether a random split would hardly ever show it."""
        return self.p < LEVEL


def differences(train: Interactions, held_out: Interactions) -> tuple[Difference, ...]:
    """How held-out pairs differ from a random part of all pairs; empty if there are too few to tell."""
    parts = train, held_out
    users, items = (np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "items"))
    is_held_out = np.arange(len(users)) >= len(train)
    popularity = train.item_counts + held_out.item_counts
    keep = popularity[items] >= LEAST_POPULARITY
    keep &= users % max(1, -(-len(users) // MOST_PAIRS)) == 0
    users, items, is_held_out = users[keep], items[keep], is_held_out[keep]
    if not LEAST_PAIRS <= is_held_out.sum() < len(users):
        return ()
    values = {"popular items": _popular(popularity)[items], "log popularity": np.log(popularity[items])}
    times = [part.time for part in parts if part.time is not None and part.time_kind == "clock"]
    if len(times) == 2:
        time = np.concatenate(times).astype(np.float64)[keep]
        values["place in history"] = _place_in_history(users, time)
        values["first appearance"] = _first_appearance(items, time)
    found = []
    for name, value in values.items():
        observed, expected, deviation = _sums(users, is_held_out, value)
        n = value.sum() if name == "popular items" else is_held_out.sum()
        z = (observed - expected) / deviation if deviation else 0.0
        found.append(Difference(name, observed / n, expected / n, z, _p(z, len(values))))
    return tuple(found)


def unlike_train(name: str, train: Interactions, held_out: Interactions) -> tuple[str, ...]:
    """A sentence that says how the held-out part is unlike train; none if it may well be a random part."""
    found = {each.statistic: each for each in differences(train, held_out) if each.significant}
    if not found:
        return ()
    popular, log_popularity = found.get("popular items"), found.get("log popularity")
    if popular and log_popularity and popular.z * log_popularity.z > 0:
        del found["log popularity"]  # the same once more
    clauses = ", ".join(_clause(each) for each in found.values())
    remedy = f"validate on a part that is like {name}"
    later = found.get("place in history")
    if train.time is not None and (train.time_kind == "order" or (later is not None and later.z > 0)):
        remedy = "use hold_out='last'" + (" or 'time'" if train.time_kind == "clock" else "")
    wrong = "a random validation part may choose the wrong settings"
    return (f"{name} is unlike train: {clauses}; {wrong}: {remedy}",)


def _clause(found: Difference) -> str:
    more, observed, expected = found.z > 0, found.observed, found.expected
    if found.statistic == "popular items":
        shares = f"{observed:.1%} of their pairs against {expected:.1%}"
        return f"popular items are held out {'more' if more else 'less'} often than at random ({shares})"
    if found.statistic == "log popularity":
        sizes = f"{math.exp(observed):.0f} pairs against {math.exp(expected):.0f}"
        return f"its items are {'more' if more else 'less'} popular than at random ({sizes})"
    when, places = "later" if more else "earlier", f"{observed:.0%} of the way against {expected:.0%}"
    if found.statistic == "place in history":
        return f"its pairs are {when} in their user's history ({places})"
    return f"its items appeared {when} for the first time ({places})"


def _popular(popularity: Codes) -> Floats:
    """1 for the most popular items that together have a tenth of the pairs, else 0."""
    ordered = np.sort(popularity)[::-1]
    least = ordered[int(np.searchsorted(np.cumsum(ordered), POPULAR * ordered.sum()))]
    return np.asarray(popularity >= least, dtype=np.float64)


def _place_in_history(users: Codes, time: Floats) -> Floats:
    """Each pair's place among its user's pairs by time, from 0 to 1; equal times share their mean place."""
    order = np.lexsort((time, users))
    sorted_users, sorted_time = users[order], time[order]
    new = np.append(True, (np.diff(sorted_users) > 0) | (np.diff(sorted_time) > 0))
    group = np.cumsum(new) - 1
    place = np.bincount(group, np.arange(len(users))) / np.bincount(group)  # among all pairs
    n = np.bincount(users)
    start = np.cumsum(n) - n
    found = np.empty(len(users))
    found[order] = place[group]
    return np.asarray((found - start[users]) / np.maximum(n[users] - 1, 1))


def _first_appearance(items: Codes, time: Floats) -> Floats:
    """The place of each pair's item among the items that occur, by their first times, from 0 to 1."""
    first = np.full(items.max() + 1, np.inf)
    np.minimum.at(first, items, time)
    known = np.sort(first[np.isfinite(first)])
    places = (np.searchsorted(known, first, "left") + np.searchsorted(known, first, "right") - 1) / 2
    return np.asarray(places[items]) / max(len(known) - 1, 1)


def _sums(users: Codes, held_out: Mask, values: Floats) -> tuple[float, float, float]:
    """The sum over held-out pairs, its mean and its standard deviation under a random split."""
    n = np.maximum(np.bincount(users), 1)
    h = np.bincount(users[held_out], minlength=len(n))
    mean = np.bincount(users, values) / n
    squares = np.bincount(users, (values - mean[users]) ** 2)
    variance = float((h * (n - h) / n * squares / np.maximum(n - 1, 1)).sum())
    if variance < 1e-18 * float((values**2).sum()):
        variance = 0.0  # each user's values are equal, but for rounding
    return float(values[held_out].sum()), float((h * mean).sum()), math.sqrt(variance)


def _p(z: float, statistics: int) -> float:
    return min(1.0, statistics * math.erfc(abs(z) / math.sqrt(2)))
