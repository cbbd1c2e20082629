"""Peak memory of reading a table and of `Recommender().fit`: bytes for each user, item and pair.

The table has blocks of 1,024 users; a step holds some matrices of the users of a block × all items. Each size
is fitted in a fresh process, with one epoch: more epochs need no more memory. Linux only.

    python benchmarks/memory.py           # about two minutes
    python benchmarks/memory.py --tiny    # a small size; the figure means little
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

PROGRAM = r"""
import re, sys
import numpy as np
import pandas as pd
import truepair as tp

def peak():
    return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) * 1024


def fit(users, items, dim, batch_size):
    data = tp.read_interactions(pd.DataFrame({"user": users, "item": items}))
    tp.Recommender(dim=dim, epochs=1, batch_size=batch_size or None, device="cpu").fit(data)

fit(np.arange(999), np.arange(999) % 7, 8, 0)
imported = peak()
for size in sys.argv[1:]:
    n_users, n_items, n_pairs, dim, batch_size = map(int, size.split(","))
    rng = np.random.default_rng(0)
    users = np.concatenate([np.arange(n_users), rng.integers(0, n_users, n_pairs - n_users)])
    items = np.concatenate([np.arange(n_items), rng.integers(0, n_items, n_pairs - n_items)])
    fit(users, items, dim, batch_size)
    print(peak() - imported)
"""


BLOCK = 1024  # users of a step; the bytes of an item depend on it


class Size(NamedTuple):
    """A job, as far as memory depends on it."""

    users: int
    items: int
    pairs: int
    dim: int
    batch_size: int = 0  # 0: by default


def peak_bytes(*sizes: Size) -> list[int]:
    """What fitting adds to the peak memory of a process that has fitted something small.

    Sizes are fitted one after the other in one process, so that none may be below the one before. The C
    library may keep freed memory in pieces that fit nothing, some hundred MB at any size; with a fixed
    threshold for what is given back at once it does not, and sizes can be compared.
    """
    command = [sys.executable, "-c", PROGRAM, *(",".join(map(str, size)) for size in sizes)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [int(line) for line in done.stdout.split()]


def slopes(base: Size, factor: int) -> dict[str, float]:
    """Bytes for each user, item and pair more than `base` has."""
    grown = {
        "user": base._replace(users=base.users * factor),
        "item": base._replace(items=base.items * factor),
        "pair": base._replace(pairs=base.pairs * factor),
    }
    found = {}
    for what, size in grown.items():
        at_base, at_size = peak_bytes(base, size)
        found[what] = (at_size - at_base) / (sum(size[:3]) - sum(base[:3]))
    return found


def main() -> None:
    """Print the table."""
    tiny = "--tiny" in sys.argv[1:]
    scale = 100 if tiny else 1
    print("| d | bytes a user | bytes an item | bytes a pair |\n| --- | --- | --- | --- |")
    for dim in () if tiny else (64, 128):
        found = slopes(Size(60_000, 2000, 360_000, dim, BLOCK), 3)
        print(f"| {dim} | {found['user']:,.0f} | {found['item']:,.0f} | {found['pair']:,.0f} |")
    size = Size(1_000_000 // scale, 3, 1_670_000 // scale, 128)
    print(
        f"\n{size.users:,} users, 3 items, {size.pairs:,} pairs, d = 128: {peak_bytes(size)[0] / 1e9:.2f} GB"
    )


if __name__ == "__main__":
    main()
