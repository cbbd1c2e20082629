"""Files of earlier versions still work: models, configurations, journals, checkpoints, prepared data.

`files/expected.json` has what that version gave for them.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import truepair as tp
from truepair.cli.configuration import Training
from truepair.cli.main import app
from truepair.errors import InputError, StorageError
from truepair.training import fit

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def clicks():
    return tp.read_interactions(FILES / "clicks.csv")


def lists_of(table):
    """user -> [[item, score], …], best first."""
    found = {}
    for row in table.to_pylist():
        found.setdefault(str(row["user"]), []).append([row["item"], row["score"]])
    return found


def assert_same_lists(found, expected, tolerance):
    assert list(found) == list(expected)
    for user, ranked in expected.items():
        assert [item for item, _ in found[user]] == [item for item, _ in ranked]
        scores = [score for _, score in ranked]
        assert [score for _, score in found[user]] == pytest.approx(scores, rel=tolerance, abs=tolerance)


# --- models --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_model_gives_the_same_lists(name, tmp_path):
    expected = EXPECTED["models"][name]
    model = tp.load(FILES / "models" / f"{name}.truepair")
    users = model.seen_.user_ids.ids.to_pylist()[:5]
    assert_same_lists(lists_of(model.recommend(users, k=5)), expected["recommend"], 1e-6)
    guests = model.fold_in(expected["fold_in"]["history"])
    # vectors of new users are trained, so they may differ a little between processors
    assert_same_lists(lists_of(guests.recommend(k=5)), expected["fold_in"]["recommend"], 1e-4)
    model.save(tmp_path / "again")  # under the names of today
    again = tp.load(tmp_path / "again")
    assert again.recommend(k=5).equals(model.recommend(k=5))
    assert {type(value) for value in again.get_params().values()} == {
        type(value) for value in model.get_params().values()
    }


# --- configurations ------------------------------------------------------------------------------------

RENAMED = {'"exact"': '"full"', '"rows"': '"full"', "plus": "blend"}


@pytest.mark.parametrize("name", EXPECTED["configs"])
def test_a_configuration_means_what_the_same_one_means_in_todays_names(name, tmp_path):
    text = (FILES / "configs" / name).read_text()
    for old, new in RENAMED.items():
        text = text.replace(old, new)
    (tmp_path / name).write_text(text)
    found = Training(config=FILES / "configs" / name).recommender().get_params()
    assert found == Training(config=tmp_path / name).recommender().get_params()
    assert found["sampler"] != "exact"
    assert found["engine"] != "rows"


TRAINED = [
    "exact.toml",
    "exact-table.toml",
    "exact-dotted.toml",
    "plus-ease.toml",
    "tuned-dpl.toml",
    "ease.toml",
]


OF_REMOVED_ENGINE = "dpl-uniform.toml", "tuned-dpl.toml"


@pytest.mark.parametrize("name", OF_REMOVED_ENGINE)
def test_a_configuration_of_the_removed_engine_trains_in_the_reference(name, clicks):
    model = Training(config=FILES / "configs" / name).recommender().set_params(device="cpu")
    with pytest.raises(InputError, match=r"engine = 'cpu': optimizer = 'adam'.*Use reference"):
        model.set_params(optimizer="adam").fit(clicks)
    usual = {"learning_rate": model.learning_rate or 3e-3, "schedule": "constant", "validation": 0.1}
    usual |= {"weight_decay": 1e-5 if model.weight_decay is None else model.weight_decay, "patience": 10}
    model.set_params(engine="auto", **usual).fit(clicks)
    assert model.facts_["engine"] == "reference"
    users = model.seen_.user_ids.ids.to_pylist()[:2]
    assert_same_lists(lists_of(model.recommend(users, k=2)), EXPECTED["configs"][name], 1e-4)


@pytest.mark.parametrize("name", [name for name in TRAINED if name not in OF_REMOVED_ENGINE])
def test_a_configuration_trains_to_the_same_lists(name, clicks):
    model = Training(config=FILES / "configs" / name).recommender().fit(clicks)
    users = model.seen_.user_ids.ids.to_pylist()[:2]
    assert_same_lists(lists_of(model.recommend(users, k=2)), EXPECTED["configs"][name], 1e-4)


# --- a journal -----------------------------------------------------------------------------------------


def test_a_journal_continues(tmp_path, monkeypatch):
    """Four trials are done; the command that was used for them, with the old names, adds two."""
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    expected = EXPECTED["tuning"]["exact-rows"]
    shutil.copy(FILES / "clicks.csv", tmp_path)
    shutil.copy(FILES / "tuning" / "exact-rows.journal", tmp_path / "copy.journal")
    before = (tmp_path / "copy.journal").read_bytes()
    result = CliRunner().invoke(app, expected["command"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "copy.journal").read_bytes().startswith(before)
    found = json.loads(result.stdout)["trials"]
    assert [(one["number"], one["state"], one["epoch"]) for one in found] == [
        (number, state, epoch) for number, state, _, epoch in expected["trials"]
    ]
    scores = [score for _, _, score, _ in expected["trials"]]
    assert [one["score"] for one in found] == pytest.approx(scores, abs=1e-4)
    assert [one["score"] for one in found[:4]] == pytest.approx(scores[:4], rel=1e-8)  # as they were kept
    best = Training(config=tmp_path / "fresh.toml").recommender()
    assert isinstance(best.sampler, tp.Full)
    assert best.sampler.columns == 20


# --- checkpoints ---------------------------------------------------------------------------------------

COSINE = tp.Settings(epochs=6, batch_size=8, learning_rate=0.01, schedule="cosine")
LINEAR = tp.Settings(epochs=6, batch_size=32, learning_rate=0.01, schedule="linear", weight_decay=1e-4)
MODEL = tp.MF(dim=4, scoring="cosine", temperature=0.15)


def trained(encoder, loss, sampler, interactions, settings, on_epoch, **options):
    job = tp.Job(encoder, loss, sampler, interactions, settings)
    return fit(job, on_epoch, **options)


def no_score(state):
    return None


def run(name, clicks, checkpoint):
    """The run that the checkpoint is from."""
    if name == "recommender-auto":
        model = tp.Recommender(dim=4, epochs=6, schedule="constant")
        return model.fit(clicks, checkpoint=checkpoint).result_
    if name == "rows":
        parts = MODEL, tp.InfoNCE(), tp.Full()
        return trained(*parts, clicks, COSINE, no_score, engine="rows", checkpoint=checkpoint)
    split = tp.split_random(clicks, test=0.1, valid=0.1, seed=0)
    validation = tp.Validation(split.valid, split.train, "ndcg@10", cold="model")  # as version 0.1 measured
    parts = MODEL, tp.DPL(tau=0.05), tp.Full(columns=20)
    return trained(*parts, split.train, COSINE, validation, engine="full", checkpoint=checkpoint)


def test_a_checkpoint_of_the_removed_engine_says_what_to_do(clicks, tmp_path):
    shutil.copy(FILES / "checkpoints" / "cpu.checkpoint", tmp_path / "kept")
    parts = tp.MF(dim=4), tp.DPL(tau=0.05), tp.Uniform()
    message = r"engine 'cpu' of version 0\.1, which no longer exists.*start anew; engine='reference' computes"
    for engine in ("auto", "reference"):
        with pytest.raises(StorageError, match=message):
            trained(*parts, clicks, LINEAR, no_score, engine=engine, checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("name", [name for name in EXPECTED["checkpoints"] if name != "cpu"])
def test_a_checkpoint_resumes_to_the_same_end(name, clicks, tmp_path):
    """Three of six epochs are done."""
    shutil.copy(FILES / "checkpoints" / f"{name}.checkpoint", tmp_path / "kept")
    resumed, whole = run(name, clicks, tmp_path / "kept"), run(name, clicks, None)
    torch.testing.assert_close(resumed.users, whole.users, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(resumed.items, whole.items, rtol=1e-4, atol=1e-5)
    expected = EXPECTED["checkpoints"][name]
    assert resumed.epoch == whole.epoch == expected["epoch"]
    for record, (epoch, loss, _, score, rate) in zip(resumed.history, expected["history"], strict=True):
        assert (record.epoch, record.learning_rate) == (epoch, pytest.approx(rate))
        assert record.loss == pytest.approx(loss, rel=1e-4)
        assert record.score == pytest.approx(score, abs=1e-4)


# --- prepared data -------------------------------------------------------------------------------------


def test_a_folder_of_layout_2_gives_the_same_events():
    """Its `places` are those in the source, in 32 bits."""
    table = {"user": ["ann", "bob", "bob", "bob", "€"], "item": [9, 9, 7, 5, 7], "time": [1, 2, 2, 1, 4]}
    found, expected = tp.open_prepared(FILES / "prepared-2", verify=True), tp.read_interactions(table)
    assert found == expected
    assert found.log.to_table().equals(expected.log.to_table())
