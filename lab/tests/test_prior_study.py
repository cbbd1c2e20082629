"""The study of the prior: cases with a known truth, resumable lines, a page of the lines alone."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair_lab.cli.main import app
from truepair_lab.prior_study import auto, cases, lines, running
from truepair_lab.prior_study.auto import SOURCES, Setup, lines_of
from truepair_lab.prior_study.cases import STUDIES, Place, Study, hidden, world_case
from truepair_lab.prior_study.groups import agrees, groups_of
from truepair_lab.prior_study.lines import AutoLine, EstimateLine
from truepair_lab.prior_study.measuring import measure
from truepair_lab.prior_study.report import rebuild
from truepair_lab.prior_study.tables import auto_table, difference, grid_table, summary_table
from truepair_lab.reporting.answers import OTHER_LINES
from worlds import interactions_of

pytestmark = pytest.mark.long  # the pages of the studies and what made them

ROOT = Path(__file__).parents[1]
SMALL = partial(world_case, noise=0.5, size=(60, 50))


def estimate_line(study="worlds", exposure="random", level=0.1, seed=100, estimate=0.11, tau=0.1, users=True):
    rank = {"rank own": 0.8, "rank density": 0.7}
    errors = {"own": 0.02, "density": 0.05, "scaled": 0.03, "one": 0.04, "true": 0.035}
    return EstimateLine(
        study=study,
        exposure=exposure,
        level=level,
        seed=seed,
        tau=tau,
        tau_low=tau,
        tau_high=tau,
        estimate=estimate,
        low=estimate - 0.02,
        high=estimate + 0.02,
        methods={"plateau": estimate, "dedpul": 0.12, "bbe": 0.14, "density": 0.05},
        separation=0.85,
        observed=0.05,
        users=rank | {f"error {name}": value for name, value in errors.items()} if users else {},
        resamples=10,
        seen=True,
    )


def auto_line(source, seed, ndcg, name="ml-100k", tau=0.01, grid=((0.0, 0.2), (0.1, None))):
    tried = [list(point) for point in grid] if source == "tuned" else []
    return AutoLine(name, source, seed, tau, 0.2, 40, ndcg, tried, {"dim": 64}, "hash", "cpu")


def trained_lines(name, taus, ndcg, grid):
    """Three seeds of every source; a seed moves all of them alike, but for a little."""
    return [
        auto_line(source, s, ndcg[source] + 0.01 * s + 0.0001 * s * at, name, taus[source], grid)
        for at, source in enumerate(SOURCES)
        for s in (0, 1, 2)
    ]


def some_lines():
    worlds = [
        estimate_line(exposure=e, level=x, seed=s, tau=x, estimate=x * factor)
        for e, factor in (("random", 1.1), ("popularity", 0.25))
        for x in (0.1, 0.3)
        for s in (100, 101)
    ]
    block = [estimate_line("kuairec", "random", 0.5, s) for s in (0, 1)]
    coat = [estimate_line("coat", "self", 0.0, 0, estimate=0.02, tau=0.17, users=False)]
    trained = [auto_line(source, s, 0.3 + 0.001 * s) for source in SOURCES for s in (0, 1)]
    return [*worlds, *block, *coat, *trained]


@pytest.fixture
def folder(tmp_path):
    lines.append(tmp_path / "lines" / "some.jsonl", some_lines())
    return tmp_path / "lines"


def test_a_hidden_block_has_the_share_that_was_hidden():
    positives = simulate_world(60, 50, tau=0.2, density=0.1, seed=1).positives
    case = hidden(positives, Place("random", 0.5, 0))
    lost = len(positives) - len(case.observed)
    assert lost == len(positives) - round(len(positives) / 2)
    assert case.tau == pytest.approx(lost / (60 * 50 - len(case.observed)))
    left = 50 - case.observed.user_counts
    assert case.user_tau @ left / left.sum() == pytest.approx(case.tau)


def test_the_truth_of_coat_leaves_out_what_people_chose(monkeypatch):
    """2 x 4 pairs, of which 2 were chosen, one of them liked; of 4 that chance chose 3 are liked."""
    chosen, drawn = interactions_of([[0], [1]], 4), interactions_of([[1, 2], [2, 3]], 4)
    train = replace(chosen, rating=np.array([5.0, 1.0]))
    test = replace(drawn, rating=np.array([4.0, 5.0, 2.0, 4.0]))
    monkeypatch.setattr(cases, "load_split", lambda name, data_dir: Split(train, None, test, "given"))
    case = cases.coat_case(Place("self", 0.0, 0), None)
    assert len(case.observed) == 1
    assert case.tau == pytest.approx(0.75 * 6 / 7)  # 7 pairs are unlabelled; one of them is no positive
    assert case.low < case.tau < case.high
    assert case.user_tau is None


def test_measuring_compares_with_the_truth():
    place = Place("random", 0.1, 0)
    line = measure("worlds", place, SMALL(place, None), resamples=2)
    assert line.low <= line.estimate <= line.high
    assert line.tau == pytest.approx(0.1, abs=0.001)
    assert set(line.methods) == {"plateau", "dedpul", "bbe", "density"}
    assert -1 <= line.users["rank own"] <= 1
    assert line.users["error true"] > 0


def test_what_has_a_line_is_not_done_again(tmp_path, monkeypatch):
    study = Study("small worlds", ("random",), (0.1,), (0, 1), SMALL)
    monkeypatch.setitem(STUDIES, "worlds", study)
    said = []
    assert running.run(["worlds"], tmp_path, said.append) == 2
    assert running.run(["worlds"], tmp_path, said.append) == 0
    assert len(said) == 2
    path = tmp_path / "worlds.jsonl"
    path.write_text(path.read_text()[:-40])  # killed while writing the last line
    assert running.run(["worlds"], tmp_path, said.append) == 1
    assert said[2].startswith("left out: worlds.jsonl, line 2:")
    assert len(lines.read(tmp_path)[0]) == 2
    with pytest.raises(InputError, match="study = 'world'"):
        running.run(["world"], tmp_path, said.append)


def test_every_source_is_trained_and_tested_once(monkeypatch):
    monkeypatch.setattr(auto, "GRID", (0.0, 0.1))
    pairs = simulate_world(60, 50, tau=0.1, density=0.15, seed=2).observed
    split = split_random(pairs, test=0.2, valid=0.1, seed=0)
    found = lines_of("small", Setup("Small", 64, 5e-3, 1e-5, epochs=5, dim=4), split, 0, "cpu", "reference")
    assert [line.source for line in found] == list(SOURCES)
    by = {line.source: line for line in found}
    assert by["density"].tau == pytest.approx(split.train.density)
    assert [tau for tau, _ in by["tuned"].grid] == [0.0, 0.1]
    assert by["tuned"].valid == max(score for _, score in by["tuned"].grid)
    assert by["tuned"].ndcg in [by["none"].ndcg] or by["tuned"].tau == 0.1


def test_auto_lines_are_resumed(tmp_path, monkeypatch):
    split = split_random(simulate_world(60, 50, density=0.15, seed=2).observed, test=0.2, valid=0.1)
    material = type("Material", (), {"holdout": split})
    monkeypatch.setattr(running, "load_material", lambda name, data_dir: material)
    made = [
        AutoLine("ml-100k", s, 0, 0.1, 0.2, 1, 0.3, [], {}, split.hash, "cpu") for s in SOURCES
    ]  # fmt: skip
    lines.append(tmp_path / "auto-ml-100k.jsonl", made)
    monkeypatch.setattr(
        running, "lines_of", lambda name, setup, split, seed, device: [auto_line("none", seed, 0.3)]
    )
    assert running.run(["auto-ml-100k"], tmp_path, lambda text: None) == 2  # of seeds 1 and 2


def test_groups_tell_errors_and_coverage():
    random, popularity, *_ = groups_of(some_lines())
    assert random.error("recommended") == pytest.approx(0.1)
    assert random.n_covered == 2  # of the level 0.1; 0.33 ± 0.02 does not hold 0.3
    assert popularity.ratio("recommended") == pytest.approx(0.25)
    assert random.per_user("error own") == pytest.approx((0.2 + 0.02 / 0.3) / 2)
    assert [agrees(line) for line in random.lines] == [True] * 4
    assert not any(agrees(line) for line in popularity.lines[:2])
    assert [len(level.lines) for level in random.by_level()] == [2, 2]


TAUS = {"none": 0.0, "density": 0.05, "auto": 0.02, "per-user": 0.03, "tuned": 0.4}
GRID = ((0.0, 0.16), (0.1, 0.17), (0.4, 0.18))


def test_differences_between_sources_are_seed_by_seed_and_bold_where_significant():
    ndcg = {"none": 0.34, "density": 0.34, "auto": 0.34, "per-user": 0.34, "tuned": 0.36}
    found = trained_lines("gowalla", TAUS, ndcg, GRID)
    table = auto_table(found)
    assert (
        "| Gowalla | estimated, one for all | .02 | .3502 ± .0102 | +.0002 ± .0002 | **-.0202 ± .0002** |"
        in table
    )
    assert (
        "| Gowalla | the best of the grid on validation | .4 | .3704 ± .0104 | **+.0204 ± .0004** |" in table
    )
    assert "| MovieLens-1M | not run |" in table
    by_source = {source: [line for line in found if line.source == source] for source in SOURCES}
    assert difference(by_source, "auto", "tuned").value == pytest.approx(-0.0202)
    assert difference({"auto": by_source["auto"]}, "auto", "tuned") is None


def test_the_summary_has_errors_coverage_and_bounds():
    rows = summary_table(groups_of(some_lines())).splitlines()
    assert rows[2].startswith("| Simulated worlds, at random | 4 | 10% | 10% |")
    assert rows[2].endswith("| 1.10 to 1.10 | 1.10, 1.10 | 2 | 2 | 2 | 0 | 4 |")
    assert rows[3].startswith("| Simulated worlds, by popularity | 4 | 75% |")


def test_the_grid_is_a_table_without_what_diverged():
    ndcg = dict.fromkeys(SOURCES, 0.3)
    small = [auto_line("tuned", 0, 0.3, "ml-100k")]  # diverged at 0.1
    table = grid_table([*small, *trained_lines("gowalla", TAUS, ndcg, GRID)])
    assert "| validation NDCG@20 | τ = 0 | τ = .1 | τ = .4 |" in table
    assert "| MovieLens-100k | **.2000** | – | – |" in table
    assert "| Gowalla | .1600 | .1700 | **.1800** |" in table
    assert grid_table([]) == ""


@pytest.mark.long
def test_the_page_is_the_same_every_time(folder, tmp_path):
    pages = [rebuild(folder, tmp_path / name / "prior.md") for name in "ab"]
    for one, other in zip(*(sorted(page.parent.rglob("*.*")) for page in pages), strict=True):
        assert one.is_dir() or one.read_bytes() == other.read_bytes()
    text = pages[0].read_text()
    assert OTHER_LINES in text
    assert "Gowalla | not run" in text
    assert "noisy (0 of 40 cases)" in text
    assert "auto-ml-100k (10 of 15 lines), auto-ml-1m (0 of 15 lines)" in text
    assert not re.search(r"\bnan\b", text)
    for figure in re.findall(r"\((figures/.*?)\)", text):
        assert (pages[0].parent / figure).exists()


def test_a_page_of_one_line_is_a_page(tmp_path):
    lines.append(tmp_path / "coat.jsonl", [estimate_line("coat", "self", 0.0, 0, users=False)])
    assert "Coat" in rebuild(tmp_path, tmp_path / "page" / "prior.md").read_text()


def test_the_page_in_the_docs_is_that_of_the_lines(tmp_path):
    """docs/prior.md is what the lines in the repository give, to the byte."""
    page = rebuild(ROOT / "results" / "prior", tmp_path / "prior.md")
    assert page.read_bytes() == (ROOT / "docs" / "prior.md").read_bytes()
    for made in (*(tmp_path / "figures").iterdir(), *(tmp_path / "tables").iterdir()):
        assert made.read_bytes() == (ROOT / "docs" / made.parent.name / made.name).read_bytes()


def command(*words):
    return CliRunner().invoke(app, ["prior-study", *map(str, words)])


def test_the_command_rebuilds_and_says_what_is_wrong(folder, tmp_path):
    done = command("--lines", folder, "--report", tmp_path / "p" / "prior.md")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "p" / "prior.md").exists()
    unknown = command("jester", "--lines", folder)
    assert unknown.exit_code == 1
    assert "Did you mean 'jester5k'" in unknown.stderr
    empty = command("--lines", tmp_path / "none", "--report", tmp_path / "x.md")
    assert empty.exit_code == 1
    assert "holds no lines" in empty.stderr
    assert "nothing to do" in command().stderr


def test_lines_are_plain_json(folder):
    first = json.loads((folder / "some.jsonl").read_text().splitlines()[0])
    assert first["kind"] == "estimate"
    assert len(lines.read(folder)[0]) == len(some_lines())
