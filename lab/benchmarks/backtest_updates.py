"""Updates on a replay in time: retraining, updating, doing nothing and popularity over ten periods.

The figures of ../docs/backtest.md. MovieLens-100k is cut into ten periods of equally many pairs after a first
part; two simulated worlds change slowly and fast, ten weeks after a first one, three seeds each. Settings are
fixed (64 dimensions, else the defaults; also with large batches, which leave an update few steps), so that
nothing is chosen on a judged period.

    python benchmarks/backtest_updates.py --data DIR --out results/backtest    # DIR holds ml-100k/
    python benchmarks/backtest_updates.py --out results/backtest --report ../docs/figures/backtest.svg
    python benchmarks/backtest_updates.py --quick --out DIR                    # small worlds, two epochs

A run that has a line in the folder is not repeated, and an interrupted one continues.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import truepair as tp
from truepair.reporting.figures import Panel, Series, draw_bands, standalone
from truepair.reporting.page import write_text
from truepair_lab.store import rounded

SIZE: dict[str, Any] = {"n_users": 400, "n_items": 250, "periods": 11, "pairs": 50}
WORLDS: dict[str, dict[str, Any]] = {
    "slow drift": {"drift": 0.1, "lifetime": 20, "new_items": 0.3},
    "fast drift": {"drift": 0.5, "lifetime": 3, "new_items": 0.6},
}
SEEDS = (0, 1, 2)
SETTINGS: dict[str, dict[str, Any]] = {"default batches": {}, "batches of 64 users": {"batch_size": 64}}
STRATEGIES = ("retrain", "update", "nothing", "popularity")


def cases(args: argparse.Namespace) -> Iterator[tuple[str, str, int, tp.Interactions, dict[str, Any]]]:
    """Name, settings, seed, interactions, and where to cut."""
    size: dict[str, Any] = {"n_users": 60, "n_items": 50, "periods": 4, "pairs": 20} if args.quick else SIZE
    for settings in SETTINGS:
        for seed in (0,) if args.quick else SEEDS:
            for name, change in WORLDS.items():
                yield name, settings, seed, tp.simulate_drift(**size, **change, seed=seed), {"every": "1w"}
        if not args.quick:
            yield "ml-100k", settings, 0, tp.load_dataset("ml-100k", args.data), {"periods": 10}


def run(args: argparse.Namespace) -> None:
    """Add a line for each case that has none."""
    args.out.mkdir(parents=True, exist_ok=True)
    done = {(line["case"], line["settings"], line["seed"]) for line in lines(args.out)}
    left = [case for case in cases(args) if case[:3] not in done and args.case in (None, case[0])]
    for name, settings, seed, pairs, cuts in left[: args.limit]:
        plain = name.replace(" ", "-")
        more = {"epochs": 2} if args.quick else {}
        model = tp.Recommender(auto=False, dim=64, seed=seed).set_params(**SETTINGS[settings], **more)
        checkpoint = args.out / f"{plain}-{settings.replace(' ', '-')}-{seed}.checkpoint"
        print(f"{name}, {settings}, seed {seed}: {pairs}", flush=True)
        found = tp.backtest(pairs, model, **cuts, checkpoint=checkpoint, progress=True)
        facts = {"case": name, "settings": settings, "seed": seed, **rounded(found.to_dict())}
        with (args.out / f"{plain}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")
        checkpoint.unlink()
        print(found.table(), flush=True)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of a folder."""
    texts = [text for path in sorted(folder.glob("*.jsonl")) for text in path.read_text().splitlines()]
    return [json.loads(text) for text in texts]


def table(found: list[dict[str, Any]]) -> str:
    """Markdown: a row for each case, settings and strategy, means over the seeds."""
    head = (
        "| data | settings | strategy | NDCG@20 | of retrain | known users | of retrain | time, of retrain |"
    )
    rows = [head, "|---|---|---|---|---|---|---|---|"]
    for case, settings in sorted({(line["case"], line["settings"]) for line in found}):
        runs = [line["summary"] for line in found if (line["case"], line["settings"]) == (case, settings)]
        base = _means(runs, "retrain")
        for name in STRATEGIES:
            value, known, seconds = _means(runs, name)
            to = [f"{part / whole:.1%}" for part, whole in zip((value, known, seconds), base, strict=True)]
            figures = f"{value:.4f} | {to[0]} | {known:.4f} | {to[1]} | {to[2]}"
            rows.append(f"| {case} | {settings} | {name} | {figures} |")
    return "\n".join(rows)


def _means(runs: list[list[dict[str, Any]]], strategy: str) -> tuple[float, float, float]:
    """The value, that of known users, and the seconds of a strategy: means over runs."""
    those = [line for summary in runs for line in summary if line["strategy"] == strategy]
    value, known, seconds = (
        sum(line[k] for line in those) / len(those) for k in ("value", "known", "seconds")
    )
    return value, known, seconds


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """A panel for each case: known users by period; a band from the lowest to the highest seed."""
    found = [line for line in found if line["settings"] == next(iter(SETTINGS))]
    panels: list[Panel] = []
    for case in dict.fromkeys(line["case"] for line in found):
        runs = [line for line in found if line["case"] == case]
        series: dict[str, Series] = {}
        for colour, name in enumerate(STRATEGIES):
            by_run = [[cell["known"] for cell in run["cells"] if cell["strategy"] == name] for run in runs]
            columns = list(zip(*by_run, strict=True))
            x = list(range(1, len(columns) + 1))
            means = [sum(column) / len(column) for column in columns]
            series[name] = Series(x, means, list(map(min, columns)), list(map(max, columns)), colour)
        panels.append(Panel(case, series, "period", "NDCG@20, known users" if not panels else ""))
    write_text(path, standalone(draw_bands(panels, columns=len(panels))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the result lines")
    parser.add_argument("--report", type=Path, help="draw what the folder holds to this SVG; run nothing")
    parser.add_argument("--case", help="only this one: ml-100k, 'slow drift' or 'fast drift'")
    parser.add_argument("--limit", type=int, help="run this many cases, and leave the others for later")
    parser.add_argument("--quick", action="store_true", help="small worlds, one seed, two epochs")
    args = parser.parse_args()
    if args.report is None:
        run(args)
    else:
        draw(lines(args.out), args.report)
    print(table(lines(args.out)))


if __name__ == "__main__":
    main()
