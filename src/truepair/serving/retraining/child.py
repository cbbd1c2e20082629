"""Child: the trainer's process, as its service sees it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from truepair.storage.types import Json

TRAINER = (sys.executable, "-m", "truepair.serving.retraining.trainer")
"""The command of a trainer."""

_TAIL = 4000  # characters of what a trainer wrote to stderr
_PATIENCE = 5.0  # seconds until a trainer that was asked to end is killed


class Child:
    """A trainer that was started. Its end, however it ends, is an outcome."""

    def __init__(self, plan: Json, words: Sequence[str] = TRAINER) -> None:
        self._patience, pipe = _PATIENCE, subprocess.PIPE
        self._process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace",
            start_new_session=True,  # Ctrl-C is for the service, which then ends the trainer
        )  # fmt: skip
        self._written: dict[str, str] = {}
        self._readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True) for name in ("stdout", "stderr")
        ]
        for reader in self._readers:
            reader.start()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already, and its outcome says so
            self._process.stdin.write(json.dumps(plan) + "\n")
            self._process.stdin.flush()  # it stays open: its end tells the trainer that the service has ended

    def _read(self, name: str) -> None:
        stream, text = getattr(self._process, name), ""
        while part := stream.readline(_TAIL):
            text = (text + part)[-16 * _TAIL :]
            self._written[name] = text

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
        self._close()
        try:
            found = json.loads(self._written.get("stdout", "").strip().rpartition("\n")[2])
            if isinstance(found, dict) and "decision" in found:
                return found
        except ValueError:
            pass
        ended = f"was killed by {_name(-code)}" if code < 0 else f"ended with code {code}"
        trace = self._written.get("stderr", "")[-_TAIL:]
        return {"decision": "failed", "reason": f"the trainer {ended}", "trace": trace}

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
        for reader in self._readers:
            reader.join(_PATIENCE)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
