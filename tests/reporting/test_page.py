"""The report: one file, everything escaped, nothing from outside, written whole or not at all."""

import importlib.util
import os
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from truepair.errors import InputError, StorageError
from truepair.reporting.figures import Panel, Series, check_plots, draw_bands, draw_bars
from truepair.reporting.page import Columns, Figure, Items, Page, Section, Table, Text

HOSTILE = "<script>alert('1')</script> & \"quoted\" <img src=x onerror=1>"
HOSTILE_BLOCKS = {
    "text": Text(HOSTILE),
    "strong": Text(HOSTILE, strong=True),
    "table": Table([HOSTILE, HOSTILE], [[HOSTILE, HOSTILE]], HOSTILE),
    "items": Items(HOSTILE, [HOSTILE, HOSTILE], frozenset({1}), HOSTILE, HOSTILE),
    "columns": Columns([Text(HOSTILE), Text(HOSTILE)]),
    "figure": Figure("<svg></svg>", HOSTILE, HOSTILE),
}
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Tags(HTMLParser):
    """All tags of a document, their attributes and its text; tags that do not match are an error."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen, self.attributes, self.text = [], [], [], ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def assert_self_contained(html):
    """No script, no handler, and nothing that a browser would load."""
    tags = Tags(html)
    assert not set(tags.seen) & {"script", "link", "iframe", "img", "object", "embed", "base"}
    for name, value in tags.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#")
    assert "@import" not in html
    assert "url(http" not in html


def page(*blocks, title="A title"):
    return Page(title, "A lead.", [Section("A heading", list(blocks))])


@pytest.mark.parametrize("block", HOSTILE_BLOCKS)
def test_everything_is_escaped(block):
    html = page(HOSTILE_BLOCKS[block], title=HOSTILE).html()
    assert_self_contained(html)
    assert HOSTILE in Tags(html).text


def test_headings_are_escaped():
    html = Page(HOSTILE, HOSTILE, [Section(HOSTILE, [])]).html()
    assert_self_contained(html)
    assert Tags(html).text.count(HOSTILE) == 4  # the title twice


def test_a_table_shows_every_cell_and_its_head_only_where_there_is_one():
    tags = Tags(page(Table(["metric", "a"], [["x", 1], ["y", 2.5]])).html())
    assert "2.5" in tags.text
    assert tags.seen.count("td") == 2
    assert "thead" in tags.seen
    assert "thead" not in Tags(page(Table(["", ""], [["x", 1]])).html()).seen


def test_only_marked_entries_are_marked():
    html = page(Items("list", ["one", "two"], frozenset({1}), "hit")).html()
    assert html.count("<mark>") == 1
    assert "two <mark>hit</mark>" in html


def test_it_is_written_whole(tmp_path):
    out = tmp_path / "new folder" / "report.html"
    assert page(Text("äöü ✓")).write(out) == out
    assert "äöü ✓" in out.read_text(encoding="utf-8")
    assert os.listdir(out.parent) == ["report.html"]


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    out = tmp_path / "report.html"
    out.write_text("old")

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match=r"report\.html.*No space left"):
        page(Text("new")).write(out)
    assert out.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


# --- figures -------------------------------------------------------------------------------------------


def curves():
    a, b = [3.0, 2.0, 1.0], [1.0, 2.0]
    lines = {"a": Series([1, 2, 3], a, a, a), "b": Series([1, 2], b, b, b, colour=1)}
    return draw_bands([Panel("left <panel>", lines, "epoch"), Panel("right", lines, "epoch")], 2)


def bars():
    series = {"a": Series([0], [0.4], [0.3], [0.5]), "b": Series([0], [0.5], [0.4], [0.6], colour=1)}
    return draw_bars(Panel("", series, ylabel="mean", places=["NDCG"]))


@pytest.mark.parametrize("draw", [curves, bars])
def test_figures_are_svg_in_the_colours_of_the_page(draw):
    pytest.importorskip("matplotlib")
    svg = draw()
    ET.fromstring(svg)
    assert svg.startswith("<svg")
    assert "var(--series-1)" in svg
    assert "var(--series-2)" in svg
    assert "currentColor" in svg
    assert_self_contained(page(Figure(svg, "a figure")).html())


@pytest.mark.parametrize("draw", [curves, bars])
def test_the_same_figure_has_the_same_bytes(draw):
    pytest.importorskip("matplotlib")
    assert draw() == draw()


def test_drawing_leaves_matplotlibs_settings_alone():
    matplotlib = pytest.importorskip("matplotlib")
    before = dict(matplotlib.rcParams)
    bars()
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'truepair\[plots\]'"):
        check_plots()
    with pytest.raises(InputError, match="matplotlib"):
        bars()
