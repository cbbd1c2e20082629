"""Which engine "auto" takes, what is said of an epoch, and how many priors there must be."""

import math

import pytest

from truepair.errors import InputError
from truepair.losses import BPR, DPL, SL, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import BNS, Full, Uniform
from truepair.training import Job, Settings, choose_engine, fit
from truepair.training.loop import describe_epoch
from truepair.training.result import EpochRecord
from worlds import two_tastes


@pytest.mark.parametrize(
    ("encoder", "loss", "sampler", "optimizer", "engine"),
    [
        (MF(dim=4), BPR(), Uniform(), "sgd", "cpu"),
        (MF(dim=4), BPR(), Uniform(), "adagrad", "cpu"),
        (MF(dim=4), BPR(), Uniform(), "adam", "reference"),
        (LightGCN(dim=4), DPL(), Uniform(), "sgd", "reference"),
        (MF(dim=4), BPR(), BNS(pool=6, in_batch=True), "sgd", "reference"),
        (MF(dim=4), SL(), Uniform(), "sgd", "reference"),
        (MF(dim=4), InfoNCE(), Full(), "adam", "full"),
    ],
    ids=str,
)
def test_auto_takes_the_fastest_engine_that_can(encoder, loss, sampler, optimizer, engine):
    settings = Settings(device="cpu", optimizer=optimizer)
    assert choose_engine(Job(encoder, loss, sampler, two_tastes(), settings)) == engine


def test_the_old_name_of_the_lock_free_engine():
    settings = Settings(device="cpu", optimizer="sgd")
    assert choose_engine(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), settings), "cpu-fast") == "cpu"


def test_a_share_of_0_clamped_rows_is_shown_and_no_share_is_not():
    shares = {share: EpochRecord(1, 0.5, share, None, 0.1, 1.0) for share in (0.0, 0.25, None)}
    texts = {share: describe_epoch(record, 3, "ndcg@20") for share, record in shares.items()}
    assert texts[0.0] == "epoch 1/3  loss 0.5000  clamped 0.0%"
    assert texts[0.25] == "epoch 1/3  loss 0.5000  clamped 25.0%"
    assert texts[None] == "epoch 1/3  loss 0.5000"


def test_the_stated_loss_is_a_mean_over_rows():
    settings = Settings(epochs=1, batch_size=16, n_unlabelled=1, learning_rate=1e-9, device="cpu")
    found = fit(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), settings), engine="reference")
    assert found.history[0].loss == pytest.approx(math.log(2), abs=0.05)  # of scores near 0


@pytest.mark.parametrize("n", [39, 41])
def test_priors_must_be_as_many_as_users(n):
    job = Job(MF(dim=4), DPL(tau=(0.1,) * n), Uniform(), two_tastes(), Settings(epochs=1, device="cpu"))
    with pytest.raises(InputError, match=f"tau has {n} values, one per user, but there are 40 users"):
        fit(job)
