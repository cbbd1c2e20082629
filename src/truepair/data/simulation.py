"""Simulated worlds whose true preferences are known, to check a recommender against the truth.

Real implicit feedback shows only some of what people like. In a simulated world all preferences are known,
and so is the process that selects the observed ones. The prior τ, the propensities and the hidden positives
are therefore exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.data.log import Mask
from truepair.errors import InputError, check_choice, check_number, check_whole, settle

Floats = npt.NDArray[np.floating]

EXPOSURES = ("random", "popularity")


@dataclass(frozen=True, eq=False, repr=False)
class World:
    """The observed interactions and the true preferences. Arrays are indexed by the codes of `observed`.

    `truth[u, i]` is whether u likes i; `propensity[i]` is the probability that a positive of item i is
    observed. The affinity, `tastes[u] · traits[i] + activity[u]`, plus noise decides the truth.
    """

    observed: Interactions
    truth: Mask  # (U, I)
    propensity: Floats  # (I,)
    tastes: Floats  # (U, dim), each row sums to 1
    traits: Floats  # (I, dim)
    activity: Floats  # (U,)
    recipe: str = "given"

    def __post_init__(self) -> None:
        n_users, n_items = self.observed.n_users, self.observed.n_items
        dim = self.traits.shape[-1]
        shapes = {"truth": (n_users, n_items), "propensity": (n_items,), "tastes": (n_users, dim)}
        for name, shape in (shapes | {"traits": (n_items, dim), "activity": (n_users,)}).items():
            array = np.array(getattr(self, name), dtype=bool if name == "truth" else None)
            if array.shape != shape:
                raise InputError(f"{name} has shape {array.shape}; {self.observed} needs {shape}.")
            array.flags.writeable = False
            settle(self, **{name: array})
        if wrong := int((~self.truth[self.observed.users, self.observed.items]).sum()):
            raise InputError(f"{wrong:,} observed pairs are not positive in `truth`; set them to True there.")

    @property
    def tau(self) -> float:
        """The prior τ: the share of positives among all unlabelled pairs."""
        unlabelled = self.truth.size - len(self.observed)
        return float(self.truth.sum() - len(self.observed)) / unlabelled if unlabelled else 0.0

    @cached_property
    def user_tau(self) -> npt.NDArray[np.float64]:
        """τ of each user: the share of positives among the user's unlabelled items (0 without any)."""
        unlabelled = self.observed.n_items - self.observed.user_counts
        return self.hidden.user_counts / np.maximum(unlabelled, 1)

    @cached_property
    def positives(self) -> Interactions:
        """All true positives, observed or not."""
        return self._interactions(self.truth)

    @cached_property
    def hidden(self) -> Interactions:
        """The true positives that were not observed: what a recommender should find."""
        unobserved = self.truth.copy()
        unobserved[self.observed.users, self.observed.items] = False
        return self._interactions(unobserved)

    @property
    def affinity(self) -> Floats:
        """The scores of an oracle, float32 (U, I): no model can rank better, except by chance."""
        return _affinity(self.tastes, self.traits, self.activity)

    def _interactions(self, pairs: Mask) -> Interactions:
        return _of_cells(np.flatnonzero(pairs), self.observed.user_ids, self.observed.item_ids)

    def __repr__(self) -> str:
        return (
            f"<World {self.recipe}: {self.observed.n_users:,} users x {self.observed.n_items:,} items, "
            f"{self.truth.sum():,} positives, {len(self.observed):,} of them observed, τ = {self.tau:.4g}>"
        )


def simulate_world(
    n_users: int = 1000,
    n_items: int = 1000,
    *,
    tau: float = 0.1,
    density: float = 0.05,
    dim: int = 8,
    exposure: str = "random",
    skew: float = 1.0,
    noise: float = 0.5,
    seed: int = 0,
) -> World:
    """A world with exactly n = round(density·U·I) observed pairs and the prior `tau` among the others.

    An item is a sparse mix of `dim` genres and has a quality; a user has tastes for genres and an activity:
    affinity = match/sd(match) + quality_i + activity_u, where match is the inner product of taste and mix.
    The n + round(tau·(U·I - n)) pairs with the highest affinity + noise·logistic are the positives. Of
    them n are observed, drawn without replacement: with equal weights (`exposure="random"`), or with
    weights popularity^skew (`"popularity"`), where popularity is the item's number of positives.

    The arguments determine the world for a given NumPy version; another version may draw or round
    differently. Worlds that differ only in exposure have the same truth. Memory: about 10 bytes for each
    of the U·I pairs.

    >>> simulate_world(100, 200, tau=0.1, density=0.05, seed=1)
    <World random exposure, seed 1: 100 users x 200 items, 2,900 positives, 1,000 of them observed, τ = 0.1>
    """
    n_users, n_items = check_whole("n_users", n_users, 1), check_whole("n_items", n_items, 1)
    (tau, density), dim = _check_shares(tau, density), check_whole("dim", dim, 2)
    exposure = check_choice("exposure", exposure, EXPOSURES)
    skew, noise = check_number("skew", skew, 0, 100), check_number("noise", noise, 0, 1e6)
    check_whole("n_users · n_items", n_users * n_items, 1, 2**33, "The complete truth must fit in memory.")
    rng = np.random.default_rng(check_whole("seed", seed, 0))
    n_observed, n_positive = _sizes(n_users * n_items, density, tau)

    item_ids, traits = _items(rng, n_items, dim)
    tastes = rng.dirichlet(np.full(dim, _USER_TASTE), size=n_users).astype(np.float32)
    activity = rng.normal(0, _ACTIVITY, size=n_users).astype(np.float32)
    truth = _highest(_label_scores(rng, tastes, traits, activity, noise), n_positive)
    popularity = truth.sum(axis=0)
    weight = (skew if exposure == "popularity" else 0.0) * np.log(np.maximum(popularity, 1))
    observed = _observed(rng, truth, weight, n_observed)
    return World(
        _of_cells(observed, numbered_ids("user", n_users), item_ids),
        truth,
        _propensity(popularity, weight, n_observed),
        tastes,
        traits,
        activity,
        f"{exposure} exposure{f' (skew {skew:g})' if exposure == 'popularity' else ''}, seed {seed}",
    )


# --- preferences ---------------------------------------------------------------------------------

# Dirichlet concentrations (below 1: a few genres dominate) and standard deviations in units of match.
_ITEM_MIX, _USER_TASTE = 0.15, 0.3
_QUALITY, _ACTIVITY = 1.0, 0.6


def _items(rng: np.random.Generator, n: int, dim: int) -> tuple[IdMap, Floats]:
    """Ids, and traits in the order of the ids."""
    mix = rng.dirichlet(np.full(dim, _ITEM_MIX), size=n)
    quality = rng.normal(0, _QUALITY, size=n)
    names = np.array(_names(rng, mix))
    order = np.argsort(names)
    # the standard deviation of the inner product of two symmetric Dirichlet draws
    spread = np.sqrt((dim - 1) / ((dim * _ITEM_MIX + 1) * (dim * _USER_TASTE + 1))) / dim
    # tastes sum to 1, so adding the quality to every trait adds it once to the affinity
    return IdMap.of(names), (mix / spread + quality[:, None])[order].astype(np.float32)


def _affinity(tastes: Floats, traits: Floats, activity: Floats) -> Floats:
    affinity = tastes @ traits.T  # (U, I)
    affinity += activity[:, None]
    return affinity


def _label_scores(
    rng: np.random.Generator, tastes: Floats, traits: Floats, activity: Floats, noise: float
) -> Floats:
    scores = _affinity(tastes, traits, activity)
    step = max(1, _BLOCK // len(traits))
    for start in range(0, len(scores), step):  # in blocks: NumPy draws logistic noise in float64 only
        block = scores[start : start + step]
        block += noise * rng.logistic(size=block.shape)
    return scores


def _highest(scores: Floats, n: int) -> Mask:
    """A mask of the `n` highest scores; of equal scores the first ones."""
    cut = np.partition(scores, scores.size - n, axis=None)[scores.size - n]
    chosen: Mask = scores > cut
    equal = np.flatnonzero(scores == cut)
    chosen.reshape(-1)[equal[: n - int(chosen.sum())]] = True
    return chosen


# --- observation ---------------------------------------------------------------------------------


def _observed(rng: np.random.Generator, truth: Mask, log_weight: Floats, n: int) -> Codes:
    """The cells of `n` positives, drawn by weight without replacement (highest log-weight + Gumbel)."""
    cells = np.flatnonzero(truth)
    keys = log_weight[cells % truth.shape[1]] + rng.gumbel(size=len(cells))
    return cells[_highest(keys, n)]


def _propensity(popularity: Codes, log_weight: Floats, n: int) -> Floats:
    """The probability that a positive of each item is observed: 1 - exp(-t·weight_i).

    A Gumbel key exceeds the threshold c with this probability, t = e^-c; t is such that n are expected.
    """
    if n == popularity.sum():
        return np.ones(len(popularity))
    low, high = -log_weight.max() - 50, -log_weight.min() + 50
    for _ in range(100):  # bisection steps: enough for the last bit of a float64
        log_t = (low + high) / 2
        too_many = popularity @ _chance(log_weight + log_t) > n
        low, high = (low, log_t) if too_many else (log_t, high)
    return _chance(log_weight + log_t)


def _chance(log_rate: Floats) -> Floats:
    return -np.expm1(-np.exp(np.minimum(log_rate, 50.0)))  # e^50 acts as infinity here, without overflow


def _of_cells(cells: Codes, user_ids: IdMap, item_ids: IdMap) -> Interactions:
    users, items = np.divmod(cells, len(item_ids))
    return Interactions(users, items, user_ids, item_ids)


# --- sizes -----------------------------------------------------------------------------------------

_BLOCK = 1 << 20


def _check_shares(tau: float, density: float) -> tuple[float, float]:
    tau = check_number("tau", tau, 0, 1, open_high=True, remedy="It is a share of unlabelled pairs.")
    remedy = "It is the share of observed pairs."
    density = check_number("density", density, 0, 1, open_low=True, open_high=True, remedy=remedy)
    if tau + density > 1:
        raise InputError(f"tau = {tau:g} and density = {density:g} add up to more than 1; lower one of them.")
    return tau, density


def _sizes(n_pairs: int, density: float, tau: float) -> tuple[int, int]:
    """How many pairs are observed, and how many are positive."""
    n_observed = round(density * n_pairs)
    if not n_observed:
        raise InputError(
            f"density = {density:g} of {n_pairs:,} pairs is no pair; raise it to {1 / n_pairs:.2g} or more."
        )
    return n_observed, n_observed + round(tau * (n_pairs - n_observed))


# --- names -----------------------------------------------------------------------------------------

_GENRES = """mystery romance comedy western horror drama adventure fantasy
history thriller musical documentary animation crime war sport"""
_ADJECTIVES = """Silent Golden Broken Crimson Distant Early Electric Empty Endless Faithful Final Forgotten
Frozen Gentle Hidden Hollow Honest Hungry Invisible Iron Last Little Lonely Lost Lucky Midnight Narrow
Northern Paper Patient Quiet Restless Scarlet Second Secret Seventh Shining Stolen Wandering Winter"""
_NOUNS = """Harbour Garden River Letter Mirror Mountain Orchard Station Kingdom Lantern Summer Island Window
Bridge Forest Promise Stranger Neighbour Detective Captain Teacher Daughter Brother Gambler Painter Sailor
Thief Witness Clockmaker Dancer Village Castle Desert Highway Library Market Railway Theatre Tower Valley"""


def _names(rng: np.random.Generator, mix: Floats) -> list[str]:
    """A distinct title for each item, followed by its strongest genre."""
    titles = [f"The {adjective} {noun}" for adjective in _ADJECTIVES.split() for noun in _NOUNS.split()]
    parts = range(2, 2 + (len(mix) - 1) // len(titles))  # sequels, if there are more items than titles
    titles += [f"{title}, Part {part}" for part in parts for title in titles]
    genres = _GENRES.split()
    genres += [f"genre {number}" for number in range(len(genres) + 1, mix.shape[1] + 1)]
    drawn = rng.permutation(len(titles))[: len(mix)]
    return [f"{titles[t]} ({genres[g]})" for t, g in zip(drawn, mix.argmax(axis=1), strict=True)]


def numbered_ids(what: str, n: int) -> IdMap:
    """`user 0001`, …: padded, so that the sorted order is the order of the numbers."""
    width = max(4, len(str(n)))
    return IdMap.of([f"{what} {number:0{width}d}" for number in range(1, n + 1)])
