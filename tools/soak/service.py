"""The soak of the service: `python tools/soak/service.py --minutes 30`.

Mixed traffic over HTTP against `truepair serve` with PostgreSQL and a new candidate every 20 seconds, while
trainers are killed with SIGKILL, the model is rolled back, and PostgreSQL crashes and comes back. Every list
is checked against the models that were served while it was asked for, and every acknowledged event is looked
for in the end. Prints a table, and writes a figure of the service's memory. The exit code is 1 if a list was
wrong, a read failed or an acknowledged event is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from list_check import Checker, parsed
from postgresql import Server
from visitors import Record, Tally, Visitors

import truepair as tp
from truepair.reporting.figures import Panel, Series, draw_bands, standalone
from truepair.serving.events.store import open_store
from truepair.serving.retraining.versions import Versions

_WARM_UP = 60.0  # seconds after which memory should not grow any more


class Soak:
    """A service, its visitors, and what happens to it."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.server = Server() if options.store == "postgresql" else None
        self.store = self.server.url if self.server else str(folder / "events.sqlite")
        self.world = tp.simulate_world(
            options.users, options.items, tau=0.08, density=0.02, seed=options.seed
        )
        self.model = folder / "model.truepair"
        self.tally, self.ending = Tally(), threading.Event()
        self.records: SimpleQueue[Record] = SimpleQueue()
        self.memory: list[tuple[float, float]] = []  # seconds, MiB
        self.happened: list[tuple[float, str]] = []
        self.kills = self.rollbacks = 0

    def run(self) -> bool:
        """Whether all was as promised."""
        pairs = self.world.observed
        observed = {
            name: [f"{name[0]}{code}" for code in codes.tolist()]
            for name, codes in (("user", pairs.users), ("item", pairs.items))
        }
        tp.Recommender(dim=32, epochs=15, auto=False, seed=self.options.seed).fit(observed).save(self.model)
        kept = self.folder / "kept"
        kept.mkdir()
        self.checker = Checker(Versions(self.model), kept, self.records)
        self.process = self._started()
        self.began = time.time()
        threads = [self.checker, threading.Thread(target=self._watch_memory), *self._visitors()]
        for thread in threads:
            thread.start()
        try:
            self._happen()
        finally:
            self.ending.set()
            for thread in threads[1:]:
                thread.join()
            self.decisions = self._asked("/v1/model/decisions?n=1000")["decisions"]
            self.checker.ending.set()
            self.checker.join()
            self.process.send_signal(signal.SIGTERM)
            self.code = self.process.wait(60)
        return self._report()

    def _started(self) -> subprocess.Popen[str]:
        words = [
            sys.executable,
            "-m",
            "truepair",
            "serve",
            str(self.model),
            "--store",
            self.store,
            "--port",
            "0",
        ]
        words += ["--retrain", self.options.every, "--judge-margin", "0.5", "--no-log-requests"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        self.lines: list[str] = []
        for line in process.stderr:
            self.lines.append(line)
            if found := re.search(r"serving .* at http://\S+:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise SystemExit("".join(self.lines))
        threading.Thread(target=self._read_log, args=(process.stderr,), daemon=True).start()
        return process

    def _read_log(self, stream: Any) -> None:
        for line in stream:
            self.lines.append(line)
            if (found := parsed(line)) is not None:
                self.checker.note(found)

    def _visitors(self) -> list[Visitors]:
        """Half of the people never do anything; the others like what they truly like."""
        hidden: dict[str, list[str]] = {}
        for user, item in zip(
            self.world.hidden.users.tolist(), self.world.hidden.items.tolist(), strict=True
        ):
            hidden.setdefault(f"u{user}", []).append(f"i{item}")
        known = [f"u{user}" for user in self.world.observed.users.tolist()]
        quiet = sorted({user for user in known if int(user[1:]) % 2})
        items = sorted({f"i{item}" for item in self.world.observed.items.tolist()})
        active = [user for user in sorted(hidden) if int(user[1:]) % 2 == 0]
        count = self.options.clients
        return [
            Visitors(self.port, quiet, {user: hidden[user] for user in active[n::count]}, items, self.tally,
                     self.records, self.ending, self.options.pause, n)
            for n in range(count)
        ]  # fmt: skip

    def _watch_memory(self) -> None:
        while not self.ending.wait(1.0):
            with suppress(OSError):
                status = Path(f"/proc/{self.process.pid}/status").read_text()
                found = re.search(r"VmRSS:\s+(\d+) kB", status)
                if found:
                    self.memory.append((time.time() - self.began, int(found[1]) / 1024))

    # --- what happens ------------------------------------------------------------------------------------

    def _happen(self) -> None:
        """Each at its part of the time."""
        plan: list[tuple[float, str, Callable[[], None]]] = [
            (0.25, "a trainer is killed", self._kill_trainer),
            (0.40, "the store crashes", self._crash_store),
            (0.50, "the model is rolled back", self._roll_back),
            (0.60, "a trainer is killed", self._kill_trainer),
            (0.75, "the store crashes", self._crash_store),
        ]
        total = 60 * self.options.minutes
        for part, what, act in plan:
            self._wait_until(part * total)
            if self.process.poll() is not None:
                return
            self.happened.append((time.time() - self.began, what))
            print(f"{time.time() - self.began:6.0f} s  {what}", flush=True)
            act()
        self._wait_until(total)

    def _wait_until(self, seconds: float) -> None:
        while time.time() - self.began < seconds and self.process.poll() is None:
            time.sleep(0.2)

    def _kill_trainer(self) -> None:
        end = time.time() + 60
        while time.time() < end:
            for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
                with suppress(OSError):
                    for child in (thread / "children").read_text().split():
                        os.kill(int(child), signal.SIGKILL)
                        self.kills += 1
                        return
            time.sleep(0.05)
        print("        no trainer ran within a minute", flush=True)

    def _crash_store(self) -> None:
        if self.server is None:
            return
        outage = [time.time() - 1, float("inf")]  # checks of answers go on meanwhile
        self.checker.outages.append(outage)
        self.server.stop()
        time.sleep(self.options.outage)
        self.server.start()
        while True:
            with suppress(OSError):
                self._asked("/health/ready")
                break
            time.sleep(0.1)
        outage[1] = time.time() + 1

    def _roll_back(self) -> None:
        """As soon as there is a model to return to."""
        end = time.time() + 120
        while time.time() < end:
            if len(self._asked("/v1/model/decisions?n=1")["running"]["versions"]) > 1:
                self._asked("/v1/model/rollback", b"{}")
                self.rollbacks += 1
                return
            time.sleep(0.5)
        print("        nothing was promoted within two minutes", flush=True)

    def _asked(self, path: str, body: bytes | None = None) -> Any:
        headers = {} if body is None else {"content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    # --- what came of it ---------------------------------------------------------------------------------

    def _report(self) -> bool:
        lost, repeated, stored = self._compared()
        tally, checker = self.tally, self.checker
        decisions = Counter(one["decision"] for one in self.decisions)
        times = sorted(tally.milliseconds) or [0.0]
        half = [mib for seconds, mib in self.memory if seconds > _WARM_UP] or [mib for _, mib in self.memory]
        early, late = half[: len(half) // 3] or [0.0], half[-(len(half) // 3) or -1 :]
        rows = {
            "minutes": f"{(time.time() - self.began) / 60:.1f}",
            "reads": f"{sum(tally.reads.values()):,}",
            "reads that failed": len(tally.failed_reads),
            "answers that were checked": f"{sum(checker.checked.values()):,}",
            "wrong lists": len(checker.wrong),
            "lists without the newest events while the store was down": checker.without_store,
            "acknowledged events": f"{len(tally.acknowledged):,}",
            "of them lost": lost,
            "stored twice": repeated,
            "requests with events that were refused and sent again": tally.refused_writes,
            "requests with events that failed otherwise": len(tally.failed_writes),
            "promotions": decisions["promoted"],
            "candidates refused": decisions["refused"],
            "trainings that waited or failed": decisions["waited"] + decisions["failed"],
            "trainers killed": self.kills,
            "rollbacks": self.rollbacks,
            "crashes of the store": len(checker.outages),
            "p50, p99 of reads, ms": f"{times[len(times) // 2]:.1f}, {times[len(times) * 99 // 100]:.1f}",
            "memory, first and last third, MiB": f"{_mean(early):.0f}, {_mean(late):.0f}",
            "exit code of the service": self.code,
        }
        print("\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]))
        for text in [*checker.wrong[:5], *tally.failed_reads[:5], *tally.failed_writes[:5]]:
            print(text)
        if self.options.figure:
            self._draw(self.options.figure)
        (self.folder / "service.log").write_text("".join(self.lines))
        if self.options.log:
            self.options.log.write_text("".join(self.lines))
        print(f"{stored:,} events in the store")
        bad = checker.wrong or tally.failed_reads or tally.failed_writes or lost or repeated or self.code
        return not bad

    def _compared(self) -> tuple[int, int, int]:
        """Acknowledged events that are missing, events that are there twice, all events."""
        with closing(open_store(self.store, create=False)) as store, closing(store.reader()) as reader:
            table = reader.table()
        names = ("user", "item", "kind")
        stored = Counter(zip(*(table[name].to_pylist() for name in names), strict=True))
        return len(self.tally.acknowledged - set(stored)), sum(n - 1 for n in stored.values()), len(table)

    def _draw(self, path: Path) -> None:
        seconds, mib = zip(*self.memory, strict=True)
        curve = {"resident": Series([second / 60 for second in seconds], mib, mib, mib)}
        path.write_text(standalone(draw_bands([Panel("memory of the service, MiB", curve, "minutes")], 1)))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> int:
    """Run the soak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--store", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--every", default="20s", help="how often a candidate is trained")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.05, help="mean seconds between requests of a client")
    parser.add_argument("--users", type=int, default=1500)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--outage", type=float, default=10.0, help="seconds that the store is down")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, help="where to write the figure of the memory")
    parser.add_argument("--log", type=Path, help="where to write the log of the service")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truepair-soak-") as folder:
        soak = Soak(options, Path(folder))
        try:
            return int(not soak.run())
        finally:
            if soak.server is not None:
                soak.server.remove()


if __name__ == "__main__":
    sys.exit(main())
