"""Every Python example in the README and the docs runs as it stands, page by page, in an empty folder."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)
    assert capsys.readouterr().out or "assert" in "".join(blocks(page))


def test_the_demo_runs(capsys):
    names = {"__name__": "__main__"}
    exec(compile((ROOT / "examples" / "quickstart.py").read_text(), "quickstart.py", "exec"), names)
    shown = capsys.readouterr().out
    assert "DPL recommends" in shown
    assert "what people truly like" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_map_names_every_module():
    text = (ROOT / "docs" / "map.md").read_text()
    modules = [p for p in (ROOT / "src" / "truepair").rglob("*.py") if p.name != "__init__.py"]
    assert [p.name for p in modules if p.name not in text] == []
