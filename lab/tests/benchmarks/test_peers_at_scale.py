"""benchmarks/peers_at_scale.py: contestants that are stopped, worlds that are kept, the tables."""

import json
import subprocess
import sys
from pathlib import Path

import measuring
import pytest
import tables
import trials
from topic_world import World, make, part

from truepair.storage.versions import current_parameters

ROOT = Path(__file__).parents[2]


def run_of(name, points, **facts):
    curve = [{"iterations": n, "seconds": s, "ndcg": ndcg} for n, s, ndcg in points]
    stages = {"stages": {"reading": 0.5}, "peak bytes": 1.5e9}
    return {"name": name, "settings": trials.SETTINGS[name], "curve": curve} | stages | facts


def facts_of(*runs, pairs=1_000_000):
    bounds = {"popularity": 0.05, "known chances": 0.3}
    return {"pairs": pairs, "users": 5, "items": 4, "train": 9, "bounds": bounds, "runs": list(runs)}


WHOLE = run_of("truepair", [(1, 2.0, 0.1), (2, 4.0, 0.25)])
STOPPED = run_of("spark", [(2, 300.0, 0.08)], ended="stopped in training after 1200 s")
NO_POINT = run_of("implicit", [], ended="ran out of memory")


@pytest.mark.parametrize(
    ("code", "errors", "words"),
    [
        (0, "a warning", ""),
        (1, "java.lang.OutOfMemoryError: Java heap space\nat …", "ran out of memory: Java heap of 2g"),
        (-9, "", "killed, as Linux does when memory runs out"),
        (1, "Py4JNetworkError: Answer from Java side is empty", "killed, as Linux does"),
        (1, "Traceback\nKeyError: 'x'\n", "failed with 1: KeyError: 'x'"),
        (measuring.NOT_INSTALLED, "", "not installed: pyspark"),
    ],
)
def test_the_end_of_a_contestant_is_reported_in_words(code, errors, words):
    found = {"settings": {"heap": "2g"}, "lacks": "pyspark"}
    ended = measuring.how_it_ended(code, errors, found)
    assert ended.startswith(words)
    assert bool(ended) == bool(words)


WORKER = """import json, time
print(json.dumps({"stage": "training"}), flush=True)
print(json.dumps({"iterations": 1, "seconds": 0.1, "ndcg": 0.2}), flush=True)
memory = bytearray(200_000_000)
memory[:] = b"1" * len(memory)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (measuring.Limits(1.5, 1e12), "stopped in training after 1.5 s"),
        (measuring.Limits(60, 1e8), "stopped in training: more than 0.1 GB"),
    ],
)
def test_a_contestant_is_stopped_at_a_limit_and_its_points_are_kept(limits, words, tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    monkeypatch.setattr(measuring, "WORKER", worker)
    found = measuring.measured("truepair", tmp_path, "valid", 10, {}, limits)
    assert found["ended"] == words
    assert [point["ndcg"] for point in found["curve"]] == [0.2]
    assert found["peak bytes"] > 0


def test_a_kept_world_is_used_again_and_another_is_refused(tmp_path):
    pytest.importorskip("duckdb")
    world = World(5000)
    seconds = make(world, tmp_path, "1GB")
    size, changed = len(part(tmp_path, "train")), (tmp_path / "train.parquet").stat().st_mtime_ns
    assert make(world, tmp_path, "1GB") == seconds
    assert (tmp_path / "train.parquet").stat().st_mtime_ns == changed
    assert len(part(tmp_path, "train")) == size > 1000
    with pytest.raises(ValueError, match="another world"):
        make(World(6000), tmp_path, "1GB")


def test_a_stopped_contestant_does_not_set_the_target():
    assert tables.target_of(facts_of(WHOLE, STOPPED, NO_POINT)) == 0.25
    assert tables.target_of(facts_of(STOPPED, NO_POINT)) == 0.08
    assert tables.target_of(facts_of(NO_POINT)) == 0.0


def test_the_table_has_a_row_for_each_contestant():
    shown = tables.table(facts_of(WHOLE, STOPPED, NO_POINT))
    assert shown.startswith("| 10⁶ pairs | reading | an iteration |")
    assert "| to .2500 |" in shown
    assert "epochs | 0.50 s | 2.00 s | .2500 | 4.00 s | 4.00 s | 1.50 GB |" in shown
    assert (
        "iterations; stopped in training after 1200 s | 0.50 s | 150 s | .0800 | 300 s | not reached" in shown
    )
    assert "ran out of memory | – | – | – | – | – | 1.50 GB |" in shown


def test_the_report_writes_the_page_and_the_figure(tmp_path):
    pytest.importorskip("matplotlib")
    names = []
    for power in (6, 7):
        names.append(tmp_path / f"peers-1e{power}.json")
        names[-1].write_text(json.dumps(facts_of(WHOLE, STOPPED, NO_POINT, pairs=10**power)))
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{tables.FIRST}\nold\n{tables.LAST}\n\nafter\n")
    script, figure = ROOT / "benchmarks" / "peers_at_scale.py", tmp_path / "figure.svg"
    words = ["--report", *names, "--page", page, "--figure", figure]
    subprocess.run([sys.executable, script, *words], check=True)
    text = page.read_text()
    assert "old" not in text
    assert text.index("before") < text.index("| 10⁶ pairs |") < text.index("| 10⁷ pairs |")
    assert text.index("| 10⁷ pairs |") < text.index("\nafter")
    assert "<svg" in figure.read_text()
    with pytest.raises(ValueError, match="the page has no"):
        tables.rebuilt("nothing", [])


@pytest.mark.parametrize("pairs", [10**6, 10**7])
def test_the_settings_are_among_the_trials(pairs):
    """But for the iterations: the trials of ALS had fewer."""
    for name in trials.SETTINGS:
        chosen, those = trials.settings_of(name, pairs), trials.trials_of(name, pairs)
        assert chosen in [one | {key: chosen[key] for key in ("iterations",) if key in one} for one in those]
        assert all(set(one) == set(chosen) for one in those)
        assert len({json.dumps(one, sort_keys=True) for one in those}) == len(those)


@pytest.mark.parametrize("power", [6, 7])
def test_the_kept_trials_are_those_of_the_list(power):
    kept = json.loads((ROOT / "results" / "scale" / f"peers-trials-1e{power}.json").read_text())
    assert kept["part"] == "valid"
    for one in kept["runs"]:
        listed = trials.trials_of(one["name"], 10**power)
        kept_settings = current_parameters(one["settings"])  # those of 0.1 call the engine cpu-fast
        assert any(settings.items() <= kept_settings.items() for settings in listed), kept_settings
