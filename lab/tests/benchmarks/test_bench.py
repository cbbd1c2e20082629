"""The benchmarks: the harness with invented figures, each benchmark on a tiny world. Nothing is timed."""

import importlib.metadata
import json
import re
import sys
import xml.etree.ElementTree as ET
from functools import cache

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import truepair_lab.benchmarks as benchmarks
from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.losses import DPL
from truepair.models.encoders import MF
from truepair.training import ENGINES, Settings
from truepair.training.job import EpochTotals
from truepair_lab.benchmarks import (
    BENCHMARKS,
    Options,
    Outcome,
    Row,
    Skipped,
    alternate,
    lists,
    medians,
    peers,
    quality,
    run_benchmarks,
    scaling,
    training,
    training_memory,
    truepair_side,
)
from truepair_lab.benchmarks.plots import check_plot, draw_scaling
from truepair_lab.benchmarks.table import table
from truepair_lab.cli.main import app
from truepair_lab.reporting.machine import machine, versions

pytestmark = pytest.mark.long  # the pages of the studies and what made them

QUICK = Options(rounds=2, quick=True)


@pytest.fixture(scope="module")
def split():
    return split_random(simulate_world(60, 50, density=0.1).observed, test=0.2)


@pytest.fixture
def invented(monkeypatch):
    """Benchmarks that measure nothing."""

    def good(options):
        """Good figures."""
        options.say("measuring")
        rounds = alternate({"truepair": lambda: 1.0, "peer": lambda: 2.0}, options)
        return Outcome([Row("lists [20]", 1.0, "s", "peer", 2.0, bar=0.7)], rounds, {"k": 20})

    def absent(options):
        """Never here."""
        raise Skipped("there is no GPU here; run it where there is one")

    def interrupted(options):
        """Somebody has seen enough."""
        raise KeyboardInterrupt

    chosen = {"good": good, "absent": absent, "interrupted": interrupted}
    monkeypatch.setattr(benchmarks, "BENCHMARKS", chosen)
    return chosen


def run(*args):
    return CliRunner().invoke(app, ["bench", *map(str, args)])


# --- rows and rounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "ratio", "passed"),
    [
        (Row("x", 1.0, "s"), None, None),
        (Row("x", 1.0, "s", "peer", 2.0), 0.5, None),
        (Row("x", 1.0, "s", "peer", 2.0, bar=0.5), 0.5, True),
        (Row("x", 1.0, "s", "peer", 2.0, bar=0.4), 0.5, False),
        (Row("x", 1.0, "s", "peer", 2.0, bar=0.6, at_least=True), 0.5, False),
        (Row("x", 299.0, "MB", bar=300), None, True),
        (Row("x", 0.3, "", bar=0.4, at_least=True), None, False),
    ],
)
def test_a_bar_is_for_the_ratio_or_else_for_the_figure(row, ratio, passed):
    assert (row.ratio, row.passed) == (ratio, passed)
    assert row.facts()["passed"] is passed


def test_rounds_alternate_and_the_first_turn_is_dropped():
    calls = []

    def measure(name):
        calls.append(name)
        return float(len(calls))

    found = alternate({name: lambda name=name: measure(name) for name in "ab"}, Options(rounds=2))
    assert calls == ["a", "b"] * 3
    assert found == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert medians(found) == {"a": 4.0, "b": 5.0}


def test_options_are_checked():
    with pytest.raises(InputError, match="rounds = 0 is out of range"):
        Options(rounds=0)


# --- a report ------------------------------------------------------------------------------------------


def test_a_report_tells_machine_versions_options_and_all_rounds(invented):
    kept = []
    chosen = {name: invented[name] for name in ("absent", "good")}
    report = run_benchmarks(chosen, Options(rounds=3), lambda report: kept.append(json.dumps(report)))
    assert [list(json.loads(text)["benchmarks"]) for text in kept] == [["absent"], ["absent", "good"]]
    assert json.loads(kept[-1]) == report
    assert report["benchmarks"]["absent"]["skipped"] == ["there is no GPU here; run it where there is one"]
    good = report["benchmarks"]["good"]
    assert good["rounds"] == {"truepair": [1.0] * 3, "peer": [2.0] * 3}
    assert (good["rows"][0]["ratio"], good["rows"][0]["passed"], good["settings"]) == (0.5, True, {"k": 20})
    assert report["options"] == {"rounds": 3, "quick": False, "seed": 0}
    assert set(report["machine"]) == {"system", "cpu", "cpus", "threads", "gpus"}
    assert report["machine"]["cpu"]
    assert report["versions"]["torch"] == importlib.metadata.version("torch")


def test_what_was_measured_is_kept_when_somebody_interrupts(invented):
    kept = []
    chosen = {name: invented[name] for name in ("good", "interrupted")}
    with pytest.raises(KeyboardInterrupt):
        run_benchmarks(chosen, QUICK, kept.append)
    assert kept[-1]["interrupted"] == "interrupted"
    assert kept[-1]["benchmarks"]["good"]["rows"]


def test_machine_and_versions_are_plain_values():
    assert json.loads(json.dumps([machine(), versions()])) == [machine(), versions()]
    assert versions()["triton"] is None or isinstance(versions()["triton"], str)


def test_the_table_shows_ratio_bar_and_verdict(invented):
    report = run_benchmarks({n: invented[n] for n in ("good", "absent")}, QUICK, lambda report: None)
    shown = table(report)
    assert re.search(r"good +lists \[20\] +1 s +peer +2 s +0\.5 +≤ 0\.7 +pass", shown)
    assert "left out: there is no GPU here" in shown


# --- the benchmarks, on a tiny world -------------------------------------------------------------------


def test_an_epoch_of_every_engine_and_peer(split):
    outcome = Outcome()
    training.compare_epochs("tiny d=8", split.train, 8, QUICK, outcome)
    assert {"tiny d=8, BPR, engine reference", "tiny d=8, DPL (10,10), engine reference"} <= {
        row.what for row in outcome.rows
    }
    assert all(row.value > 0 for row in outcome.rows)
    assert all(len(figures) == 2 for figures in outcome.rounds.values())
    there = [name for name in peers.EPOCHS if f"tiny d=8, {name}: seconds an epoch" in outcome.rounds]
    assert {row.peer for row in outcome.rows} <= {*there, None}


def test_a_bar_of_training_is_the_least_ratio(split, monkeypatch):
    monkeypatch.setitem(training.BARS, ("tiny", "reference", "BPR"), 1e9)
    monkeypatch.setattr(training, "EPOCHS", {"peer": lambda train, dim, threads: lambda: 1.0})
    outcome = Outcome()
    training.compare_epochs("tiny", split.train, 4, QUICK, outcome)
    verdicts = {row.what: (row.peer, row.passed) for row in outcome.rows}
    assert verdicts["tiny, BPR, engine reference"] == ("peer", False)
    assert verdicts["tiny, DPL (10,10), engine reference"] == ("peer", None)


def test_some_steps_stand_for_an_epoch(split, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(truepair_side.time, "perf_counter", lambda: float(next(clock)))

    class Steady:
        steps = 10

        def __init__(self):
            self.epochs = []

        def train(self, epoch, rate, advance):
            self.epochs.append(epoch)
            for _ in range(self.steps):
                advance(1)

    steady = Steady()
    measure = truepair_side.seconds_per_epoch(steady, 0.1, most_steps=4)
    assert [measure(), measure()] == [10.0, 10.0]  # a second a step
    assert steady.epochs == [0, 1]
    assert truepair_side.seconds_per_epoch(steady, 0.1)() == 11.0  # before the first to after the last


def test_lists_against_implicit(split):
    pytest.importorskip("implicit")
    users, items = truepair_side.factors(split.train, 8, seed=0)
    outcome = lists.compare_lists("tiny", users, items, split.train, QUICK)
    assert set(outcome.rounds) == {"truepair", "implicit"}
    assert "threads" in outcome.settings["implicit"]
    assert (outcome.rows[0].peer, outcome.rows[0].bar) == ("implicit", lists.RANKING_BAR)


def test_evaluation_against_its_own_ranking(split):
    users, items = truepair_side.factors(split.train, 8, seed=0)
    outcome = lists.compare_evaluation("tiny", users, items, split, QUICK)
    assert set(outcome.rounds) == {"evaluation", "ranking"}
    assert outcome.rows[0].bar == lists.EVALUATION_BAR


@pytest.mark.long
def test_peak_memory_of_a_fresh_process(split, monkeypatch):
    if not training_memory.Path("/proc/self/status").exists():
        pytest.skip("only Linux tells")
    measured = cache(training_memory.peak_above_imports)  # a second process would find the same
    monkeypatch.setattr(training_memory, "peak_above_imports", measured)
    outcome = training_memory.measure_memory(
        "tiny", split.train, ("reference", "none"), Options(rounds=1, quick=True)
    )
    assert 0 < outcome.rows[0].value < 2000
    assert outcome.rows[0].bar == training_memory.BAR
    assert re.match("there is no engine 'none' here; there are .*reference", outcome.skipped[0])


def test_scaling_gives_a_line_an_engine_and_a_plot(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    axes = {"dim": ("d", (2, 4), lambda x: scaling.Point(dim=x, pairs=20_000))}
    monkeypatch.setattr(scaling, "AXES", axes)
    outcome = scaling.measure_scaling(Options(rounds=1, quick=True), ("reference", "none"))
    curve = outcome.data["dim"]["engines"]["reference"]
    assert curve["x"] == [2, 4]
    assert len(curve["seconds"]) == 2
    assert outcome.rows[0].peer == "d = 2"
    assert "no engine 'none'" in outcome.skipped[0]
    draw_scaling(outcome.data, tmp_path / "scaling.svg")
    assert ET.parse(tmp_path / "scaling.svg").getroot().tag.endswith("svg")
    drawn = (tmp_path / "scaling.svg").read_text()
    for label, *_ in scaling.AXES.values():
        assert f"<!-- an epoch by {label} -->" in drawn


@pytest.mark.parametrize(
    "pairs", sorted({make(x).pairs for _, xs, make in scaling.AXES.values() for x in xs})
)
def test_every_world_of_scaling_can_be_had(pairs):
    world = scaling.world_of(pairs, QUICK)
    assert abs(len(world) - pairs / 100) <= 1


def test_time_to_quality_stops_when_it_is_reached(split):
    class Better:
        def train(self, epoch, rate, advance):
            rates.append(rate)
            return EpochTotals(torch.zeros(1), None)

    scores, rates = iter([0.1, 0.3, 0.2, 0.5, 0.9]), []
    settings = Settings(epochs=5, learning_rate=1.0, schedule="linear", device="cpu")
    seconds, best = quality.until_good(Better(), settings, lambda trainer: next(scores), bar=0.4)
    assert seconds is not None
    assert best == 0.5
    assert rates == [settings.learning_rate_at(epoch) for epoch in range(4)]
    never = quality.until_good(Better(), settings, lambda trainer: 0.2, bar=0.4)
    assert never == (None, 0.2)
    trainer = truepair_side.start("reference", split.train, MF(dim=4))
    assert 0 <= quality.judged(trainer, split) <= 1


def test_time_to_quality_as_a_whole(split, monkeypatch):
    monkeypatch.setattr(quality, "load_split", lambda *given, **told: split)
    settings = Settings(epochs=2, n_extra=1, n_unlabelled=1, device="cpu")
    preset = quality.Preset(4, DPL(tau=0.1), settings)
    monkeypatch.setattr(quality, "PRESETS", {"reference": preset, "none": preset})
    outcome = quality.time_to_quality(Options(rounds=1))
    assert outcome.rows[0].what.endswith("best ndcg@20") or "until" in outcome.rows[0].what
    assert "no engine 'none'" in outcome.skipped[0]


def test_final_quality_is_a_mean_over_seeds(split, monkeypatch):
    monkeypatch.setattr(quality, "load_split", lambda *given, **told: split)
    outcome = quality.final_quality(Options(rounds=1, quick=True))
    scores = outcome.rounds["cpu: ndcg@20"]
    assert len(scores) == quality.BEST_SEEDS
    assert outcome.rows[0].value == pytest.approx(sum(scores) / len(scores))


def test_an_engine_that_cannot_is_left_out(split):
    with pytest.raises(Skipped, match="there is no engine 'abacus' here; there are "):
        truepair_side.start("abacus", split.train)
    unable = [name for name, engine in ENGINES.items() if name == "gpu" and not torch.cuda.is_available()]
    for name in unable:
        with pytest.raises(Skipped, match=f"engine {name!r}: "):
            truepair_side.start(name, split.train)


# --- peers ---------------------------------------------------------------------------------------------


def test_peers_that_are_not_installed_are_told_and_left_out(split, monkeypatch):
    for module in ("implicit", "implicit.bpr", "cornac", "cornac.models", "cornac.data"):
        monkeypatch.setitem(sys.modules, module, None)
    outcome = Outcome()
    training.compare_epochs("tiny", split.train, 4, Options(rounds=1, quick=True), outcome)
    told = " ".join(outcome.skipped)
    assert "implicit cannot be imported" in told
    assert "cornac cannot be imported" in told
    assert "pip install 'truepair[bench]'" in told
    assert {row.peer for row in outcome.rows} == {None}
    users, items = truepair_side.factors(split.train, 4, seed=0)
    alone = lists.compare_lists("tiny", users, items, split.train, Options(rounds=1, quick=True))
    assert (alone.rows[0].peer, alone.rows[0].passed) == (None, None)
    assert "pip install 'truepair[bench]'" in alone.skipped[0]


@pytest.mark.parametrize("name", peers.EPOCHS)
def test_a_peer_trains(name, split):
    pytest.importorskip(name)
    epoch = peers.EPOCHS[name](split.train, 4, 1)
    assert epoch() > 0
    assert epoch() > 0  # again, from where it stopped


def test_a_peer_gets_a_matrix_that_it_may_write_to(split):
    matrix = peers.csr_of(split.train)
    assert matrix.indices.flags.writeable
    np.testing.assert_array_equal(matrix.toarray() > 0, split.train.csr().toarray() > 0)


# --- the command ---------------------------------------------------------------------------------------


def test_help_names_the_benchmarks():
    shown = " ".join(run("--help").stdout.split())
    assert ",".join(BENCHMARKS) in shown.replace(" ", "")  # a line may end at a hyphen
    assert "truepair-lab bench training ranking" in shown
    assert "pip install 'truepair[bench]'" in shown


def test_list_tells_what_each_measures():
    rows = json.loads(run("--list", "--json").stdout)
    assert [row["name"] for row in rows] == list(BENCHMARKS)
    assert all(row["measures"].endswith(".") for row in rows)


def test_the_command_writes_all_rounds_and_shows_a_table(invented, tmp_path):
    result = run("good", "absent", "--rounds", "3", "--out", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    assert "pass" in result.stdout
    assert "measuring" in result.stderr
    assert "left out: there is no GPU here" in result.stderr
    assert (
        json.loads((tmp_path / "r.json").read_text())["benchmarks"]["good"]["rounds"]["truepair"] == [1.0] * 3
    )


def test_the_command_as_json_and_quietly(invented, tmp_path):
    out = tmp_path / "r.json"
    result = run("good", "--quick", "--json", "--quiet", "-o", out)
    assert json.loads(result.stdout) == json.loads(out.read_text())
    assert result.stderr == ""
    assert json.loads(out.read_text())["options"] == {"rounds": 1, "quick": True, "seed": 0}


def test_interrupting_keeps_the_file(invented, tmp_path):
    result = run("-o", tmp_path / "r.json")
    assert result.exit_code == 130
    kept = json.loads((tmp_path / "r.json").read_text())
    assert (kept["interrupted"], list(kept["benchmarks"])) == ("interrupted", ["good", "absent"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rankin"], "benchmark = 'rankin' is not known"),
        (["ranking", "--rounds", "0"], "rounds = 0 is out of range"),
        (["ranking", "--out", "no/such/r.json"], "there is no folder no/such; make it first"),
        (["ranking", "--plot", "x.svg"], "--plot x.svg draws what one of scaling"),
        (["scaling", "--plot", "x.txt"], "x.txt is no plot that can be drawn; end it in .svg"),
    ],
)
def test_the_command_fails_clearly(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_can_be_measured_is_an_error(invented, tmp_path):
    result = run("absent", "-q", "-o", tmp_path / "r.json")
    assert result.exit_code == 1
    assert "nothing could be measured: there is no GPU here" in result.stderr


def test_a_dataset_that_is_absent_is_told_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("truepair.data.datasets.loading._get", _no_network)
    result = run("evaluation", "-q", "--data-dir", tmp_path, "-o", tmp_path / "r.json")
    assert result.exit_code == 1
    assert "ml-1m" in result.stderr
    assert "Traceback" not in result.stderr


def _no_network(*given, **told):
    from truepair.errors import DownloadError

    raise DownloadError("no network")


def test_a_plot_needs_a_known_suffix(tmp_path):
    pytest.importorskip("matplotlib")
    check_plot(tmp_path / "x.png")
    with pytest.raises(InputError, match=r"end it in \.svg, \.png, \.pdf"):
        check_plot(tmp_path / "x.gif")
