"""EASE, a linear model in closed form, with implicit's interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch

from truepair.adapters.implicit.lists import (
    Factors,
    Ids,
    Matrix,
    Scores,
    allowed_rows,
    pairs_of,
    rank,
    reshape,
)
from truepair.adapters.implicit.model import DEVICES, read_model, write_model
from truepair.errors import InputError, StorageError, check_choice
from truepair.models import closed_forms
from truepair.models.factor_matrices import dense
from truepair.recommender.model_file import Model
from truepair.spec.parameters import as_json
from truepair.training import Settings

_KIND = "implicit.ease"


class EASE(Factors):
    """Scores are x_u B: the user's row of `user_items` times item weights, computed without training.

    `regularization` is the l2 of EASE; `user_power` and `item_power` lower the weight of active users and
    popular items. `item_factors` is the matrix of item weights, items x items, and the vector of a user is
    the row of items; `recalculate_user` is exact.

    >>> user_items = sp.csr_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    >>> model = EASE(regularization=1.0)
    >>> model.fit(user_items)
    >>> sorted(model.recommend(0, user_items[0], N=2)[0].tolist())
    [2, 3]
    """

    def __init__(
        self,
        regularization: float = 500.0,
        use_gpu: bool | None = None,
        user_power: float = 0.0,
        item_power: float = 0.0,
    ) -> None:
        self.regularization, self.use_gpu = regularization, use_gpu
        self.user_power, self.item_power = user_power, item_power

    def _encoder(self) -> closed_forms.EASE:
        return closed_forms.EASE(self.regularization, self.user_power, self.item_power)

    def fit(self, user_items: Any, show_progress: bool = True) -> None:
        """Solve for the nonzero entries of a users x items matrix; their values are ignored."""
        pairs = pairs_of(user_items)
        device = Settings(device=DEVICES[self.use_gpu]).torch_device()
        _, items = self._encoder().solve(pairs, device)
        self._seen, self.item_factors = pairs, dense("items", items).cpu().numpy()

    def vectors(self, userid: Any) -> Matrix:
        """The rows of items of these users."""
        rows: Matrix = self._seen.csr()[np.atleast_1d(userid)].toarray()
        return rows

    def recalculate_user(self, userid: Any, user_items: Any) -> Matrix:
        """The rows of `user_items`, as ones."""
        self._check_fitted()
        self._check_width(user_items)
        rows: Matrix = pairs_of(user_items).csr().toarray()
        return rows[0] if np.isscalar(userid) else rows

    def _similar_items(self, itemid: Any, n: int, filter_items: Any, items: Any) -> tuple[Ids, Scores]:
        """By weight; the item itself has weight 0."""
        weights = self.item_factors[np.atleast_1d(itemid)]
        columns = sp.eye_array(len(self.item_factors), dtype=np.float32, format="csr")
        allowed = allowed_rows(len(self.item_factors), filter_items, items, "items")
        return reshape(rank(weights, columns, allowed, n), np.isscalar(itemid), items)

    def similar_users(
        self,
        userid: Any,
        N: int = 10,  # noqa: N803, implicit's name
        filter_users: Any = None,
        users: Any = None,
    ) -> tuple[Ids, Scores]:
        """Raise: users have no vectors but their items."""
        raise NotImplementedError("similar_users is not supported with this model")

    def save(self, fileobj_or_path: Any) -> None:
        """Write the model to a path or an open binary file, in truepair's file format; no pickle."""
        self._check_fitted()
        names = ("regularization", "use_gpu", "user_power", "item_power")
        facts = {"adapter": _KIND, "parameters": {name: as_json(getattr(self, name)) for name in names}}
        items = torch.from_numpy(self.item_factors)
        write_model(
            fileobj_or_path, Model(self._seen.csr(), items, self._seen, self._seen.item_counts, facts)
        )

    @classmethod
    def load(cls, fileobj_or_path: Any) -> Self:
        """Load a saved model; this runs no code from the file."""
        stored = read_model(fileobj_or_path)
        try:
            check_choice("adapter", stored.facts["adapter"], [_KIND])
            model = cls(**stored.facts["parameters"])
            model._encoder()  # for its checks
            model.item_factors = dense("items", stored.items).contiguous().numpy()
            if len(model.item_factors) != model.item_factors.shape[1]:
                raise InputError(f"the weights are of shape {model.item_factors.shape}, not items x items.")
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{fileobj_or_path} is not a saved {cls.__name__}: {error!r:.300}") from error
        model._seen = stored.seen
        return model
