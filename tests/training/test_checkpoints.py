"""A run killed at any moment goes on and ends with the same bits; a bad file is an error, not a surprise."""

import dataclasses
import errno
import os
import signal
from functools import partial

import pytest
import safetensors.torch
import torch

from processes import exit_code
from truepair.data.split_recipes import split_random
from truepair.errors import StorageError, TrainingError
from truepair.evaluation import Validation
from truepair.losses import BPR, DPL
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import DNS, Uniform
from truepair.training import EpochRecord, Job, Settings, fit
from truepair.training.loop import Run
from truepair.training.reference.trainer import ReferenceTrainer
from worlds import two_tastes

fit_reference = partial(fit, engine="reference")

SETTINGS = Settings(
    epochs=6, batch_size=50, n_extra=2, n_unlabelled=2, learning_rate=0.02, weight_decay=1e-4, device="cpu"
)

MOMENTS = {
    "step": (ReferenceTrainer, "train_step"),
    "written": (os, "replace"),
    "saving": (os, "fsync"),
    "validation": (Run, "validate"),
}


def train_until_killed(moment, count, path):
    """Train in a process that kills itself, as SIGKILL does, at the named moment."""
    owner, name = MOMENTS[moment]
    real, calls = getattr(owner, name), []

    def until_killed(*args, **kwargs):
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(owner, name, until_killed)
    train(path)


def train(path=None, encoder="mf", epochs=6):
    kinds = {"mf": (MF(dim=4), Uniform()), "lightgcn": (LightGCN(dim=4, hops=2), DNS(pool=6))}
    settings = dataclasses.replace(SETTINGS, epochs=epochs)
    return fit_reference(
        Job(kinds[encoder][0], DPL(tau=0.1), kinds[encoder][1], two_tastes(), settings),
        scores,
        checkpoint=path,
    )


def scores(state):
    return [0.1, 0.5, 0.2, 0.3, 0.6, 0.4][state.epoch - 1]


def assert_same_run(a, b):
    assert torch.equal(a.users, b.users)
    assert torch.equal(a.items, b.items)
    assert a.epoch == b.epoch
    timeless = [[dataclasses.replace(record, seconds=0) for record in run.history] for run in (a, b)]
    assert timeless[0] == timeless[1]


@pytest.fixture(scope="module")
def whole():
    return train()


@pytest.mark.parametrize(
    ("moment", "count"),
    [
        ("step", 1),  # before anything was saved
        ("step", 13),  # in the middle of an epoch
        ("validation", 4),
        ("saving", 1),  # the first checkpoint is half written
        ("saving", 5),  # a later one is, beside a whole one
        ("written", 3),  # written, not yet renamed
        ("step", 30),  # the last step of the last epoch
    ],
)
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(moment, count, tmp_path, whole):
    path = tmp_path / "run.ckpt"
    assert exit_code(train_until_killed, moment, count, path) == -signal.SIGKILL
    assert_same_run(train(path), whole)


def test_a_finished_run_removes_what_a_killed_process_left(tmp_path):
    path = tmp_path / "run.ckpt"
    assert exit_code(train_until_killed, "saving", 5, path) == -signal.SIGKILL
    (left,) = set(tmp_path.iterdir()) - {path}
    content = left.read_bytes()
    train(path)
    left.write_bytes(content)  # as by a second process that was killed at its last epoch
    train(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("encoder", ["mf", "lightgcn"])
def test_stopping_after_every_epoch_changes_nothing(encoder, tmp_path):
    path = tmp_path / "run.ckpt"
    for epochs in range(1, 7):
        resumed = train(path, encoder, epochs)
    assert_same_run(resumed, train(None, encoder))


def test_a_finished_run_gives_its_result_again(tmp_path, whole):
    path = tmp_path / "deep" / "folder" / "run.ckpt"
    assert_same_run(train(path), whole)
    assert_same_run(train(path), whole)


def test_checkpoints_now_and_then_and_at_the_end(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr("truepair.training.loop.Run.save", lambda run: saved.append(run.epoch))
    fit_reference(
        Job(MF(dim=4), BPR(), Uniform(), two_tastes(), SETTINGS),
        checkpoint=tmp_path / "x",
        checkpoint_every=4,
    )
    assert saved == [4, 6]


def test_checkpoints_that_take_long_take_a_tenth_of_the_time(tmp_path, monkeypatch):
    now, saved = [0.0], []

    def epoch(run, totals, began):
        now[0] += 20.0
        run.history.append(EpochRecord(run.epoch + 1, 0.0, None, None, 0.1, 20.0))

    def save(path, kind, version, tensors, facts):
        now[0] += 9.0
        saved.append(len(facts["history"]))

    monkeypatch.setattr("truepair.training.loop.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("truepair.training.loop.write_tensors", save)
    monkeypatch.setattr(Run, "finish_epoch", epoch)
    job = Job(MF(dim=4), BPR(), Uniform(), two_tastes(), dataclasses.replace(SETTINGS, epochs=12))
    fit_reference(job, checkpoint=tmp_path / "x")
    assert saved == [1, 6, 11, 12]  # 90 s after the one before began, and at the end


def test_sgd_has_no_moments_and_resumes_too(tmp_path):
    settings = dataclasses.replace(SETTINGS, optimizer="sgd", learning_rate=1.0)

    def run(path, epochs):
        shorter = dataclasses.replace(settings, epochs=epochs)
        return fit_reference(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), shorter), checkpoint=path)

    run(tmp_path / "c", 3)
    assert_same_run(run(tmp_path / "c", 6), run(None, 6))


# --- bad files -----------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_run_names_what_differs(tmp_path):
    path = tmp_path / "run.ckpt"
    train(path)
    other = dataclasses.replace(SETTINGS, learning_rate=0.5)
    with pytest.raises(
        StorageError, match=r"another run: .*learning_rate was 0\.02, is 0\.5.*Give another file"
    ):
        fit_reference(Job(MF(dim=4), DPL(tau=0.1), Uniform(), two_tastes(), other), checkpoint=path)
    with pytest.raises(StorageError, match=r"interactions was '.*', is '"):
        fit_reference(Job(MF(dim=4), DPL(tau=0.1), Uniform(), two_tastes(seed=1), SETTINGS), checkpoint=path)
    with pytest.raises(StorageError, match=r"loss was 'DPL', is 'BPR'"):
        fit_reference(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), SETTINGS), checkpoint=path)


OTHER_SETTINGS = {
    "batch_size": 51,
    "n_extra": 1,
    "n_unlabelled": 1,
    "optimizer": "sgd",
    "learning_rate": 0.5,
    "schedule": "step",
    "decay_epoch": 7,
    "decay": 0.2,
    "weight_decay": 0.0,
    "l2_users": 0.1,
    "l2_items": 0.1,
    "validate_every": 2,
    "seed": 1,
}


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_any_other_setting_is_another_run(name, tmp_path):
    path = tmp_path / "run.ckpt"
    fit_reference(
        Job(MF(dim=4), BPR(), Uniform(), two_tastes(), dataclasses.replace(SETTINGS, epochs=1)),
        checkpoint=path,
    )
    other = dataclasses.replace(SETTINGS, epochs=1, **{name: OTHER_SETTINGS[name]})
    with pytest.raises(StorageError, match=rf"another run: .*{name} was"):
        fit_reference(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), other), checkpoint=path)


def test_every_setting_is_told_apart():
    free = {"epochs", "device", "patience", "dislike_weight"}  # the last only matters with dislikes
    free |= {"optimizer_state"}  # only of engine "full"; see test_table_adam
    assert set(OTHER_SETTINGS) == {f.name for f in dataclasses.fields(Settings)} - free


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": MF(dim=5)}, "encoder.dim was 4, is 5"),
        ({"encoder": LightGCN(dim=4)}, "encoder was 'MF', is 'LightGCN'"),
        ({"loss": DPL(tau=0.2)}, r"loss.tau was 0\.1, is 0\.2"),
        ({"loss": DPL(tau=[0.1] * 40)}, r"loss.tau was 0\.1, is '40 values"),
        ({"sampler": DNS(pool=7)}, "sampler was 'Uniform', is 'DNS'"),
        ({"on_epoch": None}, "on_epoch was 'a function', is None"),
    ],
    ids=str,
)
def test_any_other_part_is_another_run(changes, message, tmp_path):
    path = tmp_path / "run.ckpt"
    train(path, epochs=2)
    changes = dict(changes)
    on_epoch = changes.pop("on_epoch", scores)
    job = Job(MF(dim=4), DPL(tau=0.1), Uniform(), two_tastes(), SETTINGS)
    with pytest.raises(StorageError, match=message):
        fit_reference(dataclasses.replace(job, **changes), on_epoch, checkpoint=path)


def test_other_priors_per_user_are_another_run(tmp_path):
    def run(tau):
        short = dataclasses.replace(SETTINGS, epochs=1)
        fit_reference(Job(MF(dim=4), DPL(tau=tau), Uniform(), two_tastes(), short), checkpoint=tmp_path / "c")

    run([0.1] * 40)
    with pytest.raises(StorageError, match=r"loss.tau was '40 values"):
        run([0.1] * 39 + [0.2])


def test_another_validation_is_another_run(tmp_path):
    split = split_random(two_tastes(), 0.2, valid=0.2)

    def run(metric, target):
        validation = Validation(target, split.train, metric)
        short = dataclasses.replace(SETTINGS, epochs=1)
        fit_reference(
            Job(MF(dim=4), BPR(), Uniform(), split.train, short), validation, checkpoint=tmp_path / "c"
        )

    run("ndcg@5", split.valid)
    run("ndcg@5", split.valid)
    for metric, target in (("recall@5", split.valid), ("ndcg@5", split.test)):
        with pytest.raises(StorageError, match="on_epoch was 'ndcg@5 on"):
            run(metric, target)


def test_fewer_epochs_than_are_done(tmp_path):
    train(tmp_path / "c", epochs=4)
    with pytest.raises(StorageError, match="4 epochs are done, and epochs = 2") as caught:
        train(tmp_path / "c", epochs=2)
    assert str(caught.value).endswith("Raise epochs to 4 or more, or give another file.")
    assert len(train(tmp_path / "c", epochs=4).history) == 4


def test_fit_hands_on_the_checkpoint_and_how_often(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr("truepair.training.loop.Run.save", lambda run: saved.append(run.epoch))
    fit(
        Job(MF(dim=4), BPR(), Uniform(), two_tastes(), SETTINGS),
        checkpoint=tmp_path / "x",
        checkpoint_every=4,
    )
    assert saved == [4, 6]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_that_looks_ahead_cannot_be_made_longer(schedule, tmp_path):
    settings = dataclasses.replace(SETTINGS, schedule=schedule, epochs=2)
    fit_reference(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), settings), checkpoint=tmp_path / "c")
    longer = dataclasses.replace(settings, epochs=3)
    with pytest.raises(StorageError, match="epochs was 2, is 3"):
        fit_reference(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), longer), checkpoint=tmp_path / "c")


def damage(path, how):
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    if how == "empty":
        path.write_bytes(b"")
    if how == "text":
        path.write_text("user,item\n1,2\n")
    if how == "bit flip":
        path.write_bytes(content[:-5] + bytes([content[-5] ^ 16]) + content[-4:])
    if how == "huge header":
        path.write_bytes((2**60).to_bytes(8, "little") + content[8:])
    if how == "foreign":
        safetensors.torch.save_file({"x": torch.zeros(3)}, path)


@pytest.mark.parametrize("how", ["truncated", "empty", "text", "bit flip", "huge header", "foreign"])
def test_a_damaged_checkpoint_is_named_and_left_alone(how, tmp_path):
    path = tmp_path / "run.ckpt"
    train(path, epochs=1)
    damage(path, how)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"run\.ckpt .*Delete it to start anew"):
        train(path)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_old_checkpoint_whole(tmp_path, monkeypatch, whole):
    path = tmp_path / "run.ckpt"
    train(path, epochs=2)
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="No space left on device; the one before it is untouched"):
            train(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert_same_run(train(path), whole)


def test_a_folder_without_permission_or_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write the truepair checkpoint .* there was none before"):
        train(tmp_path / "file" / "run.ckpt", epochs=1)


def test_divergence_keeps_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "run.ckpt"
    settings = dataclasses.replace(SETTINGS, optimizer="sgd", learning_rate=1e20, epochs=50)
    with pytest.raises(TrainingError, match=r"run\.ckpt holds the last good epoch|the loss became"):
        fit_reference(Job(MF(dim=4), BPR(), Uniform(), two_tastes(), settings), checkpoint=path)
