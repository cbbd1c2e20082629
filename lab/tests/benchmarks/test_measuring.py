"""What is measured and what is not, with clocks and peers that are invented."""

import json
from types import SimpleNamespace

import pytest
import torch

from truepair.training import Settings
from truepair_lab.benchmarks import (
    Options,
    Outcome,
    gpu,
    lists,
    quality,
    run_benchmarks,
    scaling,
    training,
    training_memory,
)
from truepair_lab.benchmarks.plots import draw_scaling
from worlds import two_tastes

QUICK = Options(rounds=2, quick=True)


class Clock:
    """Seconds that pass only where a test lets them."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def passes(self, seconds):
        self.now += seconds


def compiling_first():
    """A measure whose first figure is large, as that of a program that compiles."""
    figures = iter([900.0, 1.0, 2.0])
    return lambda *given: next(figures)


def test_judging_takes_no_part_in_the_time(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(quality, "time", clock)
    trainer = SimpleNamespace(train=lambda *given: clock.passes(1.0))

    def judge(trainer):
        clock.passes(100.0)
        return clock.now / 1000

    settings = Settings(epochs=5, device="cpu")
    assert quality.until_good(trainer, settings, judge, bar=0.3) == (3.0, 0.303)


def test_the_kept_report_says_that_it_was_interrupted():
    def interrupted(options):
        raise KeyboardInterrupt

    kept = []  # as text: the report goes on changing
    chosen = {"good": lambda options: Outcome(settings={"k": 1}), "stopped": interrupted}
    with pytest.raises(KeyboardInterrupt):
        run_benchmarks(chosen, QUICK, lambda report: kept.append(json.dumps(report)))
    assert [json.loads(text).get("interrupted") for text in kept] == [None, "stopped"]


def test_a_peer_is_called_in_its_quickest_way():
    name, measure = lists._quickest({"slow": lambda: 2.0, "quick": lambda: 1.0, "slower": lambda: 3.0}, QUICK)
    assert (name, measure()) == ("quick", 1.0)


def test_training_is_compared_with_the_faster_peer(monkeypatch):
    seconds = {"slow": 2.0, "quick": 1.0}
    peers = {name: lambda *given, s=s: lambda: s for name, s in seconds.items()}
    monkeypatch.setattr(training, "EPOCHS", peers)
    monkeypatch.setattr(training, "_engines", lambda *given: {"cpu BPR": lambda: 0.5})
    outcome = Outcome()
    training.compare_epochs("tiny", two_tastes(), 4, QUICK, outcome)
    (row,) = outcome.rows
    assert (row.peer, row.ratio) == ("quick", pytest.approx(2.0))


def test_scaling_leaves_out_the_epoch_that_compiles(monkeypatch):
    monkeypatch.setattr(scaling, "start", lambda *given: None)
    monkeypatch.setattr(scaling, "seconds_per_epoch", lambda *given: compiling_first())
    assert scaling._rounds("cpu", two_tastes(), scaling.Point(), QUICK) == [1.0, 2.0]


def test_the_process_that_compiles_is_not_measured(monkeypatch):
    monkeypatch.setattr(training_memory, "peak_above_imports", compiling_first())
    outcome = training_memory.measure_memory("tiny", two_tastes(), ("reference",), QUICK)
    assert outcome.rounds == {"reference: MB": [1.0, 2.0]}
    assert outcome.rows[0].value == 1.5


def test_scaling_is_drawn_in_milliseconds(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: drawn.append(figure))
    curves = {"cpu": {"x": [8, 16], "seconds": [0.5, 1.5]}}
    draw_scaling({"dim": {"label": "d", "engines": curves}}, tmp_path / "x.svg")
    (axes,) = drawn[0].axes
    (line,) = axes.lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([8, 16], [500.0, 1500.0])
    assert (axes.get_ylabel(), axes.get_title()) == ("ms an epoch", "an epoch by d")


# --- the GPU engine, counted without a GPU ---------------------------------------------------------------


def test_epochs_that_compile_are_not_counted(monkeypatch):
    clock, slow = Clock(), compiling_first()
    monkeypatch.setattr(gpu, "time", clock)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    seconds = iter([500.0])
    trained = []

    def train(epochs, rates):
        trained.append(epochs)
        clock.passes(next(seconds, None) or slow())

    runs = SimpleNamespace(jobs=["a", "b"], train=train)
    assert gpu.milliseconds(runs, 2) == [1000.0, 2000.0]
    assert trained == [[epoch] * 2 for epoch in range(4)]


def test_the_least_traffic_is_counted_by_hand():
    """3 anchors with 2 other entries each, in 2 steps, over 5 rows of 8 numbers."""
    runs = SimpleNamespace(
        dim=8, n_anchors=3, plan=SimpleNamespace(width=2), steps=2, n_rows=5, lazy=False, hops=None, jobs=[1]
    )
    vector = 32
    entries = 9 * (2 * vector + 8)
    order, adam = 3 * 16 * 2 * 8, 2 * 5 * 8 * vector
    assert gpu.traffic(runs) == entries + order + adam
    runs.jobs = [1, 2]
    assert gpu.traffic(runs) == 2 * (entries + order + adam)
    runs.hops = SimpleNamespace(indptr=torch.tensor([0, 1, 3, 4, 4, 6]))  # degrees 1 2 1 0 2
    runs.touched = torch.tensor([1, 0, 1, 0, 0, 1, 1, 0, 0, 1])  # rows 0 and 2, then 0, 1 and 4
    neighbours = 2 * 1 + 2 + 1 + 2
    rows = 5 + 2 * 5
    graph = 2 * neighbours * vector + (neighbours + 2 * 6) * 8 + rows * 2 * vector
    assert gpu.traffic(runs) == entries + order + adam + graph
