"""Simulated interactions over time: tastes move, items are launched and fade, users arrive.

They are like MovieLens in three ways: few items have most of the pairs, few users are very active, and a pair
occurs once. They are for tests of what only time shows: how fast a model ages, and whether updates keep up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.simulation import Floats, numbered_ids
from truepair.errors import InputError, check_number, check_whole
from truepair.randomness import random_bits, stream_key

WEEK = 604_800
"""The length of a period of a simulated world, in seconds."""

START = 1_704_067_200
"""The first second of a simulated world: 1 January 2024, UTC."""

# How strongly taste, quality and age decide what a user takes, as standard deviations of log weights.
_TASTE, _QUALITY, _ACTIVITY = 2.5, 1.0, 0.8
_FADED = 3.0  # the attraction of an old item is e^-3 of that of a new one, and falls no further


def simulate_drift(
    n_users: int = 1000,
    n_items: int = 600,
    *,
    periods: int = 10,
    pairs: int = 40,
    drift: float = 0.2,
    lifetime: float = 5.0,
    new_users: float = 0.5,
    new_items: float = 0.5,
    dim: int = 8,
    seed: int = 0,
) -> Interactions:
    """Interactions over `periods` weeks, with times in seconds since 1970, in a world that changes.

    pairs       the mean number of pairs of a user who is there from the beginning; the numbers are
                log-normal, and a user takes at most half of the catalogue of a week.
    drift       how far tastes move in a week: a taste vector z becomes √(1 - drift²)·z + drift·noise. With 0
                they stay, with 1 they are new each week.
    lifetime    weeks in which the attraction of an item falls by the factor e, down to e^-3.
    new_users, new_items
                the share of users and items that come after the beginning, evenly over the weeks.

    A user takes items without repetition, with weights exp(2.5·match + quality - age/lifetime), where match
    is the inner product of the taste and the item's traits over √dim. All of them are standard normal. Users
    and items without a pair are left out. All random numbers are functions of the seed and the place, so
    that the same arguments give the same interactions on every machine.

    >>> simulate_drift(100, 80, periods=4, pairs=10, seed=1)
    <Interactions: 92 users x 78 items, 704 pairs, density 9.81%, time>
    """
    n_users, n_items = check_whole("n_users", n_users, 1), check_whole("n_items", n_items, 2)
    periods, dim = check_whole("periods", periods, 2), check_whole("dim", dim, 1)
    pairs, seed = check_whole("pairs", pairs, 1), check_whole("seed", seed, 0, 2**63 - 1)
    drift = check_number("drift", drift, 0, 1, remedy="0 means that tastes stay.")
    lifetime = check_number("lifetime", lifetime, 0, open_low=True, remedy="It is a number of weeks.")
    shares = check_number("new_users", new_users, 0, 1), check_number("new_items", new_items, 0, 1)
    check_whole("n_users · n_items", n_users * n_items, 1, 2**28, "A week's weights must fit in memory.")
    world = _World(n_users, n_items, periods, pairs, drift, lifetime, dim, seed, *shares)
    users, items, time = (np.concatenate(parts) for parts in zip(*world.weeks(), strict=True))
    user_ids, item_ids = numbered_ids("user", n_users), numbered_ids("item", n_items)
    if not len(users):
        raise InputError(f"pairs = {pairs} of {n_users} users gave no pair at all; raise one of them.")
    found = Interactions(users, items, user_ids, item_ids, time=time)
    return replace(found.k_core(1), history=())  # without users and items that have no pair


class _World:
    """Users and items with their arrival, in weeks since the beginning, and what users take week by week."""

    def __init__(
        self,
        n_users: int,
        n_items: int,
        periods: int,
        pairs: int,
        drift: float,
        lifetime: float,
        dim: int,
        seed: int,
        new_users: float,
        new_items: float,
    ) -> None:
        self.periods, self.drift, self.lifetime, self.seed = periods, drift, lifetime, seed
        self.arrival = self._arrivals("arrival", n_users, new_users, before=0.0)
        # items of the beginning were launched before it, at the same pace as new ones
        self.launch = self._arrivals("launch", n_items, new_items, before=periods)
        self.taste = self._normal("taste", n_users, dim)
        self.traits = self._normal("traits", n_items, dim)
        self.quality = _QUALITY * self._normal("quality", n_items)
        activity = np.exp(_ACTIVITY * self._normal("activity", n_users) - _ACTIVITY**2 / 2)
        self.rate = pairs / periods * activity  # pairs of a week
        self.taken = np.zeros((n_users, n_items), dtype=bool)

    def weeks(self) -> list[tuple[Codes, Codes, Codes]]:
        """The users, items and times of each week's pairs."""
        found = []
        for week in range(self.periods):
            found.append(self._pairs_of(week))
            noise = self._normal("step", *self.taste.shape, place=week)
            self.taste = np.sqrt(1 - self.drift**2) * self.taste + self.drift * noise
        return found

    def _pairs_of(self, week: int) -> tuple[Codes, Codes, Codes]:
        n_users, n_items = self.taken.shape
        here, there = self.launch < week + 1, np.clip(week + 1 - self.arrival, 0, 1)
        wanted = np.floor(self.rate * there + self._uniform("count", n_users, place=week)).astype(np.int64)
        wanted = np.minimum(wanted, int(here.sum()) // 2)
        age = np.minimum(np.maximum(week - self.launch, 0) / self.lifetime, _FADED)
        match = self.taste @ self.traits.T / np.sqrt(self.traits.shape[1])
        gumbel = -np.log(-np.log(self._uniform("choice", n_users, n_items, place=week)))
        keys = np.where(here & ~self.taken, _TASTE * match + self.quality - age + gumbel, -np.inf)
        best = np.argsort(-keys, axis=1, kind="stable")
        rank = np.arange(n_items)
        chosen = (rank < wanted[:, None]) & np.isfinite(np.take_along_axis(keys, best, axis=1))
        users, items = np.repeat(np.arange(n_users), chosen.sum(axis=1)), best[chosen]
        self.taken[users, items] = True
        return users, items, self._times(week, users, items)

    def _times(self, week: int, users: Codes, items: Codes) -> Codes:
        """Seconds, evenly over the part of the week in which both the user and the item are there."""
        first = np.maximum(np.maximum(self.arrival[users], self.launch[items]), week)
        chance = self._uniform("time", *self.taken.shape, place=week)[users, items]
        weeks = first + chance * (week + 1 - first)
        seconds = np.minimum(np.floor(weeks * WEEK), (week + 1) * WEEK - 1)
        return np.asarray(START + seconds.astype(np.int64))

    def _arrivals(self, what: str, n: int, share: float, before: float) -> Floats:
        """Weeks since the beginning: the share `share` evenly over all, the others in `before` weeks."""
        late = self._uniform(what, n) < share
        when = self._uniform(what, n, place=1)
        return np.where(late, when * self.periods, -when * before)

    def _uniform(self, what: str, *shape: int, place: int = 0) -> Floats:
        """In (0, 1), by name, place and position."""
        name = (int.from_bytes(text.encode(), "big") for text in ("drift", what))
        key = stream_key(self.seed, *name, place)
        words = random_bits(key, int(np.prod(shape))) >> np.uint64(11)
        return ((words.astype(np.float64) + 0.5) / 2**53).reshape(shape)

    def _normal(self, what: str, *shape: int, place: int = 0) -> Floats:
        """Standard normal, by Box and Muller."""
        radius = np.sqrt(-2 * np.log(self._uniform(f"{what} r", *shape, place=place)))
        return np.asarray(radius * np.cos(2 * np.pi * self._uniform(f"{what} a", *shape, place=place)))
