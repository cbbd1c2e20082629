"""InfoNCE whose unlabelled items have weights of their own, by what a first model says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.errors import InputError
from truepair.losses import InfoNCE, Loss, Pair, Row, Rows
from truepair.losses.base import Family, number, temperature_field
from truepair.losses.debiased import Debiased
from truepair.training import Job
from truepair_lab.posterior.calibration import calibrate, posterior_facts
from truepair_lab.posterior.first_model import first_model
from truepair_lab.posterior.item_weights import PosteriorWeights
from truepair_lab.posterior.positive_probability import Posterior


@dataclass(frozen=True)
class InfoNCEPosterior(Debiased):
    """InfoNCE whose unlabelled items weigh 1 − P, P the chance that they are positive after all.

    −log e^{s⁺/t} / ( e^{s⁺/t} + n · Σ_j w_j e^{s_j/t} / Σ_j w_j )

    over the user's n unlabelled items j, w_j = 1 − P_j, P_j = min(τ·r(z_j), cap). z is the score of a first
    model, standardised within the user, and r(z) = f(z | held-out positive) / f(z | unlabelled). With τ = 0
    it is InfoNCE. `cap` keeps weights above 0.

    P depends on the user and the item, so the loss needs sampler="full" and a model that is trained first:
    `Recommender` and `truepair.prior.prepare` train it and fill in `posterior`. Called on scores alone, which
    do not say whose items they are, the loss is InfoNCE: all weights are 1.
    """

    family: ClassVar[Family] = Family(Pair.EXPONENTIAL, Row.SOFTMAX)
    uses_extra: ClassVar[bool] = False
    has_floor: ClassVar[bool] = False
    needs_items: ClassVar[bool] = True
    temperature: float = temperature_field()
    cap: float = number(0.99, 0, 1, open_low=True, open_high=True)
    posterior: Posterior | None = field(default=None, repr=False)  # without a repr: never saved

    @property
    def has_weights(self) -> bool:
        """Whether its weights are not all 1: the τ of some user is above 0."""
        return any(self.tau) if isinstance(self.tau, tuple) else self.tau != 0

    def prepared(self, job: Job, engine: str, progress: bool) -> tuple[Self, dict[str, Any]]:
        """With the posterior of a first model, calibrated on interactions that were held out from it."""
        loss = self.with_density(job.interactions.density)
        if not loss.has_weights or loss.posterior is not None:
            return loss, {}
        first, held_out = first_model(job, loss.temperature, engine, progress)
        users, items = (vectors.to(job.settings.torch_device()) for vectors in (first.users, first.items))
        train, seed = first.job.interactions, job.settings.seed
        found, evidence = calibrate(users, items, job.interactions, train, held_out, seed)
        facts = {"posterior": posterior_facts(found, evidence, loss.tau, loss.cap)}
        return replace(loss, posterior=found), facts

    def item_weights(self, shape: tuple[int, int], device: torch.device) -> PosteriorWeights | None:
        """1 − P; None with τ = 0."""
        if not self.has_weights:
            return None
        if self.posterior is None:
            raise InputError(
                "InfoNCEPosterior needs a first model to weigh items, and has none; Recommender trains it. "
                "Here, use the job that truepair.prior.prepare(job) returns, or tau=0 for InfoNCE."
            )
        known = len(self.posterior.users), len(self.posterior.items)
        if known != shape:
            raise InputError(
                f"the posterior is of {known[0]} users x {known[1]} items, and the interactions have "
                f"{shape[0]} x {shape[1]}; prepare the loss for these interactions."
            )
        return PosteriorWeights(self.posterior, torch.tensor(self.tau, dtype=torch.float64), self.cap, device)

    def weighted(self, pos: Tensor, unlabelled: Tensor, log_weights: Tensor) -> Tensor:
        """The loss of each row, [B], with the logarithms of the weights of its items, [B, N]."""
        relative = unlabelled / self.temperature + log_weights
        log_mean = relative.logsumexp(dim=1) - log_weights.logsumexp(dim=1)
        return F.softplus(log_mean + math.log(unlabelled.shape[1]) - pos / self.temperature)

    def for_new_users(self) -> Loss:
        """InfoNCE: the first model has no vectors of new users, so all their items weigh 1."""
        return InfoNCE(self.temperature)

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        return InfoNCE(self.temperature).rows(pos, extra, unlabelled, users)
