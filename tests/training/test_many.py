"""The GPU engine in the loop: many runs at once, each as it would be alone; and what it says it cannot do.

Without a GPU its kernels run in Triton's interpreter, so worlds are tiny.
"""

import dataclasses
import re

import pytest
import torch

from truepair.errors import InputError, StorageError, TrainingError
from truepair.losses import BPR, DCL, DPL, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import BNS, DNS, Uniform
from truepair.training import ENGINES, Job, Settings, choose_engine, fit, fit_many
from truepair.training.fitting import groups_of
from truepair.training.job import Engine
from truepair.training.sampled.gpu.engine import GPU, too_wide
from worlds import two_tastes

gpu_runs = pytest.importorskip("truepair.training.sampled.gpu.runs")

# NumPy, which the interpreter computes with, warns of branches that `where` does not take
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")


@pytest.fixture(autouse=True)
def lazy_however_small(monkeypatch):
    """So that tiny worlds meet the lazy updates too."""
    monkeypatch.setattr("truepair.training.sampled.gpu.runs._LAZY_PARAMETERS", 0)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# on a GPU sums have no fixed order, and Adam divides by the gradient's size
CLOSE = {"rtol": 1e-2, "atol": 2e-3} if DEVICE == "cuda" else {"rtol": 0, "atol": 0}

TINY = two_tastes(n_users=4, n_items=8, each=2)
SETTINGS = Settings(epochs=2, batch_size=5, n_extra=1, n_unlabelled=2, learning_rate=0.05, device=DEVICE)


def job_of(loss, encoder=None, sampler=None, data=TINY, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return Job(encoder or MF(dim=3), loss, sampler or Uniform(), data, settings)


@pytest.fixture
def gpu(monkeypatch):
    """The engine, allowed where there is no GPU."""
    monkeypatch.setitem(ENGINES, "gpu", Engine(start=GPU.start, lacks=lambda job: None))


def alone(job, on_epoch=None, **more):
    return fit(job, on_epoch, engine="gpu", **more)


def scores_of(*values):
    """An on_epoch that gives these scores by epoch and keeps the matrices it saw."""

    def on_epoch(state):
        on_epoch.seen[state.epoch] = state.matrices()
        return values[state.epoch - 1]

    on_epoch.seen = {}
    return on_epoch


def same_run(a, b):
    """Equal matrices and history, but for the time it took."""
    torch.testing.assert_close(a.users, b.users, **CLOSE)
    torch.testing.assert_close(a.items, b.items, **CLOSE)
    assert [(r.epoch, r.score, r.learning_rate) for r in a.history] == [
        (r.epoch, r.score, r.learning_rate) for r in b.history
    ]
    assert [r.loss for r in a.history] == pytest.approx([r.loss for r in b.history], rel=1e-4)
    assert [r.clamped for r in a.history] == pytest.approx([r.clamped for r in b.history])
    assert (a.epoch, a.stopped_early, a.engine) == (b.epoch, b.stopped_early, "gpu")


# --- many runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "batch", "sampler"),
    [
        (MF(dim=3), 5, Uniform()),
        (MF(dim=3), 2, Uniform()),
        (LightGCN(dim=3, hops=2), 5, Uniform()),
        (MF(dim=3, scoring="cosine"), 5, BNS(pool=3, in_batch=True)),
    ],
    ids=str,
)
def test_runs_of_a_group_end_as_they_would_alone(encoder, batch, sampler):
    same = {"batch_size": batch, "n_unlabelled": 1}
    jobs = [
        job_of(DPL(tau=0.1), encoder, sampler, **same, seed=1, weight_decay=0.1),
        job_of(DPL(tau=[0, 0.1, 0.3, 0.7], floor=0.4), encoder, sampler, **same, seed=2, l2_items=0.3),
    ]
    group, epochs, rates = gpu_runs.GpuRuns(jobs), [0, 3], [0.1, 0.01]
    assert group.lazy == (batch == 2)
    summary = group.train(epochs, rates)
    for run, job in enumerate(jobs):
        single = gpu_runs.GpuRuns([job])
        expected = single.trainers[0].totals(single.train([epochs[run]], [rates[run]]))
        found = group.trainers[run].totals(summary)
        torch.testing.assert_close(found.losses, expected.losses, rtol=1e-4, atol=1e-4)
        assert found.clamped == expected.clamped
        for a, b in zip(group.matrices(run), single.matrices(0), strict=True):
            torch.testing.assert_close(a, b, **CLOSE)
        for name, tensor in single.trainers[0].state().items():
            torch.testing.assert_close(group.trainers[run].state()[name], tensor, **CLOSE)


def test_many_equals_each_alone(gpu):
    """Different epochs, schedules and patience in one group."""
    jobs = [
        job_of(BPR(), epochs=2, seed=1),
        job_of(BPR(), epochs=4, patience=1, schedule="linear"),
        job_of(BPR(), epochs=3, validate_every=2, learning_rate=0.2, schedule="cosine"),
    ]
    assert groups_of(jobs) == [[0, 1, 2]]
    scores = [(0.3, 0.2), (0.1, 0.4, 0.3, 0.9), (0, 0.1, 0.2)]
    found = fit_many(jobs, [scores_of(*each) for each in scores], engine="gpu")
    for job, each, result in zip(jobs, scores, found, strict=True):
        same_run(result, alone(job, scores_of(*each)))
    assert [(r.epoch, len(r.history), r.stopped_early) for r in found] == [
        (1, 2, False), (2, 3, True), (3, 3, False)
    ]  # fmt: skip


def test_a_run_that_diverges_gives_its_error_and_the_others_go_on(gpu):
    jobs = [job_of(DPL(tau=0.1), learning_rate=rate) for rate in (0.05, 1e30, 0.02)]
    found = fit_many(jobs, engine="gpu")
    assert isinstance(found[1], TrainingError)
    assert "Lower learning_rate" in str(found[1])
    with pytest.raises(TrainingError) as error:
        alone(jobs[1])
    assert str(found[1]) == str(error.value)
    for place in (0, 2):
        same_run(found[place], alone(jobs[place]))


def test_a_score_that_is_no_number_ends_only_its_own_run(gpu):
    found = fit_many(
        [job_of(BPR()), job_of(BPR(), seed=1)], [scores_of(0.1, float("nan")), None], engine="gpu"
    )
    assert "validation score is nan after epoch 2" in str(found[0])
    assert len(found[1].history) == 2


def test_jobs_are_grouped_by_data_and_shape():
    base = job_of(DPL(tau=0.1))
    other = two_tastes(n_users=4, n_items=8, each=2, seed=1)
    jobs = [
        base,
        job_of(DPL(tau=0.1), MF(dim=4)),
        job_of(DPL(tau=0.4, floor=0.2), seed=3, learning_rate=1.0, weight_decay=0.1, epochs=9, l2_users=1.0),
        job_of(DPL(tau=0.1), MF(dim=3, scoring="cosine")),
        job_of(DPL(tau=0.1, clamp="relative")),
        job_of(DCL(tau=0.1)),
        job_of(DPL(tau=0.1), LightGCN(dim=3)),
        job_of(DPL(tau=0.1), LightGCN(dim=3, hops=2)),
        job_of(DPL(tau=0.1), sampler=DNS(pool=4)),
        job_of(DPL(tau=0.1), sampler=DNS(pool=5)),
        job_of(DPL(tau=0.1), n_extra=2),
        job_of(DPL(tau=0.1), n_unlabelled=3),
        job_of(DPL(tau=0.1), batch_size=8),
        job_of(DPL(tau=0.1), data=other),
        dataclasses.replace(base, interactions=two_tastes(n_users=4, n_items=8, each=2)),
    ]
    assert groups_of(jobs) == [[0, 2, 14], *[[k] for k in (1, *range(3, 14))]]


def test_groups_have_a_largest_size():
    assert [len(group) for group in groups_of([job_of(BPR(), seed=seed) for seed in range(300)])] == [256, 44]


def test_results_come_in_the_order_of_the_jobs(gpu, monkeypatch):
    """Whatever the groups, and whatever engine each job gets."""
    monkeypatch.setitem(
        ENGINES,
        "gpu",
        Engine(start=GPU.start, lacks=lambda job: "no BNS" if isinstance(job.sampler, BNS) else None),
    )
    jobs = [
        job_of(BPR(), MF(dim=3), epochs=1),
        job_of(BPR(), sampler=BNS(pool=3), epochs=1),
        job_of(BPR(), MF(dim=2), epochs=1),
        job_of(InfoNCE(), MF(dim=3), epochs=1),
        job_of(BPR(), MF(dim=3), epochs=1, seed=4),
    ]
    found = fit_many(jobs)
    assert [result.job for result in found] == jobs
    assert [result.engine == "gpu" for result in found] == [True, False, True, True, True]
    for job, result in zip(jobs, found, strict=True):
        if result.engine == "gpu":
            same_run(result, alone(job))


def test_one_on_epoch_serves_all(gpu):
    watched = []
    fit_many(
        [job_of(BPR()), job_of(BPR(), epochs=1)], lambda state: watched.append(state.epoch), engine="gpu"
    )
    assert watched == [1, 1, 2]


def test_progress_tells_of_all_runs(gpu, capsys):
    fit_many([job_of(BPR()), job_of(BPR(), epochs=1)], scores_of(0.25, 0.5), engine="gpu", progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2 runs" in shown.err
    assert "0.5000" in shown.err


def test_nothing_to_do():
    assert fit_many([]) == []


def test_wrong_number_of_on_epochs():
    with pytest.raises(InputError, match="on_epoch has 2 values for 3 jobs; give one, or as many"):
        fit_many([job_of(BPR())] * 3, [None, None])


def test_wrong_parts_are_named_before_anything_trains():
    with pytest.raises(InputError, match="patience = 2 needs on_epoch"):
        fit_many([job_of(BPR()), job_of(BPR(), patience=2)], [None, None])


def test_many_on_any_engine_fills_in_the_density_and_keeps_errors():
    jobs = [job_of(DPL(), device="cpu"), job_of(BPR(), device="cpu", learning_rate=1e30, epochs=5)]
    found = fit_many(jobs, engine="reference")
    assert found[0].job.loss.tau == pytest.approx(TINY.density)
    assert isinstance(found[1], TrainingError)


# --- one run in the loop -------------------------------------------------------------------------------


def test_patience_stops_and_the_best_epoch_is_kept(gpu):
    on_epoch = scores_of(0.1, 0.3, 0.2, 0.25, 0.9)
    result = alone(job_of(BPR(), epochs=5, patience=2), on_epoch)
    assert (result.epoch, result.score, len(result.history), result.stopped_early) == (2, 0.3, 4, True)
    assert torch.equal(result.users, on_epoch.seen[2][0].cpu())
    assert not torch.equal(result.users, on_epoch.seen[4][0].cpu())  # what was seen is a copy


@pytest.mark.parametrize(
    ("encoder", "batch"), [(MF(dim=3), 5), (MF(dim=3), 2), (LightGCN(dim=3), 5)], ids=str
)
def test_a_run_that_goes_on_from_a_checkpoint_ends_the_same(gpu, encoder, batch, tmp_path):
    job = job_of(InfoNCE(), encoder, batch_size=batch, n_unlabelled=1, weight_decay=0.01)
    for epochs in (1, 2):
        longer = dataclasses.replace(job, settings=dataclasses.replace(job.settings, epochs=epochs))
        resumed = alone(longer, checkpoint=tmp_path / "run.ckpt")
    same_run(resumed, alone(longer))


def test_a_checkpoint_of_another_engine_is_an_error(gpu, tmp_path):
    job = job_of(BPR(), epochs=1)
    alone(job, checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(StorageError, match="engine was 'gpu', is 'reference'"):
        fit(
            Job(MF(dim=3), BPR(), Uniform(), TINY, job.settings),
            engine="reference",
            checkpoint=tmp_path / "run.ckpt",
        )


def test_clamped_rows_are_counted(gpu):
    job = job_of(DPL(tau=0.9), learning_rate=0.5, epochs=3)
    result = alone(job)
    expected = fit(job, engine="reference")
    assert 0 < result.clamped < 1
    assert result.clamped == pytest.approx(expected.clamped)
    assert alone(job_of(BPR(), epochs=1)).clamped is None


def test_a_run_that_diverges_stops_with_advice(gpu):
    message = r"(became (nan|inf)|infinite or NaN) at epoch \d.*Lower learning_rate"
    with pytest.raises(TrainingError, match=message):
        alone(job_of(DPL(tau=0.1), learning_rate=1e30, epochs=5))


# --- what it cannot do ---------------------------------------------------------------------------------


def test_without_cuda_it_says_so_and_what_to_use():
    message = r"engine = 'gpu': it needs a CUDA device, and this run is on the CPU\. Use .*reference.*'auto'"
    with pytest.raises(InputError, match=message):
        fit(Job(MF(dim=3), BPR(), Uniform(), TINY, Settings(device="cpu")), engine="gpu")
    with pytest.raises(InputError, match=message):
        fit_many([job_of(BPR(), device="cpu")], engine="gpu")


def test_a_prior_that_is_the_density_is_no_obstacle_to_choosing(monkeypatch):
    monkeypatch.setitem(ENGINES, "gpu", Engine(start=GPU.start, lacks=too_wide))
    assert choose_engine(job_of(DPL(tau="density"))) == "gpu"


@pytest.mark.parametrize("loss", [BPR(), DPL(tau=0.1), InfoNCE()], ids=str)
@pytest.mark.parametrize("encoder", [MF(), LightGCN()], ids=str)
def test_auto_on_the_cpu_is_never_the_gpu(loss, encoder):
    assert choose_engine(job_of(loss, encoder, device="cpu"), "auto") != "gpu"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            job_of(DPL(tau=0.1), MF(dim=64), n_extra=100, n_unlabelled=412),
            r"1 \+ M \+ N = 513 items of 64 dim",
        ),
        (
            job_of(BPR(), MF(dim=32_769), n_unlabelled=1),
            "2 items of 32769 dimensions is too wide.* up to 32,768",
        ),
        (job_of(BPR(), sampler=BNS(pool=128)), r"1 \+ M \+ pool = 129 items .* too many .*up to 128"),
        (job_of(DPL(tau=0.1), sampler=DNS(pool=128)), r"1 \+ M \+ pool = 130 items .* too many .*up to 128"),
    ],
    ids=str,
)
def test_rows_that_are_too_wide_are_named(job, message):
    assert re.search(message, too_wide(job))


@pytest.mark.parametrize(
    "job",
    [
        job_of(DPL(tau=0.1), MF(dim=64), n_extra=100, n_unlabelled=411),
        job_of(BPR(), MF(dim=16_384), n_unlabelled=1),
        job_of(DPL(tau=0.1), sampler=DNS(pool=126)),
    ],
    ids=str,
)
def test_the_widest_rows_fit(job):
    assert too_wide(job) is None
