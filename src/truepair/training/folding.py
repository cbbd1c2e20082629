"""Folding in: vectors for new users, by the same loss, with the item vectors held fixed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor, nn

from truepair.data.interactions import Interactions
from truepair.encoders import Encoder, StartedEncoder
from truepair.losses import Loss
from truepair.sampling import Sampler
from truepair.training.reference import fit_reference
from truepair.training.settings import Settings

EPOCHS, BATCH, RATE = 60, 1 << 16, 0.1


@dataclass(frozen=True)
class _FixedItems(Encoder):
    """An encoder whose items are given; only the users are learnt, from zero."""

    items: Tensor = field(default_factory=lambda: torch.empty(0, 0), compare=False)

    def start(self, interactions: Interactions, seed: int, device: torch.device) -> StartedEncoder:
        started = _StartedUsers(self, interactions.n_users, interactions.n_items, seed)
        started.item = nn.Parameter(self.items.clone(), requires_grad=False)
        # the mean of their items: in the right direction at once, and a function of the history alone
        counts = torch.from_numpy(interactions.user_counts.copy()).clamp(min=1)
        sums = torch.zeros(interactions.n_users, self.dim).index_add_(
            0,
            torch.from_numpy(interactions.users.copy()),
            self.items[torch.from_numpy(interactions.items.copy())],
        )
        started.user = nn.Parameter(sums / counts[:, None])
        return started.to(device)


class _StartedUsers(StartedEncoder):
    def forward(self) -> tuple[Tensor, Tensor]:
        cosine = self.encoder.scoring == "cosine"
        return F.normalize(self.user) / self.encoder.temperature if cosine else self.user, self.item


def fold_in(
    items: Tensor, encoder: Encoder, loss: Loss, sampler: Sampler, history: Interactions, settings: Settings
) -> Tensor:
    """The vectors [n_users, d] of the users of `history`, whose item codes are the rows of `items`.

    Works for any encoder: whatever made the items, a user's scores are dot products with them.
    """
    fixed = _FixedItems(items.shape[1], encoder.scoring, encoder.temperature, items)
    quick = replace(
        settings,
        epochs=EPOCHS,
        batch_size=BATCH,
        optimizer="adam",
        learning_rate=RATE,
        schedule="linear",
        patience=None,
    )
    if isinstance(getattr(loss, "tau", None), tuple):  # priors of other people
        loss = replace(loss, tau=sum(loss.tau) / len(loss.tau))  # type: ignore[attr-defined, type-var]
    return fit_reference(fixed, loss, sampler, history, quick).users
