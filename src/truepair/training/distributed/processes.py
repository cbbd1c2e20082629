"""The processes of a run: how a process finds the others, and who does not answer."""

from __future__ import annotations

import atexit
import os
import time
from datetime import timedelta
from functools import cache, partial

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from truepair.errors import InputError
from truepair.training.distributed.collectives import ProcessGroup, no_answer

TIMEOUT = "TRUEPAIR_TIMEOUT"
"""The environment variable with the seconds after which a rank that does not answer is given up."""
_DEFAULT_TIMEOUT = 600.0
_ROLL_CALL = 10.0  # seconds in which a rank that is alive answers
_MAIN_MEMORY = torch.device("cpu")


def n_processes() -> int:
    """How many processes this one trains with: those of PyTorch's process group, or of torchrun."""
    return dist.get_world_size() if dist.is_initialized() else _whole("WORLD_SIZE", 1)


def rank_of_process() -> int:
    """Which of them this one is."""
    return dist.get_rank() if dist.is_initialized() else _whole("RANK", 0)


def device_of(device: torch.device) -> torch.device:
    """The device of this process: by its rank on the machine where there are several."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", _whole("LOCAL_RANK", 0) % torch.cuda.device_count())


def group_of(device: torch.device) -> ProcessGroup:
    """The ranks of this run; joins them the first time."""
    return ProcessGroup() if n_processes() == 1 else _join(device)


def leave() -> None:
    """Leave the process group, as at the end of the process."""
    _join.cache_clear()
    if dist.is_initialized():
        dist.destroy_process_group()


@cache
def _join(device: torch.device) -> ProcessGroup:
    shares_device = device.type == "cuda" and _whole("LOCAL_WORLD_SIZE", 1) > torch.cuda.device_count()
    over_nccl = device.type == "cuda" and not shares_device
    if dist.is_initialized():  # by the caller, or by an engine such as Ray
        has_nccl = "nccl" in str(dist.get_backend())
        return ProcessGroup(
            dist.get_rank(), dist.get_world_size(), place=device if has_nccl else _MAIN_MEMORY
        )
    if over_nccl:
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=_seconds())
    store, rank, size = _meeting_place(timeout)
    attempt = f"truepair/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    seconds = timeout.total_seconds()
    if absent := absent_ranks(PrefixStore(f"{attempt}/joined", store), rank, size, seconds):
        raise no_answer(absent, rank, size, f"it has not begun after {seconds:g} seconds")
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if over_nccl else "gloo",
        store=PrefixStore(f"{attempt}/group", store),
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    atexit.register(leave)
    roll = PrefixStore(f"{attempt}/roll", store)
    absent_now = partial(absent_ranks, roll, rank, size, min(_ROLL_CALL, seconds))
    return ProcessGroup(rank, size, place=None if over_nccl else _MAIN_MEMORY, absent=absent_now)


def _meeting_place(timeout: timedelta) -> tuple[Store, int, int]:
    """The store where the ranks find each other, this rank, and how many there are.

    Without torchrun, rank 0 keeps it; it does not wait for the others, so that the absent can be named.
    """
    rank, size = rank_of_process(), n_processes()
    host, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if of_torchrun or not host or not port.isdecimal():
        store, rank, size = next(rendezvous("env://", timeout=timeout))
        return store, rank, size
    try:
        return TCPStore(host, int(port), size, rank == 0, timeout, wait_for_workers=False), rank, size
    except RuntimeError as error:
        if rank == 0:
            raise InputError(f"rank 0 cannot listen on {host}:{port}: {error}") from error
        raise no_answer([0], rank, size, str(error)) from error


def absent_ranks(store: Store, rank: int, size: int, seconds: float) -> list[int]:
    """Who does not answer, before the first collective and after one that has failed: each rank signs a list.

    These ranks have not signed in time; none if the list cannot be reached. A rank that hangs, or has ended,
    does not sign. Nothing is sent in between.
    """
    missing = [other for other in range(size) if other != rank]
    try:
        store.set(f"{rank}", "here")
        end = time.monotonic() + seconds
        while missing and time.monotonic() < end:
            missing = [other for other in missing if not store.check([f"{other}"])]
            time.sleep(0.05)
    except RuntimeError:  # the process that keeps the list has ended
        return []
    return missing


def _seconds() -> float:
    text = os.environ.get(TIMEOUT, str(_DEFAULT_TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise InputError(f"{TIMEOUT} = {text!r} must be a number of seconds above 0, such as 600.")
    return seconds


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default
