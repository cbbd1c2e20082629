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
