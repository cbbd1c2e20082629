"""The page of the future is that of its lines, and the docs say what it says."""

import runpy
from pathlib import Path
from types import SimpleNamespace

LAB = Path(__file__).parents[1]
future = SimpleNamespace(**runpy.run_path(str(LAB / "benchmarks" / "future.py")))
FOUND = future.lines(LAB / "results" / "future")


def test_the_page_is_that_of_the_lines():
    assert (LAB / "docs" / "future.md").read_text(encoding="utf-8") == future.report(FOUND)


def test_the_figures_of_the_guide_to_evaluation():
    section = (LAB.parent / "docs" / "evaluation.md").read_text(encoding="utf-8")
    section = " ".join(section.split("## Start with the future")[1].split("\n## ")[0].split())
    pooled = next(line["pooled"] for line in FOUND if line["case"] == "ml-100k")
    for name in ("popular lately", "default, timeless", "EASE, decayed", "default"):
        assert future.four(pooled[name]["mean of users"]) in section


def test_the_table_of_the_readme():
    """Its figures, and which are significant."""
    section = (LAB.parent / "README.md").read_text(encoding="utf-8").split("**The future.**")[1]
    rows = [
        [cell.strip() for cell in line.split("|")[2:-1]] for line in section.splitlines() if line[:1] == "|"
    ]
    names = ("default", "default, timeless", "popular lately", "EASE, decayed")
    for row, name in zip(rows[2:6], names, strict=True):
        shown = [text.strip("* ") for cell in row for text in cell.split(",")]
        assert shown == [future.four(line["pooled"][name]["mean of users"]) for line in FOUND]
    for line in FOUND:
        sure = [line["pooled"][name]["p"] < 0.001 and line["pooled"][name]["gain"] > 0 for name in names[1:]]
        assert all(sure) or (line["case"] == "nothing changes" and sure == [False, True, True])


def test_a_user_counts_once_and_gains_are_over_users():
    nan = float("nan")
    users = {
        "default": [[1.0, 0.5, nan], [0.0, nan, nan]],
        "popular": [[0.5, 0.5, nan], [0.0, nan, nan]],
    }
    found = future.pooled({name: future.np.array(values) for name, values in users.items()})
    assert found["users"] == 2
    assert (found["default"]["mean of users"], found["popular"]["gain"]) == (0.5, 0.125)
    assert found["popular"]["cuts won"] == 1
