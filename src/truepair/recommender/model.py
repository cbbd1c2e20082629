"""Model: a fitted recommender: its spec, its scorer, and what it knows about users and items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from truepair.data.durations import moment_of
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_number
from truepair.evaluation.metrics import Mask
from truepair.evaluation.task import History
from truepair.models.encoders import SequenceEncoder, StartedSequence, ordered_histories
from truepair.models.factor_matrices import Rows
from truepair.models.feature_map import FeatureMap
from truepair.models.scorer import Scorer
from truepair.models.sequence_networks import PaddedHistories
from truepair.models.start import Start
from truepair.models.trend import Counts
from truepair.spec import Spec
from truepair.spec.parameters import as_json
from truepair.storage.types import Array, Json
from truepair.training import fold_in

UPDATES = "updates"
"""The fact: a record of each update, in order."""


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model; `facts` is metadata that nothing computes with, plain JSON."""

    spec: Spec
    scorer: Scorer
    seen: Interactions
    """What the users have, which is not recommended again; its ids are those of the model."""
    popularity: Codes
    """[n_items], the number of users of each item in training; 0 was never trained."""
    trained: Mask
    """[n_users], who has a trained row. A split may name users of its other parts only."""
    added: Mask
    """[n_items], items without a trained interaction that have a vector by their features."""
    tau: float | tuple[float, ...] | None = None
    """The prior that was trained with: one number, or one for each user."""
    recent: Counts | None = None
    """How often items occurred lately, as of the moment of the lists; None without a trend."""
    start: Start | None = None
    """Where an update goes on; None for closed forms, and where it was not kept."""
    network: Mapping[str, Tensor] = field(default_factory=dict)
    """The weights of a sequence encoder, beside the vectors of items."""
    item_map: FeatureMap | None = None
    """From features to rows of items; None without features."""
    folded: bool = False
    """Whether the users are new ones that were folded in, and not those of training."""
    data: str = ""
    """The checksum of the interactions that it was trained on."""
    n_updates: int = 0
    """Updates and removals since the fit; each update trains with a seed of its own."""
    new_pairs: int = 0
    """Pairs that updates have added since the fit."""
    facts: Json = field(default_factory=dict)

    @property
    def listed(self) -> Mask:
        """[n_items], which items can be listed: those with a trained interaction, and added ones."""
        return (self.popularity > 0) | self.added

    @property
    def history(self) -> History:
        """Who has a trained row, and what is popular."""
        return History(self.trained, self.appeal)

    @cached_property
    def appeal(self) -> Array:
        """[n_items], how much users without a trained row get each item: by its number of users or, with a
        trend, by its weights for new users, else by the part of a score that is the same for all users."""
        if self.recent is None or self.scorer.addition is None:
            return self.popularity
        trend = self.spec.trend
        if trend is not None and trend.new_users:
            scores = trend.of_new_users(self.recent)
        else:
            scores = self.scorer.addition.double().cpu().numpy()
        return np.where(self.listed, np.exp(scores - scores[self.listed].max()), 0.0)

    def with_recent(self, recent: Counts | None) -> Model:
        """The model with the trend of these counts."""
        if recent is None or self.spec.trend is None:
            return self
        trend = torch.from_numpy(self.spec.trend.term(recent))
        return replace(self, scorer=replace(self.scorer, trend=trend), recent=recent)

    def timeless(self) -> Model:
        """The model without its trend: the same vectors and weights, whose lists know no time."""
        if self.spec.trend is None:
            return self
        scorer = replace(self.scorer, users=self.own_vectors(), trend=None)
        return replace(self, spec=replace(self.spec, trend=None), scorer=scorer, recent=None)

    def own_vectors(self) -> torch.Tensor:
        """[n_users, d], the vectors of users without what they did lately."""
        trend, scorer = self.spec.trend, self.scorer
        return scorer.users if trend is None else scorer.users - trend.own_part(scorer.items, self.seen.log)

    def as_of(self, histories: Interactions, known: Interactions | None = None) -> Model:
        """The model whose users have done what these histories hold, in place of the known ones."""
        trend, scorer = self.spec.trend, self.scorer
        if self.spec.has_network:
            users = self.user_vectors(histories)
        elif trend is not None and trend.own:
            before = (self.seen if known is None else known).log
            users = scorer.users - trend.own_part(scorer.items, before)
            users = users + trend.own_part(scorer.items, histories.log)
        else:
            return self
        return replace(self, scorer=replace(scorer, users=users))

    def at(self, moment: object) -> Model:
        """The model whose lists are those of a moment, not before the last event that it knows: a date, or a
        number in the unit of the times."""
        if self.recent is None:
            raise InputError(
                f"at = {moment!r:.60} has no effect: the model has no trend, so that its lists are the same "
                "at any moment; leave it out, or fit data with times, with trend='recent'."
            )
        since = moment_of("at", moment, self.recent.moment)
        found = check_number("at", since, remedy="Give a date such as '2024-06-15', or a number.")
        if np.nextafter(found, np.inf) < self.recent.moment:
            raise InputError(
                f"at = {moment!r:.60} is before the last event of the model, {self.recent.moment!r}: its "
                "lists would know what came later. Give a later moment, or fit on the events before it."
            )
        return self.with_recent(self.recent.at(found))

    @cached_property
    def mean_tau(self) -> float | None:
        """The prior of a new user."""
        return sum(self.tau) / len(self.tau) if isinstance(self.tau, tuple) else self.tau

    @property
    def device(self) -> torch.device:
        """Where lists of many users are made."""
        return self.spec.settings.torch_device()

    def encode(self, histories: Interactions) -> Rows:
        """Rows of users by their histories, for products with `scorer.columns`; nothing is retrained.

        Items have the codes of the model. Trained vectors are fitted by the loss of the training while those
        of items stay fixed; the states of a network are one pass over the events; a closed form is exact.
        """
        history = None if self.scorer.weights is None else histories.weighted_csr()
        return self.scorer.query(self.user_vectors(histories), history)

    def user_vectors(self, histories: Interactions) -> Tensor:
        """The vectors of users by their histories, scaled for scoring. [n_users, d]"""
        spec, scorer = self.spec, self.scorer
        if not spec.is_trained:
            return torch.zeros(histories.n_users, 0)
        if spec.has_network:
            events = PaddedHistories.of(ordered_histories(histories), self.device)
            vectors = self.sequence.rows(events).cpu()
        else:
            vectors = self._folded_in(histories)
        vectors = vectors[:, : scorer.dim]
        if spec.trend is not None:
            vectors = vectors + spec.trend.own_part(scorer.items, histories.log)
        return vectors

    @cached_property
    def sequence(self) -> StartedSequence:
        """The network and the vectors of items, where lists of many users are made."""
        encoder = self.spec.trained
        assert isinstance(encoder, SequenceEncoder)
        started = StartedSequence(encoder, self.scorer.items)
        started.network.load_state_dict(dict(self.network))
        return started.to(self.device)

    def _folded_in(self, histories: Interactions) -> Tensor:
        spec, scorer = self.spec, self.scorer
        loss = spec.loss if self.mean_tau is None else spec.loss.with_prior(self.mean_tau)
        settings = spec.settings_for(len(histories), 0)
        columns = scorer.trained_columns
        return fold_in(columns, spec.trained, loss, spec.sampler, histories, settings, self.popularity)

    def parameters_json(self) -> Json:
        """The parameters of its spec as plain JSON."""
        return {name: as_json(value) for name, value in self.spec.parameters().items()}

    def __repr__(self) -> str:
        n = self.n_updates
        updated = "" if not n else ", updated once" if n == 1 else f", updated {n:,} times"
        return f"fitted on {self.seen}{updated}"
