"""`truepair prepare`, and the commands that take its folder."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import truepair as tp
from truepair.cli.main import app

pytest.importorskip("duckdb")


def run(*args, code=0):
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def clicks(tmp_path):
    rng = np.random.default_rng(0)
    rows = {(u, i) for u, i in zip(rng.integers(0, 30, 400), rng.integers(0, 20, 400), strict=True)}
    path = tmp_path / "clicks.csv"
    path.write_text("user,item\n" + "".join(f"u{u},i{i}\n" for u, i in sorted(rows)))
    return path


def test_a_folder_is_made_opened_and_verified(clicks, tmp_path):
    folder = tmp_path / "clicks.prepared"
    facts = json.loads(run("prepare", clicks, "-o", folder, "--memory", "600MB", "--json", "--quiet").stdout)
    whole = tp.read_interactions(clicks)
    assert facts["pairs"] == {"all": len(whole)}
    assert facts["hash"] == {"all": whole.hash}
    assert "is as it was written" in run("prepare", folder, "--verify").stdout
    assert tp.read_interactions(folder) == whole
    again = run("prepare", clicks, "-o", folder, code=1)
    assert "exists; remove it, or choose another folder" in again.stderr


def test_fit_evaluate_prior_and_recommend_take_the_folder(clicks, tmp_path):
    folder, model = tmp_path / "whole", tmp_path / "model"
    run("prepare", clicks, "-o", folder, "--memory", "600MB", "-q")
    for source in (clicks, folder):
        run("fit", source, "-o", f"{model}.{source.name}", "--encoder", "ease", "-q")
    lists = [run("recommend", f"{model}.{name}", "-k", 3).stdout for name in ("clicks.csv", "whole")]
    assert lists[0] == lists[1]
    refused = run("fit", folder, "-o", model, "--core", 2, "-q", code=1)
    assert "has no effect on" in refused.stderr
    assert "give it to `prepare`" in refused.stderr
    assert (
        run("prior", folder, "--resamples", 2, "-q").stdout
        == run("prior", clicks, "--resamples", 2, "-q").stdout
    )


def test_a_split_folder_is_trained_on_and_tested(clicks, tmp_path):
    folder, model = tmp_path / "split", tmp_path / "model"
    run(
        "prepare", clicks, "-o", folder, "--memory", "600MB", "--test", 0.3, "--valid", 0.1, "--seed", 3, "-q"
    )
    split = tp.split_random(tp.read_interactions(clicks), 0.3, 0.1, seed=3)
    assert tp.open_prepared(folder) == split
    given = run("fit", folder, "-o", model, "--encoder", "ease", "--test", "given", "--json", "-q").stdout
    facts = tp.load(model).facts_
    assert facts["split"] == split.hash
    assert json.loads(given)["test"]["users"] == len(np.unique(split.test.users))
    run("fit", folder, "-o", model, "--encoder", "ease", "-q")
    assert tp.load(model).facts_["split"] == split.hash
    found = [
        json.loads(run("evaluate", model, source, "--json", "-q").stdout)
        for source in (folder, folder / "test")
    ]
    assert found[0] == found[1]
    assert found[0]["users"] == len(np.unique(split.test.users))
    for args, message in (
        (["fit", folder, "-o", model, "--test", "0.2"], "has a test part; use --test given"),
        (["fit", folder, "-o", model, "--min-rating", "2"], "give it to `truepair prepare`"),
        (["prior", folder], "is a split; give one of its parts"),
    ):
        assert message in run(*args, "-q", code=1).stderr


def test_what_cannot_be_prepared(clicks, tmp_path):
    for args, message in (
        ([clicks], "--output is missing"),
        (["ml-100k", "-o", tmp_path / "f"], "names a dataset"),
        ([clicks, "--verify"], "is a file, not a prepared folder"),
        ([clicks, "--verify", "-o", tmp_path / "f"], "has no effect with --verify"),
        ([clicks, "-o", tmp_path / "f", "--memory", "1MB"], "memory = '1MB'"),
        ([tmp_path / "nothing.csv", "-o", tmp_path / "f"], "does not exist"),
    ):
        assert message in run("prepare", *args, "-q", code=1).stderr
        assert not (tmp_path / "f").exists()
