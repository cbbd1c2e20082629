"""Training over 1, 2 and 4 processes on CPUs: whether they agree, what they send, and how long they wait.

Each number of ranks trains the same job with engine "distributed", over gloo on one machine. Compared are the
scores of all pairs with those of one process (engine "full"), and NDCG@20 on held-out pairs. Bytes are those
that a rank sends in a step: as counted from the sizes of the tensors, and as the kernel counted them on the
sockets (Linux). 2·B·d numbers of 4 bytes are what the vectors of a block's users and their gradients take;
a hop of LightGCN takes 2·(users + items)·d more.

    python benchmarks/distributed.py [--users 4000] [--items 3000] [--batch 512] [--dim 64] [--loss infonce]
    python benchmarks/distributed.py --hops 2      # LightGCN
    python benchmarks/distributed.py --quick       # a small world, one epoch, 1 and 2 ranks
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, NamedTuple

import torch

from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.evaluation import Validation
from truepair.losses import LOSSES
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import Full
from truepair.training import Job, Settings, fit
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.engine import started
from truepair.training.distributed.processes import group_of, leave

_CPU = torch.device("cpu")
_BYTES_SENT = 200  # where the kernel's tcp_info has tcpi_bytes_sent


class Measured(NamedTuple):
    """Of one rank: what it sent and took in a step, and the model that came out."""

    counted: float  # bytes
    on_sockets: float  # bytes; 0 where the kernel does not say
    seconds: float
    waited: float
    matrices: tuple[torch.Tensor, torch.Tensor]
    score: float


def world(args: argparse.Namespace) -> Split:
    made = simulate_world(args.users, args.items, density=0.02, seed=0)
    return split_random(made.observed, test=0.1, valid=0.1, seed=0)


def job_of(args: argparse.Namespace, split: Split) -> Job:
    encoder = (
        LightGCN(args.dim, "cosine", 0.15, hops=args.hops) if args.hops else MF(args.dim, "cosine", 0.15)
    )
    settings = Settings(epochs=args.epochs, batch_size=args.batch, learning_rate=0.005, device="cpu")
    loss = LOSSES[args.loss]().with_density(split.train.density)
    return Job(encoder, loss, Full(columns=args.columns), split.train, settings)


def bytes_sent() -> int:
    """What this process has sent over all its open TCP connections."""
    total = 0
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError, struct.error), socket.socket(fileno=os.dup(int(name))) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                about = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += struct.unpack_from("=Q", about, _BYTES_SENT)[0]
    return total


def timed_collectives(group: ProcessGroup) -> list[float]:
    """Gets the seconds of each collective of the group from now on."""
    found, run = list[float](), group._run

    def timed(operation: Callable[[], object], n_bytes: int) -> None:
        began = time.perf_counter()
        run(operation, n_bytes)
        found.append(time.perf_counter() - began)

    group._run = timed  # type: ignore[method-assign]
    return found


def work(rank: int, size: int, port: int, args: argparse.Namespace, results: Any) -> None:
    """One rank."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    split = world(args)
    job, group = job_of(args, split), group_of(_CPU)
    trainer = started(job, group)
    waits = timed_collectives(group)
    counted, sent, began = group.sent, bytes_sent(), time.perf_counter()
    for epoch in range(args.epochs):
        trainer.train(epoch, job.settings.learning_rate, lambda steps: None)
    steps = args.epochs * trainer.steps
    seconds, waited = time.perf_counter() - began, sum(waits)
    counted, sent = group.sent - counted, bytes_sent() - sent
    assert split.valid is not None
    matrices = trainer.matrices()
    score = Validation(split.valid, split.train, "ndcg@20").score(*matrices)
    per_step = counted / steps, sent / steps, seconds / steps, waited / steps
    results.put((rank, Measured(*per_step, tuple(m.numpy() for m in matrices), score)))  # type: ignore[arg-type]
    leave()


def measured(size: int, args: argparse.Namespace) -> list[Measured]:
    """All ranks of a run."""
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=work, args=(rank, size, port, args, results)) for rank in range(size)]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=600) for _ in ranks)
    for process in ranks:
        process.join()
    return [found[rank] for rank in range(size)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--items", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--columns", type=int, default=None, help="columns drawn for each block")
    parser.add_argument("--hops", type=int, default=0, help="LightGCN with so many; 0 is MF")
    parser.add_argument("--loss", choices=LOSSES, default="infonce")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.users, args.items, args.batch, args.dim, args.epochs, args.ranks = 120, 60, 64, 8, 1, [1, 2]
    split = world(args)
    torch.set_num_threads(1)
    alone = fit(job_of(args, split), engine="full")
    assert split.valid is not None
    score = Validation(split.valid, split.train, "ndcg@20").score(*alone.matrices())
    scores, width = alone.users @ alone.items.T, args.dim
    print(
        f"{split.train}, {args.loss}, {args.hops} hops, batch of {args.batch} users, d = {width}, "
        f"{args.epochs} epochs, NDCG@20 {score:.4f}"
    )
    print(f"2·B·d numbers take {2 * args.batch * width * 4 / 1e3:,.0f} kB; "
          f"2·items·d would take {2 * args.items * width * 4 / 1e3:,.0f} kB; "
          f"all hops {2 * args.hops * (args.users + args.items) * width * 4 / 1e3:,.0f} kB")  # fmt: skip
    print("ranks  largest difference of scores  of NDCG@20   kB sent a step: counted  on sockets"
          "   ms a step: compute  in collectives")  # fmt: skip
    for size in args.ranks:
        found = measured(size, args)
        first = found[0]
        users, items = (torch.from_numpy(part) for part in first.matrices)
        apart = float((users @ items.T - scores).abs().max())
        waited = sum(each.waited for each in found) / size
        seconds = sum(each.seconds for each in found) / size
        counted, sockets = (
            sum(values) / size / 1e3 for values in zip(*(each[:2] for each in found), strict=True)
        )
        print(
            f"{size:5}  {apart:28.1e}  {abs(first.score - score):10.1e}  {counted:22,.1f}  {sockets:10,.1f}"
            f"  {1e3 * (seconds - waited):19,.1f}  {1e3 * waited:14,.1f}"
        )


if __name__ == "__main__":
    main()
