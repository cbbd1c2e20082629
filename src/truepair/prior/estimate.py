"""Estimates of the prior τ, the share of positives among unlabelled pairs, and the jobs that need one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from truepair.data.interactions import Interactions
from truepair.errors import check_whole
from truepair.losses import Loss
from truepair.prior.holdout_scores import HELD_OUT, Evidence, Floats, gather
from truepair.prior.plateau import Plateau, fit_plateau
from truepair.prior.ratios import bbe, dedpul
from truepair.prior.score_counts import Cells, count_cells
from truepair.storage.types import Json
from truepair.training import AUTO, Job, check_sampler

RANDOM = "if the observed pairs are a random sample"
METHODS = {
    "plateau": "the plateau of the share of held-out positives as a function of the score",
    "dedpul": f"the largest share that is consistent with the density ratio (an upper bound {RANDOM})",
    "bbe": f"best bin estimation (an upper bound {RANDOM})",
    "density": "the share of observed pairs: the prior if as many positives are hidden as are observed",
}
ESTIMATED = "auto", "per-user"  # values of τ that are estimated from the data
LEVEL = 0.9
_SHAPES = (0.0, 2.0)  # the range of curve shapes in the interval; see `plateau`
_BLIND = 0.55  # below this separation the scores carry no information
_HIGHEST = 0.999  # a loss divides by 1 − τ
_RUNAWAY = 4  # if the upper bound exceeds the curve's estimate this many times, the plateau was not reached


@dataclass(frozen=True, eq=False, repr=False)
class PriorEstimate:
    """An estimate of τ, the share of positives among unlabelled pairs.

    tau          the recommended value: the plateau method's, or half of DEDPUL's if the scores do not reach
                 the plateau (`has_plateau` is False)
    low, high    an interval that contains τ with 90% confidence *if the observed pairs are a random sample of
                 the positives*: a bootstrap over users and over the allowed shapes of the curve; up to
                 the higher of DEDPUL's and BBE's if `has_plateau` is False
    user_tau     [U] τ of each user, from the same curve and the user's unlabelled items
    methods      the estimate of each method by name; see `METHODS`
    separation   the probability that a held-out positive scores above an unlabelled pair; 0.5 means that the
                 scores carry no information
    observed     the share of observed pairs; a lower bound of `positive`, the share of positives among all
                 pairs (the class prior)
    has_plateau  whether the scores reach the plateau of the curve
    """

    tau: float
    low: float
    high: float
    user_tau: Floats
    methods: dict[str, float]
    separation: float
    observed: float
    has_plateau: bool
    cells: Cells = field(repr=False)
    curve: Plateau = field(repr=False)

    @property
    def positive(self) -> float:
        """The share of positives, observed or not, among all pairs."""
        return self.observed + self.tau * (1 - self.observed)

    def residual(self, observed: float) -> float:
        """τ if only the share `observed` of all pairs is labelled, as in a train part.

        (π − d)/(1 − d), where π is the share of positives among all pairs and d is `observed`.
        """
        return float(np.clip((self.positive - observed) / max(1 - observed, 1e-12), 0.0, 1 - 1e-9))

    @property
    def verdict(self) -> str:
        """The estimate, and what it depends on. Nothing in the data tells a wrong one: lab/docs/prior.md."""
        rough = "" if self.has_plateau else ", a rough one: the scores reach no plateau"
        return (
            f"The estimate is τ = {self.tau:.2g}{rough}. If the observed pairs are a random sample of what "
            f"people like, between {self.low:.2%} and {self.high:.2%} of the unlabelled pairs are positive. "
            "The data cannot show whether they are. If popular items are more likely to be observed, τ is "
            "probably higher. Tune τ on validation, or label some randomly chosen pairs and count."
        )

    def __repr__(self) -> str:
        return f"<PriorEstimate τ = {self.tau:.3g}, from {self.low:.3g} to {self.high:.3g}>"


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
    """Estimate τ from interactions alone, by one short training on four fifths of them.

    The prior is a share of pairs, so weights and dislikes are not used. `resamples` is the number of
    bootstrap samples; with 0 the interval covers only the shapes of the curve.

    >>> from truepair import simulate_world
    >>> world = simulate_world(300, 200, tau=0.1, density=0.08, seed=1)
    >>> estimate = estimate_prior(world.observed, resamples=0)
    >>> estimate.low < world.tau < estimate.high
    True
    """
    resamples = check_whole("resamples", resamples, 0, 100_000)
    interactions = replace(interactions.pairs_only(), disliked=None)
    evidence = gather(interactions, dim, epochs, seed, engine, device, progress)
    cells = count_cells(evidence)
    separation = evidence.separation
    methods = {"dedpul": dedpul(cells), "bbe": bbe(cells), "density": interactions.density}
    curve = fit_plateau(cells)
    has_plateau = separation >= _BLIND and methods["dedpul"] <= _RUNAWAY * curve.prior
    low, high = _interval(cells, curve, resamples, seed)
    tau = min(curve.prior if has_plateau else methods["dedpul"] / 2, _HIGHEST)
    if not has_plateau:
        low, high = min(low, tau), max(methods["dedpul"], methods["bbe"])
    return PriorEstimate(
        tau,
        min(low, tau),
        max(high, tau),
        _user_priors(evidence, cells, curve, interactions, tau),
        {"plateau": curve.prior, **methods},
        separation,
        interactions.density,
        has_plateau,
        cells,
        curve,
    )


def _interval(cells: Cells, curve: Plateau, resamples: int, seed: int) -> tuple[float, float]:
    """The lower bound of the lowest shape and the upper bound of the highest one, by the bootstrap."""
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

    The curve depends on the user's number of pairs, so that users with few pairs get an estimate of similar
    users. Users without drawn pairs get `tau`.
    """
    counts = interactions.user_counts * (1 - HELD_OUT)  # all pairs of a user, on the scale of the curve
    log_count = np.log1p(counts)[evidence.users] - cells.centre
    # with c = 1 no positive is hidden; the curve itself then ranks the users
    chance = curve.positive(evidence.scores, log_count)
    if curve.share < 0.999:
        chance = curve.hidden(evidence.scores, log_count)
    drawn = np.bincount(evidence.users, minlength=interactions.n_users)
    mean = np.bincount(evidence.users, chance, interactions.n_users) / np.maximum(drawn, 1)
    left = (interactions.n_items - interactions.user_counts) * (drawn > 0)
    overall = float(mean @ left / max(left.sum(), 1))
    scaled = mean * (tau / overall) if overall > 0 else np.full(len(mean), tau)
    return np.clip(np.where(drawn > 0, scaled, tau), 0.0, _HIGHEST)


# --- jobs ----------------------------------------------------------------------------------------------


class PreparedJob(NamedTuple):
    """A job whose loss is complete, and facts about the estimates for the model file."""

    job: Job
    facts: Json


def prepare(job: Job, *, engine: str = AUTO, progress: bool = False) -> PreparedJob:
    """Complete the loss of a job: estimate its prior, then do what the loss itself needs before training.

    Most losses need neither; their jobs are returned unchanged.
    """
    check_sampler(job.loss, job.sampler)
    loss, found = with_estimated_prior(job.loss, job.interactions, seed=job.settings.seed)
    job = job if loss is job.loss else replace(job, loss=loss)
    loss, facts = loss.prepared(job, engine, progress)
    job = job if loss is job.loss else replace(job, loss=loss)
    return PreparedJob(job, facts if found is None else {"prior": found, **facts})


def with_estimated_prior(
    loss: Loss, train: Interactions, *, seed: int = 0, progress: bool = False
) -> tuple[Loss, Json | None]:
    """The loss with an estimated prior, and facts about the estimate; None if the loss needs no estimate.

    A resumed run must get the same prior, also on another machine. The short training therefore runs on the
    CPU, where it is reproducible, and the numbers are rounded to three digits.
    """
    word = getattr(loss, "tau", None)
    if word not in ESTIMATED:
        return loss, None
    found = estimate_prior(train, resamples=0, seed=seed, device="cpu", progress=progress)
    tau = _rounded(found.tau) if word == "auto" else [_rounded(own) for own in found.user_tau]
    numbers = {name: getattr(found, name) for name in ("tau", "low", "high", "separation")} | found.methods
    facts = {name: _rounded(value) for name, value in numbers.items()}
    return loss.with_prior(tau), {"asked": word, **facts}


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
