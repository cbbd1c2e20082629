"""The page and its figures: the same lines, the same bytes; partial lines, a partial page; never a crash."""

import dataclasses
import os
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import paper_lines as made
import pytest

from truepair.errors import InputError, StorageError
from truepair_lab.lines import Lines, append_line, read_lines
from truepair_lab.paper.report.csv_tables import csv_tables
from truepair_lab.paper.report.figures import report_figures
from truepair_lab.paper.report.page import rebuild_report, report_text, write_report

pytestmark = pytest.mark.long  # the pages of the studies and what made them

ROOT = Path(__file__).parents[2]
WHOLE = made.whole(("ml-100k", "ml-1m"))
FILES = ["paper-published.svg", "paper-clean.svg", "paper-sweep.svg", "paper-time.svg"]


def only(**kinds):
    return Lines(**kinds)


PARTS = {
    "one run": only(runs=WHOLE.runs[:1]),
    "no clean": only(runs=[r for r in WHOLE.runs if r.study != "clean"]),
    "only clean": only(runs=[r for r in WHOLE.runs if r.study == "clean"]),
    "only sweep": only(runs=[r for r in WHOLE.runs if r.variant.startswith("M=")]),
    "only lightgcn": only(runs=[r for r in WHOLE.runs if r.encoder == "lightgcn"]),
    "no metrics": only(runs=[dataclasses.replace(r, metrics={}, last={}) for r in WHOLE.runs]),
    "trials": only(trials=WHOLE.trials),
    "contrasts": only(contrasts=WHOLE.contrasts),
    "timings": only(timings=WHOLE.timings),
    "sessions": only(sessions=WHOLE.sessions),
    "a dataset of one's own": only(runs=made.runs("paper", "mine", "mf", "dpl", 0.3)),
    "a method of one's own": only(runs=made.runs("clean", "ml-1m", "mf", "new", 0.3)),
}


def shuffled(lines):
    def mixed(kind):
        return random.Random(1).sample(list(kind), len(kind))

    return Lines(*(mixed(getattr(lines, f.name)) for f in dataclasses.fields(lines) if f.name != "broken"))


def test_the_page_has_its_sections_and_its_figures():
    text = report_text(WHOLE)
    for title in (
        "Answer",
        "The paper's claims",
        "Protocols and data",
        "Clean runs",
        "Effort",
        "How to rebuild",
    ):
        assert f"## {title}" in text
    for name in FILES:
        assert f"](figures/{name})" in text
    assert "split-of-ml-1m" in text
    assert "truepair-lab paper report" in text


def test_the_order_of_the_lines_does_not_matter():
    assert report_text(shuffled(WHOLE)) == report_text(WHOLE)
    assert csv_tables(shuffled(WHOLE)) == csv_tables(WHOLE)


@pytest.mark.parametrize("part", PARTS)
def test_partial_lines_give_a_partial_page(part):
    text = report_text(PARTS[part])
    assert "not run" in text.lower()
    for whole in (text, *csv_tables(PARTS[part]).values()):
        assert not re.search(r"\b(nan|inf|None)\b", whole)


def test_what_was_left_out_or_broken_is_told():
    other = made.run("paper", "ml-1m", "mf", "dpl", 0.9, parameters={"loss": "other"})
    text = report_text(
        dataclasses.replace(WHOLE, runs=[*WHOLE.runs, other], broken=["a.jsonl, line 3: torn"])
    )
    assert "left out of “paper”: ml-1m MF DPL (1)" in text
    assert "a.jsonl, line 3: torn" in text


def test_an_empty_folder_is_an_error_that_names_it_and_the_remedy(tmp_path):
    with pytest.raises(InputError, match=r"nothing here holds no lines.*truepair-lab paper run"):
        rebuild_report(tmp_path / "nothing here")
    (tmp_path / "a.jsonl").write_text("{\n")
    with pytest.raises(InputError, match=r"1 lines could not be read: a\.jsonl, line 1"):
        rebuild_report(tmp_path)
    with pytest.raises(InputError, match="truepair-lab paper run"):
        report_text(Lines())


# --- figures -------------------------------------------------------------------------------------------


def test_a_folder_of_lines_becomes_a_page_with_figures(tmp_path):
    pytest.importorskip("matplotlib")
    for line in (*WHOLE.runs, *WHOLE.trials, *WHOLE.contrasts, *WHOLE.timings, *WHOLE.sessions):
        append_line(tmp_path / "lines" / "all.jsonl", line)
    out = rebuild_report(tmp_path / "lines", tmp_path / "docs" / "paper.md")
    assert out.read_text(encoding="utf-8") == report_text(WHOLE)
    assert sorted(os.listdir(out.parent)) == ["figures", "paper.md", "tables"]
    for name, text in csv_tables(WHOLE).items():
        assert (out.parent / "tables" / name).read_text(encoding="utf-8") == text
        assert f"](tables/{name})" in report_text(WHOLE)
    assert len(os.listdir(out.parent / "tables")) == 3
    assert sorted(os.listdir(out.parent / "figures")) == sorted(FILES)
    for name in FILES:
        svg = (out.parent / "figures" / name).read_text(encoding="utf-8")
        ET.fromstring(svg.encode())
        assert "<text" not in svg  # letters are paths: no font is needed
        assert "var(--" not in svg
        assert "currentColor" not in svg
        assert 'fill="#ffffff"' in svg
        assert "<dc:date>" not in svg


def test_figures_are_only_for_what_there_are_lines_of():
    assert list(report_figures(WHOLE)) == FILES
    assert list(report_figures(PARTS["timings"])) == ["paper-time.svg"]
    assert report_figures(PARTS["trials"]) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_the_same_lines_give_the_same_figure(name):
    pytest.importorskip("matplotlib")
    assert report_figures(WHOLE)[name].svg() == report_figures(shuffled(WHOLE))[name].svg()


@pytest.mark.long
@pytest.mark.parametrize("part", ["one run", "only sweep", "only lightgcn", "a method of one's own"])
def test_figures_of_partial_lines_are_drawn(part):
    pytest.importorskip("matplotlib")
    for figure in report_figures(PARTS[part]).values():
        assert ET.fromstring(figure.svg().encode()).tag.endswith("svg")


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    out = tmp_path / "paper.md"
    out.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match=r"paper\.md.*No space left"):
        write_report(PARTS["trials"], out, tmp_path)
    assert out.read_text() == "old"
    assert os.listdir(tmp_path) == ["paper.md"]


def test_docs_paper_is_rebuilt():
    """docs/paper.md is what the lines in the repository give, to the byte."""
    folder = ROOT / "results" / "paper"
    if not list(folder.glob("*.jsonl")):
        pytest.skip("results/paper holds no lines, so there is no page to compare with")
    lines = read_lines(folder)
    assert not lines.broken
    assert (ROOT / "docs" / "paper.md").read_text(encoding="utf-8") == report_text(lines)
    for name, text in csv_tables(lines).items():
        assert (ROOT / "docs" / "tables" / name).read_text(encoding="utf-8") == text
    for name, figure in report_figures(lines).items():
        assert (ROOT / "docs" / "figures" / name).read_text(encoding="utf-8") == figure.svg()
