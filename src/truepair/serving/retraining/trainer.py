"""The trainer: a process that makes one round and prints its decision as a line of JSON.

`Child` is that process as its service sees it.

The service writes the plan as a line to its standard input, and keeps that open. When it is closed, the
service has ended, however it ended, and the trainer ends too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO

from truepair.storage.types import Json

NICENESS = 10
"""How much lower than the service's the trainer's priority is."""

_OUT_OF_MEMORY_FIRST = "800"  # of 1000: the system ends the trainer before the service
BUSY = {"decision": "busy"}
"""What is printed if another process trains."""

TRAINER = (sys.executable, "-m", "truepair.serving.retraining.trainer")
"""The command of a trainer."""

_TAIL = 4000  # characters of what a trainer wrote to stderr
_PATIENCE = 5.0  # seconds until a trainer that was asked to end is killed


def main() -> int:
    """Make one round; the exit code is 1 if it failed."""
    _step_back()
    plan = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_service, args=(sys.stdin.fileno(),), daemon=True).start()
    found = outcome(plan)
    print(json.dumps(found), flush=True)
    return int(found["decision"] == "failed")


def outcome(plan: Json) -> Json:
    """The decision of a round, or why it failed, as JSON."""
    try:
        from truepair.serving.retraining.rounds import RetrainingPlan, retrain  # takes seconds

        decision = retrain(RetrainingPlan(**plan))
        return BUSY if decision is None else decision.as_json()
    except Exception as error:
        trace = "".join(traceback.format_tb(error.__traceback__))
        reason = f"{type(error).__name__}: {error}"
        return {"decision": "failed", "reason": reason[:1000], "trace": trace[-4000:]}


def _step_back() -> None:
    """Let the service go first: for the processor, and in memory that becomes scarce."""
    with suppress(OSError, AttributeError):
        os.nice(NICENESS)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OUT_OF_MEMORY_FIRST)


def _end_with_the_service(stdin: int) -> None:
    while os.read(stdin, 4096):  # not of sys.stdin, whose lock would be held when the process ends
        pass
    os._exit(2)


# --- in the service --------------------------------------------------------------------------------------


class Child:
    """A trainer that was started. Its end, however it ends, is an outcome."""

    def __init__(self, plan: Json, words: Sequence[str] = TRAINER) -> None:
        self._patience = _PATIENCE
        self._output, self._errors = TemporaryFile(), TemporaryFile()  # noqa: SIM115, `_close` closes them
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=self._output, stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the service, which then ends the trainer
        )  # fmt: skip
        assert self._process.stdin is not None
        self._input = self._process.stdin
        with suppress(OSError):  # it has ended already, and its outcome says so
            self._input.write(json.dumps(plan).encode() + b"\n")
            self._input.flush()  # it stays open: its end tells the trainer that the service has ended

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def outcome(self) -> Json:
        """Wait for its end: the decision that it printed, or how it failed."""
        code = self._process.wait()
        output, errors = (_end_of(file) for file in (self._output, self._errors))
        self._close()
        try:
            found = json.loads(output.strip().rpartition("\n")[2])
            if isinstance(found, dict) and "decision" in found:
                return found
        except ValueError:
            pass
        kills = {-one.value: f"was killed by {one.name}" for one in signal.Signals}
        ended = kills.get(code, f"ended with code {code}")
        return {"decision": "failed", "reason": f"the trainer {ended}", "trace": errors[-_TAIL:]}

    def stop(self) -> None:
        """End it: nothing that it has not finished is kept."""
        if self.is_running:
            self._process.terminate()
            try:
                self._process.wait(self._patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self._input, self._output, self._errors):
            with suppress(OSError):
                stream.close()


def _end_of(file: IO[bytes]) -> str:
    """The end of what a process wrote."""
    file.seek(max(file.seek(0, os.SEEK_END) - 16 * _TAIL, 0))
    return file.read().decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
