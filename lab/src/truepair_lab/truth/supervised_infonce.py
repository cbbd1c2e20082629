"""Full-catalogue InfoNCE with all labels but the judged ones: an upper bound for models without labels."""

from __future__ import annotations

from dataclasses import replace

from truepair.training import FitResult, Job, fit
from truepair_lab.truth.cases import TruthCase
from truepair_lab.truth.fitting import one_thread, supervised_validation
from truepair_lab.truth.treatments import REFERENCES, Labels


def fit_supervised(job: Job, case: TruthCase) -> FitResult:
    """Train the job with the case's labels; the epoch is the best by validation."""
    with one_thread():
        return fit(supervised_job(job, case), supervised_validation(case))


def supervised_job(job: Job, case: TruthCase) -> Job:
    """The job with every positive but the judged ones and the validation part as anchors.

    They are compared with the true negatives that are neither judged nor spare; a user without any has no
    anchors.
    """
    labels = labels_of(case)
    negatives = ~(labels.excluded | labels.anchors)
    return replace(job, interactions=case.pairs(labels.anchors), negatives=negatives)


def labels_of(case: TruthCase) -> Labels:
    """The labels of a fully supervised model."""
    labels = REFERENCES["supervised"].labels
    assert labels is not None
    return labels(case)
