"""`make fuzz`: attack every reader with inputs in processes that may be killed, and print what happened."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzzing.child import is_within_an_input, keep, read_counts, run, start
from fuzzing.inputs import has_atheris
from fuzzing.target import Target

FOUND = Path(__file__).parents[2] / "tests" / "fuzz" / "found"
MEMORY = Path("/dev/shm")  # a file of each input is written, which costs more on a disk than to run the input
HANG = 30.0  # seconds that one input may take


@dataclass
class Row:
    """What happened to the inputs of a target."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    other: int = 0
    crashes: int = 0
    hangs: int = 0
    peak: int = 0  # bytes
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.other or self.crashes or self.hangs)


def attack(target: Target, count: int, seed: int, until: float, found: Path, guided: bool) -> Row:
    """Run `count` inputs; after a crash or a hang another process does the rest."""
    row, began = Row(), time.monotonic()
    while row.inputs < count and time.monotonic() < until:
        folder = Path(tempfile.mkdtemp(prefix="truepair-fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
        try:
            done = _run_child(target, count - row.inputs, seed, folder, until, found, guided, row)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        seed += 1_000_003
        if not done:
            break
    row.seconds = time.monotonic() - began
    return row


def _run_child(
    target: Target, count: int, seed: int, folder: Path, until: float, found: Path, guided: bool, row: Row
) -> bool:
    """Whether the process ran an input; its counts go into the row."""
    child = start(lambda: run(target, count, seed, folder, found, guided), folder / "log")
    hung, stalled, late, current = False, False, False, folder / "current"
    status, usage = _ended(child)
    while usage is None:
        time.sleep(0.05)
        status, usage = _ended(child)
        stalled = current.exists() and time.time() - current.stat().st_mtime > HANG
        hung, late = stalled and is_within_an_input(folder), time.monotonic() > until
        if usage is None and (stalled or late):
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
    counts = read_counts(folder)
    for name, number in counts.items():
        setattr(row, name, getattr(row, name) + number)
    row.peak = max(row.peak, usage.ru_maxrss * 1024)
    row.hangs += hung
    crashed = bool(status) and not stalled and not late
    if stalled and not hung:
        print(f"{target.name}: the fuzzer stalled after an input had ended", file=sys.stderr)
    row.crashes += crashed
    if hung or crashed:
        _keep_last(
            target, folder, found, "hang" if hung else f"exit code {os.waitstatus_to_exitcode(status)}"
        )
    return bool(counts and counts["inputs"])


def _ended(child: int) -> tuple[int, Any]:
    """The status and the use of memory of a process that has ended; (0, None) while it runs."""
    number, status, usage = os.wait4(child, os.WNOHANG)
    return (status, usage) if number else (0, None)


def _keep_last(target: Target, folder: Path, found: Path, what: str) -> None:
    """Keep the input that a process ended at, after another process has run it alone."""
    current = folder / "current"
    log = (folder / "log").read_bytes()[-4000:].decode(errors="replace")
    if not current.exists():
        print(f"{target.name}: {what} before the first input:\n{log}", file=sys.stderr)
        return
    data, alone = current.read_bytes(), folder / "alone"
    alone.mkdir()

    def once() -> None:
        target.seeds(alone)
        target.run(data, alone)

    child, until = start(once, folder / "alone.log"), time.monotonic() + 4 * HANG
    while (ended := _ended(child))[1] is None and time.monotonic() < until:
        time.sleep(0.05)
    if ended[1] is None:
        os.kill(child, signal.SIGKILL)
        os.wait4(child, 0)
    again = "it hangs" if ended[1] is None else f"exit code {os.waitstatus_to_exitcode(ended[0])}"
    keep(
        found,
        target.name,
        data,
        f"{what} {hashlib.blake2b(data).hexdigest()}",
        f"{what}; alone: {again}\n{log}",
    )


def table(rows: dict[str, Row]) -> str:
    """The rows and their sums, as Markdown."""
    heads = (
        "inputs",
        "accepted",
        "refused",
        "other exceptions",
        "crashes",
        "hangs",
        "peak memory",
        "seconds",
    )
    total = Row(*(sum(getattr(row, name) for row in rows.values()) for name in _SUMMED))
    total.peak = max((row.peak for row in rows.values()), default=0)
    total.seconds = sum(row.seconds for row in rows.values())
    lines = [f"| target | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, row in {**rows, "all": total}.items():
        numbers = [f"{getattr(row, key):,}" for key in _SUMMED]
        lines.append(
            f"| {' | '.join([name, *numbers, f'{row.peak / 2**20:,.0f} MiB', f'{row.seconds:.0f}'])} |"
        )
    return "\n".join(lines)


_SUMMED = ("inputs", "accepted", "refused", "other", "crashes", "hangs")


def _targets(guided: bool) -> dict[str, Target]:
    """All targets; for atheris, with code that counts what it covers."""
    if not guided:
        from fuzzing.targets import TARGETS

        return TARGETS
    import atheris

    with atheris.instrument_imports(include=["truepair"], enable_loader_override=False):
        from fuzzing.targets import TARGETS
    return TARGETS


def main() -> None:
    """Parse, attack, print; exit code 1 if something was found."""
    parser = argparse.ArgumentParser(prog="fuzzing", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="inputs over all targets")
    parser.add_argument("--seconds", type=float, default=3600, help="the longest time for all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help="one target; may be repeated; default: all")
    parser.add_argument("--found", type=Path, default=FOUND, help="where found inputs are kept")
    parser.add_argument("--unguided", action="store_true", help="change bytes without atheris")
    given = parser.parse_args()
    guided = has_atheris() and not given.unguided
    targets = _targets(guided)
    if unknown := [name for name in given.target or () if name not in targets]:
        parser.error(f"there is no target {unknown[0]!r}; the targets are {', '.join(targets)}")
    chosen = [targets[name] for name in given.target or targets]
    shares, until = sum(target.share for target in chosen), time.monotonic() + given.seconds
    print(f"seed {given.seed}; bytes are changed {'by atheris' if guided else 'without coverage'}")
    rows: dict[str, Row] = {}
    for target in chosen:
        count = -(-given.count * target.share // shares)
        rows[target.name] = attack(target, count, given.seed, until, given.found, guided)
        print(f"{target.name}: {rows[target.name]}", file=sys.stderr, flush=True)
    print(table(rows))
    if not all(row.is_clean for row in rows.values()):
        sys.exit(f"something was found; the inputs are in {given.found}")


if __name__ == "__main__":
    main()
