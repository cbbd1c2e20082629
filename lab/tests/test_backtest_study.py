"""../docs/backtest.md has the figures of the kept lines of benchmarks/backtest_updates.py."""

import json
from pathlib import Path

import pytest

LAB = Path(__file__).parents[1]
NAMES = {"slow drift": "slow drift", "fast drift": "fast drift", "ml-100k": "MovieLens-100k"}


@pytest.mark.parametrize("case", NAMES)
def test_the_page_has_the_figures_of_the_lines(case):
    texts = (LAB / "results" / "backtest" / f"{case.replace(' ', '-')}.jsonl").read_text().splitlines()
    runs = [line for line in map(json.loads, texts) if line["settings"] == "default batches"]
    assert len(runs) == (1 if case == "ml-100k" else 3)
    assert {len(run["periods"]) for run in runs} == {10}
    page = (LAB.parent / "docs" / "backtest.md").read_text()
    section = page.split(f"\n| {NAMES[case]} | retrain |")[1].split("\n\n")[0].split("| retrain |")[0]
    rows = {
        row.split("|")[2].strip(): row
        for row in f"\n| x | retrain |{section}".splitlines()
        if row.count("|") > 3
    }
    for name in ("retrain", "update", "nothing", "popularity"):
        of = [next(way for way in run["summary"] if way["strategy"] == name) for run in runs]
        for figure in ("value", "known"):
            mean = sum(line[figure] for line in of) / len(of)
            assert f"| {mean:.4f} |".replace("0.", ".") in rows[name]
        if name == "update":
            assert f"| {of_retrain(runs, 'value'):.1%} |" in rows[name]
            assert f"| {of_retrain(runs, 'known'):.1%} |" in rows[name]
            assert rows[name].endswith(f"| {of_retrain(runs, 'seconds'):.0%} |")


def of_retrain(runs, figure):
    """The figure of updates, summed over the seeds, as a share of that of retraining."""
    sums = {
        name: sum(way[figure] for run in runs for way in run["summary"] if way["strategy"] == name)
        for name in ("update", "retrain")
    }
    return sums["update"] / sums["retrain"]


@pytest.mark.parametrize("case", NAMES)
def test_the_page_has_both_sizes_of_batches(case):
    texts = (LAB / "results" / "backtest" / f"{case.replace(' ', '-')}.jsonl").read_text().splitlines()
    page = (LAB.parent / "docs" / "backtest.md").read_text()
    rows = page.split(f"\n| {NAMES[case]} | default")[1].splitlines()[:2]
    for row, settings in zip(rows, ("default batches", "batches of 64 users"), strict=True):
        runs = [line for line in map(json.loads, texts) if line["settings"] == settings]
        value, time = (of_retrain(runs, figure) for figure in ("value", "seconds"))
        assert row.endswith(f"| {value:.1%} | {time:.0%} |")


def test_the_page_has_each_seed_and_the_share_of_new_users():
    page = " ".join((LAB.parent / "docs" / "backtest.md").read_text().split())
    kept = {
        case: (LAB / "results" / "backtest" / f"{case.replace(' ', '-')}.jsonl").read_text() for case in NAMES
    }
    runs = {
        case: [line for line in map(json.loads, text.splitlines()) if line["settings"] == "default batches"]
        for case, text in kept.items()
    }
    slow, fast = ([f"{of_retrain([run], 'value'):.1%}" for run in runs[case]] for case in list(NAMES)[:2])
    assert f"{slow[0]}, {slow[1]} and {slow[2]} in the slow world; {fast[0]}, {fast[1]} and {fast[2]}" in page
    (run,) = runs["ml-100k"]
    new = [period["new_user_share"] for period in run["periods"]]
    known = [cell["known_users"] for cell in run["cells"]]
    assert f"{min(new):.0%} to {max(new):.0%} of a period's pairs are of new users" in page
    assert f"Only {min(known)} to {max(known)} known users are judged in a period" in page
