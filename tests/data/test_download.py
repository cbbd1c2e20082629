"""Downloads from a server that stalls, truncates, corrupts, redirects and refuses."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import web
from truepair.data.datasets import download as module
from truepair.data.datasets.download import download, place
from truepair.errors import DownloadError
from truepair.storage import atomic
from web import Server

requests = pytest.importorskip("requests")
pytest.importorskip("pooch")

CONTENT = bytes(range(256)) * 40
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web.running_server() as running:
        running.files["file.bin"] = CONTENT
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder" / "file.bin"


def get(server: Server, target: Path, sha256: str | None = SHA, **more: Any) -> Path:
    return download(server.url("file.bin"), target, sha256=sha256, **more)


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
    assert server.paths == ["/file.bin"]


def test_an_old_file_is_replaced(server: Server, target: Path) -> None:
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")
    get(server, target)
    assert_whole(target)


def test_an_empty_file(server: Server, target: Path) -> None:
    server.files["file.bin"] = b""
    get(server, target, hashlib.sha256(b"").hexdigest())
    assert target.read_bytes() == b""


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_mode_is_that_of_the_umask(server: Server, target: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        get(server, target)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == mode
    assert_whole(target)


def test_the_bar_is_on_stderr_and_only_if_asked_for(
    server: Server, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = logging.getLogger("pooch").level
    get(server, target)
    assert capsys.readouterr() == ("", "")
    target.unlink()
    get(server, target, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "file.bin" in err
    assert "10.2/10.2 kB" in err
    assert "pooch" not in err
    assert logging.getLogger("pooch").level == level


# --- failed transfers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "behaviour",
    [web.truncate(1000), web.stall(1000), web.stall(None), web.hang_up, web.half_a_chunk, web.corrupt],
)
def test_tries_again(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, behaviour: web.Behaviour
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    server.behaviours = [behaviour]
    get(server, target)
    assert_whole(target)
    assert len(server.paths) == 2


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (web.truncate(10), "did not arrive: .*IncompleteRead"),
        (web.hang_up, "cannot be reached: .*RemoteDisconnected"),
        (web.stall(None), "did not arrive: .*timed out"),
        (web.status(500), "answered 500 Internal Server Error"),
        (web.status(404), "answered 404 Not Found"),
    ],
)
def test_gives_up_in_the_end(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch, behaviour: web.Behaviour, said: str
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    server.always = behaviour
    with pytest.raises(DownloadError, match=rf"http://127.*/file\.bin {said}"):
        get(server, target)
    assert_nothing(target)


def test_an_interruption_leaves_nothing(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pooch.core.hash_matches", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(server, target)
    assert_nothing(target)


def test_corrupt_content_is_removed(server: Server, target: Path) -> None:
    server.always = web.corrupt
    with pytest.raises(DownloadError, match=f"gave a file whose SHA-256 is not {SHA}.*is removed"):
        get(server, target)
    assert_nothing(target)


@pytest.mark.parametrize("behaviour", [web.serve, web.without_length])
def test_too_large(server: Server, target: Path, behaviour: web.Behaviour) -> None:
    server.always = behaviour
    with pytest.raises(DownloadError, match=r"has more than 1,000 bytes\. Nothing was kept"):
        get(server, target, limit=1000)
    assert_nothing(target)


def test_no_network(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"
        with pytest.raises(DownloadError, match=rf"{url} cannot be reached: .*refused"):
            download(url, target, sha256=SHA)
    assert_nothing(target)


def test_a_machine_without_pooch(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DownloadError, match="cannot be downloaded without pooch: pip install pooch"):
        download("https://a.example/file.bin", target, sha256=SHA)


# --- redirects ---------------------------------------------------------------------------------------


def test_redirects_are_followed(server: Server, target: Path) -> None:
    server.files["there"] = CONTENT
    server.behaviours = [web.redirect("/there")]
    get(server, target)
    assert_whole(target)
    assert server.paths == ["/file.bin", "/there"]


def test_redirects_without_end(server: Server, target: Path) -> None:
    server.always = lambda handler: web.redirect(handler.path + "x")(handler)
    with pytest.raises(DownloadError, match=r"did not arrive: Exceeded 30 redirects"):
        get(server, target)


@pytest.mark.parametrize("to", ["ftp://127.0.0.1/file", "file:///etc/hostname"])
def test_redirects_out_of_the_web_are_refused(server: Server, target: Path, to: str) -> None:
    server.always = web.redirect(to)
    with pytest.raises(DownloadError):
        get(server, target)
    assert_nothing(target)


def redirected(start: str, to: str) -> Any:
    answer = requests.Response()
    answer.url, answer.status_code, answer.headers["Location"] = start, 302, to
    return answer


@pytest.mark.parametrize("to", ["http://a.example/", "HTTP://a.example/", "ftp://a.example/", "file:///x"])
def test_redirects_never_leave_https(to: str) -> None:
    with pytest.raises(
        DownloadError, match=r"https://a\.example/ redirects to .*, which is not https: refused"
    ):
        module._stay_in_https(redirected("https://a.example/", to))


@pytest.mark.parametrize("to", ["https://b.example/", "HTTPS://b.example/", "/there"])
def test_redirects_within_https(to: str) -> None:
    assert module._stay_in_https(redirected("https://a.example/", to)) is None  # type: ignore[func-returns-value]


# --- disks -------------------------------------------------------------------------------------------


class FullDisk:
    """A file on a disk with room for this many bytes."""

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
    with pytest.raises(DownloadError, match=r"cannot write .*file\.bin: No space left on device.*make room"):
        get(server, target)
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]
    assert target.read_bytes() == b"old"


def test_a_full_disk_while_placing(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "open", FullDisk, raising=False)
    with pytest.raises(DownloadError, match=r"cannot write .*file\.bin: No space left on device.*make room"):
        place(target, [CONTENT], None, "the archive")
    assert_nothing(target)


def test_no_permission(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DownloadError, match=r"cannot write .*TRUEPAIR_CACHE name another folder"):
        get(server, tmp_path / "file" / "file.bin")
    assert server.paths == []


def test_placing_is_all_or_nothing(target: Path) -> None:
    place(target, [CONTENT[:5], CONTENT[5:]], SHA, "the archive")
    assert_whole(target)
    with pytest.raises(DownloadError, match="the archive gave a file whose SHA-256 is"):
        place(target, [b"wrong"], SHA, "the archive")
    assert_whole(target)
