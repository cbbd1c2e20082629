"""Downloads from a server that stalls, truncates, corrupts, redirects and refuses."""

from __future__ import annotations

import errno
import hashlib
import socket
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import web
from truepair.data.datasets import download as module
from truepair.data.datasets.download import Patience, download, place
from truepair.errors import DownloadError
from truepair.storage import atomic
from web import Server

CONTENT = bytes(range(256)) * 40
SHA = hashlib.sha256(CONTENT).hexdigest()
CALM = Patience(timeout=20, tries=3, pause=0)
HASTY = Patience(timeout=0.5, tries=6, pause=0)
"""For servers that stall: the only tests that wait. A busy machine may need another try."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web.running_server() as running:
        running.files["file.bin"] = CONTENT
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder" / "file.bin"


def part_of(target: Path) -> Path:
    return target.with_name("file.bin.part")


def leave_part(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(content)


def get(server: Server, target: Path, sha256: str | None = SHA, **more: Any) -> Path:
    return download(server.url("file.bin"), target, sha256=sha256, **{"patience": CALM, **more})


def assert_whole(target: Path) -> None:
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]


def assert_nothing(target: Path) -> None:
    assert list(target.parent.iterdir()) == []


# --- as it should be ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sha256", [SHA, None])
@pytest.mark.parametrize("behaviour", [web.serve, web.without_length])
def test_a_whole_file(server: Server, target: Path, sha256: str | None, behaviour: web.Behaviour) -> None:
    server.always = behaviour
    assert get(server, target, sha256) == target
    assert_whole(target)
    assert server.ranges == [None]


def test_an_old_file_is_replaced(server: Server, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")
    get(server, target)
    assert_whole(target)


def test_an_empty_file(server: Server, target: Path) -> None:
    server.files["file.bin"] = b""
    get(server, target, hashlib.sha256(b"").hexdigest())
    assert target.read_bytes() == b""


def test_the_bar_is_on_stderr_and_only_if_asked_for(
    server: Server, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    get(server, target)
    assert capsys.readouterr() == ("", "")
    get(server, target, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "file.bin" in err
    assert "10.2/10.2 kB" in err


# --- broken off --------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", [web.truncate(1000), web.stall(1000)])
def test_goes_on_where_it_broke_off(server: Server, target: Path, behaviour: web.Behaviour) -> None:
    server.behaviours = [behaviour, web.serve]
    get(server, target, patience=HASTY)
    assert_whole(target)
    assert server.ranges[:2] == [None, "bytes=1000-"]


@pytest.mark.parametrize("behaviour", [web.hang_up, web.stall(None), web.half_a_chunk, web.status(503)])
def test_tries_again(server: Server, target: Path, behaviour: web.Behaviour) -> None:
    server.behaviours = [behaviour]
    get(server, target, patience=HASTY)
    assert_whole(target)
    assert len(server.ranges) >= 2


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (web.truncate(10), "broke off .*IncompleteRead"),
        (web.hang_up, "broke off .*RemoteDisconnected"),
        (web.stall(None), r"sent nothing for 0\.5 seconds"),
        (web.status(500), "answered 500 Internal Server Error"),
        (web.status(429), "answered 429 Too Many Requests"),
    ],
)
def test_gives_up_in_the_end(server: Server, target: Path, behaviour: web.Behaviour, said: str) -> None:
    server.always = behaviour
    patience = Patience(timeout=0.5 if "seconds" in said else 20, tries=3, pause=0)
    with pytest.raises(DownloadError, match=rf"http://127.*/file\.bin {said}.*, 3 times\."):
        get(server, target, patience=patience)
    assert len(server.ranges) == 3
    assert not target.exists()


def test_pauses_grow(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    server.always = web.status(500)
    with pytest.raises(DownloadError):
        get(server, target, patience=Patience(timeout=20, tries=4, pause=0.5))
    assert pauses == [0.5, 1.0, 2.0]


def test_a_later_call_goes_on(server: Server, target: Path) -> None:
    server.always = web.truncate(100)
    with pytest.raises(DownloadError, match=r"The 300 bytes that came are kept: try again to go on\."):
        get(server, target)
    assert part_of(target).read_bytes() == CONTENT[:300]
    assert not target.exists()
    server.always = web.serve
    get(server, target)
    assert_whole(target)
    assert server.ranges[-1] == "bytes=300-"


def test_an_interruption_keeps_the_part(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "flush_to_disk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(server, target)
    assert not target.exists()
    assert part_of(target).exists()


def test_without_a_checksum_nothing_is_resumed(server: Server, target: Path) -> None:
    leave_part(target, b"half of another file")
    server.behaviours = [web.truncate(100)]
    get(server, target, None)
    assert_whole(target)
    assert server.ranges == [None, None]


def test_a_part_that_is_whole_needs_no_network(server: Server, target: Path) -> None:
    leave_part(target, CONTENT)
    get(server, target)
    assert_whole(target)
    assert server.ranges == []


@pytest.mark.parametrize("behaviour", [web.ignore_range, web.wrong_range])
def test_servers_without_ranges(server: Server, target: Path, behaviour: web.Behaviour) -> None:
    leave_part(target, CONTENT[:300])
    server.behaviours = [behaviour]
    get(server, target)
    assert_whole(target)
    assert server.ranges[0] == "bytes=300-"


@pytest.mark.parametrize("part", [CONTENT + b"too long", b"x" * 300, b"x" * len(CONTENT)])
def test_a_part_of_another_file(server: Server, target: Path, part: bytes) -> None:
    leave_part(target, part)
    get(server, target)
    assert_whole(target)
    assert server.ranges == [f"bytes={len(part)}-", None]


# --- refused -----------------------------------------------------------------------------------------


def test_corrupt_content_is_tried_once_more(server: Server, target: Path) -> None:
    server.behaviours = [web.corrupt]
    get(server, target)
    assert_whole(target)
    assert server.ranges == [None, None]


def test_corrupt_content_is_removed(server: Server, target: Path) -> None:
    server.always = web.corrupt
    with pytest.raises(DownloadError, match=f"gave a file whose SHA-256 is .*, not {SHA}.*was removed"):
        get(server, target)
    assert_nothing(target)


def test_a_part_of_another_file_and_then_corruption(server: Server, target: Path) -> None:
    leave_part(target, b"x" * 300)
    server.always = web.corrupt
    with pytest.raises(DownloadError, match="SHA-256"):
        get(server, target)
    assert_nothing(target)


@pytest.mark.parametrize("code", [400, 403, 404, 410])
def test_a_refusal_is_final(server: Server, target: Path, code: int) -> None:
    server.always = web.status(code)
    with pytest.raises(DownloadError, match=rf"/file\.bin answered {code} "):
        get(server, target)
    assert len(server.ranges) == 1
    assert_nothing(target)


@pytest.mark.parametrize("behaviour", [web.serve, web.without_length])
def test_too_large(server: Server, target: Path, behaviour: web.Behaviour) -> None:
    server.always = behaviour
    with pytest.raises(DownloadError, match=r"has .*bytes; at most 1,000 are allowed\. Nothing was kept"):
        get(server, target, limit=1000)
    assert_nothing(target)


def test_no_network(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("tried twice"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"
        with pytest.raises(DownloadError, match=rf"{url} cannot be reached: .*refused"):
            download(url, target, sha256=SHA)
    assert_nothing(target)


# --- redirects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server: Server, target: Path, code: int) -> None:
    leave_part(target, CONTENT[:300])
    server.files["there"] = CONTENT
    server.behaviours = [web.redirect("/there", code)]
    get(server, target)
    assert_whole(target)
    assert server.paths == ["/file.bin", "/there"]
    assert server.ranges == ["bytes=300-", "bytes=300-"]


def test_redirects_in_a_circle(server: Server, target: Path) -> None:
    server.always = web.redirect("/file.bin")
    with pytest.raises(DownloadError, match=r"answered 302 .*infinite loop"):
        get(server, target)
    assert len(server.ranges) <= 10


def test_redirects_without_end(server: Server, target: Path) -> None:
    server.always = lambda handler: web.redirect(handler.path + "x")(handler)
    with pytest.raises(DownloadError, match=r"answered 302 .*infinite loop"):
        get(server, target)
    assert len(server.ranges) <= 11


@pytest.mark.parametrize("to", ["ftp://127.0.0.1/file", "file:///etc/hostname"])
def test_redirects_out_of_the_web_are_refused(server: Server, target: Path, to: str) -> None:
    server.always = web.redirect(to)
    with pytest.raises(DownloadError):
        get(server, target)
    assert_nothing(target)


def redirected(start: str, to: str) -> urllib.request.Request | None:
    handler = module._Redirects()
    return handler.redirect_request(urllib.request.Request(start), None, 302, "Found", Message(), to)  # type: ignore[arg-type]


@pytest.mark.parametrize("to", ["http://a.example/", "HTTP://a.example/", "ftp://a.example/", "file:///x"])
def test_redirects_never_leave_https(to: str) -> None:
    with pytest.raises(
        DownloadError, match=r"https://a\.example/ redirects to .*, which is not https: refused"
    ):
        redirected("https://a.example/", to)


def test_redirects_within_https() -> None:
    request = redirected("https://a.example/", "https://b.example/")
    assert request is not None
    assert request.full_url == "https://b.example/"


# --- disks -------------------------------------------------------------------------------------------


class FullDisk:
    """A file on a disk with room for so many bytes."""

    def __init__(self, path: Path, mode: str, opener: Any = None, room: int = 1000) -> None:
        self.file, self.room = open(path, mode, opener=opener), room  # noqa: SIM115

    def write(self, content: bytes) -> None:
        self.file.write(content[: self.room])
        if len(content) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


def test_a_full_disk(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")
    monkeypatch.setattr(module, "open", FullDisk, raising=False)
    with pytest.raises(
        DownloadError, match=r"cannot write .*file\.bin\.part: No space left on device.*make room"
    ):
        get(server, target)
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]
    assert target.read_bytes() == b"old"
    assert len(server.ranges) == 1


def test_a_full_disk_while_placing(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "open", FullDisk, raising=False)
    with pytest.raises(DownloadError, match=r"cannot write .*file\.bin: No space left on device.*make room"):
        place(target, [CONTENT], None, "the archive")
    assert_nothing(target)


def test_no_permission(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DownloadError, match=r"cannot write .*TRUEPAIR_CACHE name another folder"):
        get(server, tmp_path / "file" / "file.bin")
    assert server.ranges == []


def test_placing_is_all_or_nothing(target: Path) -> None:
    place(target, [CONTENT[:5], CONTENT[5:]], SHA, "the archive")
    assert_whole(target)
    with pytest.raises(DownloadError, match="the archive gave a file whose SHA-256 is"):
        place(target, [b"wrong"], SHA, "the archive")
    assert_whole(target)
