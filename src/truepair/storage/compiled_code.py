"""Compiled code on the CPU: machine code kept on disk, a word before it is made, one caller at a time."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from truepair.errors import TrainingError

# Where compiled functions are, and what is compiled into them; a test finds what is missing here.
KERNELS = (
    "randomness.py",
    "losses/[a-z]*.py",
    "storage/compiled_code.py",
    "ranking/compiled_top_k.py",
    "ranking/greedy_lists.py",
    "ranking/reasons.py",
    "training/full/histogram.py",
    "training/full/large/table_adam.py",
    "training/full/new_user_rows.py",
    "training/full/large/row_adam.py",
    "training/sampled/plan.py",
    "training/sampled/cpu/**/*.py",
)

# Options that Numba takes from a caller where a function does not set them
_NOT_FROM_CALLERS: dict[str, Any] = {
    "fastmath": False,
    "error_model": "python",
    "forceinline": False,
    "_nrt": True,
}

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Numba's simplest thread pool ends the process when two Python threads enter parallel kernels at once.
_one_at_a_time = threading.Lock()
_pool = {"started": False, "lost": False}  # Numba's threads; a forked process does not have its parent's


@contextmanager
def parallel_kernel() -> Iterator[None]:
    """Around a call of a parallel kernel: one at a time, and none in a process forked after one."""
    if _pool["lost"]:
        raise TrainingError(
            "this process was forked from one that had trained; use 'spawn', 'forkserver' or engine='cpu'."
        )
    with _one_at_a_time:
        _pool["started"] = True
        yield


def _after_fork() -> None:
    global _one_at_a_time
    _one_at_a_time, _pool["lost"] = threading.Lock(), _pool["started"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def compiled_and_kept(function: _Function, **options: Any) -> _Function:
    """`numba.njit`, with the machine code kept on disk where there is room for it.

    Numba looks only at the file of a function, and not at those of the functions it calls, to tell whether
    its machine code is still right. So it is kept in a folder named by the content of all kernel files.

    A function without an option would have that of whichever function it is compiled for first, and with it
    other machine code: sums in another order. So every option that Numba hands on is set.
    """
    import numba  # not before it is needed: it takes a while

    options = _NOT_FROM_CALLERS | options
    config: Any = numba.config
    configured = config.CACHE_DIR
    try:
        folder = _folder(configured)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        config.CACHE_DIR = str(folder)
        return cast(_Function, numba.njit(cache=True, **options)(function))
    except (OSError, RuntimeError):  # there is no such folder: compile anew in each process
        return cast(_Function, numba.njit(**options)(function))
    finally:
        config.CACHE_DIR = configured


def kernel_files() -> list[Path]:
    """Every source file that has compiled functions, or constants and functions that they use."""
    package = Path(__file__).parents[1]
    return sorted(path for pattern in KERNELS for path in package.glob(pattern))


@cache
def _folder(given: str) -> Path:
    """Within NUMBA_CACHE_DIR if that is set, else within the user's cache."""
    digest = hashlib.blake2b(digest_size=8)
    for source in kernel_files():
        digest.update(source.read_bytes())
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(given) if given else cache_home / "truepair" / "compiled") / digest.hexdigest()


def announce_compilation(kernels: Iterable[Any], variant: str = "") -> None:
    """Say on stderr that kernels are being compiled, if they will be: it takes seconds, once a machine.

    `variant` distinguishes calls with other types of arguments, each of which is compiled.
    """
    marks = [_mark(kernel, variant) for kernel in kernels]
    if any(mark is None or not mark.exists() for mark in marks):
        print("compiling for this machine; this happens once and takes some seconds …", file=sys.stderr)
    for mark in marks:
        if mark is not None:
            with suppress(OSError):
                mark.touch()


def _mark(kernel: Any, variant: str) -> Path | None:
    """An empty file beside a kernel's machine code; None where there is no folder for it."""
    folder, function = kernel.stats.cache_path, kernel.py_func
    if folder is None or not Path(folder).is_dir():
        return None
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    return Path(folder) / f"{function.__module__}.{function.__qualname__}.{variant}.py{python}.announced"
