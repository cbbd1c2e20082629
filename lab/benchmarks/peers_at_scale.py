"""Time and peak memory to equal NDCG@20: truepair, implicit's ALS and Spark's ALS on two cores, 32 factors.

    python benchmarks/peers_at_scale.py --pairs 1e6 --out peers-1e6.json
    python benchmarks/peers_at_scale.py --pairs 1e6 --tune --out tuned-1e6.json
    python benchmarks/peers_at_scale.py --pairs 1e8 --world /data/1e8 --only   # make the world, and no more
    python benchmarks/peers_at_scale.py --report results/scale/peers-*.json --page ../docs/scale.md \\
        --figure ../docs/figures/peers-at-scale.svg

The world has topics and popularity (at_scale/topic_world.py); its pairs are prepared once, and with --world
kept for other runs. Each contestant runs in a process of its own, and is judged by truepair's evaluation on
the same users: NDCG@20 by seconds of training, judging not counted. The target is what the weakest reaches
at its end; a contestant that was stopped does not set it. --tune runs the trials of at_scale/trials.py on
validation pairs, without those that --out has from before. The JSON is written after each run. A contestant
that is not installed is left out; implicit comes with 'truepair[bench]', and Spark with 'truepair[spark]'
and Java. Spark finds the BLAS of the system by itself (libblas.so.3).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "at_scale"))

from measuring import Limits, machine_bytes, measured
from tables import draw, rebuilt, table, tables, trial_table
from topic_world import Judge, World, make, part
from trials import SETTINGS, settings_of, trials_of

SPARK = {"blocks": 4}
SPARK_POINTS = {0: [1, 2, 3], 10_000_000: [2, 3], 100_000_000: [2]}
"""By the least number of pairs: iterations of Spark's runs before the last."""


def with_machine(name: str, settings: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The settings, with the threads and the memory that this contestant must be told."""
    if name == "implicit":
        return settings | {"num_threads": args.threads}
    if name == "spark":
        heap = args.heap or f"{3000 + args.pairs * 110 // 1_000_000}m"
        points = next(those for least, those in reversed(SPARK_POINTS.items()) if args.pairs >= least)
        return settings | SPARK | {"heap": heap, "points": [] if args.tune else points}
    return settings


def to_run(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The settings of a contestant's runs; --quick takes fewer iterations."""
    if args.tune:
        return trials_of(name, args.pairs)[: args.trials]
    few: dict[str, Any] = {"epochs": 2} if name == "truepair" else {"iterations": 2}
    return [settings_of(name, args.pairs) | (few if args.quick else {})]


def is_of(one: dict[str, Any], name: str, settings: dict[str, Any]) -> bool:
    """Whether a run is of this contestant with these settings, on whatever machine."""
    return bool(one["name"] == name and settings.items() <= one["settings"].items())


def facts_of(world: World, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The world that is made or found in the folder; for --tune with the runs of before."""
    target = "valid" if args.tune else "test"
    seconds = make(world, folder, args.memory)
    facts = {"pairs": args.pairs, "cores": os.cpu_count(), "seconds to make and prepare": seconds}
    facts |= {"train": len(part(folder, "train")), "users": world.users, "items": world.items}
    facts |= {"limit": args.limit, "part": target, "runs": []}
    facts["bounds"] = Judge(folder, target, args.users).bounds(world)
    print(f"{part(folder, 'train')}, {facts['bounds']}", flush=True)
    if args.tune and args.out is not None and args.out.exists():
        facts["runs"] = json.loads(args.out.read_text())["runs"]
    return facts


def run(args: argparse.Namespace) -> None:
    """Make the world, then measure or tune all contestants, with the JSON written after each."""
    limits = Limits(args.limit, args.most or 0.92 * machine_bytes(), args.threads)
    place: Any = (
        tempfile.TemporaryDirectory(dir=args.folder) if args.world is None else nullcontext(args.world)
    )
    with place as name:
        folder = Path(name)
        facts = facts_of(World(args.pairs, args.seed), folder, args)
        for contestant in args.only:
            for settings in to_run(contestant, args):
                if any(is_of(one, contestant, settings) for one in facts["runs"]):
                    continue
                given = with_machine(contestant, settings, args)
                print(f"{contestant} {given}", flush=True)
                found = measured(contestant, folder, facts["part"], args.users, given, limits)
                facts["runs"].append(found)
                if args.out is not None:
                    args.out.write_text(json.dumps(facts, indent=1) + "\n")
                if "ended" in found:
                    print(f"  {contestant}: {found['ended']}", flush=True)
                if "not installed" in found.get("ended", ""):
                    break
    print(trial_table(facts) if args.tune else table(facts))


def arguments() -> argparse.Namespace:
    """The words of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--pairs", type=lambda text: int(float(text)), default=1_000_000)
    add("--only", choices=SETTINGS, nargs="*", default=list(SETTINGS))
    add("--limit", type=float, default=1200, help="seconds for each contestant, with everything")
    add("--most", type=float, help="bytes of memory for each contestant; by default 92%% of the machine's")
    add("--users", type=int, default=2000, help="users on whom NDCG@20 is measured")
    add("--threads", type=int, default=2)
    add("--heap", help="memory of the JVM; by default 3 GB and 110 bytes a pair")
    add("--memory", default="4GB", help="the limit for preparing the world")
    add("--seed", type=int, default=0)
    add("--tune", action="store_true", help="run the trials, on validation pairs")
    add("--trials", type=int, default=24, help="at most how many of each contestant")
    add("--quick", action="store_true", help="two iterations each")
    add("--folder", type=Path, help="a folder on a disk with room, for a world that is not kept")
    add("--world", type=Path, help="the folder of a world that is kept, and used again if it is there")
    add("--out", type=Path, help="a JSON file")
    add("--report", type=Path, nargs="+", help="show these JSON files; run nothing")
    add("--figure", type=Path, help="with --report: draw the curves to this SVG")
    add("--page", type=Path, help="with --report: put the tables between the marks of this page")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.report is None:
        run(args)
        return
    sizes = sorted((json.loads(path.read_text()) for path in args.report), key=lambda one: int(one["pairs"]))
    print(tables(sizes))
    if args.page is not None:
        args.page.write_text(rebuilt(args.page.read_text("utf-8"), sizes), "utf-8")
    if args.figure is not None:
        draw(sizes, args.figure)


if __name__ == "__main__":
    main()
