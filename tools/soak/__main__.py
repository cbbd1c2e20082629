"""Attack training and saving: `python tools/soak --kills 300 --seconds 1200 --seed 0`, or `make soak`.

One process imports the library and forks a child for every run, so that a kill costs a fraction of a second.
The exit code is 1 if anything was not as promised; the seed repeats the plan of the attacks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from kills import Tally, run_chains
from others import check_all
from work import ENGINES, THREADED, train


def main() -> int:
    """Run the attacks and print a table."""
    options = _options()
    until = time.monotonic() + options.seconds
    _warm_up(options.engines)
    print(f"seed {options.seed}, {options.kills} kills, at most {options.seconds:g} s", flush=True)
    tallies = []
    for engine, kills in zip(options.engines, _shares(options.kills, len(options.engines)), strict=True):
        tallies.append(run_chains(engine, kills, options.seed, until))
        print(f"{engine}: {tallies[-1].kills} kills", flush=True)
    bad = any(tally.is_bad for tally in tallies)
    for name, engine, good in [] if options.only_kills else check_all(until):
        print(f"{name}, {engine}: {'as promised' if good else 'NOT AS PROMISED'}", flush=True)
        bad |= not good
    print(_table(tallies))
    if time.monotonic() > until:
        print("The time was over before all was done.")
    return int(bad)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300, help="over all engines")
    parser.add_argument("--seconds", type=float, default=1200.0, help="no attack begins later")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--only-kills", action="store_true", help="no disks, threads and processes")
    return parser.parse_args()


def _warm_up(engines: Sequence[str]) -> None:
    """Load all that children need, by training once with every engine whose threads survive a fork."""
    torch.set_num_threads(1)
    for engine in set(engines) - set(THREADED):
        with tempfile.TemporaryDirectory() as folder:
            train(engine, Path(folder))


def _shares(total: int, parts: int) -> list[int]:
    return [total * (k + 1) // parts - total * k // parts for k in range(parts)]


def _table(tallies: list[Tally]) -> str:
    columns = ("engine", "chains", "kills", "equal", "different", "leftovers", "unreadable")
    rows = [[str(getattr(tally, column)) for column in columns] for tally in tallies]
    total = [str(sum(getattr(tally, column) for tally in tallies)) for column in columns[1:]]
    lines = [columns, ["---"] * len(columns), *rows, ["all", *total]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
