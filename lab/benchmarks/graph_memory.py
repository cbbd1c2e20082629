"""The memory of a rank that trains LightGCN, or MF (0 hops): as `check_memory` predicts it, and as measured.

A rank's peak is that of its resident memory in three steps, beyond what it had before the tables were made
(Linux). Ranks are processes on one machine, joined by gloo.

    python benchmarks/graph_memory.py [--users 600000] [--items 400000] [--hops 0 1 3] [--ranks 1 2 4]
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.losses import InfoNCE
from truepair.models.encoders import LightGCN
from truepair.sampling import Full
from truepair.sampling.draws import epoch_batches
from truepair.training import Job, Settings
from truepair.training.distributed.engine import graph_bytes, started
from truepair.training.distributed.processes import group_of, leave
from truepair.training.full.engine import size_of


def job_of(n_users: int, n_items: int, dim: int, hops: int) -> Job:
    """Four items for each user; small blocks, so that tables are most of the memory."""
    first = np.random.default_rng(0).integers(0, n_items, n_users)
    items = (first[:, None] + np.arange(4) * (n_items // 5)) % n_items
    data = Interactions(
        np.repeat(np.arange(n_users), 4), items.ravel(), IdMap.range(n_users), IdMap.range(n_items)
    )
    settings = Settings(epochs=1, batch_size=16, device="cpu")
    return Job(LightGCN(dim=dim, hops=hops), InfoNCE(0.5), Full(columns=min(500, n_items)), data, settings)


def resident(what: str) -> int:
    """Bytes of memory of this process: "VmRSS" now, "VmHWM" at the most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def work(rank: int, size: int, port: int, shape: tuple[int, int, int, int], results: Any) -> None:
    """One rank."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    group = group_of(torch.device("cpu"))
    started(job_of(100, 50, 4, 1), group).train(
        0, 0.1, lambda steps: None
    )  # what is imported at a first step
    job = job_of(*shape)
    graph = graph_bytes(job, size)
    before = resident("VmRSS")
    trainer = started(job, group)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    batches = epoch_batches(trainer.entries, job.settings.seed, 0, job.settings.batch_size)
    for key, users in enumerate(itertools.islice(batches, 3)):
        trainer.train_step(users, key)
    results.put((size_of(job).rank_bytes(size) + graph, resident("VmHWM") - before))
    leave()


def measured(size: int, shape: tuple[int, int, int, int]) -> tuple[int, int]:
    """The bytes that are predicted, and those of the rank that had most."""
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=work, args=(rank, size, port, shape, results)) for rank in range(size)]
    for process in ranks:
        process.start()
    found: list[tuple[int, int]] = [results.get(timeout=600) for _ in ranks]
    for process in ranks:
        process.join()
    return max(found, key=lambda each: each[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=600_000)
    parser.add_argument("--items", type=int, default=400_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--hops", type=int, nargs="+", default=[0, 1, 3])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    args = parser.parse_args()
    print("hops  ranks  GB of a rank: predicted  measured")
    for hops, size in itertools.product(args.hops, args.ranks):
        predicted, found = measured(size, (args.users, args.items, args.dim, hops))
        print(f"{hops:4}  {size:5}  {predicted / 1e9:23.2f}  {found / 1e9:8.2f}", flush=True)


if __name__ == "__main__":
    main()
