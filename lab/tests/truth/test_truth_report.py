"""The page of the truth lab: from lines alone, the same bytes; partial lines, a partial page; the command."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from truepair.errors import InputError
from truepair_lab.cli.main import app
from truepair_lab.reporting.answers import OTHER_LINES
from truepair_lab.truth import lines
from truepair_lab.truth.coat import TWO_PRIORS
from truepair_lab.truth.lines import TruthLine
from truepair_lab.truth.report import figures
from truepair_lab.truth.report.page import rebuild
from truepair_lab.truth.report.summary import settings_of
from truepair_lab.truth.treatments import EVERY

pytestmark = pytest.mark.long  # the pages of the studies and what made them

ROOT = Path(__file__).parents[2]


def line_of(treatment, seed, ndcg, case="simulation", exposure="random", probes=True):
    measures = {"share uniform": 0.1, "share popularity": 0.2, "share dns": 0.4, "share bns": 0.35}
    measures |= {"p": 0.9, "p plain bias": -0.04, "p bias": 0.001 * seed, "p bias rms": 0.04}
    measures |= {"p plain spread": 0.08, "p spread": 0.09, "cosine": 0.97, "length": 1.1, "noise": 0.1}
    return TruthLine(
        case=case,
        exposure=exposure,
        hide=0.5,
        treatment=treatment,
        seed=seed,
        tau=0.09,
        facts={"users": 8, "items": 6, "train": 9, "valid": 2, "judged users": 7, "judged positives": 12},
        settings={"learning_rate": 0.005, "weight_decay": 1e-5},
        search=[[0.005, 1e-5, 0.2]],
        epoch=4 + seed,
        epochs=9,
        quality={"ndcg@5": 0.5, "ndcg@20": ndcg, "recall@5": 0.4, "recall@20": 0.6, "auc": 0.9},
        curve=[[1, 0.3], [2, ndcg]],
        probes=[(1, measures), (4 + seed, measures)] if probes else [],
        clamped=0.01,
        seconds=1.0,
    )


def some_lines():
    """BPR at .60, fully supervised at .70, DPL at .62; true negatives at .65."""
    ways = {"bpr": 0.60, "dpl": 0.62, "dpl-tau-0": 0.61, "supervised": 0.70, "clean-draws": 0.65}
    return [
        line_of(name, seed, value + 0.001 * seed * (name != "bpr"), probes=name in ("bpr", "dpl"))
        for name, value in ways.items()
        for seed in range(3)
    ]


@pytest.fixture
def folder(tmp_path):
    for line in some_lines():
        lines.append(tmp_path / "lines" / "simulation.jsonl", line)
    return tmp_path / "lines"


def test_closed_is_the_share_of_the_gap():
    (setting,) = settings_of(some_lines())
    assert setting.closed("dpl").value == pytest.approx(0.2, abs=0.02)
    assert setting.closed("supervised").value == pytest.approx(1)
    assert setting.gain("dpl").value == pytest.approx(0.021)
    assert setting.closed("hcl") is None


def test_no_share_where_labels_bring_nothing():
    told = [line_of("bpr", s, 0.6 + 0.01 * s) for s in range(3)]
    (setting,) = settings_of([*told, *(line_of("supervised", s, 0.61 - 0.01 * s) for s in range(3))])
    assert setting.closed("supervised") is None


@pytest.mark.long
def test_the_page_is_the_same_every_time(folder, tmp_path):
    pages = [rebuild(folder, tmp_path / name / "truth.md") for name in "ab"]
    for one, other in zip(*(sorted(page.parent.rglob("*.*")) for page in pages), strict=True):
        if one.is_file():
            assert one.read_bytes() == other.read_bytes()
    text = pages[0].read_text()
    assert OTHER_LINES in text
    assert "| DPL − BPR | **+.0210 ± .0010** |" in text
    assert not re.search(r"\bnan\b", text)
    for figure in re.findall(r"\((figures/.*?)\)", text):
        assert (pages[0].parent / figure).exists()


def test_all_differences_of_a_setting_are_corrected_together(tmp_path):
    """DPL alone is significantly better than BPR; beside eight losses that differ by chance it is not."""
    seeds = (0.0, 0.01, 0.02)
    few = [line_of("bpr", s, 0.6) for s in range(3)] + [
        line_of("dpl", s, 0.64 + x) for s, x in enumerate(seeds)
    ]
    names = ("infonce", "dcl", "hcl", "bns", "dpl-hard", "dpl-tau-half", "dpl-tau-2", "dpl-tau-5")
    more = [line_of(name, s, 0.59 + x) for name in names for s, x in enumerate(seeds)]
    assert settings_of(few)[0].significant == {("dpl", "bpr")}
    assert settings_of([*few, *more])[0].significant == frozenset()
    for line in (*few, *more):
        lines.append(tmp_path / "some.jsonl", line)
    text = rebuild(tmp_path, tmp_path / "page" / "truth.md").read_text()
    assert "| DPL − BPR | +.0500 ± .0100 |" in text


def test_a_page_of_one_line_is_a_page(tmp_path):
    lines.append(tmp_path / "coat.jsonl", line_of("bpr", 0, 0.5, case="coat", exposure="self"))
    text = rebuild(tmp_path, tmp_path / "page" / "truth.md").read_text()
    assert "Coat, as people chose" in text
    assert "%)" not in text  # no share of a gap


def test_a_decay_at_an_end_of_the_grid_is_flagged(tmp_path):
    tried = [[0.005, decay, 0.2] for decay in (1e-5, 1e-4, 1e-3)]

    def chosen(treatment, decay, search=tried, seed=0):
        settings = {"learning_rate": 0.005, "weight_decay": decay}
        return replace(line_of(treatment, seed, 0.6), search=search, settings=settings)

    ends = [chosen("bpr", 1e-5), chosen("bpr", 1e-5, [], 1), chosen("dpl", 1e-4), chosen("supervised", 1e-3)]
    told = [*ends, chosen("all-labels", 1e-3, []), chosen("hcl", 1e-5, [])]
    (setting,) = settings_of(told)
    edges = {name: setting.edge(name) for name in setting.by_name}
    assert edges == {"bpr": "lowest", "hcl": "", "dpl": "", "supervised": "highest", "all-labels": "highest"}
    for line in told:
        lines.append(tmp_path / "some.jsonl", line)
    rebuild(tmp_path, tmp_path / "page" / "truth.md")
    rows = (tmp_path / "page" / "tables" / "truth-settings.csv").read_text().splitlines()
    assert [row.split(",")[-3:-1] for row in rows[1:]] == [
        ["1e-05", "lowest"],
        ["1e-05", ""],
        ["0.0001", ""],
        ["0.001", "highest"],
        ["0.001", "highest"],
    ]


def test_no_flag_where_no_end_was_chosen(folder, tmp_path):
    rebuild(folder, tmp_path / "truth.md")
    text = (tmp_path / "tables" / "truth-settings.csv").read_text()
    assert "lowest" not in text
    assert "highest" not in text


def test_both_pages_say_the_same_of_the_true_prior_of_coat():
    pages = [(ROOT / "docs" / name).read_text() for name in ("truth.md", "prior.md")]
    assert [page.count(TWO_PRIORS) for page in pages] == [1, 1]


def test_ticks_of_the_figure_have_room(monkeypatch):
    """Numbers such as −0.005 are as wide as a quarter of a panel."""
    panels = []
    monkeypatch.setattr(figures, "draw_dots", lambda found, *_: panels.extend(found) or "<svg>")
    figures._quality(settings_of(some_lines()))
    assert [panel.steps for panel in panels] == [4]


def test_no_lines_no_page(tmp_path):
    with pytest.raises(InputError, match="holds no lines"):
        rebuild(tmp_path, tmp_path / "truth.md")


def test_every_treatment_has_a_title_of_its_own():
    titles = [treatment.title for treatment in EVERY.values()]
    assert len(set(titles)) == len(titles)
    assert all(t.settings_of is None or t.settings_of in EVERY for t in EVERY.values())


def test_the_pages_figures_and_text_are_those_of_the_lines(tmp_path):
    """docs/truth.md is what the lines in the repository give, to the byte."""
    if not (ROOT / "results" / "truth").is_dir():
        pytest.skip("no lines of the truth lab are here")
    page = rebuild(ROOT / "results" / "truth", tmp_path / "truth.md")
    assert page.read_bytes() == (ROOT / "docs" / "truth.md").read_bytes()
    for made in (*(tmp_path / "figures").iterdir(), *(tmp_path / "tables").iterdir()):
        assert made.read_bytes() == (ROOT / "docs" / made.parent.name / made.name).read_bytes()


def test_the_command_rebuilds_and_says_what_is_missing(folder, tmp_path):
    done = CliRunner().invoke(app, ["truth", "--out", str(folder), "--report", str(tmp_path / "p" / "t.md")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "p" / "t.md").exists()
    neither = CliRunner().invoke(app, ["truth"])
    assert neither.exit_code == 1
    assert "neither DATA nor --report" in neither.output
    unknown = CliRunner().invoke(app, ["truth", "jester"])
    assert "Did you mean 'jester5k'" in unknown.output
    assert "popularity" in CliRunner().invoke(app, ["truth", "--help"]).output
    hidden = CliRunner().invoke(app, ["truth", "seen.csv", "--truth", "labels.csv", "--hide", "0.3"])
    assert hidden.exit_code == 1
    assert "hide = 0.3 cannot be used" in hidden.output
