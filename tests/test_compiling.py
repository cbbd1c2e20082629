"""Machine code is kept where it stays right: in a folder named by the sources, or nowhere."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from truepair import compiling
from truepair.compiling import announce_compilation, compiled_and_kept, parallel_kernel
from truepair.errors import TrainingError


def twice(x):
    return 2 * x


def test_numba_s_own_folder_is_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    compiled_and_kept(twice)
    assert str(tmp_path) == numba.config.CACHE_DIR


def test_the_users_folder_is_respected(tmp_path):
    folder = compiling._folder(str(tmp_path))
    assert folder.parent == tmp_path
    assert compiling._folder("").parent.parts[-2:] == ("truepair", "compiled")


def test_the_folder_changes_with_any_source(tmp_path):
    """Numba would not notice a change in another file than the function's own."""
    copy = tmp_path / "truepair"
    shutil.copytree(Path(compiling.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    program = "from truepair import compiling; print(compiling.__file__, compiling._folder(''))"

    def folder():
        told = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.split()
        assert Path(told[0]).is_relative_to(tmp_path)
        return told[1]

    before = folder()
    assert folder() == before
    with (copy / "training" / "cpu_losses.py").open("a") as source:
        source.write("\n# another line\n")
    assert folder() != before


def test_no_machine_code_is_kept_where_there_is_no_room(monkeypatch):
    def njit(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled_and_kept(twice, nogil=True) == (twice, {"nogil": True})


def test_compilation_is_announced_where_it_will_happen(tmp_path, capsys):
    kernel = SimpleNamespace(py_func=twice, stats=SimpleNamespace(cache_path=str(tmp_path)))

    def announced(kernel, variant=""):
        announce_compilation([kernel], variant)
        return "compiling for this machine" in capsys.readouterr().err

    assert announced(kernel)
    assert not announced(kernel)
    assert announced(kernel, "graph")  # other types of arguments are other machine code
    assert not announced(kernel, "graph")
    homeless = SimpleNamespace(py_func=twice, stats=SimpleNamespace(cache_path=None))
    assert announced(homeless)
    assert announced(homeless)


def test_a_fork_after_training_is_told(monkeypatch):
    monkeypatch.setitem(compiling._pool, "lost", True)
    with pytest.raises(TrainingError, match=r"forked from one that had trained.*'spawn'"), parallel_kernel():
        pass


def test_a_folder_that_cannot_be_written_to_keeps_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(compiling, "_folder", lambda given: tmp_path / "file" / "below")
    assert compiled_and_kept(twice).stats.cache_path is None


def test_nobody_is_at_home(monkeypatch):
    def nowhere(given):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(compiling, "_folder", nowhere)
    assert compiled_and_kept(twice)(3) == 6
