"""Rules of the lab's studies and pages by hand: what is run again, what is drawn."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from test_prior_study import auto_line, estimate_line
from test_quality import made_up
from truepair.data.simulation import simulate_world
from truepair.data.split_recipes import split_random
from truepair_lab.cli.main import app
from truepair_lab.prior_study import lines, running
from truepair_lab.prior_study.auto import SOURCES
from truepair_lab.prior_study.groups import groups_of
from truepair_lab.prior_study.lines import AutoLine
from truepair_lab.prior_study.report import _missing
from truepair_lab.quality import report, settled
from truepair_lab.quality.tables import Contest, verdict
from truepair_lab.statistics import Mean
from truepair_lab.theory.report import page_text
from truepair_lab.theory.results import read_results

RESULTS = Path(__file__).parents[1] / "results"


def test_a_seed_with_missing_lines_is_run_again(tmp_path, monkeypatch):
    split = split_random(simulate_world(60, 50, density=0.15, seed=2).observed, test=0.2, valid=0.1)
    monkeypatch.setattr(running, "load_material", lambda name, data_dir: SimpleNamespace(holdout=split))
    seeds = []

    def trained(name, setup, split, seed, device):
        seeds.append(seed)
        return [auto_line("none", seed, 0.3)]

    monkeypatch.setattr(running, "lines_of", trained)
    for seed, sources in ((0, SOURCES), (1, list(SOURCES)[:-1])):
        done = [AutoLine("ml-100k", s, seed, 0.1, 0.2, 1, 0.3, [], {}, split.hash, "cpu") for s in sources]
        lines.append(tmp_path / "auto-ml-100k.jsonl", done)
    running.run(["auto-ml-100k"], tmp_path, lambda text: None)
    assert seeds == [1, 2]


def test_the_command_passes_on_folder_and_device(tmp_path, monkeypatch):
    seen = []

    def run(studies, folder, say, data_dir=None, device="auto"):
        seen.append((list(studies), folder, data_dir, device))
        return 0

    monkeypatch.setattr(running, "run", run)
    words = ["--lines", str(tmp_path), "--data-dir", str(tmp_path / "d"), "--device", "cuda"]
    done = CliRunner().invoke(app, ["prior-study", "coat", *words])
    assert done.exit_code == 0, done.output
    assert seen == [(["coat"], tmp_path, tmp_path / "d", "cuda")]


def test_dots_reach_one_standard_deviation_to_each_side():
    found = report._dots({0: Mean(0.3, 0.01, 5), 2: Mean(0.4, None, 1)}, 1)
    assert (list(found.x), list(found.y), found.colour) == ([0.3, 0.4], [0, 2], 1)
    assert list(found.low) == pytest.approx([0.29, 0.4])
    assert list(found.high) == pytest.approx([0.31, 0.4])


def test_a_study_that_was_run_in_part_is_named():
    some = [estimate_line("worlds", "random", 0.1, seed) for seed in (100, 101)]
    assert "worlds (2 of 80 cases)" in _missing(groups_of(some), some)


@pytest.mark.parametrize(
    ("value", "said"), [(0.4, "met"), (0.41, "met"), (0.399, "**missed by** .0010"), (None, "not run")]
)
def test_an_aim_is_met_where_it_is_just_reached(value, said):
    assert verdict(None if value is None else Mean(value, 0.001, 5), 0.4) == said


def test_both_sides_of_a_comparison_have_the_settings_that_are_shown(monkeypatch):
    monkeypatch.setattr(settled, "packaged_settings", dict)
    lines = made_up()
    a, b = "mf exact-infonce", "ease"
    assert Contest(lines).gap("ml-100k", a, b) is not None
    for side in ("a_digest", "b_digest", "split"):
        older = [dataclasses.replace(line, **{side: "older"}) for line in lines.contrasts]
        assert Contest(dataclasses.replace(lines, contrasts=older)).gap("ml-100k", a, b) is None


def test_the_lemmas_do_not_hold_where_a_check_failed():
    kept = read_results(RESULTS / "theory.json")
    means = (dataclasses.replace(kept.lemma1.means[0], z=9.0), *kept.lemma1.means[1:])
    failed = dataclasses.replace(kept, lemma1=dataclasses.replace(kept.lemma1, means=means))
    assert "Lemma 1 holds" in page_text(kept)
    assert "Lemma 1 holds" not in page_text(failed)
