"""The same numbers on CUDA: draws equal to the bit, training equal to rounding. Skipped without a device."""

import dataclasses
from functools import partial

import pytest
import torch

from truepair.encoders import ENCODERS, MF, LightGCN
from truepair.losses import DPL, LOSSES
from truepair.randomness import random_words, stream_key
from truepair.sampling import BNS, DNS, SAMPLERS, Draws, Popularity, Uniform
from truepair.training import Settings, fit
from worlds import two_tastes

fit_reference = partial(fit, engine="reference")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

SETTINGS = Settings(epochs=4, batch_size=100, n_extra=2, n_unlabelled=3, learning_rate=0.02, seed=3)


@pytest.fixture(scope="module")
def data():
    return two_tastes(n_users=120, n_items=60, each=12)


def on(device, encoder, loss, sampler, data, **changes):
    settings = dataclasses.replace(SETTINGS, device=device, **changes)
    return fit_reference(encoder, loss, sampler, data, settings)


def test_words_are_equal():
    words = [random_words(stream_key(1, 2), (1000, 7), torch.device(d)).cpu() for d in ("cpu", "cuda")]
    assert torch.equal(*words)


@pytest.mark.parametrize("sampler", [Uniform(), Popularity(0.5)], ids=str)
def test_draws_are_equal(sampler, data):
    batches = []
    for device in ("cpu", "cuda"):
        draws = Draws(data, sampler, device)
        anchors = list(draws.epoch(0, 1, 256))[2]
        batches.append(draws.batch(anchors, 4, 5, stream_key(0, 1, 2)))
    assert all(torch.equal(a, b.cpu()) for a, b in zip(*batches, strict=True))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_training_is_equal_up_to_rounding(loss, encoder, data):
    cpu, cuda = (on(d, ENCODERS[encoder](dim=8), LOSSES[loss](), Uniform(), data) for d in ("cpu", "cuda"))
    torch.testing.assert_close(cpu.users, cuda.users, rtol=1e-2, atol=2e-3)
    torch.testing.assert_close(cpu.items, cuda.items, rtol=1e-2, atol=2e-3)
    assert [r.loss for r in cpu.history] == pytest.approx([r.loss for r in cuda.history], rel=1e-3, abs=1e-4)
    assert cuda.users.device.type == "cpu"


@pytest.mark.parametrize("sampler", [DNS(pool=6), BNS(), BNS(in_batch=True)], ids=str)
def test_samplers_that_score_run_and_keep_their_promise(sampler, data):
    assert type(sampler) in SAMPLERS.values()
    assert on("cuda", MF(dim=8), DPL(), sampler, data).users.isfinite().all()
    draws, known = Draws(data, sampler, "cuda"), data.csr().toarray() > 0
    matrices = torch.randn(data.n_users, 4, device="cuda"), torch.randn(data.n_items, 4, device="cuda")
    batch = draws.batch(draws.anchors, 0, 2, 5, matrices)
    assert not known[batch.users.cpu()[:, None], batch.unlabelled.cpu()].any()


def test_per_user_priors_cosine_and_resume(data, tmp_path):
    encoder, loss = LightGCN(dim=8, hops=2, scoring="cosine", temperature=0.2), DPL(tau=[0.1] * data.n_users)
    settings = dataclasses.replace(SETTINGS, device="cuda")
    for epochs in (2, 4):
        shorter = dataclasses.replace(settings, epochs=epochs)
        resumed = fit_reference(encoder, loss, Uniform(), data, shorter, checkpoint=tmp_path / "run.ckpt")
    whole = fit_reference(encoder, loss, Uniform(), data, settings)
    torch.testing.assert_close(resumed.users, whole.users, rtol=1e-2, atol=1e-3)
