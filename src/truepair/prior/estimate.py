"""How many unlabelled pairs are positive after all: estimates of the prior τ, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from truepair.data.interactions import Interactions
from truepair.errors import check_whole
from truepair.prior.cells import Cells, count_cells
from truepair.prior.evidence import HELD_OUT, Evidence, Floats, gather
from truepair.prior.plateau import Plateau, fit_plateau
from truepair.prior.ratios import bbe, dedpul, threshold_ratios
from truepair.training import AUTO

METHODS = {
    "plateau": "the height that the curve of held-out positives over the score would reach",
    "dedpul": "density ratio and a consistent share (an upper bound)",
    "bbe": "best bin estimation (an upper bound)",
    "density": "the share of observed pairs: what the prior would be if as many were hidden as are seen",
}
LEVEL = 0.9
_SHAPES = (0.0, 2.0)  # the curves that the interval allows for; see `plateau`
_BLIND = 0.55  # a separation below which scores say nothing
_HIGHEST = 0.999  # a loss divides by 1 − τ
_RUNAWAY = 4  # times the curve's estimate: an upper bound beyond it says that the curve's end was not seen


@dataclass(frozen=True, eq=False, repr=False)
class PriorEstimate:
    """What the data say about τ, the share of positives among unlabelled pairs.

    tau         the recommended number: the plateau method's, or half of DEDPUL's where the curve does not
                show where it ends (`seen` is False)
    low, high   an interval that holds τ with 90% confidence *if what is observed is a random part of what
                is liked*: the bootstrap over users, for every shape of the curve that was allowed; up to
                DEDPUL's upper bound where the end of the curve was not seen
    user_tau    [U] each user's own τ: what the same curve says of the user's unlabelled items
    methods     every method's estimate by name; see `METHODS`
    separation  the chance that a held-out positive scores above an unlabelled pair; 0.5 says nothing
    observed    the share of observed pairs; `positive` the share of positives among all pairs: the class
                prior, of which `observed` is the lower bound
    """

    tau: float
    low: float
    high: float
    user_tau: Floats
    methods: dict[str, float]
    separation: float
    observed: float
    seen: bool
    cells: Cells = field(repr=False)
    curve: Plateau = field(repr=False)

    @property
    def positive(self) -> float:
        """The share of positives, observed or not, among all pairs."""
        return self.observed + self.tau * (1 - self.observed)

    def residual(self, observed: float) -> float:
        """τ among unlabelled pairs where only a part of the positives is labelled, as in a train part.

        (π − d)/(1 − d), with π the share of positives and d the share `observed` of that part.
        """
        return float(np.clip((self.positive - observed) / max(1 - observed, 1e-12), 0.0, 1 - 1e-9))

    @property
    def verdict(self) -> str:
        """In plain words."""
        told = (
            "If what is observed is a random part of what is liked, "
            f"between {self.low:.2%} and {self.high:.2%} of the unlabelled pairs are positive; "
            f"use {self.tau:.2g}."
        )
        if not self.seen:
            told += (
                " That is half of an upper bound, and little more than a guess: the scores do not show where "
                f"the positives end (separation {self.separation:.2f}). Tune τ on validation."
            )
        return told + " If popular items are more likely to be observed, the truth is likely higher."

    def __repr__(self) -> str:
        return f"<PriorEstimate τ = {self.tau:.3g}, from {self.low:.3g} to {self.high:.3g}>"

    def thresholds(self) -> tuple[Floats, Floats, Floats]:
        """Score, frac(U ≥ c)/frac(P ≥ c), frac(P ≥ c): what the ratio methods look at."""
        return threshold_ratios(self.cells)


def estimate_prior(
    interactions: Interactions,
    *,
    resamples: int = 100,
    dim: int = 16,
    epochs: int = 30,
    seed: int = 0,
    engine: str = AUTO,
    device: str = "auto",
    progress: bool = False,
) -> PriorEstimate:
    """Estimate τ from interactions alone, with one quick training on four fifths of them.

    `resamples` of the bootstrap; 0 leaves the interval to the shapes of the curve.

    >>> from truepair import simulate_world
    >>> world = simulate_world(300, 200, tau=0.1, density=0.08, seed=1)
    >>> estimate = estimate_prior(world.observed, resamples=0)
    >>> estimate.low < world.tau < estimate.high
    True
    """
    resamples = check_whole("resamples", resamples, 0, 100_000)
    evidence = gather(
        interactions, dim=dim, epochs=epochs, seed=seed, engine=engine, device=device, progress=progress
    )
    cells = count_cells(evidence)
    separation = evidence.separation
    methods = {"dedpul": dedpul(cells), "bbe": bbe(cells), "density": interactions.density}
    curve = fit_plateau(cells)
    seen = separation >= _BLIND and methods["dedpul"] <= _RUNAWAY * curve.prior
    low, high = _interval(cells, curve, resamples, seed)
    tau = min(curve.prior if seen else methods["dedpul"] / 2, _HIGHEST)
    if not seen:
        low, high = min(low, tau), max(methods["dedpul"], methods["bbe"])
    return PriorEstimate(
        tau,
        min(low, tau),
        max(high, tau),
        _user_priors(evidence, cells, curve, interactions, tau),
        {"plateau": curve.prior, **methods},
        separation,
        interactions.density,
        seen,
        cells,
        curve,
    )


def _interval(cells: Cells, curve: Plateau, resamples: int, seed: int) -> tuple[float, float]:
    """The lowest and the highest shape, each bootstrapped on its own side."""
    rng = np.random.default_rng(seed)
    flat, steep = (fit_plateau(cells, (shape, shape), curve.point) for shape in _SHAPES)
    ends = [[fitted.prior for fitted in (flat, steep, curve)]]
    for _ in range(resamples):
        drawn = cells.resampled(rng)
        if drawn.held_out.sum() > 0 and drawn.unlabelled.sum() > 0:
            ends.append([
                fit_plateau(drawn, (fitted.shape, fitted.shape), fitted.point).prior
                for fitted in (flat, steep, curve)
            ])  # fmt: skip
    priors = np.array(ends)
    low = np.quantile(priors.min(axis=1), (1 - LEVEL) / 2)
    return float(low), float(np.quantile(priors.max(axis=1), (1 + LEVEL) / 2))


def _user_priors(
    evidence: Evidence, cells: Cells, curve: Plateau, interactions: Interactions, tau: float
) -> Floats:
    """The mean of P(positive) over each user's unlabelled pairs, scaled to the recommended prior `tau`.

    The curve knows how the share of positives rises with a user's count: a user with few is drawn towards
    what such users have in common. Users who were not looked at get the mean of all.
    """
    counts = interactions.user_counts * (1 - HELD_OUT)  # all that is known of a user, on the curve's scale
    log_count = np.log1p(counts)[evidence.users] - cells.centre
    # where the curve runs up to c = 1 nothing is hidden: then its own rise tells the users apart
    chance = curve.positive(evidence.scores, log_count)
    if curve.share < 0.999:
        chance = curve.hidden(evidence.scores, log_count)
    drawn = np.bincount(evidence.users, minlength=interactions.n_users)
    mean = np.bincount(evidence.users, chance, interactions.n_users) / np.maximum(drawn, 1)
    left = (interactions.n_items - interactions.user_counts) * (drawn > 0)
    overall = float(mean @ left / max(left.sum(), 1))
    scaled = mean * (tau / overall) if overall > 0 else np.full(len(mean), tau)
    return np.clip(np.where(drawn > 0, scaled, tau), 0.0, _HIGHEST)
