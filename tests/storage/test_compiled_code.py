"""Machine code is kept where it stays right: in a folder named by the sources, or nowhere."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

import truepair
from truepair.errors import TrainingError
from truepair.storage import compiled_code
from truepair.storage.compiled_code import announce_compilation, compiled_and_kept, parallel_kernel

PACKAGE = Path(truepair.__file__).parent


def twice(x):
    return 2 * x


def thrice(x):
    return 3 * x


def test_numba_s_own_folder_is_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    compiled_and_kept(twice)
    assert str(tmp_path) == numba.config.CACHE_DIR


def test_the_users_folder_is_respected(tmp_path):
    folder = compiled_code._folder(str(tmp_path))
    assert folder.parent == tmp_path
    assert compiled_code._folder("").parent.parts[-2:] == ("truepair", "compiled")


def test_the_folder_changes_with_any_kernel_file_and_with_no_other(tmp_path):
    """Numba would not notice a change in another file than the function's own."""
    copy = tmp_path / "truepair"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    program = "from truepair.storage import compiled_code as c; print(c.__file__, c._folder(''))"

    def folder():
        told = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.split()
        assert Path(told[0]).is_relative_to(tmp_path)
        return told[1]

    before = folder()
    assert folder() == before
    for name in ("cli/main.py", "recommender/estimator.py", "training/sampled/gpu/kernels.py"):
        append_a_line(copy / name)
    assert folder() == before
    for name in (
        "losses/pairwise.py",
        "training/sampled/cpu/losses.py",
        "ranking/compiled_top_k.py",
        "randomness.py",
    ):
        append_a_line(copy / name)
        assert folder() != before
        before = folder()


def append_a_line(path):
    with path.open("a") as source:
        source.write("\n# another line\n")


COMPILE = {"compiled", "inlined", "exactly", "inner", "within", "_parallel", "_compiled", "compiled_and_kept"}


def test_all_that_is_compiled_lies_in_kernel_files():
    """A decorated function may use only what kernel files define: anything else would go stale unseen."""
    kernels = set(compiled_code.kernel_files())
    assert len(kernels) > 15
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and is_compiled(n)]
        assert path in kernels or not functions, path
        homes = {
            alias.asname or alias.name: node.module
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("truepair.")
            for alias in node.names
        }
        for function in functions:
            body = [n for statement in function.body for n in ast.walk(statement)]
            for name in {n.id for n in body if isinstance(n, ast.Name)} & set(homes):
                home = PACKAGE.parent.joinpath(*homes[name].split("."))
                home = (
                    home / f"{name}.py" if home.is_dir() else home.with_suffix(".py")
                )  # a module, or a name
                assert home in kernels, f"{path}: {function.name} uses {name} of {homes[name]}"


def is_compiled(function):
    names = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(isinstance(name, ast.Name) and name.id in COMPILE for name in names)


def test_no_machine_code_is_kept_where_there_is_no_room(monkeypatch):
    def njit(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr(numba, "njit", njit)
    function, options = compiled_and_kept(twice, nogil=True)
    assert function is twice
    assert options.items() >= {"nogil": True, "forceinline": False}.items()
    assert "cache" not in options


def halves(x):
    return x / 2.0


def test_machine_code_does_not_depend_on_who_calls_a_function_first(tmp_path, monkeypatch):
    """Numba compiles a function with options of its first caller where it sets none itself."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(
        compiled_code, "_folder", lambda given: tmp_path / "file" / "below"
    )  # nothing is kept
    alone, called = compiled_and_kept(halves), compiled_and_kept(halves)
    caller = compiled_and_kept(
        lambda x: called(x), forceinline=True, fastmath=True, error_model="numpy", _nrt=False
    )
    assert alone(3.0) == caller(3.0) == 1.5
    texts = [text for kernel in (alone, called) for text in kernel.inspect_llvm().values()]
    assert len(texts) == 2
    for text in texts:
        assert "alwaysinline" not in text
        assert " fast " not in text


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


def test_one_kernel_that_is_still_to_be_compiled_is_enough_for_a_word(tmp_path, capsys):
    kept = SimpleNamespace(cache_path=str(tmp_path))
    done, new = (SimpleNamespace(py_func=function, stats=kept) for function in (twice, thrice))
    announce_compilation([done])
    capsys.readouterr()
    announce_compilation([done, new])
    assert "compiling for this machine" in capsys.readouterr().err
    announce_compilation([done, new])
    assert not capsys.readouterr().err


def test_a_fork_after_training_is_told(monkeypatch):
    monkeypatch.setitem(compiled_code._pool, "lost", True)
    with pytest.raises(TrainingError, match=r"forked from one that had trained.*'spawn'"), parallel_kernel():
        pass


def test_a_folder_that_cannot_be_written_to_keeps_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(compiled_code, "_folder", lambda given: tmp_path / "file" / "below")
    assert compiled_and_kept(twice).stats.cache_path is None


def test_nobody_is_at_home(monkeypatch):
    def nowhere(given):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(compiled_code, "_folder", nowhere)
    assert compiled_and_kept(twice)(3) == 6
