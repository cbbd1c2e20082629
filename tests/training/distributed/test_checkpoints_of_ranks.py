"""Checkpoints of several ranks: any number goes on from one, and a failure leaves the old one whole."""

import dataclasses
import json
import resource
import shutil

import pytest
import torch

from ranks import on_ranks, values
from truepair.errors import StorageError
from truepair.losses import InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import Full
from truepair.training import Job, Settings, StopTraining, fit
from truepair.training.distributed.processes import rank_of_process
from worlds import two_tastes

SETTINGS = Settings(epochs=4, batch_size=24, learning_rate=0.1, device="cpu", seed=2)
JOB = Job(MF(dim=4, scoring="cosine", popularity=0.1), InfoNCE(0.3), Full(), two_tastes(), SETTINGS)
GRAPH = dataclasses.replace(JOB, encoder=LightGCN(dim=4, scoring="cosine", hops=2))


class Until:
    """Scores of which the second is best, of a run that ends as if it was stopped after an epoch."""

    identity = "four scores"

    def __init__(self, epoch):
        self.epoch = epoch

    def __call__(self, state):
        score = [0.1, 0.5, 0.3, 0.2][state.epoch - 1]
        if state.epoch == self.epoch:
            raise StopTraining(score)
        return score


def run(path, until=99, job=JOB, engine="distributed"):
    result = fit(job, Until(until), engine=engine, checkpoint=path)
    return result.users, result.items, result.epoch, [record.score for record in result.history]


def run_with_a_full_disk(path):
    """Rank 1 can write no more than a few bytes, as on a full disk, from the third epoch on."""

    class Filling(Until):
        def __call__(self, state):
            if state.epoch == 3 and rank_of_process() == 1:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            return super().__call__(state)

    try:
        fit(JOB, Filling(99), engine="distributed", checkpoint=path)
    finally:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.fixture(scope="module")
def uninterrupted():
    return run(None, engine="full")


def assert_same_run(found, expected):
    assert found[2] == expected[2]
    assert found[3] == expected[3]
    for a, b in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 3)])
def test_another_number_of_ranks_goes_on(tmp_path, uninterrupted, before, after):
    path = tmp_path / "run.checkpoint"
    first = values(before, run, path, 2) if before > 1 else [run(path, 2)]
    assert len(first[0][3]) == 2
    assert [entry.name for entry in sorted(path.iterdir())] == ["epoch-000002", "run.json"]
    then = values(after, run, path) if after > 1 else [run(path)]
    for found in then:
        assert_same_run(found, uninterrupted)
        assert found[3][:2] == first[0][3]  # they were not trained again


def test_another_number_of_ranks_goes_on_with_a_graph(tmp_path):
    """The best epoch lies before the checkpoint: its final vectors are stored, those of the run are not."""
    path = tmp_path / "run.checkpoint"
    expected = run(None, job=GRAPH, engine="full")
    run(path, 3, GRAPH)
    for found in values(3, run, path, 99, GRAPH):
        assert_same_run(found, expected)


def test_a_full_disk_on_one_rank_leaves_the_old_checkpoint_whole(tmp_path, uninterrupted):
    path = tmp_path / "run.checkpoint"
    for error in on_ranks(2, run_with_a_full_disk, path):
        assert isinstance(error, StorageError)
        assert ": File too large on rank 1;" in str(error)
        assert str(error).endswith("; the one before it is untouched.")
    assert json.loads((path / "run.json").read_text())["folder"] == "epoch-000002"
    found = run(path)  # alone
    assert_same_run(found, uninterrupted)
    assert [entry.name for entry in sorted(path.iterdir())] == ["epoch-000004", "run.json"]


# --- files that cannot be used ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run.checkpoint"
    run(path, 2)
    return path


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run.checkpoint")


def test_a_checkpoint_of_another_run_is_an_error(copied):
    other = dataclasses.replace(JOB, settings=dataclasses.replace(SETTINGS, seed=5))
    with pytest.raises(StorageError, match="is of another run: seed was 2, is 5"):
        run(copied, job=other)


@pytest.mark.parametrize("entry", ["epoch-000002/.metadata", "epoch-000002/__0_0.distcp"])
@pytest.mark.parametrize("damage", ["missing", "cut", "noise"])
def test_a_damaged_checkpoint_is_an_error(copied, entry, damage):
    path = copied / entry
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"no tensor " * 20)
    with pytest.raises(StorageError, match=r"not a whole checkpoint \(rank 0\)"):
        run(copied)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "other"}', '{"kind": "truepair distributed checkpoint", "version": 9}']
)
def test_facts_that_cannot_be_read_are_an_error(copied, text):
    (copied / "run.json").write_text(text)
    with pytest.raises(StorageError, match="no checkpoint of engine 'distributed'"):
        run(copied)


@pytest.mark.parametrize("name", ["../other", "epoch-000002/../../other", "elsewhere"])
def test_tensors_lie_within_the_checkpoint(copied, name):
    facts = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps(facts | {"folder": name}))
    with pytest.raises(StorageError, match="its folder is"):
        run(copied)


def test_a_file_of_another_engine_is_an_error(tmp_path):
    path = tmp_path / "run.checkpoint"
    run(path, 2, engine="full")
    with pytest.raises(StorageError, match="no checkpoint of engine 'distributed'"):
        run(path)


def test_an_unfinished_folder_is_removed(copied):
    (copied / "epoch-000003").mkdir()
    (copied / "epoch-000003" / "rest").write_text("of a killed run")
    run(copied)
    assert [entry.name for entry in sorted(copied.iterdir())] == ["epoch-000004", "run.json"]


def test_rows_that_are_missing_are_an_error(copied):
    import torch.distributed.checkpoint as dcp

    folder = copied / "epoch-000002"
    shutil.rmtree(folder)
    with pytest.warns(UserWarning, match="torch.distributed is disabled"):
        dcp.save({"trainer.user:0-7": torch.zeros(7, 4)}, checkpoint_id=folder, no_dist=True)
    with pytest.raises(StorageError, match=r"trainer\.user has no rows from 7 to 40"):
        run(copied)
