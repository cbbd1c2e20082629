"""The service under load, with and without gathering, and the time of a fold-in.

A model like that of MovieLens-1M (6,040 users x 3,706 items, 64 dimensions, by chance) is served by a process
of its own. A client on the same machine keeps connections open, each with one request at a time, for a list
of ten items for a random user. The two services take turns, so that both meet the same machine.

    python benchmarks/serving.py [--seconds 5] [--items 3706]
    python benchmarks/serving.py --quick        # a small model, a tenth of a second
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import Model
from truepair.serving.events.event import Kinds
from truepair.serving.limits import Limits
from truepair.serving.lists.served_model import ServedModel


class Load(NamedTuple):
    """What a service did under load."""

    connections: int
    per_second: float
    p50: float  # milliseconds
    p99: float


def model_by_chance(n_users: int, n_items: int, dim: int, per_user: int) -> Recommender:
    """A model as `fit` gives it, with vectors by chance: the cost of a list does not depend on them."""
    rng = np.random.default_rng(0)
    start = Recommender(dim=dim, epochs=1, auto=False).fit({"user": [1, 1, 2], "item": [1, 2, 2]})
    rows = [np.sort(rng.choice(n_items, per_user, replace=False)) for _ in range(n_users)]
    users = np.repeat(np.arange(n_users), per_user)
    seen = Interactions(users, np.concatenate(rows), IdMap.range(n_users), IdMap.range(n_items))
    vectors = [torch.from_numpy(rng.normal(size=(n, dim)).astype(np.float32)) for n in (n_users, n_items)]
    unit = [torch.nn.functional.normalize(some) for some in vectors]
    popularity = np.maximum(seen.item_counts, 1)
    start.model_ = Model(unit[0] / 0.15, unit[1], seen, popularity, start.facts_)
    return start


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


async def load(port: int, n_users: int, connections: int, seconds: float) -> Load:
    """Requests on so many connections for so long."""
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


def served(model: Path, *options: str) -> tuple[subprocess.Popen[str], int]:
    """A service of a model, and its port."""
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
    for line in process.stderr:
        if found := re.search(r"at http://\S+:(\d+)", line):
            return process, int(found[1])
    raise SystemExit("the service did not start")


def fold_in_milliseconds(model: Recommender, length: int, rounds: int) -> list[float]:
    """Times of folding in a person with so many items, as after an event."""
    people = ServedModel(model, Limits(), Kinds()).people
    rng, times = np.random.default_rng(1), []
    for _ in range(rounds):
        history = dict.fromkeys(rng.choice(model.seen_.n_items, length, replace=False).tolist(), 1.0)
        start = time.perf_counter()
        people.folded(history)
        times.append(1000 * (time.perf_counter() - start))
    return sorted(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--rounds", type=int, default=3, help="turns of the two services")
    parser.add_argument("--quick", action="store_true", help="a small model for a tenth of a second")
    args = parser.parse_args()
    n_users, n_items, dim, per_user = (50, 40, 8, 5) if args.quick else (6040, args.items, 64, 165)
    seconds, rounds, counts = (0.1, 1, (2,)) if args.quick else (args.seconds, args.rounds, (10, 100, 500))
    model = model_by_chance(n_users, n_items, dim, per_user)
    times = fold_in_milliseconds(model, per_user, 20 * rounds)
    print(f"fold-in of {per_user} items: median {statistics.median(times):.2f} ms, fastest {times[0]:.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.truepair"
        model.save(path)
        ways = {"gathered": (), "alone": ("--gather", "1")}
        running = {
            name: served(path, *options, "--store", f"{folder}/{name}.sqlite")
            for name, options in ways.items()
        }
        try:
            for _, port in running.values():
                asyncio.run(load(port, n_users, counts[0], seconds))  # warm
            for connections in counts:
                found: dict[str, list[Load]] = {name: [] for name in ways}
                for _ in range(rounds):
                    for name, (_, port) in running.items():
                        found[name].append(asyncio.run(load(port, n_users, connections, seconds)))
                for name, loads in found.items():
                    rate, p50, p99 = (
                        statistics.median(column) for column in list(zip(*loads, strict=True))[1:]
                    )
                    what = f"{connections:4} connections, {name:9} {rate:7,.0f} requests/s"
                    print(f"{what}, p50 {p50:6.1f} ms, p99 {p99:6.1f} ms")
        finally:
            for process, _ in running.values():
                process.terminate()
                process.communicate()  # waits for the end, and closes the pipe


if __name__ == "__main__":
    main()
