"""Trend: what is popular now, and what a user did lately.

What is popular is a term of items, from counts of events that fade with several half-lives:

    term_i(t) = popularity · log p_i(t) + Σ_h weight_h · log(q_hi(t) / p_i(t))

p are the shares of the events before t, and q_h those where an event counts half as much for each half-life
that it is older. Few recent events say little, so that q_h starts from p as if there were 20 events more.
A term depends on events before its moment alone.

For users without history, the weights may be others: `new_users`.

What a user did lately is added to the vector of the user: own · Σ_j v_j ê_j / Σ_j v_j, where ê_j are the
unit vectors of the items that the user has, and v_j halves with every `own_half_life` later events. Where the
order of a history is not known, all of it counts alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.durations import check_half_life, total_seconds, units_per_second
from truepair.data.ids import Codes
from truepair.data.log import Log
from truepair.errors import InputError, check_number, check_type, settle

Floats = npt.NDArray[np.float64]

HALF_LIVES = ("1d", "4d", "16d", "64d", "256d")
"""Those that are tried together, as far as the data is longer."""

FINE_HALF_LIVES = ("1d", "2d", "4d", "8d", "16d", "32d", "64d", "128d", "256d")
"""Those of which one is tried alone."""

_PRIOR = 20.0  # events that shares of few events are pulled to those of all time by
_EVENTS = 1 << 22  # that are counted at a time


@dataclass(frozen=True)
class Trend:
    """The weights of what is popular now.

    half_lives   durations such as "7d", or numbers in the unit of the time column, rising
    weights      one for each: how many times the log of the ratio of recent shares to all-time shares counts,
                 in the unit of scores
    popularity   the weight of the log of all-time shares
    own          the weight of what the user did lately; it needs vectors of items
    own_half_life
                 in events of the user
    new_users    the weights of popularity and of each half-life for users without history; by default their
                 lists are in the order of the part of a score that is the same for all users
    """

    half_lives: tuple[str | float, ...] = ("7d",)
    weights: tuple[float, ...] = (1.0,)
    popularity: float = 0.0
    own: float = 0.0
    own_half_life: float = 10.0
    new_users: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("half_lives", "weights", "new_users"):
            check_type(name, getattr(self, name), (tuple, list), "give one value for each half-life: ('7d',)")
        if not self.half_lives or len(self.half_lives) != len(self.weights):
            raise InputError(
                f"{len(self.half_lives)} half_lives and {len(self.weights)} weights; give a weight for each "
                "half-life, and one half-life or more."
            )
        if self.new_users and len(self.new_users) != 1 + len(self.half_lives):
            raise InputError(
                f"{len(self.new_users)} weights of new_users for {len(self.half_lives)} half_lives; give one "
                "for popularity, and one for each half-life."
            )
        weights = tuple(check_number("weights", weight, -1e6, 1e6) for weight in self.weights)
        popularity = check_number("popularity", self.popularity, -1e6, 1e6)
        half_lives = tuple(check_half_life("half_lives", one) for one in self.half_lives)
        settle(
            self, half_lives=half_lives, weights=weights, popularity=popularity,
            own=check_number("own", self.own, 0, 1e6),
            own_half_life=check_number("own_half_life", self.own_half_life, 0, open_low=True),
            new_users=tuple(check_number("new_users", weight, -1e6, 1e6) for weight in self.new_users),
        )  # fmt: skip

    def own_part(self, items: Tensor, histories: Log) -> Tensor | float:
        """[n_users, d], what is added to the vectors of users for what they did lately."""
        if not self.own or not items.shape[1]:
            return 0.0
        return self.own * lately(items, histories, self.own_half_life).to(items)

    def term(self, counts: Counts) -> npt.NDArray[np.float32]:
        """[n_items], what each item's score gains at the moment of the counts."""
        return np.asarray(np.array([self.popularity, *self.weights]) @ counts.features(), dtype=np.float32)

    def of_new_users(self, counts: Counts) -> Floats:
        """[n_items], the scores of users without history; it needs `new_users`."""
        return np.asarray(np.array(self.new_users) @ counts.features())


def popularity_of(half_life: str | float) -> Trend:
    """The trend whose term is the log of recent shares."""
    return Trend((half_life,), (1.0,), 1.0)


def lately(items: Tensor, log: Log, half_life: float, users: Codes | None = None) -> Tensor:
    """[users, d], the mean of the unit vectors of what each did, with weights that halve with every
    `half_life` later events; zeros for users without events. By default for all users."""
    rows, (starts, liked) = np.arange(len(log.user_ids)) if users is None else users, log.histories
    counts = np.diff(starts)
    later = np.repeat(starts[1:], counts) - np.arange(len(liked)) - 1
    weights = np.ones(len(liked)) if log.time is None else np.exp2(-later / half_life)
    shape = (len(counts), len(items))
    found = sp.csr_array((weights.astype(np.float32), liked, starts), shape=shape)[rows]
    total: Floats = np.asarray(found.sum(axis=1), np.float64).ravel()
    unit = F.normalize(items.detach().float().cpu()).numpy()
    return torch.from_numpy(found @ unit / np.maximum(total, 1e-30)[:, None].astype(np.float32))


class Counts(NamedTuple):
    """How often each item occurred before a moment, with events that fade."""

    moment: float
    lengths: tuple[float, ...]
    """The half-lives in the unit of the times."""
    total: Floats
    """[n_items], events of all time."""
    faded: Floats
    """[half-lives, n_items], in events of the moment."""

    @staticmethod
    def of(log: Log, moment: float, lengths: tuple[float, ...]) -> Counts:
        """Those of a log's likes before the moment; each event counts, repeats too."""
        n = len(log.item_ids)
        nothing = Counts(moment, lengths, np.zeros(n), np.zeros((len(lengths), n)))
        assert log.time is not None
        for start in range(0, len(log), _EVENTS):
            part = slice(start, start + _EVENTS)
            rows = log.time[part] < moment
            if log.disliked is not None:
                rows &= ~log.disliked[part]
            nothing.add(log.items[part][rows], np.asarray(log.time[part][rows]))
        return nothing

    def add(self, items: npt.NDArray[np.integer], times: npt.NDArray[np.number]) -> None:
        """Count more events, which are not later than the moment."""
        n, age = len(self.total), self.moment - times
        self.total[:] += np.bincount(items, minlength=n)
        for row, length in zip(self.faded, self.lengths, strict=True):
            row += np.bincount(items, np.exp2(-age / length), minlength=n)

    def at(self, moment: float) -> Counts:
        """The same events, seen from a later moment."""
        ratio = np.exp2(-(moment - self.moment) / np.array(self.lengths))
        return Counts(moment, self.lengths, self.total.copy(), self.faded * ratio[:, None])

    def take(self, items: Codes) -> Counts:
        """The counts of these items; 0 for -1."""
        known = items >= 0
        return self._replace(
            total=np.where(known, self.total[items], 0.0), faded=np.where(known, self.faded[:, items], 0.0)
        )

    def scaled(self, factors: Floats) -> Counts:
        """The counts of each item times a factor."""
        return self._replace(total=self.total * factors, faded=self.faded * factors)

    def features(self) -> Floats:
        """[1 + half-lives, n_items]: the log of all-time shares; the logs of recent shares by them."""
        shares = (self.total + 0.5) / (self.total.sum() + 0.5 * len(self.total))
        recent = (self.faded + _PRIOR * shares) / (self.faded.sum(axis=1, keepdims=True) + _PRIOR)
        return np.vstack([np.log(shares), np.log(recent / shares)])


def lengths_of(half_lives: tuple[str | float, ...], log: Log) -> tuple[float, ...]:
    """Half-lives in the unit of the times of a log."""
    assert log.time is not None
    units = units_per_second(float(np.abs(log.time.astype(np.float64)).max(initial=0)))
    found = []
    for one in half_lives:
        if isinstance(one, str) and units is None:
            raise InputError(
                f"half_lives = {one!r} needs times of a clock, and the times here are too small for seconds "
                "since 1970; give numbers in their unit, or read a column of dates."
            )
        found.append((total_seconds(one) or 0.0) * (units or 0.0) if isinstance(one, str) else float(one))
    return tuple(found)


def tried_half_lives(log: Log, known: tuple[str, ...] = HALF_LIVES) -> tuple[str | float, ...]:
    """The half-lives to try for a log: those of the known ones that are shorter than half of it; where its
    times have no known unit, or are all of a few days, parts of it."""
    assert log.time is not None
    times = log.time.astype(np.float64)
    span = float(times.max() - times.min()) if len(times) else 0.0
    if units_per_second(float(np.abs(times).max(initial=0))) is not None:
        lengths = lengths_of(known, log)
        found = tuple(text for text, length in zip(known, lengths, strict=True) if length <= span / 2)
        if len(found) > 1:
            return found
    return tuple(float(f"{span / 2 / 4**k:.3g}") for k in (3, 2, 1, 0)) if span > 0 else ()
