"""Kill the writer of an event store again and again: `python tools/soak/event_kills.py --kills 200`.

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
import sqlite3
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from truepair.serving.events.event import Event
from truepair.serving.events.store import EventStore


def write(path: Path, start: int, reports: Connection) -> None:
    """Store events for ever; report the number after the last acknowledged one."""
    store, n = EventStore(path), start
    while True:
        batches = [[_event(n + 5 * b + k) for k in range(5)] for b in range(3)]
        store.add(batches)
        n += 15
        reports.send(n)
        store.add(batches[:2])


def _event(n: int) -> Event:
    return Event(f"user {n % 97}", f"item {n}", "like", 1.0, n, f"event-{n}" if n % 2 else None)


def killed_once(path: Path, start: int, seconds: float) -> int:
    """Let a writer write for so long, kill it, and give the number after its last acknowledged event."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=write, args=(path, start, writer))
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
    options = parser.parse_args()
    chance, acknowledged = random.Random(options.seed), set[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.sqlite"
        for kill in range(options.kills):
            start = kill * 1_000_000
            last = killed_once(path, start, chance.uniform(0, 0.05))
            acknowledged |= {f"item {n}" for n in range(start, last)}
        database = sqlite3.connect(path)
        stored = [row[0] for row in database.execute("SELECT item FROM events")]
        sound = database.execute("PRAGMA integrity_check").fetchone()[0]
    lost, twice = len(acknowledged - set(stored)), len(stored) - len(set(stored))
    found = f"{lost} lost, {twice} twice; file {sound}"
    print(f"{options.kills} kills, {len(acknowledged):,} acknowledged events: {found}")
    return int(bool(lost or twice or sound != "ok"))


if __name__ == "__main__":
    sys.exit(main())
