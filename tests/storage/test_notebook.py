"""What notebooks show: HTML in which whatever ids and names hold is text, tables of Arrow, progress bars."""

import builtins
import sys
import types

import pyarrow as pa
import pytest
from rich.progress import BarColumn, TextColumn

from truepair.storage.notebook import html_table, progress_bar, show_arrow_tables


def test_texts_are_escaped_and_numbers_shown():
    found = html_table("a <b>", [["<i>", 0.123456, 12345, True]], ["x", "&", "n", "is"], ["<note>"])
    head = "<tr><th>x</th><th>&amp;</th><th>n</th><th>is</th></tr>"
    row = "<tr><th>&lt;i&gt;</th><td>0.1235</td><td>12,345</td><td>True</td></tr>"
    table = f"<table><thead>{head}</thead><tbody>{row}</tbody></table>"
    assert found == f"<p>a &lt;b&gt;</p>{table}<p>&lt;note&gt;</p>"


class Formatter(dict):
    """What IPython has for a type of display."""

    for_type = dict.__setitem__


@pytest.fixture
def html(monkeypatch):
    """The formatter of HTML in a notebook."""
    formatter = Formatter()
    shell = type("ZMQInteractiveShell", (), {})()
    shell.display_formatter = types.SimpleNamespace(formatters={"text/html": formatter})
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    return formatter


def test_tables_of_arrow_are_html_in_a_notebook(html):
    show_arrow_tables()
    show_arrow_tables()
    shown = html[pa.Table](pa.table({"item": ["<x>", None], "score": [0.5, 1.0]}))
    assert "<th>0</th><td>&lt;x&gt;</td><td>0.5000</td>" in shown
    assert "2 rows" in shown
    html[pa.Table] = own = str
    show_arrow_tables()
    assert html[pa.Table] is own


def test_a_bar_needs_no_widgets_in_a_notebook(html, capsys, recwarn):
    with progress_bar(TextColumn("{task.description}"), BarColumn()) as bar:
        task = bar.add_task("a long description", total=4)
        bar.refresh()
        bar.update(task, advance=4, description="done")
    lines = capsys.readouterr().err.replace("\r", "").split("\x1b[2K")
    assert not recwarn.list
    texts = [line.partition("\n")[0] for line in lines if line.strip().startswith(("a long", "done"))]
    assert {len(text) for text in texts} == {100}
    assert texts[-1].startswith("done")
