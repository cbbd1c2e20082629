"""Archives that mean harm: nothing is written but the members asked for, under names of our own."""

from __future__ import annotations

import hashlib
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from truepair.data.datasets.download import Member, extract
from truepair.errors import DownloadError

DATA = b"1\t2\t3\n" * 1000


def zipped(
    path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def wanted(out: Path, name: str = "set/u.data") -> list[Member]:
    return [Member(name, out / "u.data", hashlib.sha256(DATA).hexdigest())]


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_only_what_was_asked_for(tmp_path: Path, out: Path, method: int) -> None:
    archive = zipped(tmp_path / "a.zip", ("set/u.data", DATA), ("set/other", b"no"), method=method)
    extract(archive, wanted(out), "the archive")
    assert files_below(tmp_path) == ["a.zip", "out/u.data"]
    assert (out / "u.data").read_bytes() == DATA


def test_names_lead_nowhere(tmp_path: Path, out: Path) -> None:
    hostile = ["../evil", "/tmp/truepair-evil", "set/../../evil", "C:\\evil", "..\\evil"]
    archive = zipped(tmp_path / "a.zip", ("set/u.data", DATA), *((name, b"evil") for name in hostile))
    extract(archive, wanted(out), "the archive")
    assert files_below(tmp_path) == ["a.zip", "out/u.data"]
    assert not Path("/tmp/truepair-evil").exists()


@pytest.mark.parametrize("name", ["../u.data", "/u.data"])
def test_even_hostile_names_become_our_own(tmp_path: Path, out: Path, name: str) -> None:
    extract(zipped(tmp_path / "a.zip", (name, DATA)), wanted(out, name), "the archive")
    assert files_below(tmp_path) == ["a.zip", "out/u.data"]


def refused(archive: Path, out: Path, said: str, limit: int = 1 << 20) -> None:
    with pytest.raises(DownloadError, match=said):
        extract(archive, wanted(out), "the archive", limit)
    assert not out.exists() or files_below(out) == []


def test_a_link_is_not_followed(tmp_path: Path, out: Path) -> None:
    link = zipfile.ZipInfo("set/u.data")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    archive = zipped(tmp_path / "a.zip", (link, b"/etc/passwd"))
    extract(archive, [Member("set/u.data", out / "u.data")], "the archive")
    assert not (out / "u.data").is_symlink()
    assert (out / "u.data").read_bytes() == b"/etc/passwd"


def test_a_missing_member(tmp_path: Path, out: Path) -> None:
    refused(zipped(tmp_path / "a.zip", ("x", b"")), out, "has no member 'set/u.data'; its members are x")
    refused(zipped(tmp_path / "b.zip"), out, "its members are nothing")


def test_a_bomb_that_declares_itself(tmp_path: Path, out: Path) -> None:
    bomb = zipped(tmp_path / "a.zip", ("set/u.data", bytes(1 << 22)))
    assert bomb.stat().st_size < 1 << 13
    refused(bomb, out, "declares 4,194,304 bytes of 1,048,576 allowed")


def test_a_bomb_that_lies(tmp_path: Path, out: Path) -> None:
    bomb = zipped(tmp_path / "a.zip", ("set/u.data", bytes(1 << 22)))
    content = bytearray(bomb.read_bytes())
    for at, offset in ((content.index(b"PK\x03\x04"), 22), (content.index(b"PK\x01\x02"), 24)):
        struct.pack_into("<I", content, at + offset, 1000)  # the uncompressed size
    bomb.write_bytes(content)
    refused(bomb, out, "cannot be read as a zip archive: Bad CRC-32")


def test_wrong_content(tmp_path: Path, out: Path) -> None:
    refused(
        zipped(tmp_path / "a.zip", ("set/u.data", b"other")), out, "the archive: set/u.data gave a file whose"
    )


@pytest.mark.parametrize(
    "content", [b"", b"<html>not a zip</html>", b"PK\x03\x04" + bytes(40), b"PK\x05\x06"]
)
def test_no_archive_at_all(tmp_path: Path, out: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    refused(tmp_path / "a.zip", out, "the archive cannot be read as a zip archive")


def test_encrypted(tmp_path: Path, out: Path) -> None:
    archive = zipped(tmp_path / "a.zip", ("set/u.data", DATA))
    content = bytearray(archive.read_bytes())
    for at, offset in ((content.index(b"PK\x03\x04"), 6), (content.index(b"PK\x01\x02"), 8)):
        content[at + offset] |= 1
    archive.write_bytes(content)
    refused(archive, out, "cannot be read as a zip archive: .*encrypted")


def test_damaged_archives_never_crash_or_leave_files(tmp_path: Path, out: Path) -> None:
    """Every byte of a small archive changed once, and every truncation of it."""
    archive = zipped(tmp_path / "a.zip", ("set/u.data", DATA))
    whole = archive.read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :] for at in range(len(whole))]
    for content in damaged + [whole[:length] for length in range(len(whole))]:
        archive.write_bytes(content)
        try:
            extract(archive, wanted(out), "the archive")
        except DownloadError:
            assert not out.exists() or files_below(out) == []
        else:  # a byte that does not matter, such as one of the date
            assert (out / "u.data").read_bytes() == DATA
            (out / "u.data").unlink()
