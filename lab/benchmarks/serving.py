"""The service under load: requests a second, p50 and p99, with gathering, without, and with an index.

Each case is a model that a process of its own serves. `wrk` on the same machine keeps connections open, each
with one request at a time, for a list of ten items for a random user. The ways of serving a model take turns,
so that all meet the same machine.

    python benchmarks/serving.py                          # every case; needs wrk
    python benchmarks/serving.py --case 1m --seconds 5    # one case
    python benchmarks/serving.py --json rows.json --markdown rows.md
    python benchmarks/serving.py --quick                  # a small model, a tenth of a second, without wrk

Vectors of the ML-1M case are by chance: without an index, the cost of a list does not depend on them. Those
of larger catalogues are simulated with structure: items around centres (one for 500 items) with spectra that
fall, popularity as one more column, and users near the mean of three centres.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.models.scorer import trained_scorer
from truepair.recommender.estimator import Recommender
from truepair.serving.events.event import Kinds
from truepair.serving.limits import Limits
from truepair.serving.lists.served_model import ServedModel

EXACT, IVF, ALONE = ("--index", "exact"), ("--index", "ivf"), ("--gather", "1", "--index", "exact")


class Case(NamedTuple):
    """A model, and the ways in which it is served."""

    n_users: int
    n_items: int
    per_user: int
    ways: dict[str, tuple[str, ...]]
    connections: tuple[int, ...] = (10, 100, 500)


CASES = {
    "ml-1m": Case(6040, 3706, 165, {"gathered": EXACT, "each alone": ALONE}),
    "100k": Case(
        20_000, 100_000, 50,
        {"gathered": EXACT, "index": IVF, "each alone": ALONE},
    ),
    "1m": Case(
        20_000, 1_000_000, 50,
        {"gathered": EXACT, "index": IVF, "each alone": ALONE},
    ),
}  # fmt: skip


class Load(NamedTuple):
    """What a service did under load."""

    connections: int
    per_second: float
    p50: float  # milliseconds
    p99: float


# --- models ----------------------------------------------------------------------------------------------


def model_by_chance(n_users: int, n_items: int, dim: int, per_user: int) -> Recommender:
    """A model as `fit` gives it, with vectors by chance."""
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=(n, dim)).astype(np.float32) for n in (n_users, n_items)]
    unit = [_unit(some) for some in vectors]
    return _recommender(unit[0] / np.float32(0.15), unit[1], per_user, dim, popularity=0.0)


def model_with_structure(n_users: int, n_items: int, dim: int, per_user: int) -> Recommender:
    """A model with items around centres, and popularity as one more column."""
    rng, n_centres = np.random.default_rng(0), max(n_items // 500, 4)
    spectrum = np.linspace(2, 0.5, dim, dtype=np.float32)
    centres = rng.normal(size=(n_centres, dim)).astype(np.float32) * spectrum
    items = np.empty((n_items, dim + 1), np.float32)
    owner = rng.integers(0, n_centres, n_items)
    noise = rng.normal(size=(n_items, dim)).astype(np.float32) * spectrum
    items[:, :dim] = _unit(centres[owner] + np.float32(0.7) * noise)
    items[:, dim] = 0.3 * np.log1p(rng.pareto(1.2, n_items) * 10)
    users = np.ones((n_users, dim + 1), np.float32)
    tastes = centres[rng.integers(0, n_centres, (n_users, 3))].mean(axis=1)
    users[:, :dim] = _unit(
        tastes + np.float32(0.3) * rng.normal(size=tastes.shape).astype(np.float32)
    ) / np.float32(0.15)
    return _recommender(users, items, per_user, dim, popularity=0.3)


def _unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True).astype(np.float32)
    return found


def _recommender(
    users: npt.NDArray[np.float32], items: npt.NDArray[np.float32], per_user: int, dim: int, popularity: float
) -> Recommender:
    rng = np.random.default_rng(1)
    start = Recommender(dim=dim, epochs=1, auto=False, popularity=popularity or None)
    start.fit({"user": [1, 1, 2], "item": [1, 2, 2]})
    n_users, n_items = len(users), len(items)
    owners = np.repeat(np.arange(n_users), per_user)
    keys = np.unique(owners * n_items + rng.integers(0, n_items, len(owners)))
    seen = Interactions(keys // n_items, keys % n_items, IdMap.range(n_users), IdMap.range(n_items))
    counts = np.maximum(seen.item_counts, 1)
    scorer = trained_scorer(torch.from_numpy(users), torch.from_numpy(items), bool(popularity))
    start.model_ = dataclasses.replace(
        start.model_, scorer=scorer, seen=seen, popularity=counts,
        trained=np.ones(n_users, dtype=bool), added=np.zeros(n_items, dtype=bool), start=None,
    )  # fmt: skip
    return start


# --- load ------------------------------------------------------------------------------------------------

_SCRIPT = """
math.randomseed(os.time())
request = function()
  return wrk.format("GET", "/v1/users/" .. math.random(0, {last}) .. "/recommendations")
end
"""


def wrk(port: int, n_users: int, connections: int, seconds: float) -> Load:
    """Load by wrk, with one thread."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT.format(last=n_users - 1))
        script.flush()
        words = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{max(round(seconds), 1)}s",
            "--latency",
            "--timeout",
            "60s",
        ]
        words += ["-s", script.name, f"http://127.0.0.1:{port}"]
        text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    if wrong := re.search(r"Non-2xx.*|Socket errors.*", text):
        print(f"  wrk: {wrong[0]}", flush=True)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert rate is not None, text
    return Load(connections, float(rate[1]), *(_milliseconds(text, share) for share in ("50", "99")))


def _milliseconds(text: str, share: str) -> float:
    found = re.search(rf"{share}%\s+([\d.]+)(us|ms|s|m)\b", text)
    assert found is not None, text
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[found[2]]


class Connection(asyncio.Protocol):
    """One connection: a request, its answer, the next request, until the time is over."""

    def __init__(
        self, requests: list[bytes], end: float, times: list[float], done: asyncio.Future[None]
    ) -> None:
        self.requests, self.end, self.times, self.done = requests, end, times, done
        self.buffer, self.begun = b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        """Send the next request."""
        self.begun = time.perf_counter()
        self.transport.write(random.choice(self.requests))

    def data_received(self, data: bytes) -> None:
        """Wait for the whole answer."""
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        found = re.search(rb"content-length: (\d+)", self.buffer)
        assert found is not None
        assert self.buffer.startswith(b"HTTP/1.1 200"), self.buffer[:300]
        if len(self.buffer) < head + 4 + int(found[1]):
            return
        self.buffer, now = b"", time.perf_counter()
        self.times.append(now - self.begun)
        if now < self.end:
            self.ask()
        else:
            self.transport.close()
            self.done.set_result(None)


def load(port: int, n_users: int, connections: int, seconds: float) -> Load:
    """Load by a client in Python, for machines without wrk."""
    return asyncio.run(_load(port, n_users, connections, seconds))


async def _load(port: int, n_users: int, connections: int, seconds: float) -> Load:
    paths = (f"/v1/users/{user}/recommendations" for user in range(n_users))
    requests = [f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() for path in paths]
    loop, times = asyncio.get_running_loop(), list[float]()
    start = time.perf_counter()
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    for end in ends:
        made = Connection(requests, start + seconds, times, end)
        await loop.create_connection(lambda made=made: made, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*ends)
    passed = time.perf_counter() - start
    times.sort()
    p50, p99 = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
    return Load(connections, len(times) / passed, p50, p99)


@contextmanager
def served(model: Path, *options: str) -> Iterator[tuple[int, str]]:
    """A service of a model: its port, and what it said about its index."""
    words = [
        sys.executable,
        "-m",
        "truepair",
        "serve",
        str(model),
        "--port",
        "0",
        "--no-log-requests",
        *options,
    ]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line.strip())
            if found := re.search(r"at http://\S+:(\d+)", line):
                yield int(found[1]), next((one for one in said if "recall" in one or "exact" in one), "")
                return
        raise SystemExit("the service did not start: " + "\n".join(said))
    finally:
        process.terminate()
        process.communicate()  # waits for the end, and closes the pipe


def measured(
    name: str, case: Case, seconds: float, rounds: int, dim: int, client: Any
) -> Iterator[dict[str, Any]]:
    """A row for each number of connections and way: the medians of all rounds."""
    make = model_by_chance if name in ("ml-1m", "quick") else model_with_structure
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.truepair"
        make(case.n_users, case.n_items, dim, case.per_user).save(path)
        found: dict[tuple[int, str], list[Load]] = {}
        for _ in range(rounds):
            for way, options in case.ways.items():
                store = f"{folder}/{way.replace(' ', '-')}.sqlite"
                with served(path, *options, "--store", store) as (port, about):
                    print(f"{name}, {way}: {about}", flush=True)
                    client(port, case.n_users, case.connections[0], seconds)  # warm
                    for connections in case.connections:
                        one = client(port, case.n_users, connections, seconds)
                        found.setdefault((connections, way), []).append(one)
    for (connections, way), loads in found.items():
        rate, p50, p99 = (statistics.median(column) for column in list(zip(*loads, strict=True))[1:])
        yield {"case": name, "items": case.n_items, "way": way, "connections": connections,
               "per_second": round(rate, 1), "p50_ms": round(p50, 1), "p99_ms": round(p99, 1)}  # fmt: skip


def fold_in_milliseconds(model: Recommender, length: int, rounds: int) -> list[float]:
    """Times of folding in a person with so many items, as after an event."""
    histories = ServedModel(model, Limits(), Kinds()).histories
    rng, times = np.random.default_rng(1), []
    for number in range(rounds + 1):
        history = dict.fromkeys(rng.choice(model.seen_.n_items, length, replace=False).tolist(), 1.0)
        start = time.perf_counter()
        histories.folded(history)
        if number:  # the first one may compile
            times.append(1000 * (time.perf_counter() - start))
    return sorted(times)


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table for ../docs/performance.md."""
    lines = ["| items | lists | connections | requests/s | p50 | p99 |", "|---|---|---|---|---|---|"]
    for row in rows:
        times = f"{row['p50_ms']:,.1f} ms | {row['p99_ms']:,.1f} ms"
        start = f"| {row['items']:,} | {row['way']} | {row['connections']} |"
        lines.append(f"{start} {row['per_second']:,.0f} | {times} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=[*CASES], action="append", help="only this case; may be repeated")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3, help="turns of the ways of serving")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", type=Path, help="write a table to this file")
    parser.add_argument("--quick", action="store_true", help="a small model for a tenth of a second")
    args = parser.parse_args()
    if args.quick:
        small = Case(50, 40, 5, {"gathered": (), "index": ("--index", "ivf")}, (2,))
        cases, seconds, rounds, dim, client = {"quick": small}, 0.1, 1, 8, load
    else:
        if shutil.which("wrk") is None:
            raise SystemExit("the load comes from wrk, which is not installed; or use --quick")
        cases = {name: CASES[name] for name in args.case or CASES}
        seconds, rounds, dim, client = args.seconds, args.rounds, 64, wrk
    if "ml-1m" in cases or args.quick:
        sizes = next(iter(cases.values()))
        model = model_by_chance(sizes.n_users, sizes.n_items, dim, sizes.per_user)
        times = fold_in_milliseconds(model, sizes.per_user, 20 * rounds)
        median, length = statistics.median(times), sizes.per_user
        print(f"fold-in of {length} items: median {median:.2f} ms, fastest {times[0]:.2f} ms")
    rows: list[dict[str, Any]] = []
    for name, case in cases.items():
        rows += measured(name, case, seconds, rounds, dim, client)
    print(markdown(rows))
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.markdown is not None:
        args.markdown.write_text(markdown(rows))


if __name__ == "__main__":
    main()
