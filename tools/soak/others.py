"""Full disks, two processes on one checkpoint, two threads, fork and spawn."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from children import answer_of, start, wait
from work import JOBS, THREADED, leftovers, scatter_memory, train, unreadable


def check_all(until: float) -> Iterator[tuple[str, str, bool]]:
    """The name of a check, the engine, and whether all was as promised."""
    checks: dict[str, Callable[[str, Path], bool]] = {
        "full disk": full_disk,
        "two processes on one checkpoint": two_processes,
        "two threads": two_threads,
        "fork after training": fork_after_training,
        "spawn": spawned,
    }
    for name, check in checks.items():
        for engine in JOBS:
            if time.monotonic() > until:
                return
            with tempfile.TemporaryDirectory() as folder:
                yield name, engine, check(engine, Path(folder))


def alone(engine: str, folder: Path) -> str:
    """The result of a run that nothing disturbs."""
    (folder / "alone").mkdir()
    return answer_of(lambda: train(engine, folder / "alone"), folder / "alone.answer")


def full_disk(engine: str, folder: Path) -> bool:
    """The disk is full at the first and at a later checkpoint; afterwards there is room again."""
    whole = alone(engine, folder)
    place = folder / "disk"
    place.mkdir()
    for limited in (_small_files, _small_disk):
        with limited(place) as limit:
            if limit is None:
                continue

            def work(limit: Callable[[], None] = limit) -> str:
                limit()
                return train(engine, place)

            said = answer_of(work, folder / "answer")
            if not said.startswith("StorageError: cannot write") or leftovers(place) or unreadable(place):
                return False
    return answer_of(lambda: train(engine, place), folder / "answer") == whole


@contextmanager
def _small_files(place: Path) -> Iterator[Callable[[], None] | None]:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    yield limit


@contextmanager
def _small_disk(place: Path) -> Iterator[Callable[[], None] | None]:
    """A file system with too little room, where one may be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield lambda: None
    finally:
        subprocess.run(["umount", str(place)], check=True)


def two_processes(engine: str, folder: Path) -> bool:
    """Two processes train the same job with the same checkpoint, at the same time."""
    whole = alone(engine, folder)
    place = folder / "shared"
    place.mkdir()
    answers = [folder / "first", folder / "second"]
    processes = [start(lambda: train(engine, place), answer) for answer in answers]
    codes = [wait(process) for process in processes]
    same = all(answer.read_text() == whole for answer in answers)
    return codes == [0, 0] and same and not leftovers(place) and not unreadable(place)


def two_threads(engine: str, folder: Path) -> bool:
    """Two fits in two threads of one process."""
    whole = alone(engine, folder)

    def work() -> str:
        places = [folder / "a", folder / "b"]
        for place in places:
            place.mkdir()
        with ThreadPoolExecutor(2) as pool:
            return " ".join(pool.map(lambda place: train(engine, place), places))

    return answer_of(work, folder / "answer") == f"{whole} {whole}"


def fork_after_training(engine: str, folder: Path) -> bool:
    """A process trains and forks; the child trains too, or is told that it cannot."""
    whole = alone(engine, folder)

    def work() -> str:
        first, second = folder / "parent", folder / "child"
        first.mkdir()
        second.mkdir()
        return f"{train(engine, first)} {answer_of(lambda: train(engine, second), folder / 'child.answer')}"

    parent, _, child = answer_of(work, folder / "answer").partition(" ")
    refused = "TrainingError: this process was forked from one that had trained"
    return parent == whole and (child.startswith(refused) if engine in THREADED else child == whole)


def spawned(engine: str, folder: Path) -> bool:
    """A new process trains, whose memory lies elsewhere."""
    whole = alone(engine, folder)
    (folder / "spawned").mkdir()
    process = multiprocessing.get_context("spawn").Process(
        target=_train_into, args=(engine, folder / "spawned", folder / "answer")
    )
    process.start()
    process.join()
    return process.exitcode == 0 and (folder / "answer").read_text() == whole


def _train_into(engine: str, folder: Path, answer: Path) -> None:
    kept = scatter_memory(os.getpid())
    answer.write_text(train(engine, folder))
    del kept
