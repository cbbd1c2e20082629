"""Placing: a file appears when it is whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from truepair.errors import DownloadError


class DamagedError(DownloadError):
    """All bytes came, and they are not the right ones."""


def place(target: Path, content: Iterable[bytes], sha256: str | None, source: str) -> None:
    """Write `content` as `target`, which appears only when it is whole and its SHA-256 right."""
    fresh = target.with_name(target.name + ".writing")
    try:
        with on_disk(fresh):
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(fresh, "wb") as file:
                for chunk in content:
                    file.write(chunk)
                flush(file)
        check_content(fresh, sha256, source)
        with on_disk(fresh):
            os.replace(fresh, target)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_content(path: Path, sha256: str | None, source: str) -> None:
    """Remove the file and say so if its SHA-256 is not the expected one."""
    if sha256 is None or (found := sha256_of(path)) == sha256:
        return
    path.unlink()
    raise DamagedError(
        f"{source} gave a file whose SHA-256 is {found}, not {sha256}: it is damaged, or has become another "
        "file. It was removed; try again later."
    )


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """Turns a full disk or a missing permission into an error that names the file, and removes the file."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise DownloadError(
            f"cannot write {path}: {error.strerror or error}. Nothing was kept of it; make room, or let "
            "TRUEPAIR_CACHE name another folder."
        ) from error


def flush(file: IO[bytes]) -> None:
    """Have all that was written on the disk, so that a rename cannot come before it."""
    file.flush()
    os.fsync(file.fileno())
