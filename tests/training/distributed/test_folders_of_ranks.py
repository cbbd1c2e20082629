"""Ranks that train on prepared folders: incomplete, newer or other ones, and ones that were changed."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import truepair as tp
from ranks import on_ranks, values
from truepair.cli.main import app
from truepair.data.prepared.manifest import NAME, VERSION, _digest
from truepair.errors import InputError
from truepair.training.distributed.processes import rank_of_process
from worlds import two_tastes

SETTINGS = tp.Settings(epochs=2, batch_size=40, device="cpu")
OPTIONS = ["--no-auto", "--epochs", "2", "--dim", "4", "--batch-size", "20", "--device", "cpu"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    pytest.importorskip("duckdb")
    folder = tmp_path_factory.mktemp("made") / "clicks"
    tp.prepare_interactions(two_tastes().to_table(), folder, memory="600MB")
    return folder


@pytest.fixture
def folders(made, tmp_path):
    """A copy for each of two ranks, as on two machines."""
    return [shutil.copytree(made, tmp_path / f"rank{rank}") for rank in range(2)]


def train(folders):
    data = tp.open_prepared(folders[rank_of_process()])
    job = tp.Job(tp.MF(dim=4), tp.InfoNCE(), tp.Full(), data, SETTINGS)
    return tp.fit(job, engine="distributed").users


def command(folders, output):
    found = CliRunner().invoke(app, ["fit", str(folders[rank_of_process()]), "-o", str(output), *OPTIONS])
    return found.exit_code, found.stderr


def changed(folder):
    """Two users' items of one array are exchanged; sizes and the manifest stay."""
    path = folder / "all" / "items.npy"
    items = np.load(path)
    starts = np.load(folder / "all" / "starts.npy")
    missing = np.setdiff1d(np.arange(items.max()), items[: starts[1]])[0]
    items[: starts[1]] = np.sort(np.append(items[1 : starts[1]], missing))
    path.unlink()
    np.save(path, items)


def test_copies_of_one_folder_train_one_model(folders):
    first, second = values(2, train, folders)
    assert (first == second).all()


def test_another_folder_on_a_rank_is_refused(folders, tmp_path):
    tp.prepare_interactions(two_tastes(seed=5).to_table(), tmp_path / "other", memory="600MB")
    for error in on_ranks(2, train, [folders[0], tmp_path / "other"]):
        assert isinstance(error, InputError)
        assert str(error).startswith("rank 1 would not train the same model as rank 0: interactions is ")


def test_a_folder_that_one_rank_has_changed_is_refused(folders):
    changed(folders[1])
    for error in on_ranks(2, train, folders):
        assert isinstance(error, InputError)
        assert "rank 1 would not train the same model as rank 0: pairs as read is " in str(error)


def test_a_folder_that_was_changed_for_all_is_refused(folders):
    changed(folders[0])
    for error in on_ranks(2, train, [folders[0], folders[0]]):
        assert isinstance(error, InputError)
        assert "the pairs are not those that were prepared" in str(error)


def newer(folder):
    content = json.loads((folder / NAME).read_text())
    content.pop("digest")
    content["version"] = VERSION + 1
    (folder / NAME).write_text(json.dumps({**content, "digest": _digest(content)}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            lambda folder: (folder / "all" / "items.npy").unlink(), "items.npy", marks=pytest.mark.long
        ),
        (newer, f"was prepared in version {VERSION + 1}; this truepair reads up to {VERSION}"),
    ],
)
def test_a_folder_that_one_rank_cannot_open_is_named(folders, tmp_path, damage, message):
    damage(folders[1])
    first, second = values(2, command, folders, tmp_path / "m.truepair", TRUEPAIR_TIMEOUT="4")
    assert second[0] == 1
    assert second[1].startswith("truepair (rank 1): ")
    assert message in second[1]
    assert first[0] == 1
    assert "rank 1 of 2 does not answer" in first[1]
