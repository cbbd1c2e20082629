"""Files: a path -> its content, decompressed and in UTF-8. Errors name the file."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import zipfile
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


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with `~` replaced by the home folder."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, ValueError) as error:  # no such person; a NUL in the name
        raise InputError(f"{str(path)!r} is not a path of this machine: {error}") from error


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
        opener, member = _OPENERS[self.compression], [self.member] if self.member else []
        what = f"a {self.compression or 'plain'} file"
        with read_errors(self.path, what), opener(self.path, *member) as stream:
            return bytes(stream.read())

    @cached_property
    def member(self) -> str:
        """The only file in a .zip archive; an empty string for other files."""
        if self.compression != ".zip":
            return ""
        with read_errors(self.path, "a .zip file"), zipfile.ZipFile(self.path) as archive:
            names = archive.namelist()
        members = [name for name in names if not name.endswith("/") and "__MACOSX" not in name]
        if len(members) != 1:
            shown = ", ".join(members[:8])
            raise InputError(f"{self.path} contains {len(members)} files ({shown}); unpack it and pass one.")
        return members[0]

    @cached_property
    def text(self) -> bytes:
        """The content as UTF-8 without a byte order mark."""
        text = _as_utf8(self.content, self.encoding, self.path)
        if not text[:HEAD].decode("utf-8", errors="replace").strip():
            blank = "all its lines are" if len(text) <= HEAD else f"its first {HEAD:,} bytes are"
            raise InputError(f"{self.path} is empty: {blank} blank.")
        return text

    @cached_property
    def first_lines(self) -> list[str]:
        """The lines within the first `HEAD` bytes, without blank ones; at least one."""
        text = self.text[:HEAD].decode("utf-8", errors="replace")
        lines = [line for line in re.split("\r\n?|\n", text) if line.strip()]
        incomplete = len(self.text) > HEAD and len(lines) > 1  # the last line may be
        return lines[:-1] if incomplete else lines

    @cached_property
    def suffix(self) -> str:
        """The file's suffix without that of the compression."""
        inner = self.member or (self.path.stem if self.compression else self.path.name)
        return Path(inner).suffix.lower()

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether these cells are a header: one is a known column name, or none is a number."""
        if self.header is not None:
            return self.header
        return self.is_named(cells) or not any(map(_NUMBER.fullmatch, map(str.strip, cells)))

    def is_named(self, cells: Sequence[str]) -> bool:
        """Whether one of the cells is a recognised column name, or one that the caller gave."""
        return any(cell in self.given or role_of(cell) is not None for cell in cells)


def _as_utf8(content: bytes, encoding: str, path: Path) -> bytes:
    unknown = InputError(
        f"encoding = {encoding!r} is no encoding of files; use e.g. 'utf-8', 'utf-16' or 'latin-1'."
    )
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, TypeError, ValueError) as error:  # ValueError: a NUL in the name
        raise unknown from error
    if name in _NOT_FOR_FILES:
        raise unknown
    if name == "utf-8" and content.isascii():
        return content
    try:
        return content.decode(encoding).removeprefix("\ufeff").encode()
    except LookupError as error:  # Python's codecs from bytes to bytes
        raise unknown from error
    except UnicodeDecodeError as error:
        if b"\0" in content[:HEAD] and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(
                f"{path} is not a table: it is binary, and neither Parquet nor Arrow; give a table, such as "
                "a CSV file."
            ) from error
        other = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin-1"
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: byte 0x{content[error.start]:02x} (byte {error.start + 1} of the file) "
            f"is not {encoding}; pass encoding={other!r}, or the encoding it was written in."
        ) from error
    except UnicodeEncodeError as error:  # half a character, which UTF-7 can write down
        raise InputError(
            f"{path} has half a surrogate pair as {encoding}; pass the encoding it was written in."
        ) from error


def _unzip(path: Path, member: str) -> io.BytesIO:
    with zipfile.ZipFile(path) as archive:
        return io.BytesIO(archive.read(member))


# Codecs of Python for domain names and source code; some need a time that grows with the square of the length
_NOT_FOR_FILES = frozenset(["undefined", "punycode", "idna", "unicode-escape", "raw-unicode-escape"])

_OPENERS: dict[str, Callable[..., Any]] = {
    "": partial(open, mode="rb"),
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": partial(pa.input_stream, compression="zstd"),
    ".lz4": partial(pa.input_stream, compression="lz4"),
    ".zip": _unzip,
}


@contextmanager
def read_errors(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a parsing library raises on bad bytes into one error that names the file.

    Libraries raise errors of every type on bad bytes, so all are caught. Therefore only calls of libraries
    belong inside: an error of truepair itself would be hidden.
    """
    try:
        yield
    except Exception as error:
        raise InputError(
            f"{path} cannot be read as {what}; the file may be damaged, or have another format: "
            f"{str(error) or type(error).__name__:.500}"
        ) from error
