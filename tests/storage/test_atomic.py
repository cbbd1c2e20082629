"""A file appears whole or not at all, whatever happens to the process that writes it."""

import errno
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from processes import exit_code
from truepair.errors import StorageError
from truepair.storage import atomic
from truepair.storage.atomic import atomic_write


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, content):
    with atomic_write(path) as file:
        file.write(content)


def test_the_file_appears_at_the_end_and_folders_are_made(tmp_path):
    path = tmp_path / "new" / "folder" / "file.bin"
    with atomic_write(path) as file:
        file.write(b"content")
        assert not path.exists()
        assert len(names(path.parent)) == 1
    assert path.read_bytes() == b"content"
    assert names(path.parent) == ["file.bin"]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_an_error_of_the_block_is_passed_on_and_leaves_the_old_file(error, tmp_path):
    path = tmp_path / "file"
    write(path, b"old")

    def write_half():
        with atomic_write(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(type(error)) as caught:
        write_half()
    assert caught.value is error
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_disk_error_names_the_file_the_reason_and_what_is_left(call, old, tmp_path, monkeypatch):
    path = tmp_path / "file"
    if old:
        write(path, old)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    left = "the one before it is untouched" if old else "there was none before"
    with pytest.raises(StorageError) as caught, atomic_write(path, "the report") as file:
        file.write(b"new")
    assert str(caught.value) == f"cannot write the report {path}: No space left on device; {left}."
    assert names(tmp_path) == (["file"] if old else [])


def test_a_folder_and_a_file_in_place_of_a_folder_are_refused(tmp_path):
    with pytest.raises(StorageError, match=r"cannot write .*: it is a folder; name a file in it"):
        write(tmp_path, b"")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*: (Not a directory|File exists)"):
        write(tmp_path / "file" / "below", b"")


def test_content_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (calls.append(name), real(*a))[1])
    write(tmp_path / "file", b"content")
    assert calls == ["fsync", "replace", "fsync"]


def killed_while_writing(path):
    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_left_is_removed_at_the_next_write(tmp_path):
    path, other = tmp_path / "file", tmp_path / "file.csv"
    write(path, b"old")
    for target in (path, other):
        assert exit_code(killed_while_writing, target) == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(names(tmp_path)) == 3
    write(path, b"new")
    (left,) = set(names(tmp_path)) - {"file"}
    assert left.startswith("file.csv.")  # of another target, whose next write removes it
    write(other, b"new")
    assert names(tmp_path) == ["file", "file.csv"]


def test_what_others_write_at_the_moment_stays(tmp_path):
    host = socket.gethostname()
    alive = [
        f"file.{host}.{os.getppid()}.0.writing",  # a process that runs
        f"file.elsewhere.{os.getpid()}.0.writing",  # another machine: nobody here knows
        f"file.{host}.words.0.writing",  # not an unfinished file of this library
        f"file.{host}.{os.getpid()}.0.part",
    ]
    for name in alive:
        (tmp_path / name).touch()
    abandoned = tmp_path / f"file.{host}.{os.getpid()}.x.writing"  # of a process that had this number before
    abandoned.touch()
    with atomic_write(tmp_path / "file") as first:
        write(tmp_path / "file", b"second")
        first.write(b"first")
    assert names(tmp_path) == sorted([*alive, "file"])
    assert (tmp_path / "file").read_bytes() == b"first"


def test_threads_that_write_one_file_leave_one_whole_content(tmp_path):
    contents = [bytes([k]) * 100_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write(tmp_path / "file", content), contents))
    assert (tmp_path / "file").read_bytes() in contents
    assert names(tmp_path) == ["file"]


def test_a_number_that_no_process_can_have_is_nobody():
    assert not atomic._is_running_elsewhere(2**30)
    assert atomic._is_running_elsewhere(2**70)  # cannot be asked: better left alone
