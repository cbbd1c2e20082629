"""Versions: the models beside a model file, which of them is served, and one trainer at a time.

model.truepair                       version 0, as it was given; never changed
model.truepair.versions/current      which version is served; replaced atomically
model.truepair.versions/7.truepair   a version
model.truepair.versions/decisions.jsonl
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from truepair.errors import InputError, StorageError
from truepair.serving.retraining.decisions import Decision, DecisionLog, usable
from truepair.storage.atomic import atomic_write, lock_file, remove_unfinished

KEPT = 2
"""Former versions that are kept, beside the model file and the best version."""

Count = Annotated[int, Field(ge=0, strict=True)]


@dataclass(frozen=True)
class State:
    """What the file `current` says."""

    base: str
    """The checksum of the model file."""
    stack: tuple[Count, ...] = (0,)
    """Versions in the order of their promotion; the last one is served."""
    until: dict[Count, Count] = field(default_factory=lambda: {0: 0})
    """Version -> the number of the last event that it could learn from."""
    best: Count = 0
    """The last version that was significantly better than the best one before it."""
    judged: Count = 0
    """The number of the last event that has judged a candidate."""
    counted: Count = 0
    """How many events the store had at the last attempt."""
    attempted: float = 0.0
    """When the last attempt began, in seconds since 1970."""
    next: Count = 1
    """The number of the next version."""
    decision: Decision | None = None
    """The last one that changed what is served: it is logged even if a kill came between."""

    @property
    def current(self) -> int:
        """The version that is served."""
        return self.stack[-1]

    def __post_init__(self) -> None:
        fit = {self.best} <= set(self.stack) <= set(self.until)
        if not self.stack or not fit or max(self.stack) >= self.next:
            raise ValueError("its versions do not fit together")


_STATE = TypeAdapter(State)


class Versions:
    """The versions of a model file. Several processes may use them."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.folder = model.with_name(f"{model.name}.versions")
        self.log = DecisionLog(self.folder / "decisions.jsonl")
        self._current = self.folder / "current"

    def path(self, version: int) -> Path:
        """The file of a version."""
        return self.folder / f"{version}.truepair" if version else self.model

    def state(self) -> State:
        """What is served; without any version, the model file."""
        try:
            with usable(self._current):
                found = self._current.exists()
                return _STATE.validate_json(self._current.read_bytes()) if found else State("")
        except ValidationError as error:
            raise StorageError(
                f"{self._current} does not say which model is served: {error.errors()[0]['msg']}; remove it "
                f"to serve {self.model}."
            ) from error

    def open(self) -> State:
        """The state for a start: after the model file was replaced, it is served.

        A decision that a killed process could not log is logged.
        """
        state = self.state()
        if not state.base:
            return state
        if state.base != checksum(self.model):
            with self._changing() as state:
                if state.base != (base := checksum(self.model)):
                    reason = f"{self.model.name} is another model than before"
                    decision = Decision("replaced", reason, 0, state.current)
                    return self._change(state, decision, base=base, stack=(0,), until={0: 0}, best=0)
        if state.decision is not None and state.decision.id not in [
            one["id"] for one in self.log.newest(1000)
        ]:
            self._log(state.decision)
        return state

    # --- changes -----------------------------------------------------------------------------------------

    @contextmanager
    def training(self) -> Iterator[bool]:
        """Whether this process may train: one at a time. A process that dies gives the right back."""
        self.folder.mkdir(exist_ok=True)
        with open(self.folder / "training.lock", "ab") as file:
            yield lock_file(file) is not False

    def is_training(self) -> bool:
        """Whether a process trains now."""
        if not self.folder.is_dir():
            return False
        with self.training() as free:
            return not free

    def attempt(self, events: int) -> None:
        """Note that an attempt begins now, with so many events in the store."""
        with self._changing() as state:
            self._write(dataclasses.replace(state, attempted=time.time(), counted=events))

    def refuse(self, judged: int, decision: Decision) -> None:
        """Log a decision that leaves the served model as it is; events up to this number have judged."""
        with self._changing() as state:
            self._write(dataclasses.replace(state, judged=max(judged, state.judged)))
        self.log.append(decision.as_json())

    def promote(
        self, version: int, until: int, judged: int, decision: Decision, before: State, is_best: bool
    ) -> bool:
        """Serve a version whose file is written; False if the model that was judged is no longer served.

        `until` is the last event that it could learn from, `judged` the last one that judged. Versions beyond
        those that are kept are removed.
        """
        with self._changing() as state:
            if state.stack != before.stack or before.base not in ("", state.base):
                return False
            best = version if is_best else state.best
            former = {*[one for one in state.stack if one][-KEPT:], best} - {0, version}
            stack = (0, *sorted(former), version)
            known = {**state.until, version: until}
            kept = {one: known[one] for one in stack}
            judged = max(judged, state.judged)
            self._change(state, decision, stack=stack, until=kept, judged=judged, next=version + 1, best=best)
        self._remove_others(stack)
        return True

    def roll_back(self) -> State:
        """Serve the former version from now on; its successor is not promoted again by itself."""
        with self._changing() as state:
            if len(state.stack) < 2:
                raise InputError(f"there is no former model of {self.model}; nothing was changed.")
            stack = state.stack[:-1]
            reason = f"version {state.current} was served, and version {stack[-1]} is again"
            decision = Decision("rolled back", reason, stack[-1], state.current)
            kept = {one: state.until[one] for one in stack}
            best = state.best if state.best in stack else stack[-1]
            return self._change(state, decision, stack=stack, until=kept, attempted=time.time(), best=best)

    def _change(self, state: State, decision: Decision, **changes: Any) -> State:
        changed = dataclasses.replace(state, decision=decision, **changes)
        self._write(changed)
        self._log(decision)
        return changed

    def _log(self, decision: Decision) -> None:
        with suppress(StorageError):  # the disk is full: the state has it, and the next start logs it
            self.log.append(decision.as_json())

    @contextmanager
    def _changing(self) -> Iterator[State]:
        """The state, which nobody else changes until the block ends."""
        self.folder.mkdir(exist_ok=True)
        with open(self.folder / "current.lock", "ab") as file:
            lock_file(file, wait=True)
            state = self.state()
            yield state if state.base else dataclasses.replace(state, base=checksum(self.model))

    def _write(self, state: State) -> None:
        with atomic_write(self._current) as file:
            file.write(_STATE.dump_json(state))

    def _remove_others(self, stack: tuple[int, ...]) -> None:
        for path in self.folder.iterdir():
            is_version = path.suffix == ".truepair" and path.stem.isdecimal()
            if is_version and int(path.stem) not in stack:
                with suppress(OSError):
                    path.unlink()

    def remove_unfinished(self, version: int) -> None:
        """Remove what a killed trainer left of a version."""
        remove_unfinished(self.path(version))
        with suppress(OSError):
            self.path(version).unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Of a file's content."""
    with usable(path), open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
