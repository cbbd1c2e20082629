"""Files: a path -> its content, decompressed and in UTF-8. Errors name the file."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from truepair.data.columns import role_of
from truepair.errors import InputError

HEAD = 1 << 16
"""How many bytes are inspected to recognise a format."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class File:
    """A file and the options that the caller gave for it. Its content is read once, when first needed."""

    path: Path
    encoding: str = "utf-8"
    header: bool | None = None
    given: frozenset[str] = frozenset()
    """The column names that the caller gave: a first line that contains one of them is a header."""

    @cached_property
    def compression(self) -> str:
        """The suffix of the compression, such as ".gz", or an empty string."""
        suffix = self.path.suffix.lower()
        return suffix if suffix in _OPENERS else ""

    @cached_property
    def content(self) -> bytes:
        """The bytes, decompressed."""
        opener = _OPENERS[self.compression]
        with read_errors(self.path, f"a {self.compression or 'plain'} file"), opener(self.path) as stream:
            return bytes(stream.read())

    @cached_property
    def text(self) -> bytes:
        """The content as UTF-8 without a byte order mark."""
        text = _as_utf8(self.content, self.encoding, self.path)
        if not text or text.isspace():
            raise InputError(f"{self.path} is empty: all its lines are blank.")
        return text

    @cached_property
    def first_lines(self) -> list[str]:
        """The lines within the first `HEAD` bytes, without blank ones."""
        lines = re.split("\r\n?|\n", self.text[:HEAD].decode("utf-8", errors="replace"))
        if len(self.text) > HEAD and len(lines) > 1:
            lines.pop()  # the last line is incomplete
        return [line for line in lines if line.strip()] or [""]

    @cached_property
    def suffix(self) -> str:
        """The file's suffix without that of the compression."""
        inner = Path(self.path.stem if self.compression else self.path.name)
        if self.compression == ".zip":
            with read_errors(self.path, "a .zip file"), zipfile.ZipFile(self.path) as archive:
                inner = Path(_only_member(archive, self.path))
        return inner.suffix.lower()

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether these cells are a header: one is a known column name, or none is a number."""
        if self.header is not None:
            return self.header
        return self.is_named(cells) or not any(map(_NUMBER.fullmatch, map(str.strip, cells)))

    def is_named(self, cells: Sequence[str]) -> bool:
        """Whether one of the cells is a recognised column name, or one that the caller gave."""
        return any(cell in self.given or role_of(cell) is not None for cell in cells)


def _as_utf8(content: bytes, encoding: str, path: Path) -> bytes:
    try:
        if codecs.lookup(encoding).name == "utf-8" and content.isascii():
            return content
        return content.decode(encoding).removeprefix("\ufeff").encode()
    except (LookupError, TypeError) as error:
        raise InputError(
            f"encoding = {encoding!r} is not known; use e.g. 'utf-8', 'utf-16' or 'latin-1'."
        ) from error
    except UnicodeDecodeError as error:
        other = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin-1"
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} (byte {error.start + 1} of the file) "
            f"is not {encoding}; pass encoding={other!r}, or the encoding it was written in."
        ) from error


def _only_member(archive: zipfile.ZipFile, path: Path) -> str:
    members = [name for name in archive.namelist() if not name.endswith("/") and "__MACOSX" not in name]
    if len(members) != 1:
        raise InputError(
            f"{path} contains {len(members)} files ({', '.join(members[:8])}); unpack it and pass one."
        )
    return members[0]


def _unzip(path: Path) -> io.BytesIO:
    with zipfile.ZipFile(path) as archive:
        return io.BytesIO(archive.read(_only_member(archive, path)))


_OPENERS: dict[str, Callable[[Path], Any]] = {
    "": partial(open, mode="rb"),
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": partial(pa.input_stream, compression="zstd"),
    ".lz4": partial(pa.input_stream, compression="lz4"),
    ".zip": _unzip,
}

_BROKEN = (
    *(OSError, EOFError, RuntimeError, ValueError, KeyError),
    *(pa.ArrowException, zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)


@contextmanager
def read_errors(path: Path, what: str) -> Iterator[None]:
    """Turn the errors of parsing libraries into one that names the file."""
    try:
        yield
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(
            f"{path} cannot be read as {what}; the file may be damaged, or have another format: {error}"
        ) from error
