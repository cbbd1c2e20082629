"""Hold-outs and rows in order of time on the command line."""

from pathlib import Path

import numpy as np
import pytest
from test_cli import as_json, failed, good

from truepair.data.datasets import loading
from truepair.data.reading import read_interactions
from truepair.data.split_recipes import split_given, split_leave_last_out
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import hold_out

SMALL = ["--dim", "4", "--epochs", "1", "--metric", "ndcg@5", "--validation", "0.2", "--device", "cpu"]


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """An adjacency file: 20 users, each with 10 of 15 items in a random order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = [" ".join(map(str, [user, *rng.permutation(15)[:10]])) for user in range(20)]
    (tmp_path / "lines.txt").write_text("\n".join(rows))
    return "lines.txt"


def trained_on(*args):
    """The checksum of the pairs that a model learnt from."""
    good("fit", *args, "-o", "m", *SMALL)
    return Recommender.load("m").facts_["data"]


def test_fit_holds_out_the_last_pairs_where_there_is_an_order(lines):
    data = read_interactions(lines, chronological=True)
    last, drawn = (hold_out(data, how, 0.2).train.hash for how in ("last", "random"))
    assert trained_on(lines, "--chronological") == last
    assert trained_on(lines, "--chronological", "--hold-out", "random") == drawn
    assert trained_on(lines) == drawn  # nothing says that the order means anything
    assert trained_on(lines, "--chronological", "--set", "hold_out=random") == drawn
    Path("c.toml").write_text('hold_out = "random"')
    assert trained_on(lines, "--chronological", "--config", "c.toml") == drawn
    assert "--hold-out last" in failed(
        "fit", lines, "-o", "m", *SMALL, "--chronological", "--hold-out", "time"
    )
    assert "needs the time of each pair" in failed("fit", lines, "-o", "m", *SMALL, "--hold-out", "last")


def test_a_published_split_is_validated_as_it_is_tested(lines, monkeypatch):
    data = read_interactions(lines, chronological=True)
    last = split_leave_last_out(data, last=2)
    given = split_given(last.train, last.test)
    monkeypatch.setattr(loading, "load_split", lambda *_: given)
    published = ["gowalla", "--test", "given"]
    assert trained_on(*published) == hold_out(given.train, "last", 0.2).train.hash
    drawn = split_given(given.train, given.test, holdout=0.2, seed=0)
    assert trained_on(*published, "--hold-out", "random") == drawn.train.hash
    assert "--chronological has no effect on 'gowalla'" in failed(
        "fit", "gowalla", "-o", "m", "--chronological"
    )


def test_a_search_holds_out_the_last_pairs(lines):
    pytest.importorskip("optuna")
    args = ["tune", lines, *SMALL, "--trials", "1", "--chronological"]
    scores = {
        how: as_json(*args, "--hold-out", how, "--storage", how)["best"]["score"]
        for how in ("auto", "last", "random")
    }
    assert scores["auto"] == scores["last"] != scores["random"]


def test_a_random_test_part_is_validated_at_random(lines):
    shown = good("fit", lines, "-o", "m", *SMALL, "--chronological", "--test", "0.2").stderr
    assert "hold_out(how='random', share=0.2, seed=0)" in shown
    shown = good(
        "fit", lines, "-o", "m", *SMALL, "--chronological", "--test", "0.2", "--hold-out", "last"
    ).stderr
    assert "hold_out(how='last', share=0.2, seed=0)" in shown


@pytest.mark.parametrize("command", ["fit", "compare", "tune"])
def test_a_date_begins_the_test_part(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    days = [
        f"{user},{item},2024-06-{10 + (7 * item + user) % 12}" for user in range(12) for item in range(12)
    ]
    Path("clicks.csv").write_text("\n".join(["user,item,time", *days]))
    args = ["--metric", "ndcg@5", "--epochs", "1", "--no-auto", "--test-after", "2024-06-20"]
    if command == "tune":
        pytest.importorskip("optuna")
    more = {"fit": ["-o", "m"], "compare": ["--losses", "bpr,popular"], "tune": ["--trials", "1"]}[command]
    said = good(command, "clicks.csv", *more, *args)
    assert "<Split temporal(at='2024-06-20'" in said.stderr
    assert "test 24" in said.stderr  # days 20 and 21 of 12 users
    number = "1718841600000000"  # microseconds, as of dates
    assert "test 24" in good(command, "clicks.csv", *more, *args[:-1], number).stderr
    both = failed(command, "clicks.csv", *more, *args, "--test", "0.2")
    assert "--test 0.2 has no effect with --test-after 2024-06-20" in both
    wrong = failed(command, "clicks.csv", *more, *args[:-1], "soon")
    assert "--test-after = 'soon' is no time; give a date such as '2024-06-15'" in wrong
    timeless = failed(command, "clicks.csv", *more, *args, "--time", "-")
    assert "--test-after needs the time of each pair; read --time …" in timeless
