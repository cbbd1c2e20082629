"""Archives: extract the requested members, and no others, to file names that the caller chooses."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from truepair.data.datasets.download import LARGEST, place
from truepair.errors import DownloadError

_CHUNK = 1 << 18

# RuntimeError: encrypted; its subclass NotImplementedError: a compression that Python does not support
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, ValueError, RuntimeError, struct.error),
)


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
        infos = [_find_member(opened, member.name, source, limit) for member in members]
        for member, info in zip(members, infos, strict=True):
            place(member.target, _content(opened, info, source), member.sha256, f"{source}: {info.filename}")


def _find_member(opened: zipfile.ZipFile, name: str, source: str, limit: int) -> zipfile.ZipInfo:
    if name not in opened.namelist():
        found = ", ".join(opened.namelist()[:8]) or "nothing"
        raise DownloadError(f"{source} has no member {name!r}; its members are {found}.")
    info = opened.getinfo(name)
    if info.file_size > limit:
        raise DownloadError(
            f"{source}: {name} declares {info.file_size:,} bytes, and at most {limit:,} are allowed. "
            "Nothing was extracted."
        )
    return info


def _content(opened: zipfile.ZipFile, info: zipfile.ZipInfo, source: str) -> Iterator[bytes]:
    with _read_errors(source), opened.open(info) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


@contextmanager
def _read_errors(source: str) -> Iterator[None]:
    """Turn the errors of unreadable archives into one that names the archive."""
    try:
        yield
    except DownloadError:  # it is a RuntimeError too
        raise
    except _BROKEN as error:
        raise DownloadError(f"{source} cannot be read as a zip archive: {error}.") from error
