"""Exact InfoNCE that is told all labels but the judged ones: the goal of what learns without them."""

from __future__ import annotations

import torch
from torch import Tensor

from truepair.evaluation.evaluation import Validation
from truepair.sampling import Full
from truepair.training import FitResult, Job
from truepair.training.full.scoring import Blocks, Chosen, ScoredBlock
from truepair.training.full.trainer import FullTrainer
from truepair.training.loop import Run, run_to_the_end
from truepair_lab.truth.cases import TruthCase, mask_of
from truepair_lab.truth.fitting import one_thread
from truepair_lab.truth.treatments import REFERENCES, Labels


class ToldBlocks(Blocks):
    """Blocks whose anchors are compared with true negatives alone."""

    def __init__(self, job: Job, negative: Tensor) -> None:
        assert isinstance(job.sampler, Full)
        super().__init__(job.interactions, job.loss, job.sampler, torch.device("cpu"))
        self.negative = negative  # [n_users, n_items], bool

    def log_weights(self, chosen: Chosen) -> Tensor:
        """0 for a true negative, else −∞."""
        return torch.zeros(len(chosen.users), self.n_items).masked_fill_(
            ~self.negative[chosen.users], -torch.inf
        )

    def scored(self, chosen: Chosen, ours: Tensor, theirs: Tensor) -> ScoredBlock:
        """With as many unlabelled items as there are true negatives."""
        held = super().scored(chosen, ours, theirs)
        n = self.negative[chosen.users].sum(dim=1).to(ours.dtype)
        return held._replace(block=held.block._replace(n_unlabelled=n))


def fit_told(job: Job, case: TruthCase) -> FitResult:
    """Train with every positive but the judged ones and the validation part as anchors.

    Each meets the true negatives that are neither judged nor spare; who has none of those has no anchors.
    """
    labels, on_epoch = labels_of(case), validation_told(case)
    negative = ~(labels.excluded | labels.anchors)
    job = Job(
        job.encoder,
        job.loss,
        job.sampler,
        case.pairs(labels.anchors & negative.any(axis=1, keepdims=True)),
        job.settings,
    )
    with one_thread():
        trainer = FullTrainer(job)
        trainer.blocks = ToldBlocks(job, torch.from_numpy(negative))
        return run_to_the_end(Run(job, "full", trainer, on_epoch, None), 1, progress=False)


def labels_of(case: TruthCase) -> Labels:
    """What a fully supervised model of the lab is told."""
    told = REFERENCES["supervised"].labels
    assert told is not None
    return told(case)


def validation_told(case: TruthCase) -> Validation:
    """The validation part, ranked among what the model was not told."""
    untold = mask_of(case.valid) | case.spare
    return Validation(case.valid, case.pairs(~untold), f"ndcg@{min(20, case.train.n_items)}")
