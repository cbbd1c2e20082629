"""`truepair backtest` as a person types it."""

import json

import pyarrow.csv as pa_csv
import pytest
from test_cli import as_json, failed, good, run

import truepair as tp
from truepair.reporting.backtesting.strategies import judge

SMALL = ["--dim", "4", "--epochs", "2", "--no-auto", "--metric", "ndcg@5", "--every", "1w"]


@pytest.fixture
def clicks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pa_csv.write_csv(tp.simulate_drift(60, 40, periods=4, pairs=20, seed=2).to_table(), "clicks.csv")
    return "clicks.csv"


def test_the_report_and_the_numbers_are_those_of_python(clicks, tmp_path):
    pytest.importorskip("matplotlib")
    found = as_json("backtest", clicks, *SMALL, "-o", "page.html")
    model = tp.Recommender(dim=4, epochs=2, auto=False, metric="ndcg@5")
    same = tp.backtest(clicks, model, every="1w")
    assert [cell["value"] for cell in found["cells"]] == [cell.value for cell in same.cells]
    assert found["report"] == "page.html"
    assert "Backtest on clicks.csv" in (tmp_path / "page.html").read_text()
    assert not (
        tmp_path / "page.html.jsonl"
    ).exists()  # the report is written, so nothing is left to continue


def test_windows_numbers_and_strategies(clicks):
    few = ["--dim", "4", "--epochs", "2", "--no-auto", "--metric", "ndcg@5", "-q"]
    strategies = ["--strategies", "popularity, retrain"]
    found = as_json("backtest", clicks, *few, *strategies, "--every", "604800", "--train", "2w")
    assert {cell["strategy"] for cell in found["cells"]} == {"popularity", "retrain"}
    assert all(p["start"] - p["train_start"] == 1_209_600 for p in found["periods"])
    equal = as_json("backtest", clicks, *few, "--strategies", "popularity", "--periods", "3")
    assert len(equal["periods"]) == 3


def test_progress_and_the_table(clicks):
    shown = good("backtest", clicks, *SMALL, "--strategies", "retrain,popularity")
    assert "period 3 of 3, popularity: ndcg@5" in shown.stderr
    assert "of retrain" in shown.stdout
    assert good("backtest", clicks, *SMALL, "--strategies", "popularity", "-q").stderr == ""


def test_ctrl_c_says_how_to_continue_and_keeps_what_is_finished(clicks, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    n = 0

    def interrupted(*args):
        nonlocal n
        n += 1
        if n == 5:
            raise KeyboardInterrupt
        return judge(*args)

    command = ["backtest", clicks, *SMALL, "-o", "page.html"]
    with monkeypatch.context() as patch:
        patch.setattr("truepair.reporting.backtesting.running.judge", interrupted)
        stopped = run(*command)
        assert stopped.exit_code == 130
        assert (
            "page.html.jsonl holds the finished results. To continue:\n  truepair backtest" in stopped.stderr
        )
        n = 4
        without = run("backtest", clicks, *SMALL)
        assert (without.exit_code, without.stderr.splitlines()[-1]) == (130, "interrupted")
    kept = [json.loads(line) for line in (tmp_path / "page.html.jsonl").read_text().splitlines()]
    assert sum("cell" in line for line in kept) == 4
    assert len(as_json(*command)["cells"]) == 18


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--time", "-"], "needs the time of each pair; read --time"),
        (["--every", "1y"], "every = '1y' is no duration"),
        (["--train", "2d"], "the training window is shorter than a period"),
        (["--every", "9w"], "periods to judge; 2 are needed"),
        (["--strategies", "retrain,hope"], "strategies = 'hope' is not known"),
        (["--settings", "sometimes"], "settings = 'sometimes' is not known"),
        (["--checkpoint", "clicks.csv"], "clicks.csv is no checkpoint of a backtest"),
        (["-o", "."], "."),
    ],
)
def test_what_cannot_be_done_is_said(clicks, options, says):
    assert says in failed("backtest", clicks, *SMALL, *options)
