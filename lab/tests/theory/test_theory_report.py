"""The results, the page and the command: the same results give the same bytes, and a failed check is told."""

import dataclasses
import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from truepair.errors import InputError, StorageError
from truepair_lab.cli.main import app
from truepair_lab.store import rounded
from truepair_lab.theory import figures, running
from truepair_lab.theory.figures import theory_figures
from truepair_lab.theory.report import page_text, write_page
from truepair_lab.theory.results import as_text, read_results
from truepair_lab.theory.running import run_theory, verdicts
from truepair_lab.theory.tables import csv_tables

pytestmark = pytest.mark.long  # the pages of the studies and what made them

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "theory.json"
RESULTS = read_results(KEPT)


def broken():
    """The kept results, with one cell of Lemma 1 far off."""
    means = (dataclasses.replace(RESULTS.lemma1.means[0], z=9.0), *RESULTS.lemma1.means[1:])
    return dataclasses.replace(RESULTS, lemma1=dataclasses.replace(RESULTS.lemma1, means=means))


def run(*args):
    return CliRunner().invoke(app, ["theory", *map(str, args)])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of the kept results, with its tables and figures."""
    pytest.importorskip("matplotlib")
    return write_page(RESULTS, tmp_path_factory.mktemp("docs") / "theory.md")


def test_the_page_in_the_docs_is_that_of_the_kept_results(page):
    written = [path.relative_to(page.parent) for path in page.parent.rglob("*.*")]
    assert len(written) == 1 + len(csv_tables(RESULTS)) + len(theory_figures(RESULTS))
    for path in written:
        kept = (ROOT / "docs" / path).read_text(encoding="utf-8")
        assert kept == (page.parent / path).read_text(encoding="utf-8")


def test_the_kept_results_are_of_a_whole_run_and_every_check_holds():
    assert not RESULTS.quick
    assert [check.claim for check in verdicts(RESULTS) if not check.holds] == []


def test_results_survive_their_file(tmp_path):
    (tmp_path / "again.json").write_text(as_text(RESULTS), encoding="utf-8")
    assert read_results(tmp_path / "again.json") == RESULTS
    assert as_text(RESULTS) == KEPT.read_text(encoding="utf-8")
    assert rounded(RESULTS) == RESULTS


def test_a_page_with_its_figures(page):
    text = page.read_text(encoding="utf-8")
    assert text == page_text(RESULTS)
    assert not re.search(r"\b(nan|inf|None)\b", text)
    for name, table in csv_tables(RESULTS).items():
        assert f"](tables/{name})" in text
        assert (page.parent / "tables" / name).read_text(encoding="utf-8") == table
    for name in theory_figures(RESULTS):
        assert f"](figures/{name})" in text
        ET.fromstring((page.parent / "figures" / name).read_bytes())


def test_the_same_results_give_the_same_figure(page):
    again = theory_figures(RESULTS)["theory-lemma3.svg"].svg()
    assert again == (page.parent / "figures" / "theory-lemma3.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", theory_figures(RESULTS))
def test_a_colour_of_a_figure_is_one_thing(name, monkeypatch):
    drawn = []
    for draw in ("draw_lines", "draw_dots"):
        monkeypatch.setattr(figures, draw, lambda panels, *_: drawn.extend(panels) or "<svg>")
    theory_figures(RESULTS)[name].draw()
    things = {}
    for panel in drawn:
        for label, series in panel.series.items():
            if not label.startswith("_"):  # dashed guides of a series have its colour
                things.setdefault(series.colour, set()).add(label)
        for label, (_, _, colour) in panel.spans.items():
            things.setdefault(colour, set()).add(label)
    assert drawn
    assert all(len(labels) == 1 for labels in things.values()), things


def test_a_failed_check_is_told_on_the_page():
    assert "**no**" in page_text(broken())
    assert "| **no** |" not in page_text(RESULTS)


def test_a_wrong_file_is_an_error_with_the_remedy(tmp_path):
    with pytest.raises(StorageError, match=r"cannot read .*nothing\.json"):
        read_results(tmp_path / "nothing.json")
    for text in ("{", "{}", json.dumps(dataclasses.asdict(RESULTS) | {"seed": "zero"})):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(StorageError, match=r"bad\.json holds no results.*truepair-lab theory --save"):
            read_results(tmp_path / "bad.json")


def test_a_number_that_is_none_is_not_kept():
    limit = dataclasses.replace(RESULTS.lemma2.limits[0], reached=math.nan)
    lemma2 = dataclasses.replace(RESULTS.lemma2, limits=(limit,))
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_text(dataclasses.replace(RESULTS, lemma2=lemma2))


# --- the command ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_small_run_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_QUICK", running._Sizes(30, 30, 5, (4,), 40))
    done = run("--quick", "--seed", "1", "--save", tmp_path / "r.json", "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == (0 if all(check["holds"] for check in told["checks"]) else 1)
    assert (told["seed"], told["quick"], told["page"]) == (1, True, None)
    assert "Lemma 2" in done.stderr
    again = read_results(tmp_path / "r.json")
    assert again == run_theory(1, quick=True)
    assert [check.claim for check in verdicts(again)] == [check["claim"] for check in told["checks"]]


def test_the_table_of_verdicts_and_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    done = run("--load", KEPT, "--out", tmp_path / "theory.md")
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 2 + len(verdicts(RESULTS))
    assert (tmp_path / "theory.md").read_text(encoding="utf-8") == page_text(RESULTS)
    assert run("--load", KEPT, "--quiet").output == ""


def test_a_check_that_fails_ends_with_one(tmp_path):
    (tmp_path / "r.json").write_text(as_text(broken()), encoding="utf-8")
    done = run("--load", tmp_path / "r.json")
    assert done.exit_code == 1
    assert re.search(r"Lemma 1 +NO +the mean of P̂ is the truth", done.stdout)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--save", "a.json", "--load", "b.json"], "give one of them"),
        (["--load", "nowhere.json"], "cannot read nowhere.json"),
        (["--out", "no/such/folder/page.md"], "there is no folder"),
        (["--seed", "-1"], "seed = -1 is out of range"),
    ],
)
def test_bad_words_are_told(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*args)
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_the_seed_is_checked():
    with pytest.raises(InputError, match=r"seed = 0\.5"):
        run_theory(0.5)
