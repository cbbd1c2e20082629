"""Time, memory and disk of `prepare_interactions` and of `read_interactions`, by the number of rows.

    python benchmarks/prepare.py --out prepare.json              # 10^6 … 10^8 rows, ids of both kinds
    python benchmarks/prepare.py --rows 1e6 1e7 --ids integers   # a part
    python benchmarks/prepare.py --rows 2e7 --only read          # reading into memory alone
    python benchmarks/prepare.py --report prepare.json --figure ../docs/figures/prepare.svg

Rows are made and written to Parquet a million at a time: 50 rows a user, 500 an item, popular items more
often. Each size is read in a fresh process, whose peak memory is the kernel's (VmHWM). Linux only. The
source, the work database and the result need about 50 bytes a row of disk below --folder; the most that was
used is measured. The JSON is written after each run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from truepair.reporting.figures import standalone
from truepair_lab.reporting.drawing import Panel, Series, draw_lines

AT_ONCE = 1_000_000
IN_A_FILE = 10_000_000
PROGRAM = r"""
import json, re, sys, time
import truepair as tp
source, folder, memory, what = sys.argv[1:]

def peak():
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) * 1024

tp.read_interactions({"user": [1], "item": [1]})
imported, began, cpu = peak(), time.perf_counter(), time.process_time()
if what == "prepare":
    made = tp.prepare_interactions(source, folder, memory=memory)
else:
    made = tp.read_interactions(source)
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
peak_bytes = peak()
opened = None
if what == "prepare":
    began = time.perf_counter()
    tp.open_prepared(folder)
    opened = time.perf_counter() - began
print(json.dumps({
    "users": made.n_users, "items": made.n_items, "pairs": len(made), "hash": made.hash, "seconds": seconds,
    "cpu seconds": cpu, "peak bytes": peak_bytes, "imported bytes": imported, "seconds to open": opened,
}))
"""


def batches(n: int, ids: str) -> Iterator[pa.Table]:
    """Rows of users and items, made a million at a time."""
    rng = np.random.default_rng(0)
    n_users, n_items = max(n // 50, 10), max(n // 500, 10)
    for first in range(0, n, AT_ONCE):
        size = min(AT_ONCE, n - first)
        users = pa.array(rng.integers(0, n_users, size))
        items = pa.array((n_items * rng.random(size) ** 2.5).astype(np.int64))
        if ids == "text":
            users, items = (
                pc.binary_join_element_wise(word, codes.cast(pa.string()), "-")
                for word, codes in (("user", users), ("article", items))
            )
        yield pa.table({"user_id": users, "item_id": items})


def write(folder: Path, n: int, ids: str) -> None:
    """A folder of Parquet files."""
    folder.mkdir()
    writer = None
    for at, table in enumerate(batches(n, ids)):
        if at * AT_ONCE % IN_A_FILE == 0:
            if writer is not None:
                writer.close()
            writer = pq.ParquetWriter(folder / f"{at * AT_ONCE // IN_A_FILE:04}.parquet", table.schema)
        assert writer is not None
        writer.write_table(table)
    if writer is not None:
        writer.close()


def size_of(folder: Path) -> int:
    """The bytes of all files."""
    total = 0
    for place, _, files in os.walk(folder):  # passes over folders that were temporary
        for name in files:
            with suppress(FileNotFoundError):  # it was temporary
                total += os.stat(os.path.join(place, name)).st_size
    return total


def measure(source: Path, folder: Path, memory: str, what: str) -> dict[str, Any]:
    """One run in a fresh process."""
    command = [sys.executable, "-c", PROGRAM, str(source), str(folder), memory, what]
    most = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, size_of(source.parent))
            time.sleep(0.1)
        assert process.stdout is not None
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        found: dict[str, Any] = json.loads(process.stdout.read())
    found["most disk bytes"] = most
    if what == "prepare":
        found["folder bytes"] = size_of(folder)
        shutil.rmtree(folder)
    return found


def shown(row: dict[str, Any]) -> str:
    """A line of the table."""
    opened = "" if row["seconds to open"] is None else f"{1000 * row['seconds to open']:.0f} ms"
    disk = f"{row['folder bytes'] / 1e6:,.0f} MB" if "folder bytes" in row else ""
    most = f"{row['most disk bytes'] / 1e6:,.0f} MB" if "folder bytes" in row else ""
    rate = f"{row['rows'] / row['seconds'] / 1e6:.2f}"
    cells = [row["what"], row["ids"], f"{row['rows']:,}", f"{row['pairs']:,}", f"{row['seconds']:.1f}"]
    cells += [f"{row['cpu seconds']:.1f}", rate, f"{row['peak bytes'] / 1e6:,.0f} MB", disk, most, opened]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table and measure, or draw what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 3e6, 1e7, 3e7, 1e8])
    parser.add_argument("--ids", choices=["integers", "text"], nargs="+", default=["integers", "text"])
    parser.add_argument("--memory", default="4GB", help="the limit that `prepare_interactions` gets")
    parser.add_argument(
        "--only", choices=["prepare", "read"], help="by default both, reading up to 2·10^7 rows"
    )
    parser.add_argument(
        "--folder", type=Path, help="a folder on a disk with room; by default that for temporary files"
    )
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--report", type=Path, help="show this JSON file; run nothing")
    parser.add_argument("--figure", type=Path, help="with --report: draw time and memory to this SVG")
    args = parser.parse_args()
    titles = ["", "ids", "rows", "pairs", "seconds", "CPU seconds", "million rows/s", "peak memory", "folder"]
    titles += ["most disk", "to open"]
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}", flush=True)
    if args.report is None:
        run(args)
        return
    runs = json.loads(args.report.read_text())["runs"]
    print("\n".join(map(shown, runs)))
    if args.figure is not None:
        draw(runs, args.figure)


def run(args: argparse.Namespace) -> None:
    """Measure every size, and write what is known after each run."""
    rows: list[dict[str, Any]] = []
    for ids in args.ids:
        for n in map(int, args.rows):
            with tempfile.TemporaryDirectory(dir=args.folder) as name:
                source = Path(name) / "rows"
                write(source, n, ids)
                hashes = set()
                for what in ["prepare", "read"] if args.only is None else [args.only]:
                    if what == "read" and args.only is None and n > 2e7:
                        continue
                    found = measure(source, Path(name) / "prepared", args.memory, what)
                    hashes.add(found["hash"])
                    rows.append({"what": what, "ids": ids, "rows": n, "memory": args.memory, **found})
                    print(shown(rows[-1]), flush=True)
                    if args.out is not None:
                        facts = {"cores": os.cpu_count(), "runs": rows}
                        args.out.write_text(json.dumps(facts, indent=1) + "\n")
                assert len(hashes) == 1, "prepared and read pairs differ"


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Seconds and peak memory by rows, both axes logarithmic, with lines of proportional growth."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for one in runs:
        lines.setdefault(f"{one['what']}, {one['ids']}", []).append(one)
    panels = []
    for title, key, unit, ylabel in (
        ("time", "seconds", 1, "seconds"),
        ("peak memory", "peak bytes", 1e9, "GB"),
    ):
        series = {}
        for colour, (name, those) in enumerate(lines.items()):
            x, y = [one["rows"] for one in those], [one[key] / unit for one in those]
            series[name] = Series(x, y, y, y, colour)
        if title == "time":
            first = next(iter(lines.values()))
            x = [one["rows"] for one in first]
            y = [first[0][key] * n / x[0] for n in x]
            series["proportional"] = Series(x, y, y, y, len(lines), hollow=True)
        panels.append(Panel(title, series, "rows", ylabel, log="xy"))
    path.write_text(standalone(draw_lines(panels, columns=2)), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
