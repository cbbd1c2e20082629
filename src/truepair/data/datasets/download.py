"""Downloads: an address, or a member of an archive -> a file that is complete and checked, or a clear error.

pooch does the transfer.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from truepair.errors import DownloadError, StorageError
from truepair.storage.atomic import atomic_write
from truepair.storage.notebook import progress_bar

if TYPE_CHECKING:
    import requests

LARGEST = 1 << 30
"""Bytes that a file may have; the catalogue's largest is far below, so more is an attack or a mistake."""

TIMEOUT = 20.0
"""Seconds without a byte after which a transfer has failed."""

_CHUNK = 1 << 18
_REMEDY = "Nothing was kept of it; make room, or let TRUEPAIR_CACHE name another folder."


def download(
    url: str, target: Path, *, sha256: str | None = None, limit: int = LARGEST, progress: bool = False
) -> Path:
    """The content of `url` as the file `target`, which appears only complete and with the right SHA-256.

    A transfer that fails, or gives the wrong content, is tried once more. Redirects never leave https.
    `progress` shows a bar on stderr.
    """
    try:
        import pooch
    except ImportError as error:
        raise DownloadError(f"{url} cannot be downloaded without pooch: pip install pooch") from error
    log = pooch.get_logger()
    level = log.level
    log.setLevel("WARNING")
    try:
        with _clear_errors(url, target, sha256):
            # pooch writes beside the target, checks, and moves into place
            names = {"registry": {target.name: sha256}, "urls": {target.name: url}}
            source = pooch.create(target.parent, "", retry_if_failed=1, **names)
            source.fetch(target.name, downloader=_Transfer(limit, progress, target.name))
    finally:
        log.setLevel(level)
    return target


def place(target: Path, content: Iterable[bytes], sha256: str | None, source: str) -> None:
    """Write `content` as `target`, which appears only complete and with the right SHA-256."""
    found = hashlib.sha256()
    try:
        with atomic_write(target) as file:
            for chunk in content:
                found.update(chunk)
                file.write(chunk)
            if sha256 is not None and found.hexdigest() != sha256:
                raise _damaged(source, sha256)
    except StorageError as error:
        raise DownloadError(f"{error} {_REMEDY}") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class _Transfer:
    """What pooch calls to get an address into a file: refuses too many bytes, shows a bar if asked for."""

    limit: int
    progress: bool
    name: str

    def __call__(self, url: str, unfinished: str, pooch: object) -> None:
        import requests

        # unpacked content would have another length than the one declared
        headers = {"User-Agent": "truepair", "Accept-Encoding": "identity"}
        hooks = {"response": _stay_in_https}
        with requests.get(url, stream=True, timeout=TIMEOUT, headers=headers, hooks=hooks) as answer:
            if not answer.ok:
                raise requests.HTTPError(f"answered {answer.status_code} {answer.reason}")
            chunks = answer.iter_content(_CHUNK)
            os.unlink(unfinished)  # pooch's is readable by its owner alone; a new one has the umask's mode
            with open(unfinished, "xb") as file:
                for chunk in self._shown(chunks, answer) if self.progress else chunks:
                    file.write(chunk)
                    if file.tell() > self.limit:
                        raise DownloadError(f"{url} has more than {self.limit:,} bytes. Nothing was kept.")

    def _shown(self, chunks: Iterator[bytes], answer: requests.Response) -> Iterator[bytes]:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        length = answer.headers.get("Content-Length", "")
        with progress_bar(*columns) as bar:
            task = bar.add_task(self.name, total=int(length) if length.isdigit() else None)
            for chunk in chunks:
                yield chunk
                bar.advance(task, len(chunk))


def _stay_in_https(response: requests.Response, **options: object) -> None:
    """Refuse a redirect from https to an address where the answer could be changed on the way."""
    to = urljoin(response.url, response.headers.get("Location", ""))
    if response.is_redirect and response.url.startswith("https:") and not to.startswith("https:"):
        raise DownloadError(f"{response.url} redirects to {to}, which is not https: refused")


@contextmanager
def _clear_errors(url: str, target: Path, sha256: str | None) -> Iterator[None]:
    """Turn the errors of a download into one that names the address or the file."""
    import requests

    try:
        yield
    except requests.HTTPError as error:
        raise DownloadError(f"{url} {error}") from error
    except requests.ConnectionError as error:  # no name, no route, refused, no valid certificate, no answer
        raise DownloadError(f"{url} cannot be reached: {error}") from error
    except requests.RequestException as error:
        raise DownloadError(f"{url} did not arrive: {error}") from error
    except ValueError as error:
        raise _damaged(url, sha256) from error
    except OSError as error:
        raise DownloadError(f"cannot write {target}: {error.strerror or error}. {_REMEDY}") from error


def _damaged(source: str, sha256: str | None) -> DownloadError:
    return DownloadError(f"{source} gave a file whose SHA-256 is not {sha256}. It is removed; try later.")


# --- archives --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """A member to extract, the file it becomes, and that file's SHA-256 where it is known."""

    name: str
    target: Path
    sha256: str | None = None


def extract(archive: Path, members: Sequence[Member], source: str, limit: int = LARGEST) -> None:
    """Write the members to their targets in this order; each file appears complete or not at all.

    No name in the archive is used as a path, so `../`, absolute names and links have no effect. Sizes are
    checked against `limit` bytes before the extraction; zipfile reads no more than a member declares.
    `source` is the archive's name in messages.
    """
    with _read_errors(source), zipfile.ZipFile(archive) as opened:
        for name in (member.name for member in members):
            if name not in opened.namelist():
                found = ", ".join(opened.namelist()[:8]) or "nothing"
                raise DownloadError(f"{source} has no member {name!r}; its members are {found}.")
            if (size := opened.getinfo(name).file_size) > limit:
                raise DownloadError(
                    f"{source}: {name} declares {size:,} bytes of {limit:,} allowed. Nothing was extracted."
                )
        for member in members:
            content = _content(opened, member.name, source)
            place(member.target, content, member.sha256, f"{source}: {member.name}")


def _content(opened: zipfile.ZipFile, name: str, source: str) -> Iterator[bytes]:
    with _read_errors(source), opened.open(name) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


@contextmanager
def _read_errors(source: str) -> Iterator[None]:
    """Turn the errors of unreadable archives into one that names the archive."""
    try:
        yield
    except DownloadError:
        raise
    except Exception as error:  # the library raises errors of every type on bad bytes
        raise DownloadError(f"{source} cannot be read as a zip archive: {error}.") from error
