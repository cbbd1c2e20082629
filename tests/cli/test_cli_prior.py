"""`truepair prior`: what it tells, the files it writes, and how it fails."""

import json

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.data.simulation import simulate_world
from truepair.prior import METHODS, estimate_prior
from truepair.reporting.prior_figure import held_out_shares
from worlds import interactions_of


def run(*args):
    return CliRunner().invoke(app, ["prior", *map(str, args), "--device", "cpu", "-q"])


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    path = tmp_path_factory.mktemp("prior") / "clicks.csv"
    pa_csv.write_csv(simulate_world(80, 60, tau=0.1, density=0.1, seed=3).observed.to_table(), path)
    return path


def test_it_tells_the_verdict_and_every_method(clicks):
    result = run(clicks, "--resamples", 5)
    assert result.exit_code == 0, result.output
    assert "of the unlabelled pairs are positive." in result.stdout
    for word in (*METHODS, "90% interval", "class prior", "separation", "each user's own"):
        assert word in result.stdout


def test_json_and_files(clicks, tmp_path):
    pytest.importorskip("matplotlib")
    files = {suffix: tmp_path / f"prior.{suffix}" for suffix in ("svg", "csv", "parquet")}
    told = json.loads(
        run(clicks, "--json", "--resamples", 5, "--plot", files["svg"], "--per-user", files["csv"]).stdout
    )
    assert told["low"] <= told["tau"] <= told["high"]
    assert set(told["methods"]) == set(METHODS)
    assert list(told["users"].values()) == sorted(told["users"].values())
    assert files["svg"].read_text().startswith("<?xml")
    table = pa_csv.read_csv(files["csv"])
    assert table.column_names == ["user", "tau"]
    assert len(table) == len(set(pa_csv.read_csv(clicks)["user"].to_pylist()))
    assert run(clicks, "--resamples", 0, "--per-user", files["parquet"]).exit_code == 0
    again = pq.read_table(files["parquet"])
    assert again["tau"].to_pylist() == pytest.approx(table["tau"].to_pylist())  # the interval changes nothing


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("noise") / "noise.csv"
    rows = [rng.choice(40, 8, replace=False) for _ in range(60)]
    pa_csv.write_csv(interactions_of(rows, 40).to_table(), path)
    return path


def test_without_a_plateau_the_number_is_called_rough(noise, tmp_path):
    """No criterion keeps it back: those there were did not tell right estimates from wrong ones."""
    result = run(noise, "--resamples", 0, "--per-user", tmp_path / "tau.csv")
    assert result.exit_code == 0, result.output
    assert ", a rough one: the scores reach no plateau. " in result.stdout
    assert "half of DEDPUL's number" in result.stdout
    assert (tmp_path / "tau.csv").exists()
    told = json.loads(run(noise, "--resamples", 0, "--json").stdout)
    assert told["tau"] == pytest.approx(told["methods"]["dedpul"] / 2)
    assert not told["has_plateau"]
    assert told["users"]


def test_png(clicks, tmp_path):
    pytest.importorskip("matplotlib")
    assert run(clicks, "--resamples", 0, "--plot", tmp_path / "prior.png").exit_code == 0
    assert (tmp_path / "prior.png").read_bytes().startswith(b"\x89PNG")


def test_the_drawn_curve_is_the_fitted_one():
    """Over all bins the curve explains as many held-out pairs as there are."""
    found = estimate_prior(
        simulate_world(80, 60, tau=0.1, density=0.1, seed=3).observed, resamples=0, device="cpu"
    )
    score, seen, told = held_out_shares(found)
    held, unlabelled = found.cells.by_score
    pairs = (held + unlabelled)[(held + unlabelled) > 0]
    assert told @ pairs == pytest.approx(held.sum(), rel=0.02)
    assert seen @ pairs == pytest.approx(held.sum())
    assert (np.diff(score) > 0).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plot", "prior.pdf"], "end the name in .svg or .png"),
        (["--per-user", "tau.txt"], "is none of .parquet"),
        (["--per-user", "nowhere/tau.csv"], "there is no folder nowhere"),
        (["--resamples", "-1"], "resamples = -1"),
    ],
)
def test_mistakes_are_told_before_any_work(clicks, words, message, tmp_path, monkeypatch):
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    result = run(clicks, *words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_too_little_and_everything(tmp_path):
    few, full = tmp_path / "few.csv", tmp_path / "full.csv"
    pa_csv.write_csv(interactions_of([[0, 1], [2]], 4).to_table(), few)
    pa_csv.write_csv(interactions_of([range(12)] * 12, 12).to_table(), full)
    assert "3 interactions are too few" in run(few).stderr
    assert "no pair is unlabelled" in run(full).stderr


def test_plots_need_matplotlib(clicks, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run(clicks, "--plot", tmp_path / "prior.svg")
    assert result.exit_code == 1
    assert "pip install 'truepair[plots]'" in result.stderr


def test_fit_tells_the_prior_that_it_estimated(clicks, tmp_path):
    result = CliRunner().invoke(
        app,
        [
            "fit",
            str(clicks),
            "--loss",
            "dpl",
            "--tau",
            "auto",
            "--epochs",
            "1",
            "--device",
            "cpu",
            "-o",
            str(tmp_path / "m.tp"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "estimated prior τ" in result.stdout
