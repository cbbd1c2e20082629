"""A file appears whole or not at all, whatever happens to the process that writes it."""

import errno
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from processes import exit_code, start
from truepair.errors import StorageError
from truepair.storage import atomic
from truepair.storage.atomic import atomic_write, remove_unfinished


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


def test_a_named_pipe_is_refused_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(
            StorageError, match=f"cannot write .*{name}: it is not a regular file; give another"
        ):
            write(tmp_path / name, b"new")
    assert (tmp_path / "pipe").is_fifo()
    assert names(tmp_path) == ["link", "pipe"]


def test_a_symbolic_link_stays_and_the_file_that_it_leads_to_is_replaced(tmp_path):
    link, target = tmp_path / "link", tmp_path / "elsewhere" / "file"
    link.symlink_to(target)
    for content in (b"first", b"second"):  # there is no such file yet; there is one
        write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert names(target.parent) == ["file"]
    assert exit_code(killed_while_writing, link) == -signal.SIGKILL
    assert len(names(target.parent)) == 2
    remove_unfinished(link)
    assert names(target.parent) == ["file"]


def test_symbolic_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(StorageError, match=r"cannot write .*a: its symbolic links lead in a circle"):
        write(tmp_path / "a", b"new")
    remove_unfinished(tmp_path / "a")
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_the_new_file_has_the_permissions_of_the_old_one(mode, tmp_path):
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    with atomic_write(path) as file:
        assert os.fstat(file.fileno()).st_mode & 0o077 & ~mode == 0  # nobody else reads the unfinished one
        file.write(b"new")
    assert path.stat().st_mode & 0o777 == mode


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


def test_what_a_killed_process_left_is_removed_without_a_write(tmp_path):
    assert exit_code(killed_while_writing, tmp_path / "file") == -signal.SIGKILL
    assert len(names(tmp_path)) == 1
    remove_unfinished(tmp_path / "file")
    assert names(tmp_path) == []
    remove_unfinished(tmp_path / "no folder" / "file")


def abandoned(path, host=None, process=None, serial=0, age=0.0):
    """An unfinished file of a process that is not writing it."""
    owner = f"{host or socket.gethostname()}.{process or os.getpid()}.{serial}"
    left = path.with_name(f"{path.name}.{owner}.writing")
    left.write_bytes(b"half")
    os.utime(left, (time.time() - age,) * 2)
    return left.name


def test_a_number_that_another_process_has_now_does_not_keep_a_file(tmp_path):
    path = tmp_path / "file"
    for process in (os.getppid(), os.getpid(), 2**70):
        abandoned(path, process=process)
    write(path, b"new")
    assert names(tmp_path) == ["file"]


def test_files_of_another_machine_stay_for_a_day(tmp_path):
    path = tmp_path / "file"
    young = abandoned(path, host="elsewhere", age=80_000)
    abandoned(path, host="elsewhere", age=90_000, serial=1)
    write(path, b"new")
    assert names(tmp_path) == ["file", young]


def test_files_of_other_names_stay(tmp_path):
    others = [f"file.{socket.gethostname()}.1.0.part", f"another.{socket.gethostname()}.1.0.writing"]
    for name in others:
        (tmp_path / name).touch()
    write(tmp_path / "file", b"new")
    assert names(tmp_path) == sorted(["file", *others])


def write_slowly(path, written, go_on):
    with atomic_write(path) as file:
        file.write(b"slow")
        file.flush()
        written.touch()
        while not go_on.exists():
            time.sleep(0.005)


def test_what_another_process_writes_at_the_moment_stays(tmp_path):
    path, written, go_on = (tmp_path / name for name in ("file", "written", "go on"))
    process = start(write_slowly, path, written, go_on)
    while not written.exists():
        time.sleep(0.005)
    write(path, b"quick")
    assert path.read_bytes() == b"quick"
    go_on.touch()
    process.join()
    assert process.exitcode == 0
    assert path.read_bytes() == b"slow"
    assert names(tmp_path) == ["file", "go on", "written"]


def test_two_writers_in_one_process(tmp_path):
    with atomic_write(tmp_path / "file") as first:
        write(tmp_path / "file", b"second")
        first.write(b"first")
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"first"


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    real, taken = atomic.lock_file, []

    def lock(file):
        if not taken:  # another process takes it for abandoned
            taken.append(file.name)
            os.unlink(file.name)
        return real(file)

    monkeypatch.setattr(atomic, "lock_file", lock)
    write(tmp_path / "file", b"content")
    assert taken
    assert (tmp_path / "file").read_bytes() == b"content"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("known", [True, False])
def test_without_locks_files_are_written_and_nothing_is_removed(known, tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    if known:
        monkeypatch.setattr(atomic.fcntl, "flock", no_locks)
    else:
        monkeypatch.setattr(atomic, "fcntl", None)
    left = abandoned(tmp_path / "file", age=90_000)
    write(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert names(tmp_path) == ["file", left]


def test_threads_that_write_one_file_leave_one_whole_content(tmp_path):
    contents = [bytes([k]) * 100_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write(tmp_path / "file", content), contents))
    assert (tmp_path / "file").read_bytes() in contents
    assert names(tmp_path) == ["file"]
