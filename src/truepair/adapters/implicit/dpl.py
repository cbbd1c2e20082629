"""Debiased pairwise learning, with implicit's interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from truepair.adapters.implicit.model import PairwiseModel
from truepair.losses import DPL, Loss, Prior


class DebiasedPairwise(PairwiseModel):
    """DPL: BPR, corrected for the share `tau` of unlabelled pairs that are positive.

    `n_extra` and `n_unlabelled` are the paper's M and N; the other parameters are those of `PairwiseModel`.
    It needs a higher learning rate than implicit's default: on MovieLens-100k, 60 iterations give a
    validation NDCG@20 of 0.21 with 0.05, and of 0.18 with 0.01.
    """

    _kind = "implicit.dpl"

    def __init__(
        self,
        factors: int = 100,
        learning_rate: float = 0.01,
        regularization: float = 0.01,
        dtype: Any = np.float32,
        iterations: int = 100,
        use_gpu: bool | None = None,
        num_threads: int = 0,
        verify_negative_samples: bool = True,
        random_state: Any = None,
        tau: Prior = "density",
        n_extra: int = 5,
        n_unlabelled: int = 5,
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
        self.tau, self.n_extra, self.n_unlabelled = tau, n_extra, n_unlabelled

    def _loss(self) -> Loss:
        return DPL(tau=self.tau)

    def _loss_of(self, tau: Any) -> Loss:
        return DPL(tau=tau)

    def _numbers(self) -> tuple[int, int]:
        return self.n_extra, self.n_unlabelled
