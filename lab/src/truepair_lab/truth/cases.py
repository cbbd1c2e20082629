"""Cases: data whose true labels are known, with positives hidden from training.

A case divides all (user, item) pairs:

    train     observed positives, learnt from
    valid     observed positives held out: settings and epochs are chosen by them, never by the truth
    judged    pairs whose label is known and that judge the ranking: about half of those not observed,
              by chance; where few labels are known, all of them
    open      the other pairs with a known label: fully supervised models may learn from them
    spare     a fifth of the open true negatives: a supervised model does not know these either, so that its
              settings and epoch are chosen among pairs that it knows as little of
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.simulation import EXPOSURES
from truepair.errors import InputError, check_choice, check_number
from truepair.randomness import random_bits, stream_key

Mask = npt.NDArray[np.bool_]

VALID = 0.2  # of the observed positives
_JUDGED = 0.5  # of the pairs that are not observed
_LEAST_TRAIN = 20  # pairs; with fewer there is nothing to learn from
_SPARE = 0.2  # of the open true negatives
_STEADY = 16.0  # a user's own τ counts as much as the global one at so many known labels
_HIGHEST_TAU = 0.9
ROOM = 8 * 2**30  # bytes that a case may take
_AT_WORK, _KEPT = 100, 7  # bytes a pair: of a case that is trained and measured, and of one that waits


@dataclass(frozen=True, eq=False, repr=False)
class TruthCase:
    """Observed pairs, and what is known of the others. Masks are (U, I), by the codes of `train`."""

    name: str
    exposure: str  # "random", "popularity", or "self" where people chose
    hide: float  # the share of positives that was hidden; 0 where the data themselves hide
    seed: int
    train: Interactions
    valid: Interactions
    truth: Mask  # positive, as far as known
    known: Mask  # whether the label is known
    judged: Mask

    def __post_init__(self) -> None:
        for mask in (self.truth, self.known, self.judged):
            mask.flags.writeable = False
        _check_enough(self)

    @property
    def complete(self) -> bool:
        """Whether every label is known; only then can a model be fully supervised."""
        return bool(self.known.all())

    @cached_property
    def observed(self) -> Mask:
        """The pairs of train and valid."""
        mask = mask_of(self.train)
        mask[self.valid.users, self.valid.items] = True
        return mask

    @cached_property
    def unlabelled(self) -> Mask:
        """Pairs that training takes for unlabelled and whose label is known: what τ is a share of."""
        return self.known & ~mask_of(self.train)

    @cached_property
    def negatives(self) -> Mask:
        """Known true negatives."""
        return self.known & ~self.truth & ~self.observed

    @cached_property
    def spare(self) -> Mask:
        """True negatives that no supervised model knows, for choosing among."""
        chance = random_bits(stream_key(self.seed, 3), self.truth.size).reshape(self.truth.shape) / 2.0**64
        return self.negatives & ~self.judged & (chance < _SPARE)

    @property
    def tau(self) -> float:
        """The true prior: the share of positives among the unlabelled pairs of known label."""
        return float((self.truth & self.unlabelled).sum() / self.unlabelled.sum())

    @cached_property
    def user_tau(self) -> tuple[float, ...]:
        """Each user's own τ; where few labels of a user are known, drawn towards the global one."""
        known, positive = self.unlabelled.sum(axis=1), (self.truth & self.unlabelled).sum(axis=1)
        steady = 0.0 if self.complete else _STEADY
        share = (positive + steady * self.tau) / np.maximum(known + steady, 1)
        return tuple(np.minimum(share, _HIGHEST_TAU).tolist())

    def pairs(self, mask: Mask) -> Interactions:
        """The pairs of a mask, in the codes of this case."""
        users, items = np.nonzero(mask)
        return Interactions(users, items, self.train.user_ids, self.train.item_ids)

    def __repr__(self) -> str:
        return (
            f"<TruthCase {self.name}, {self.exposure} exposure, seed {self.seed}: {self.train.n_users:,} "
            f"users x {self.train.n_items:,} items, {len(self.train):,} in train, "
            f"{int((self.truth & self.judged).sum()):,} judged positives, τ = {self.tau:.4f}>"
        )


def mask_of(pairs: Interactions) -> Mask:
    """(U, I): whether each pair is there."""
    check_room(pairs)
    mask = np.zeros((pairs.n_users, pairs.n_items), dtype=bool)
    mask[pairs.users, pairs.items] = True
    return mask


def check_room(pairs: Interactions, seeds: int = 1) -> None:
    """An error where the tables of users x items would not fit into `ROOM`.

    bytes ≈ U·I·(100 + 7·(seeds − 1)), as measured: one case is at work, the others wait as masks.
    """
    need = pairs.n_users * pairs.n_items * (_AT_WORK + _KEPT * (seeds - 1))
    if need > ROOM:
        raise InputError(
            f"{pairs.n_users:,} users x {pairs.n_items:,} items with {seeds} seed{'s' * (seeds > 1)} need "
            f"about {need / 2**30:.1f} GiB, for every pair has a place in memory here; "
            f"{ROOM / 2**30:.0f} GiB is the most. Keep fewer users or items"
            + (", or take fewer seeds." if seeds > 1 else ".")
        )


def hidden_case(positives: Interactions, name: str, exposure: str, hide: float, seed: int) -> TruthCase:
    """A block whose labels are all known, with a share `hide` of its positives hidden.

    exposure="random":      every positive is equally likely to stay
    exposure="popularity":  one stays with a weight that is its item's count of positives
    """
    check_choice("exposure", exposure, EXPOSURES)
    hide = check_number("hide", hide, 0, 1, open_low=True, open_high=True, remedy="It is a share.")
    weight = np.log(positives.item_counts[positives.items]) if exposure == "popularity" else 0.0
    rng = np.random.default_rng(seed)
    keys = weight + rng.gumbel(size=len(positives))  # the highest n are a draw by weight, none twice
    n = round((1 - hide) * len(positives))
    observed = positives.take(np.sort(np.argsort(-keys, kind="stable")[:n]))
    return case_of(name, exposure, hide, seed, observed, mask_of(positives), None)


def case_of(
    name: str,
    exposure: str,
    hide: float,
    seed: int,
    observed: Interactions,
    truth: Mask,
    known: Mask | None,
) -> TruthCase:
    """Split off the validation part, and draw the judged pairs; `known` is None if all labels are known."""
    every = np.ones(truth.shape, dtype=bool) if known is None else known
    chance = random_bits(stream_key(seed, 1), truth.size).reshape(truth.shape) / 2.0**64
    judged = every & ~mask_of(observed) & (chance < (_JUDGED if known is None else 2.0))
    order = np.argsort(random_bits(stream_key(seed, 2), len(observed)), kind="stable")
    n_valid = round(VALID * len(observed))
    plain = Interactions(observed.users, observed.items, *_ids(observed))
    train, valid = plain.take(np.sort(order[n_valid:])), plain.take(np.sort(order[:n_valid]))
    return TruthCase(name, exposure, hide, seed, train, valid, truth, every, judged)


def _ids(pairs: Interactions) -> tuple[IdMap, IdMap]:
    return pairs.user_ids, pairs.item_ids


def _check_enough(case: TruthCase) -> None:
    """Every measure needs something of its kind to be measured on."""
    if len(case.train) < _LEAST_TRAIN or not len(case.valid):
        raise InputError(
            f"{case.name} has {len(case.train)} observed positives to learn from and {len(case.valid)} to "
            f"choose by; {_LEAST_TRAIN} and 1 are the least. Lower hide = {case.hide:g}, or give more data."
        )
    rankable = (case.truth & case.judged).any(axis=1) & (~case.truth & case.judged).any(axis=1)
    if not (rankable & (case.train.user_counts > 0)).any():
        raise InputError(
            f"{case.name} has no user with something to learn from and both a hidden positive and a true "
            "negative to judge by: τ is 0 or 1, or too little is hidden. Raise hide, or give more labels."
        )
