"""Every Python example in the README and the docs runs as it stands, page by page, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.data.simulation import simulate_world

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)
    assert capsys.readouterr().out or "assert" in "".join(blocks(page))


def test_the_quickstart_runs(capsys):
    names = {"__name__": "__main__"}
    exec(compile((ROOT / "examples" / "quickstart.py").read_text(), "quickstart.py", "exec"), names)
    shown = capsys.readouterr().out
    assert "DPL recommends" in shown
    assert "what people truly like" in shown


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    """Each line of the README's command-line block, on a small file of clicks and for few epochs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    simulate_world(60, 50, density=0.15).observed.to_table().to_pandas().to_csv("clicks.csv", index=False)
    block = re.search(r"## The command line\n\n```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[
        1
    ]
    for line in block.splitlines():
        words = shlex.split(line.replace("ml-100k", "clicks.csv").replace("--trials 30", "--trials 2"))
        assert words[0] == "truepair"
        if words[1] == "lab":
            continue  # it wants the public data, and minutes; its own tests run it on a small world
        training = ["--epochs", "2"] if words[1] in ("fit", "compare", "tune") else []
        result = CliRunner().invoke(app, [*words[1:], *training])
        assert result.exit_code == 0, line + result.output
    assert Path("lists.parquet").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
