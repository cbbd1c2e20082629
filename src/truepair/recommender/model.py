"""Model: a fitted recommender: its spec, its scorer, and what it knows about users and items."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.evaluation.metrics import Mask
from truepair.evaluation.task import History
from truepair.models.factor_matrices import Rows
from truepair.models.feature_map import FeatureMap
from truepair.models.scorer import Scorer
from truepair.models.start import Start
from truepair.spec import Spec
from truepair.spec.parameters import as_json
from truepair.storage.types import Json
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
    start: Start | None = None
    """Where an update goes on; None for closed forms, and where it was not kept."""
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
        return History(self.trained, self.popularity)

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
        of items stay fixed; a closed form is exact.
        """
        spec, scorer = self.spec, self.scorer
        history = None if scorer.weights is None else histories.weighted_csr()
        if not spec.is_trained:
            return scorer.query(torch.zeros(histories.n_users, 0), history)
        loss = spec.loss if self.mean_tau is None else spec.loss.with_prior(self.mean_tau)
        settings = spec.settings_for(len(histories), 0)
        vectors = fold_in(
            scorer.trained_columns, spec.trained, loss, spec.sampler, histories, settings, self.popularity
        )
        return scorer.query(vectors[:, : scorer.dim], history)

    def parameters_json(self) -> Json:
        """The parameters of its spec as plain JSON."""
        return {name: as_json(value) for name, value in self.spec.parameters().items()}

    def __repr__(self) -> str:
        n = self.n_updates
        updated = "" if not n else ", updated once" if n == 1 else f", updated {n:,} times"
        return f"fitted on {self.seen}{updated}"
