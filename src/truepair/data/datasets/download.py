"""Downloads: an address -> a file that is whole and checked, or a clear error."""

from __future__ import annotations

import hashlib
import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from truepair.errors import DownloadError, StorageError
from truepair.storage.atomic import atomic_write, flush_to_disk, move_into_place

LARGEST = 1 << 30
"""Bytes that a file may have; none of the catalogue comes near, so more of them is an attack or a mistake."""

_CHUNK = 1 << 18


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server that says nothing, how often to try, and the pause before a new try."""

    timeout: float = 20.0  # seconds without a byte
    tries: int = 3
    pause: float = 1.0  # seconds before the second try; doubled before each further one


PATIENCE = Patience()


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    limit: int = LARGEST,
    patience: Patience = PATIENCE,
    progress: bool = False,
) -> Path:
    """The content of `url` as the file `target`, which appears only when it is whole and its SHA-256 right.

    A transfer that stalls or breaks off is tried again. What has arrived waits in `target` + ".part", and
    this or a later call goes on from there if the server can. Without a checksum every try starts anew, as
    it would be unknown whether two halves belong together. Wrong content is tried once more, from zero. An
    address that cannot be reached at all is not tried twice: there may be no network, and another source.
    """
    job = _Job(url, target.with_name(target.name + ".part"), sha256, limit, patience, progress)
    with _disk(job.part):
        target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(DamagedError):  # perhaps two halves that do not belong together: once more, from zero
        return _finished(job, target)
    return _finished(job, target)


def place(target: Path, content: Iterable[bytes], sha256: str | None, source: str) -> None:
    """Write `content` as `target`, which appears only when it is whole and its SHA-256 right."""
    found = hashlib.sha256()
    try:
        with atomic_write(target) as file:
            for chunk in content:
                found.update(chunk)
                file.write(chunk)
            if sha256 is not None and found.hexdigest() != sha256:
                raise _damaged(found.hexdigest(), sha256, source)
    except StorageError as error:
        raise DownloadError(f"{error} {_REMEDY}") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class DamagedError(DownloadError):
    """All bytes came, and they are not the right ones."""


def _damaged(found: str, sha256: str, source: str) -> DamagedError:
    return DamagedError(
        f"{source} gave a file whose SHA-256 is {found}, not {sha256}: it is damaged, or has become another "
        "file. It was removed; try again later."
    )


_REMEDY = "Nothing was kept of it; make room, or let TRUEPAIR_CACHE name another folder."


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turns a full disk or a missing permission into an error that names the file, and removes the file."""
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise DownloadError(f"cannot write {path}: {error.strerror or error}. {_REMEDY}") from error


# --- one transfer ----------------------------------------------------------------------------------


class _InterruptedError(Exception):
    """The transfer failed in a way that another try may mend."""


@dataclass(frozen=True)
class _Job:
    url: str
    part: Path
    sha256: str | None
    limit: int
    patience: Patience
    progress: bool

    @property
    def received(self) -> int:
        """How many bytes there are already."""
        return self.part.stat().st_size if self.part.exists() else 0

    def check_size(self, size: int, verb: str) -> None:
        """Refuse more bytes than any file of the catalogue has."""
        if size > self.limit:
            raise DownloadError(
                f"{self.url} {verb} {size:,} bytes; at most {self.limit:,} are allowed. Nothing was kept."
            )


def _finished(job: _Job, target: Path) -> Path:
    _transfer(job)
    with _disk(job.part):
        if job.sha256 is not None and (found := sha256_of(job.part)) != job.sha256:
            job.part.unlink()
            raise _damaged(found, job.sha256, job.url)
        move_into_place(job.part, target)
    return target


def _transfer(job: _Job) -> None:
    for attempt in range(job.patience.tries):
        if attempt:
            time.sleep(job.patience.pause * 2 ** (attempt - 1))
        try:
            return _attempt(job)
        except _InterruptedError as error:
            reason = error
    came = job.received if job.sha256 else 0
    kept = f" The {came:,} bytes that came are kept: try again to go on." if came else ""
    raise DownloadError(f"{job.url} {reason}, {job.patience.tries} times.{kept}") from reason


def _attempt(job: _Job) -> None:
    have = job.received if job.sha256 else 0
    if have and job.sha256 == sha256_of(job.part):
        return  # an earlier call got all of it and was ended before it could say so
    request = urllib.request.Request(job.url, headers={"User-Agent": "truepair"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with _network(job):
        # built here, so that proxies are those of the moment; the default handlers know them
        response = urllib.request.build_opener(_Redirects).open(request, timeout=job.patience.timeout)
    try:
        with response:
            start = _start(response, have, job)
            length = response.headers.get("Content-Length")
            _store(response, job, start, int(length) if length and length.isdigit() else None)
    except DownloadError:
        job.part.unlink(missing_ok=True)
        raise


def _start(response: http.client.HTTPResponse, have: int, job: _Job) -> int:
    """Where the body belongs: behind what there is, or at the beginning if the server knows no ranges."""
    if response.status != 206:
        return 0
    if re.match(rf"bytes {have}-", response.headers.get("Content-Range", "")):
        return have
    job.part.unlink(missing_ok=True)
    raise _InterruptedError("sent another range than the one asked for")


def _store(response: http.client.HTTPResponse, job: _Job, start: int, left: int | None) -> None:
    total = None if left is None else start + left
    job.check_size(total or 0, "has")
    with (
        _disk(job.part),
        open(job.part, "ab" if start else "wb") as file,
        _bar(job, start, total) as advance,
    ):
        for chunk in _body(response, job, left):
            file.write(chunk)
            advance(len(chunk))
            job.check_size(file.tell(), "has sent")
        flush_to_disk(file)


def _body(response: http.client.HTTPResponse, job: _Job, left: int | None) -> Iterator[bytes]:
    """What comes, as it comes: `read1` does not hold back the bytes before a stall."""
    with _network(job):
        while left is None or left > 0:
            chunk = response.read1(_CHUNK if left is None else min(_CHUNK, left))
            if not chunk:
                break
            left = None if left is None else left - len(chunk)
            yield chunk
        if left:
            raise http.client.IncompleteRead(b"", left)


# --- the network -----------------------------------------------------------------------------------


@contextmanager
def _network(job: _Job) -> Iterator[None]:
    """Separates errors that another try may mend from those that it will not."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # what there is already is not the beginning of this file
            job.part.unlink(missing_ok=True)
        if error.code in (408, 416, 429) or error.code >= 500:
            raise _InterruptedError(f"answered {error.code} {error.reason}") from error
        raise DownloadError(f"{job.url} answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:  # no name, no route, refused, no valid certificate
        raise DownloadError(f"{job.url} cannot be reached: {error.reason}") from error
    except TimeoutError as error:
        raise _InterruptedError(f"sent nothing for {job.patience.timeout:g} seconds") from error
    except (OSError, http.client.HTTPException) as error:
        raise _InterruptedError(f"broke off ({error!r})") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects (ten at most, by the base class), but never out of https."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request, unless it would go where nobody is protected from a changed answer."""
        scheme = newurl.partition(":")[0].lower()
        if scheme != "https" and (req.type == "https" or scheme != "http"):
            raise DownloadError(f"{req.full_url} redirects to {newurl}, which is not https: refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _bar(job: _Job, done: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if asked for; yields what to call with each number of new bytes."""
    if not job.progress:
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(job.part.stem, total=total, completed=done)
        yield lambda n: bar.advance(task, n)
