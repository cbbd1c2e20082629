"""Automatic settings on the command line: what is printed, a budget, and commands that have none."""

import json
import re
import shlex
from pathlib import Path

import pytest
from test_cli import as_json, failed, good

import truepair as tp
from truepair.data.simulation import simulate_world
from truepair.evaluation import Validation
from truepair.models.closed_forms import EASE

SHORT = ["--epochs", "2", "--metric", "ndcg@10", "--device", "cpu"]


@pytest.fixture
def clicks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world = simulate_world(150, 60, tau=0.1, density=0.3, seed=1)
    world.observed.to_table().to_pandas().to_csv("clicks.csv", index=False)
    return "clicks.csv"


def test_fit_tells_what_it_chose_and_how_to_repeat_it(clicks):
    said = good("fit", clicks, "-o", "m", *SHORT).output
    assert re.search(
        r"automatic settings by \d+ runs on held-out interactions, \d+ s: temperature \.?\d", said
    )
    call = re.search(r"to repeat without the search: (Recommender\(.*\))", said)[1]
    again = eval(call, {"Recommender": tp.Recommender, "EASE": EASE}).fit(tp.read_interactions(clicks))
    assert again.recommend(k=3).equals(tp.load("m").recommend(k=3))
    assert [path.name for path in Path().glob("m*")] == ["m"]  # neither checkpoint nor settings are left
    facts = as_json("fit", clicks, "-o", "m", *SHORT)["automatic"]
    assert facts["repeat"] == call


def test_it_can_be_switched_off_and_limited(clicks):
    for off in (["--no-auto"], ["--set", "auto=false"]):
        assert as_json("fit", clicks, "-o", "m", *SHORT, *off)["automatic"] is None
    limited = as_json("fit", clicks, "-o", "m", "--metric", "ndcg@10", "--device", "cpu", "--budget", "1s")
    assert limited["automatic"]["chosen"]["epochs"] >= 1
    assert "budget = 'soon' is no time" in failed("fit", clicks, "-o", "m", *SHORT, "--budget", "soon")
    said = failed("fit", clicks, "-o", "m", *SHORT, "--no-auto", "--budget", "1s")
    assert "--budget 1s has no effect" in said or "budget = 1s has no effect" in said


def test_too_little_data_is_said(clicks):
    lines = Path(clicks).read_text().splitlines()
    Path("few.csv").write_text("\n".join(lines[:200]))
    said = good("fit", "few.csv", "-o", "m", *SHORT).output
    assert "automatic settings were skipped" in said


def test_the_default_of_compare_is_that_of_fit(clicks):
    args = ["compare", clicks, "--losses", "infonce,bpr,popular", "--test", "0.3", *SHORT]
    compared = as_json(*args)["losses"]
    found = as_json("fit", clicks, "-o", "m", "--test", "0.3", *SHORT)
    assert compared["infonce"]["mean"] == found["test"]["metrics"]["ndcg@10"]
    assert compared["infonce"]["runs"][0]["automatic"]["chosen"] == found["automatic"]["chosen"]
    assert compared["bpr"]["runs"][0]["automatic"] is None
    again = as_json(*args, "--auto")["losses"]
    assert {name: again[name]["metrics"] for name in again} == {n: compared[n]["metrics"] for n in compared}
    fixed = as_json("fit", clicks, "-o", "m", "--test", "0.3", *SHORT, "--no-auto")["test"]["metrics"]
    assert as_json(*args, "--no-auto")["losses"]["infonce"]["mean"] == fixed["ndcg@10"]
    said = good(*args).stdout
    assert "infonce: automatic settings, as in `fit`; --no-auto leaves them out" in said
    assert "losses have the given options, and else the defaults of `fit`" in said


@pytest.mark.parametrize("budget", [[], ["--budget", "1h"]])
def test_an_interrupted_search_is_continued_by_the_same_command(clicks, monkeypatch, budget):
    judge, n_judged = Validation.__call__, []

    def interrupted(validation, state):
        n_judged.append(state.epoch)
        if len(n_judged) == 4:
            raise KeyboardInterrupt
        return judge(validation, state)

    monkeypatch.setattr(Validation, "__call__", interrupted)
    args = ["fit", clicks, "-o", "m", *SHORT, *budget]
    said = failed(*args, code=130)
    assert "m.checkpoint.settings holds the automatic settings, or the runs so far. To continue:" in said
    assert said.splitlines()[-1] == f"  truepair {shlex.join(args)}"
    n_runs = len(json.loads(Path("m.checkpoint.settings").read_text())["runs"])
    assert n_runs >= 2
    again = good(*args)
    assert "continuing from m.checkpoint.settings" in again.stderr
    n_trials = len(tp.load("m").facts_["automatic"]["trials"])
    assert len(n_judged) - 4 <= n_trials - n_runs  # a first run may count twice: it is timed
    assert [path.name for path in Path().glob("m*")] == ["m"]
