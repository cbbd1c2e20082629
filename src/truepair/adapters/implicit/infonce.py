"""InfoNCE over the full catalogue, truepair's default model, with implicit's interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from truepair.adapters.implicit.model import DEVICES, PairwiseModel, seed_of
from truepair.data.interactions import Interactions
from truepair.losses import InfoNCE, Loss
from truepair.recommender.estimator import Recommender
from truepair.training import Job


class FullCatalogueInfoNCE(PairwiseModel):
    """A softmax over all items with cosine scores: nothing is drawn. The defaults are those of `Recommender`.

    `regularization` is the weight decay. Scores are cosines divided by `temperature`, plus `popularity` times
    the logarithm of the number of users of an item; with a popularity, factors have one more column.

    >>> import scipy.sparse as sp
    >>> user_items = sp.csr_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    >>> model = FullCatalogueInfoNCE(factors=4, random_state=0)
    >>> model.fit(user_items, show_progress=False)
    >>> sorted(model.recommend(0, user_items[0], N=2)[0].tolist())
    [2, 3]
    """

    _kind = "implicit.infonce"

    def __init__(
        self,
        factors: int = 128,
        learning_rate: float = 0.005,
        regularization: float = 0.0,
        dtype: Any = np.float32,
        iterations: int = 40,
        use_gpu: bool | None = None,
        num_threads: int = 0,
        verify_negative_samples: bool = True,
        random_state: Any = None,
        temperature: float = 0.15,
        popularity: float = 0.0,
    ) -> None:
        super().__init__(
            factors,
            learning_rate,
            regularization,
            dtype,
            iterations,
            use_gpu,
            num_threads,
            verify_negative_samples,
            random_state,
        )
        self.temperature, self.popularity = temperature, popularity

    def _loss(self) -> Loss:
        return InfoNCE()

    def _job(self, pairs: Interactions) -> Job:
        return Recommender(
            dim=self.factors,
            learning_rate=self.learning_rate,
            weight_decay=self.regularization,
            epochs=self.iterations,
            temperature=self.temperature,
            popularity=self.popularity,
            seed=seed_of(self.random_state),
            device=DEVICES[self.use_gpu],
        ).job(pairs)
