"""Time and peak memory to equal NDCG@20: truepair, implicit's ALS and Spark's ALS on two cores, 32 factors.

    python benchmarks/peers_at_scale.py --pairs 1e6 --out peers-1e6.json
    python benchmarks/peers_at_scale.py --pairs 1e6 --tune --out tuned.json   # up to 24 trials each
    python benchmarks/peers_at_scale.py --report peers-*.json --figure docs/figures/peers-at-scale.svg

The world has topics and popularity (at_scale/topic_world.py); its pairs are prepared once. Each contestant
runs in a process of its own, and is judged by truepair's evaluation on the same users: NDCG@20 by seconds of
training, judging not counted. The target is what the weakest reaches at its end. The JSON is written after
each contestant. Memory is the resident memory of the process and its children, with memory-mapped pages, from
/proc: Linux only. A contestant that is not installed is left out; implicit comes with 'truepair[bench]', and
Spark with `pip install pyspark` and Java.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "at_scale"))

from contestants import NOT_INSTALLED
from topic_world import Judge, World, make, part

from truepair.reporting.figures import Panel, Series, draw_lines, standalone

WORKER = Path(__file__).parent / "at_scale" / "contestants.py"
FAST = {"engine": "cpu-fast", "sampler": "uniform", "schedule": "linear"}
SETTINGS: dict[str, dict[str, Any]] = {
    "truepair": FAST
    | {
        "loss": "infonce",
        "n_unlabelled": 8,
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "l2": 0.0,
        "epochs": 4,
    },
    "implicit": {"alpha": 1, "regularization": 30, "iterations": 10},
    "spark": {"alpha": 0.3, "regParam": 0.1, "iterations": 10},
}
"""The best of the trials at 10^6 pairs, on validation pairs; Spark has a translation of implicit's."""
_NAMES = ("loss", "n_unlabelled", "optimizer", "learning_rate", "l2", "epochs")
TRIALS: dict[str, list[dict[str, Any]]] = {
    "truepair": [
        FAST | dict(zip(_NAMES, row, strict=True))
        for row in [
            ("bpr", 1, "sgd", 0.05, 0.0, 8),
            ("bpr", 1, "sgd", 0.1, 0.0, 8),
            ("bpr", 1, "sgd", 0.1, 0.01, 8),
            ("bpr", 1, "sgd", 0.1, 0.01, 4),
            ("bpr", 1, "sgd", 0.1, 0.03, 8),
            ("bpr", 1, "sgd", 0.15, 0.01, 5),
            ("bpr", 1, "sgd", 0.2, 0.01, 5),
            ("bpr", 1, "sgd", 0.3, 0.01, 5),
            ("infonce", 3, "sgd", 0.1, 0.0, 5),
            ("infonce", 3, "sgd", 0.2, 0.0, 5),
            ("infonce", 8, "sgd", 0.1, 0.0, 5),
            ("bpr", 1, "adagrad", 0.1, 0.0, 5),
            # around the best of these
            ("bpr", 1, "sgd", 0.02, 0.0, 8),
            ("bpr", 1, "sgd", 0.03, 0.0, 8),
            ("bpr", 1, "sgd", 0.03, 0.0, 12),
            ("bpr", 1, "sgd", 0.05, 0.0, 3),
            ("bpr", 1, "sgd", 0.05, 0.0, 5),
            ("bpr", 1, "sgd", 0.05, 0.003, 5),
            ("bpr", 1, "sgd", 0.05, 0.003, 8),
            ("infonce", 3, "sgd", 0.03, 0.0, 5),
            ("infonce", 3, "sgd", 0.05, 0.0, 3),
            ("infonce", 3, "sgd", 0.05, 0.003, 5),
            ("infonce", 8, "sgd", 0.05, 0.0, 4),
            ("infonce", 8, "sgd", 0.03, 0.003, 6),
        ]
    ],
    "implicit": [
        SETTINGS["implicit"] | {"alpha": alpha, "regularization": regularization}
        for alphas, regularizations in [
            ((1, 3, 10, 40), (0.1, 3, 30)),
            ((0.5, 1, 2), (30, 60, 120, 240)),  # around the best of these
        ]
        for alpha in alphas
        for regularization in regularizations
    ],
    "spark": [  # near the best of implicit: Spark has 1 + alpha for its alpha, and regParam · pairs
        SETTINGS["spark"] | {"alpha": alpha, "regParam": regularization}
        for alpha in (0.3, 1)
        for regularization in (0.03, 0.1, 0.3)
    ],
}
STAGES = ("reading", "training")  # whose memory counts
NEARLY = 0.99  # of the best score: among such trials, the quickest is chosen
POLL = 0.05  # seconds


# --- one contestant --------------------------------------------------------------------------------------


def tree_bytes(process: int) -> int:
    """The resident memory of a process and of all that it started; 0 if it has ended."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(folder.name))
            resident[int(folder.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    found, total = [process], 0
    while found:
        one = found.pop()
        total += resident.get(one, 0)
        found += children.get(one, [])
    return total


def measured(name: str, folder: Path, target: str, settings: dict[str, Any], args: argparse.Namespace) -> Any:
    """The curve of a contestant, the seconds of its stages and its peak memory in each."""
    command = [sys.executable, str(WORKER), name, str(folder), target, str(args.users), json.dumps(settings)]
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)}
    found: dict[str, Any] = {"name": name, "settings": settings, "curve": [], "stages": {}, "peaks": {}}
    stage, since = ["import"], [time.perf_counter()]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, start_new_session=True
        ) as process,
    ):

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith("{"):
                    continue
                said = json.loads(line)
                if "stage" in said:
                    now, was = time.perf_counter(), stage[0]
                    found["stages"][was] = found["stages"].get(was, 0.0) + now - since[0]
                    stage[0], since[0] = said["stage"], now
                elif "ndcg" in said:
                    found["curve"].append(said)
                    print(f"  {name}: {said['iterations']} iterations, {said['seconds']:.1f} s, "
                          f"NDCG@20 {said['ndcg']:.4f}", flush=True)  # fmt: skip
                else:
                    found.update(said)

        listener = threading.Thread(target=listen)
        listener.start()
        began = time.monotonic()
        while process.poll() is None:
            found["peaks"][stage[0]] = max(found["peaks"].get(stage[0], 0), tree_bytes(process.pid))
            if time.monotonic() - began > args.limit:
                found["ended"] = f"stopped after {args.limit:g} s"
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(POLL)
        process.wait()
        listener.join()
        if process.returncode == NOT_INSTALLED:
            found["ended"] = f"not installed: {found.pop('lacks')}"
        elif process.returncode and "ended" not in found:
            errors.seek(0)
            last = [line for line in errors.read().splitlines() if line.strip()][-1:]
            found["ended"] = f"failed with {process.returncode}: {''.join(last)[-300:]}"
    found["peak bytes"] = max((found["peaks"].get(each, 0) for each in STAGES), default=0)
    shutil.rmtree(folder / "spark", ignore_errors=True)
    return found


def with_machine(name: str, settings: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """The settings, with the threads and the memory that this contestant must be told."""
    if name == "implicit":
        return settings | {"num_threads": args.threads}
    if name == "spark":
        heap = args.heap or f"{2000 + args.pairs * 120 // 1_000_000}m"
        return settings | {"heap": heap} | ({"points": []} if args.tune else {})
    return settings


# --- runs ------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> None:
    """Make the world, then measure or tune all contestants, with the JSON written after each."""
    world, facts = World(args.pairs, args.seed), {"pairs": args.pairs, "cores": os.cpu_count(), "runs": []}
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder, target = Path(name), "valid" if args.tune else "test"
        began = time.perf_counter()
        make(world, folder, args.memory)
        facts |= {
            "seconds to make and prepare": time.perf_counter() - began,
            "train": len(part(folder, "train")),
        }
        facts |= {"users": world.users, "items": world.items, "limit": args.limit, "part": target}
        facts["bounds"] = Judge(folder, target, args.users).bounds(world)
        print(f"{part(folder, 'train')}, {facts['bounds']}", flush=True)
        for contestant in args.only:
            trials = TRIALS[contestant][: args.trials] if args.tune else [chosen(contestant, args)]
            for settings in trials:
                print(f"{contestant} {settings}", flush=True)
                given = with_machine(contestant, settings, args)
                facts["runs"].append(measured(contestant, folder, target, given, args))
                if "ended" in facts["runs"][-1]:
                    print(f"  {contestant}: {facts['runs'][-1]['ended']}", flush=True)
                if args.out is not None:
                    args.out.write_text(json.dumps(facts, indent=1) + "\n")
                if "not installed" in facts["runs"][-1].get("ended", ""):
                    break
    print(trial_table(facts) if args.tune else table([facts]))


def chosen(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The settings of a contestant; --quick takes fewer iterations."""
    few: dict[str, Any] = {"epochs": 2} if name == "truepair" else {"iterations": 2}
    return SETTINGS[name] | (few if args.quick else {})


# --- tables and the figure -------------------------------------------------------------------------------


def target_of(facts: dict[str, Any]) -> float:
    """NDCG@20 that the weakest contestant reaches at its end."""
    return min((one["curve"][-1]["ndcg"] for one in facts["runs"] if one["curve"]), default=0.0)


def table(sizes: list[dict[str, Any]]) -> str:
    """A row for each size and contestant."""
    titles = [
        "pairs",
        "",
        "reading",
        "an iteration",
        "NDCG@20 at its end",
        "after",
        "to the target",
        "peak memory",
    ]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for facts in sizes:
        target = target_of(facts)
        for one in facts["runs"]:
            cells = [f"{facts['pairs']:,}", one["name"]]
            if one["curve"]:
                last = one["curve"][-1]
                reached = min((p["seconds"] for p in one["curve"] if p["ndcg"] >= target), default=None)
                step = f"{last['seconds'] / last['iterations']:.2f} s"
                cells += [f"{one['stages'].get('reading', 0):.1f} s", step, f"{last['ndcg']:.4f}"]
                cells += [
                    f"{last['seconds']:.1f} s",
                    "not reached" if reached is None else f"{reached:.1f} s",
                ]
                cells += [f"{one['peak bytes'] / 1e9:.2f} GB"]
            if "ended" in one:
                cells.append(one["ended"])
            lines.append(f"| {' | '.join(cells)} |")
        bounds = ", ".join(f"{name} {value:.4f}" for name, value in facts["bounds"].items())
        lines.append(f"| {facts['pairs']:,} | target {target:.4f}; {bounds} |")
    return "\n".join(lines)


def trial_table(facts: dict[str, Any]) -> str:
    """The trials, with the chosen one of each contestant marked."""
    lines = []
    for name in dict.fromkeys(one["name"] for one in facts["runs"]):
        those = [one for one in facts["runs"] if one["name"] == name and one["curve"]]
        best = max((one["curve"][-1]["ndcg"] for one in those), default=0.0)
        near = [one for one in those if one["curve"][-1]["ndcg"] >= NEARLY * best]
        quickest = min(near, key=lambda one: one["curve"][-1]["seconds"], default=None)
        for one in those:
            last, mark = one["curve"][-1], "chosen" if one is quickest else ""
            lines.append(
                f"| {name} | {one['settings']} | {last['ndcg']:.4f} | {last['seconds']:.1f} s | {mark} |"
            )
    return "\n".join(lines)


def draw(sizes: list[dict[str, Any]], path: Path) -> None:
    """A panel for each size: NDCG@20 by seconds of training, and the target."""
    names = list(SETTINGS)
    panels = []
    for facts in sizes:
        series = {}
        for one in facts["runs"]:
            if one["curve"]:
                x, y = ([point[key] for point in one["curve"]] for key in ("seconds", "ndcg"))
                series[one["name"]] = Series(x, y, y, y, names.index(one["name"]))
        title, marks = f"{facts['pairs']:,} pairs", {"target": target_of(facts)}
        panels.append(Panel(title, series, "seconds of training", "NDCG@20", marks=marks, log="x"))
    path.write_text(standalone(draw_lines(panels, columns=len(panels))), encoding="utf-8")
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=float, default=1e6)
    parser.add_argument("--only", choices=SETTINGS, nargs="+", default=list(SETTINGS))
    parser.add_argument(
        "--limit", type=float, default=3600, help="seconds for each contestant, with everything"
    )
    parser.add_argument("--users", type=int, default=2000, help="users on whom NDCG@20 is measured")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--heap", help="memory of the JVM; by default 2 GB and 120 bytes a pair")
    parser.add_argument("--memory", default="4GB", help="the limit for preparing the world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tune", action="store_true", help="run the trials, on validation pairs")
    parser.add_argument("--trials", type=int, default=24, help="at most how many of each contestant")
    parser.add_argument("--quick", action="store_true", help="two iterations each")
    parser.add_argument("--folder", type=Path, help="a folder on a disk with room")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--report", type=Path, nargs="+", help="show these JSON files; run nothing")
    parser.add_argument("--figure", type=Path, help="with --report: draw the curves to this SVG")
    args = parser.parse_args()
    args.pairs = int(args.pairs)
    if args.report is None:
        run(args)
        return
    sizes = sorted((json.loads(path.read_text()) for path in args.report), key=lambda one: int(one["pairs"]))
    print(table(sizes))
    if args.figure is not None:
        draw(sizes, args.figure)


if __name__ == "__main__":
    main()
