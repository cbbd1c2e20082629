"""Every Python example in the README and the docs runs as it stands, page by page, in an empty folder.

The commands of the README run too, links lead somewhere, and the API reference is what the docstrings say.
"""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import truepair
from truepair.cli.main import app
from truepair.data.simulation import simulate_world
from truepair.losses import LOSSES
from truepair.recommender.holdout import opened

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LAB_PAGES = [ROOT / "lab" / "README.md", *sorted((ROOT / "lab" / "docs").rglob("*.md"))]
EXTRAS = {
    "backtest.md": ["matplotlib"],
    "guide.md": ["optuna"],
    "prepare.md": ["duckdb"],
    "recipes.md": ["duckdb"],
    "sql.md": ["adbc_driver_sqlite", "duckdb"],
}
"""Page -> packages of extras that its examples need."""
SAVING = ("README.md", "guide.md", "recipes.md")
"""Pages that fit on a split, and then save a model."""


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in [*PAGES, *LAB_PAGES] if blocks(page)], ids=lambda page: page.name
)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    for package in EXTRAS.get(page.name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    known = dict(LOSSES)
    try:
        for block in blocks(page):
            exec(compile(block, str(page), "exec"), names)
    finally:  # without the losses that a page registers
        LOSSES.clear()
        LOSSES.update(known)
    assert capsys.readouterr().out or "assert" in "".join(blocks(page))
    if page.name in SAVING:  # the model to use has learnt from everything, the test part included
        assert truepair.load("model.truepair").model_.data == opened(names["clicks"]).hash


def test_the_quickstart_runs(capsys):
    names = {"__name__": "__main__"}
    exec(compile((ROOT / "examples" / "quickstart.py").read_text(), "quickstart.py", "exec"), names)
    shown = capsys.readouterr().out
    assert "DPL recommends" in shown
    assert "what people truly like" in shown


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    """Each line of the README's command-line block, on a small file of clicks and for few epochs."""
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    simulate_world(60, 50, density=0.15).observed.to_table().to_pandas().to_csv("clicks.csv", index=False)
    page = (ROOT / "README.md").read_text()
    for line in re.search(r"## The command line\n\n```sh\n(.*?)```", page, re.DOTALL)[1].splitlines():
        words = shlex.split(line.replace("ml-100k", "clicks.csv").replace("--trials 30", "--trials 2"))
        assert words[0] == "truepair"
        training = ["--epochs", "2"] if words[1] in ("fit", "compare", "tune") else []
        result = CliRunner().invoke(app, [*words[1:], *training])
        assert result.exit_code == 0, line + result.output
    assert Path("lists.parquet").exists()


def links(page):
    """The (path, section) of each link on a page that leads into the repository."""
    found = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text())
    return [((page.parent / path).resolve() if path else page, section) for path, section in found]


def sections(page):
    """The names that a link may give after the #: a heading's words, small, with hyphens between."""
    without_code = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", without_code, flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", [*PAGES, *LAB_PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target, section in links(page):
        assert target.exists(), target
        assert not section or section in sections(target), f"{target.name}#{section}"


def test_every_page_can_be_found():
    """A page for users is linked from the README or the guide, a page of the lab from any other page."""
    from_the_start = {target for page in (PAGES[0], ROOT / "docs" / "guide.md") for target, _ in links(page)}
    from_anywhere = {target for page in [*PAGES, *LAB_PAGES] for target, _ in links(page) if target != page}
    assert [page for page in PAGES[1:] if page not in from_the_start] == []
    assert [page for page in LAB_PAGES if page not in from_anywhere] == []


def test_the_api_reference_is_what_the_docstrings_say():
    specification = importlib.util.spec_from_file_location("api_reference", ROOT / "tools/api_reference.py")
    api_reference = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(api_reference)
    page = (ROOT / "docs" / "api.md").read_text()
    assert page == api_reference.api_page(), "run `python tools/api_reference.py`"


def test_every_extra_is_on_the_page_of_installation():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "install.md").read_text(), flags=re.MULTILINE)
    assert set(extras) <= set(re.findall(r"`(\w+)`", " ".join(rows)))


def test_every_split_of_the_reference_is_public():
    section = (ROOT / "docs" / "reference.md").read_text().split("## Splits")[1].split("\n## ")[0]
    names = re.findall(r"^\| `(\w+)\(", section, flags=re.MULTILINE)
    assert "k_folds" in names
    assert set(names) <= set(truepair.__all__)


def test_the_quickstart_says_how_it_is_run():
    path = "examples/quickstart.py"
    assert f"`python {path}`" in (ROOT / path).read_text()
    assert path not in (ROOT / "Makefile").read_text()  # `make demo` is another program
