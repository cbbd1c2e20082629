"""The tables of docs/serving.md about the guard of retraining are those of the kept result."""

import json
import runpy
from pathlib import Path

LAB = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(LAB / "benchmarks" / "retraining_guard.py"))
FOUND = json.loads((LAB / "results" / "retraining-guard.json").read_text())
PAGE = (LAB.parent / "docs" / "serving.md").read_text()


def test_the_page_has_the_tables_and_numbers_of_the_result():
    assert SCRIPT["power_table"](FOUND["power"]) in PAGE
    assert SCRIPT["chain_table"](FOUND["chains"]) in PAGE
    needed = FOUND["needed"]
    assert f"s = {FOUND['spread']:.2f}: a margin of 2% needs {needed['2%']:,} users" in PAGE
    assert f"one of 5% needs {needed['5%']:,}. With" in PAGE
    assert f"over {FOUND['samples']:,} samples of users" in PAGE


def test_the_guard_does_what_it_is_for():
    """No model that loses more than the margin passes, and losses do not add up."""
    share = {(one["rule"], one["candidate"], one["users"]): one["promoted"] for one in FOUND["power"]}
    for (rule, candidate, _), promoted in share.items():
        if rule == "margin 2%" and candidate in ("10% worse", "2% worse", "untrained"):
            assert promoted <= 0.05
    assert share["unless significantly worse", "10% worse", 30] > 0.7
    left = {(one["candidate"], one["rule"]): one["low"] for one in FOUND["chains"]}
    assert left["1% worse", "margin, served and best model"] >= 0.97
    assert left["1% worse", "margin, served model"] < 0.75
