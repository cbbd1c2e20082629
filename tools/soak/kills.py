"""Chains of kills: train, kill, continue, kill, …; the end must be that of a run that nobody disturbed."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from children import answer_of, kill_after, start, wait
from work import EPOCHS, MOMENTS, kill_at, leftovers, scatter_memory, train, unreadable

LONGEST = 6  # kills in a chain


@dataclass
class Tally:
    """What the chains of one engine came to."""

    engine: str
    chains: int = 0
    kills: int = 0
    equal: int = 0
    different: int = 0
    leftovers: int = 0
    unreadable: int = 0

    @property
    def is_bad(self) -> bool:
        """Whether anything was not as promised."""
        return bool(self.different or self.leftovers or self.unreadable)


def run_chains(engine: str, kills: int, seed: int, until: float) -> Tally:
    """Chains until there were so many kills, or the time `until` is reached."""
    tally = Tally(engine)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.monotonic()
        (folder / "whole").mkdir()
        whole = answer_of(lambda: train(engine, folder / "whole"), folder / "answer")
        seconds = time.monotonic() - began
        while tally.kills < kills and time.monotonic() < until:
            place = folder / f"chain {tally.chains}"
            place.mkdir()
            one = _Chain(engine, random.Random(f"{seed} {engine} {tally.chains}"), place, seconds)
            one.run(tally, min(LONGEST, kills - tally.kills))
            if one.answer != whole:
                print(f"{engine}, chain {tally.chains}: {one.answer} for {whole} after {one.log}")
            tally.equal += one.answer == whole
            tally.different += one.answer != whole
            left = leftovers(place)
            if left:
                print(f"{engine}, chain {tally.chains}: left {left} after {one.log}")
            tally.leftovers += len(left)
            tally.chains += 1
    return tally


class _Chain:
    def __init__(self, engine: str, chance: random.Random, folder: Path, seconds: float) -> None:
        self.engine, self.chance, self.folder, self.seconds = engine, chance, folder, seconds
        self.log: list[str] = []  # the kills
        self.answer = ""

    def run(self, tally: Tally, kills: int) -> None:
        """Kill a run up to `kills` times, then let it end."""
        for _ in range(self.chance.randint(1, kills)):
            if not self._attempt(tally):
                return
        self._end()

    def _attempt(self, tally: Tally) -> bool:
        """A run that is to be killed; False if it ended before that."""
        moment, count = self.chance.choice(MOMENTS), self.chance.randint(1, EPOCHS // 2)
        process = self._start(moment, count)
        delay = self.chance.uniform(0, self.seconds)
        code = kill_after(process, delay) if moment == "time" else wait(process)
        if code != -signal.SIGKILL:
            self.answer = self._answer_file.read_text()
            return False
        self.log.append(f"{moment} {delay:.3f} s" if moment == "time" else f"{moment} {count}")
        tally.kills += 1
        tally.unreadable += unreadable(self.folder)
        return True

    def _end(self) -> None:
        wait(self._start("time", 0))
        self.answer = self._answer_file.read_text()

    @property
    def _answer_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.answer")

    def _start(self, moment: str, count: int) -> int:
        layout = self.chance.getrandbits(32)

        def work() -> str:
            kept = scatter_memory(layout)
            if moment != "time":
                kill_at(moment, count)
            answer = train(self.engine, self.folder)
            del kept
            return answer

        return start(work, self._answer_file)
