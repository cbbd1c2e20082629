"""Every script under benchmarks/ runs, on a small input."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random

FOLDER = Path(__file__).parents[2] / "benchmarks"
CALLS = {
    "billion.py": (
        [
            *(
                "--users",
                "640",
                "--items",
                "60",
                "--groups",
                "6",
                "--draws",
                "8",
                "--batch",
                "10",
                "--dim",
                "4",
            ),
            *("--columns", "20", "--epochs", "2", "--sample", "20", "--lists", "50", "--device", "cpu"),
            *("--writer", "blocks", "--out", "{data}/billion.json", "--command-epochs", "2"),
        ],
        [
            "640 users x 60 items",
            "recall@20, best possible",
            "epoch 2",
            '"users a second"',
            "recommend: {",
        ],
    ),
    "dislikes.py": (["--quick"], ["world, valid", "| excluded | 1 | "]),
    "cold_items.py": (["--quick"], ["hybrid map", "level 0.97", "mixed ndcg"]),
    "distributed.py": (["--quick"], ["2·B·d numbers take 4 kB", "ranks  largest difference of scores"]),
    "diversity.py": (["--quick", "--time"], ["| 0.5 | ", "s for all lists with a filter"]),
    "future.py": (
        ["--quick", "--case", "items fade in 2 weeks", "--out", "{data}/future"],
        ["cut 90%: default, timeless", "cut 90%: EASE, decayed"],
    ),
    "half_life.py": (["--quick"], ["half-life of 10 days: found"]),
    "exchangeability.py": (
        ["--quick"],
        ["test is unlike train: popular items", "| simulated | 0 ("],
    ),
    "fold_in.py": (["--quick"], ["mf: recall@20 of new people", "lightgcn: overlap@20 of a training user's"]),
    "graph_memory.py": (
        ["--users", "200", "--items", "100", "--hops", "1", "--ranks", "1", "2"],
        ["GB of a rank: predicted", "   1      2  "],
    ),
    "import_time.py": (["--quick"], ["import torch", "1.00 x torch"]),
    "scaling_figures.py": (
        ["--figures", "{data}"],
        ["scaling-cpu.svg", "scaling-gpu.svg", "full-scaling.svg"],
    ),
    "backtest_updates.py": (
        ["--quick", "--limit", "1", "--out", "{data}/lines"],
        ["slow drift | default batches | update", "periods 2 on"],
    ),
    "interval_coverage.py": (["--quick"], ["| NDCG@20, random | ", " | 300 | "]),
    "lists_on_gpu.py": (["--quick"], ["k =  10, cpu :"]),
    "memory.py": (["--tiny"], ["bytes a user", "users, 3 items", ": 2.37 GB"]),
    "ml100k_paper_split.py": (
        ["--data", "{data}", "--seeds", "1", "--epochs", "1", "--only", "MF BPR"],
        ["MF BPR: NDCG@20", "authors' program 0.4196"],
    ),
    "peers_at_scale.py": (
        ["--pairs", "2e4", "--quick", "--only", "truepair", "--users", "50", "--folder", "{data}"],
        [
            "truepair: 2 iterations",
            "| 20,000 pairs | reading |",
            "| truepair, InfoNCE with 8 sampled items, 2 epochs |",
        ],
    ),
    "prepare.py": (
        ["--rows", "1e4", "--ids", "text", "--folder", "{data}", "--out", "{data}/measured.json"],
        ["| prepare | text | 10,000 |", "| read | text | 10,000 |"],
    ),
    "reading.py": (["--data", "{data}"], ["ml-100k/u.data: <Interactions", "gowalla/train.txt: not in"]),
    "retraining_guard.py": (
        ["--quick"],
        ["| margin 2% | untrained | ", "| 1% worse | margin, served model |"],
    ),
    "serving.py": (
        ["--quick"],
        ["fold-in of 5 items: median", "| 40 | gathered | 2 |", "| 40 | index | 2 |"],
    ),
    "untuned_losses.py": (["--quick"], ["dcl, uniform: ndcg@20", "of the rows at the floor"]),
    "recommend_all.py": (["--quick"], [" rows in ", "MB above the imports"]),
}


def test_every_script_is_called():
    assert sorted(CALLS) == sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with files as the scripts expect them, of a small world."""
    folder = tmp_path_factory.mktemp("data")
    clicks = simulate_world(60, 50, density=0.15).observed
    split = split_random(clicks, test=0.2, seed=0)
    for part, pairs in (("train", split.train), ("test", split.test)):
        pairs.to_table().to_pandas().to_csv(folder / f"100k_{part}.csv", index=False)
    (folder / "ml-100k").mkdir()
    rows = [f"{u}\t{i}\t5\t0" for u, i in zip(clicks.users, clicks.items, strict=True)]
    (folder / "ml-100k" / "u.data").write_text("\n".join(rows))
    return folder


def without_clip_names(path):
    """Matplotlib names a clip path by the last bits of its corners, which differ between processors."""
    return re.sub(r"\bp[0-9a-f]{10}\b", "p", path.read_text(encoding="utf-8"))


def run_script(name, folder, monkeypatch, capfd):
    """Run a script with its words of CALLS; what it must show is in what it printed."""
    words, shown = CALLS[name]
    words = [word.format(data=folder) for word in words]
    if name in SPAWNING:
        subprocess.run([sys.executable, FOLDER / name, *words], check=True)
    else:
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    printed = capfd.readouterr().out
    for text in shown:
        assert text in printed


def test_the_figures_of_scaling_are_those_of_the_kept_measurements(tmp_path, monkeypatch, capfd):
    """../docs/figures is what the measurements in the repository give."""
    pytest.importorskip("matplotlib")
    run_script("scaling_figures.py", tmp_path, monkeypatch, capfd)
    kept = FOLDER.parents[1] / "docs" / "figures"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in kept.glob("*scaling*")
    )
    for made in tmp_path.iterdir():
        assert without_clip_names(made) == without_clip_names(kept / made.name)
        assert b"<!-- an epoch by " in made.read_bytes()  # a title, drawn with the rest


def test_the_coverage_of_intervals_in_the_docs_is_the_one_that_was_measured(monkeypatch, capfd):
    result = FOLDER.parent / "results" / "bench" / "interval-coverage.json"
    monkeypatch.setattr(sys, "argv", ["interval_coverage.py", "--report", str(result)])
    runpy.run_path(str(FOLDER / "interval_coverage.py"), run_name="__main__")
    page = (FOLDER.parents[1] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert capfd.readouterr().out in page


SPAWNING = ("distributed.py",)  # its processes import the main module
LONG = (
    "recommend_all.py",
    "import_time.py",
    "serving.py",
    "distributed.py",
    "peers_at_scale.py",
)  # they start processes


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in LONG else ())
        for name in CALLS
        if name != "scaling_figures.py"
    ],
)
def test_a_script_runs(name, data, monkeypatch, capfd):
    if name == "prepare.py":
        pytest.importorskip("duckdb")
    if name == "memory.py":  # its program runs in recommender/test_memory.py
        done = subprocess.CompletedProcess([], 0, stdout="2370000000\n")
        monkeypatch.setattr(subprocess, "run", lambda *command, **options: done)
    run_script(name, data, monkeypatch, capfd)
