"""Kill ranks of a run under torchrun: `python tools/soak/ranks.py --kills 20 --seed 0`, or `make soak-ranks`.

Chains of two and of three ranks train one small model. In each, ranks are killed with SIGKILL at moments
drawn from the seed: while they start, in steps, while a checkpoint is written, and at the end. torchrun
restarts the ranks once; after a second kill the command has failed, and the same command is given again. Each
chain must end with the metrics of a run that nobody disturbed, a model that can be read, and no other file.
Then a rank is stopped (SIGSTOP), and the disk of the checkpoint becomes full. Linux only. The exit code is 1
if anything was not as promised.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.csv

import truepair as tp

EPOCHS = 60
RESTARTS = 1  # of all ranks, by torchrun
LONGEST = 4  # kills in a chain
PATIENCE = 300.0  # seconds until a command that does not end is taken for hung
STEP = 0.002  # seconds between two looks
TOLERANCE = 1e-4
MOMENTS = ("start", "steps", "checkpoint", "end")
OPTIONS = f"--no-auto --epochs {EPOCHS} --dim 8 --batch-size 150 --device cpu --test 0.2".split()


@dataclass
class Command:
    """`torchrun … -m truepair fit` in a folder that has the data."""

    folder: Path
    ranks: int
    restarts: int = RESTARTS
    timeout: float = 60.0
    errors: Path = field(init=False)

    def __post_init__(self) -> None:
        self.errors = self.folder.with_name(f"{self.folder.name}.errors")

    @property
    def model(self) -> Path:
        """The file that it writes."""
        return self.folder / "model.truepair"

    @property
    def checkpoint(self) -> Path:
        """The folder from which it goes on."""
        return self.folder / "model.truepair.checkpoint"

    @contextlib.contextmanager
    def started(self) -> Iterator[Run]:
        """The command while it runs; its processes are ended with it."""
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(self.ranks)]
        torchrun += ["--max-restarts", str(self.restarts), "--monitor-interval", "0.05"]
        fit = ["-m", "truepair", "fit", str(self.folder / "clicks.csv"), "-o", str(self.model), *OPTIONS]
        variables = {"OMP_NUM_THREADS": "1", "TRUEPAIR_TIMEOUT": f"{self.timeout:g}"}
        with self.errors.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, *torchrun, *fit],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=os.environ | variables,
            )
            run = Run(self, process)
            try:
                yield run
            finally:
                left = run.ranks()
                process.kill()
                process.wait()
                for process_id in left.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process_id, signal.SIGKILL)

    def said(self) -> str:
        """What it has written to stderr, over all attempts."""
        return self.errors.read_text(errors="replace")

    def epochs_done(self) -> int:
        """Epochs in the committed checkpoint."""
        try:
            return len(json.loads((self.checkpoint / "run.json").read_bytes())["history"])
        except (OSError, ValueError, KeyError):
            return 0

    def is_writing(self) -> bool:
        """Whether a checkpoint is being written beside the committed one."""
        try:
            committed = json.loads((self.checkpoint / "run.json").read_bytes())["folder"]
        except (OSError, ValueError, KeyError):
            committed = None
        return any(path.name != committed for path in self.checkpoint.glob("epoch-*"))


class Run:
    """A command that has been started."""

    def __init__(self, command: Command, process: subprocess.Popen[bytes]) -> None:
        self.command, self.process = command, process
        self.ends = time.monotonic() + PATIENCE

    def ranks(self) -> dict[int, int]:
        """The processes that train, by their rank."""
        pid, found = self.process.pid, {}
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                if rank := next((each[5:] for each in variables if each.startswith(b"RANK=")), None):
                    found[int(rank)] = int(child)
        return found

    def is_over(self) -> bool:
        """Whether it has ended; an error if it takes too long."""
        if time.monotonic() > self.ends:
            raise TimeoutError(f"no end within {PATIENCE:g} seconds:\n{self.command.said()[-3000:]}")
        return self.process.poll() is not None

    def wait(self) -> int:
        """Its exit code."""
        while not self.is_over():
            time.sleep(10 * STEP)
        return self.process.returncode

    def signal_at(self, moment: str, chance: random.Random, number: int = signal.SIGKILL) -> int | None:
        """Send a signal to a random rank at such a moment: which rank; None if the run was over before."""
        rank, delay, times = chance.randrange(self.command.ranks), chance.random(), chance.randint(1, 20)
        before = self.command.epochs_done()
        least = {"start": 0, "end": EPOCHS}.get(moment, min(before + times, EPOCHS - 1))
        while not self.is_over() and (len(self.ranks()) < self.command.ranks or not self._is(moment, least)):
            time.sleep(STEP)
        scale = {"start": 5.0, "steps": 0.2, "checkpoint": 0.01, "end": 0.4}[moment]
        time.sleep(delay * scale)
        process = self.ranks().get(rank)
        if self.is_over() or process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
            return rank
        return None

    def _is(self, moment: str, epochs: int) -> bool:
        return self.command.epochs_done() >= epochs and (moment != "checkpoint" or self.command.is_writing())


# --- chains of kills -------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What the chains of one number of ranks came to."""

    ranks: int
    plan: list[str]  # the moments, in the order of the kills
    chains: int = 0
    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MOMENTS, 0))
    of_ranks: dict[int, int] = field(default_factory=dict)
    commands: int = 0
    equal: int = 0
    different: int = 0
    leftovers: int = 0
    apart: float = 0.0  # the largest difference of a metric
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether anything was not as promised."""
        return bool(self.different or self.leftovers)


def world(folder: Path) -> Path:
    """The folder, made, with the data."""
    folder.mkdir()
    data = tp.simulate_world(400, 150, tau=0.1, density=0.08, seed=1).observed
    pyarrow.csv.write_csv(data.to_table(), folder / "clicks.csv")
    return folder


def metrics_of(model: Path) -> dict[str, float]:
    """The metrics of a model; an error if the file cannot be read."""
    return dict(tp.Recommender.load(model).facts_["metrics"])


def run_chains(ranks: int, kills: int, seed: int, place: Path) -> Tally:
    """Chains until so many ranks were killed."""
    plan = [MOMENTS[k % len(MOMENTS)] for k in range(kills)]
    random.Random(f"{seed} {ranks}").shuffle(plan)
    tally, began = Tally(ranks, plan), time.monotonic()
    whole = Command(world(place / f"{ranks} undisturbed"), ranks)
    with whole.started() as run:
        if run.wait():
            raise RuntimeError(whole.said())
    expected = metrics_of(whole.model)
    while sum(tally.kills.values()) < kills:
        chance = random.Random(f"{seed} {ranks} {tally.chains}")
        command = Command(world(place / f"{ranks} chain {tally.chains}"), ranks)
        left = min(kills - sum(tally.kills.values()), chance.randint(1, LONGEST))
        log = _chain(command, left, chance, tally)
        found = metrics_of(command.model)
        apart = max(abs(found.get(name, 9.0) - value) for name, value in expected.items())
        files = sorted({path.name for path in command.folder.iterdir()} - {"clicks.csv", command.model.name})
        tally.chains += 1
        tally.apart = max(tally.apart, apart)
        tally.equal += apart <= TOLERANCE
        tally.different += apart > TOLERANCE
        tally.leftovers += len(files)
        print(f"{ranks} ranks, chain {tally.chains}: {', '.join(log)}; metrics differ by {apart:.1e}"
              + (f"; left {files}" if files else ""), flush=True)  # fmt: skip
    tally.seconds = time.monotonic() - began
    return tally


def _chain(command: Command, kills: int, chance: random.Random, tally: Tally) -> list[str]:
    """Kill a run so many times, in as many commands as it takes, and let it end."""
    log: list[str] = []
    code = None
    while code != 0:
        tally.commands += 1
        with command.started() as run:
            rank = None
            for _ in range(RESTARTS + 1):
                if len(log) == kills or run.is_over():
                    break
                moment = tally.plan[sum(tally.kills.values())]
                if moment in ("steps", "checkpoint") and command.epochs_done() >= EPOCHS - 1:
                    moment = "start"  # there is no further epoch
                known = run.ranks()
                rank = run.signal_at(moment, chance)
                if rank is None:
                    log.append("over before a kill")
                    break
                tally.kills[moment] += 1
                tally.of_ranks[rank] = tally.of_ranks.get(rank, 0) + 1
                log.append(f"rank {rank} at {moment} after {command.epochs_done()} epochs")
                _until_restarted(run, known)
            code = run.wait()
        if code and rank is None:
            raise RuntimeError(f"nobody was killed, and it failed:\n{command.said()[-3000:]}")
    return log


def _until_restarted(run: Run, before: dict[int, int]) -> None:
    """Wait until torchrun has started all ranks anew, or has given up."""
    before = before or run.ranks()
    while not run.is_over():
        now = run.ranks()
        if len(now) == run.command.ranks and not set(now.values()) & set(before.values()):
            return
        time.sleep(STEP)


# --- a rank that hangs, a full disk ----------------------------------------------------------------------


def hanging_rank(place: Path) -> bool:
    """A stopped rank is named by the others after the timeout; the same command then ends the run."""
    command = Command(world(place / "hanging"), 2, restarts=0, timeout=5)
    with command.started() as run:
        chance = random.Random(0)
        rank = run.signal_at("steps", chance, signal.SIGSTOP)
        while f"rank {rank} of 2 does not answer" not in command.said():
            if run.is_over():
                return False
            time.sleep(0.1)
    with command.started() as run:
        return run.wait() == 0 and bool(metrics_of(command.model))


def full_disk(place: Path) -> bool | None:
    """The disk becomes full after a checkpoint; then there is room. None: nothing may be mounted."""
    command = Command(world(place / "disk"), 2, restarts=0)
    disk = command.checkpoint
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True
    ).returncode:
        return None
    try:
        filler = disk / "other"
        with command.started() as run:
            while not run.is_over() and command.epochs_done() < 3:
                time.sleep(STEP)
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(bytes(4096))
                    file.flush()
            code, done = run.wait(), command.epochs_done()
        said = command.said()
        refused = "No space left on device" in said and "the one before it is untouched" in said
        filler.unlink()
        with command.started() as run:
            ended = run.wait() == 0
        return bool(code) and refused and 3 <= done < EPOCHS and ended and bool(metrics_of(command.model))
    finally:
        subprocess.run(["umount", disk], check=True)


def main() -> int:
    """Run the attacks and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="over all numbers of ranks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--encoder", choices=["mf", "lightgcn"], default="mf")
    parser.add_argument("--only-kills", action="store_true", help="no rank that hangs, no full disk")
    options = parser.parse_args()
    OPTIONS.extend(["--encoder", options.encoder])
    shares = [options.kills * (k + 1) // len(options.ranks) - options.kills * k // len(options.ranks)
              for k in range(len(options.ranks))]  # fmt: skip
    bad = False
    with tempfile.TemporaryDirectory() as name:
        tallies = [
            run_chains(ranks, kills, options.seed, Path(name))
            for ranks, kills in zip(options.ranks, shares, strict=True)
        ]
        for check in () if options.only_kills else (hanging_rank, full_disk):
            good = check(Path(name))
            words = {True: "as promised", False: "NOT AS PROMISED", None: "skipped: nothing may be mounted"}
            print(f"{check.__name__.replace('_', ' ')}: {words[good]}", flush=True)
            bad |= good is False
    print(table(tallies))
    return int(bad or any(tally.is_bad for tally in tallies))


def table(tallies: list[Tally]) -> str:
    """A row for each number of ranks."""
    titles = ["ranks", "chains", "kills", *MOMENTS, "commands", "equal", "different", "leftovers"]
    lines = [[*titles, "largest difference of a metric", "seconds"], ["---"] * (len(titles) + 2)]
    for tally in tallies:
        counts = [tally.ranks, tally.chains, sum(tally.kills.values()), *tally.kills.values()]
        counts += [tally.commands, tally.equal, tally.different, tally.leftovers]
        lines.append([*map(str, counts), f"{tally.apart:.0e}", f"{tally.seconds:.0f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
