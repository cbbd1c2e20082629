"""The same numbers on CUDA: draws equal to the bit, training equal to rounding. Skipped without a device."""

import dataclasses
from functools import partial

import pytest
import torch

from truepair.errors import TrainingError
from truepair.losses import BPR, DPL, LOSSES, DPLHard, InfoNCE
from truepair.models.encoders import ENCODERS, MF, LightGCN
from truepair.randomness import random_words, stream_key
from truepair.sampling import BNS, DNS, SAMPLERS, Draws, Popularity, Uniform
from truepair.training import Job, Settings, choose_engine, fit, fit_many
from truepair.training.reference.trainer import ReferenceTrainer
from truepair.training.sampled.plan import FUSED_LOSSES
from worlds import two_tastes

fit_reference = partial(fit, engine="reference")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(autouse=True)
def lazy_however_small(monkeypatch):
    """So that tiny worlds meet the lazy updates too."""
    monkeypatch.setattr("truepair.training.sampled.gpu.runs._LAZY_PARAMETERS", 0)


SETTINGS = Settings(epochs=4, batch_size=100, n_extra=2, n_unlabelled=3, learning_rate=0.02, seed=3)


@pytest.fixture(scope="module")
def data():
    return two_tastes(n_users=120, n_items=60, each=12)


def on(device, encoder, loss, sampler, data, **changes):
    settings = dataclasses.replace(SETTINGS, device=device, **changes)
    return fit_reference(Job(encoder, loss, sampler, data, settings))


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
@pytest.mark.parametrize("encoder", [name for name, kind in ENCODERS.items() if not kind.reads_order])
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
        resumed = fit_reference(
            Job(encoder, loss, Uniform(), data, shorter), checkpoint=tmp_path / "run.ckpt"
        )
    whole = fit_reference(Job(encoder, loss, Uniform(), data, settings))
    torch.testing.assert_close(resumed.users, whole.users, rtol=1e-2, atol=1e-3)


# --- the fused engine: more of it is in training/test_gpu.py, which runs there too ---------------------


def job_of(encoder, loss, data, sampler=None, **changes):
    return Job(
        encoder, loss, sampler or Uniform(), data, dataclasses.replace(SETTINGS, device="cuda", **changes)
    )


def fused_runs(jobs):
    from truepair.training.sampled.gpu.runs import GpuRuns

    return GpuRuns(jobs)


def check_epochs(job, epochs=4, rate=0.005):
    """The first epoch launches kernels, the second captures them, the others replay the graph."""
    runs, theirs = fused_runs([job]), ReferenceTrainer(job)
    ours = runs.trainers[0]
    for epoch in range(epochs):
        mine, expected = (each.train(epoch, rate, lambda steps: None) for each in (ours, theirs))
        torch.testing.assert_close(mine.losses.float(), expected.losses.cpu(), rtol=1e-3, atol=1e-2)
        assert (mine.clamped is None) == (expected.clamped is None)
        assert (mine.clamped or 0) == pytest.approx(expected.clamped or 0, abs=3)
        for a, b in zip(ours.matrices(), theirs.matrices(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=2e-3)
    assert runs.graph is not None
    return runs


def losses():
    """One of each, with priors that clamp some rows."""
    return [kind(tau=0.2) if kind.uses_prior else kind() for kind in FUSED_LOSSES]


@pytest.mark.parametrize("loss", losses(), ids=str)
@pytest.mark.parametrize("encoder", [MF(dim=24), LightGCN(dim=24, hops=2)], ids=str)
def test_fused_epochs_equal_the_reference(loss, encoder, data):
    check_epochs(job_of(encoder, loss, data, weight_decay=1e-3))


@pytest.mark.parametrize(
    ("encoder", "sampler", "changes"),
    [
        (MF(dim=64, scoring="cosine", temperature=0.2), Popularity(), {"n_extra": 10, "n_unlabelled": 10}),
        (MF(dim=200), DNS(pool=17), {"l2_users": 0.1, "l2_items": 0.05}),
        (LightGCN(dim=32, hops=3, scoring="cosine"), Uniform(), {"l2_users": 0.1, "l2_items": 0.05}),
        (LightGCN(dim=7, hops=1), DNS(pool=6), {"n_extra": 0}),
        (MF(dim=64), BNS(pool=9, in_batch=True), {"batch_size": 333}),
        (LightGCN(dim=33, hops=2, scoring="cosine"), BNS(in_batch=True), {"l2_items": 0.05}),
        (MF(dim=1), Uniform(), {"n_extra": 0, "n_unlabelled": 1}),
    ],
    ids=str,
)
def test_other_fused_shapes_equal_the_reference(encoder, sampler, changes, data):
    check_epochs(job_of(encoder, DPL(tau=0.2), data, sampler, **changes))


@pytest.mark.parametrize("table_bytes", [1 << 30, 25_000], ids=["one table", "several tables"])
@pytest.mark.parametrize("loss", [BPR(), DPLHard(tau=[k % 9 / 10 for k in range(1500)])], ids=["bpr", "hard"])
def test_rows_that_wait_equal_the_reference(loss, table_bytes, monkeypatch):
    from truepair.training.sampled.gpu import runs as gpu_runs

    monkeypatch.setattr(gpu_runs, "_TABLE_BYTES", table_bytes)
    sparse = two_tastes(n_users=1500, n_items=1000, each=4)
    runs = check_epochs(job_of(MF(dim=16), loss, sparse, batch_size=64, weight_decay=1e-3, l2_users=0.01))
    assert runs.lazy
    assert len(runs.tables) == 1 or len(runs.tables) > 2
    assert runs.steps > 90


@pytest.mark.parametrize("encoder", [MF(dim=16), LightGCN(dim=16)], ids=str)
def test_fused_runs_of_a_group_end_as_they_would_alone(encoder, data):
    jobs = [
        job_of(encoder, DPL(tau=tau), data, seed=seed, weight_decay=decay, l2_items=l2)
        for tau, seed, decay, l2 in [(0.1, 1, 0, 0), (0.5, 2, 1e-2, 0.1), ([0.2] * data.n_users, 1, 0, 0.3)]
    ]
    rates = [0.005, 0.01, 0.002]
    group, singles = fused_runs(jobs), [fused_runs([job]) for job in jobs]
    for epoch in range(4):
        epochs = [epoch, epoch + 3, epoch]
        summary = group.train(epochs, rates)
        for run, single in enumerate(singles):
            expected = single.train([epochs[run]], [rates[run]])[0]
            torch.testing.assert_close(
                torch.from_numpy(summary[run]), torch.from_numpy(expected), rtol=1e-3, atol=2.0
            )
            for a, b in zip(group.matrices(run), single.matrices(0), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-2, atol=2e-3)


def test_many_fused_runs_with_early_stopping_and_one_that_diverges(data):
    jobs = [
        job_of(MF(dim=8), InfoNCE(), data, epochs=6, patience=2),
        job_of(MF(dim=8), InfoNCE(), data, epochs=6, learning_rate=1e30),
        job_of(MF(dim=8), InfoNCE(), data, epochs=5, seed=9),
        job_of(LightGCN(dim=8), InfoNCE(), data, epochs=4),
    ]
    scores = [0.1, 0.3, 0.2, 0.1, 0.9, 0.9]
    found = fit_many(jobs, [lambda state: scores[state.epoch - 1], None, None, None])
    assert [result.epoch for result in found if not isinstance(result, TrainingError)] == [2, 5, 4]
    assert isinstance(found[1], TrainingError)
    assert found[0].stopped_early
    for place in (0, 2, 3):
        job = jobs[place]
        on_epoch = (lambda state: scores[state.epoch - 1]) if place == 0 else None
        one = fit(job, on_epoch)
        assert one.engine == found[place].engine == "gpu"
        torch.testing.assert_close(one.users, found[place].users, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize(
    ("encoder", "batch"), [(MF(dim=8), 100), (MF(dim=8), 8), (LightGCN(dim=8), 100)], ids=str
)
def test_a_fused_run_goes_on_from_a_checkpoint(encoder, batch, data, tmp_path):
    job = job_of(encoder, DPL(tau=0.1), data, batch_size=batch, n_extra=1, n_unlabelled=1)
    for epochs in (3, 6):
        settings = dataclasses.replace(job.settings, epochs=epochs, learning_rate=0.005)
        longer = dataclasses.replace(job, settings=settings)
        resumed = fit(longer, engine="gpu", checkpoint=tmp_path / "run.ckpt")
    whole = fit(longer, engine="gpu")
    torch.testing.assert_close(resumed.users, whole.users, rtol=1e-2, atol=1e-3)
    assert [r.loss for r in resumed.history] == pytest.approx([r.loss for r in whole.history], rel=1e-3)


def test_a_whole_fused_run_equals_the_reference(data):
    job = job_of(MF(dim=8), DPL(tau=0.1), data, schedule="cosine", epochs=8, learning_rate=0.005)
    assert choose_engine(job) == "gpu"
    ours, theirs = (fit(job, engine=engine) for engine in ("auto", "reference"))
    torch.testing.assert_close(ours.items, theirs.items, rtol=1e-2, atol=2e-3)
    assert [r.loss for r in ours.history] == pytest.approx([r.loss for r in theirs.history], rel=1e-3)


def test_what_does_not_fit_a_gpu_falls_to_the_reference(data):
    assert choose_engine(job_of(MF(dim=64), DPL(tau=0.1), data, n_unlabelled=600)) != "gpu"
    assert choose_engine(job_of(MF(dim=8), DPL(tau=0.1), data, BNS())) != "gpu"
    assert choose_engine(job_of(MF(dim=8), DPL(tau=0.1), data, BNS(in_batch=True))) == "gpu"
    assert choose_engine(job_of(MF(dim=8), DPL(tau=0.1), data, optimizer="sgd")) != "gpu"
