"""Workers share the work of compiling: each function is compiled by one of them.

The largest compiled functions take many seconds each. Without this every worker would compile all of them on
a machine that has no machine code yet.
"""

import contextlib
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

_compile, _save = Dispatcher.compile, IndexDataCacheFile.save


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile_once(self: Dispatcher, signature: object) -> object:
    """The first worker compiles for a signature; others wait, and load its machine code from disk."""
    folder = self.stats.cache_path
    if folder is None:
        return _compile(self, signature)
    name = f"{self.py_func.__module__}.{self.py_func.__qualname__}{signature}"
    lock = Path(folder) / f"{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}.lock"
    # In this order, so that two threads of a worker cannot wait for each other
    with global_compiler_lock, _alone(lock):
        return _compile(self, signature)


def _save_alone(self: IndexDataCacheFile, key: object, data: object) -> None:
    """Two signatures of a function have one index."""
    with _alone(Path(f"{self._index_path}.lock")):
        _save(self, key, data)


def compile_once() -> None:
    """Have the workers take turns."""
    if os.name == "posix":
        Dispatcher.compile, IndexDataCacheFile.save = _compile_once, _save_alone


def warm_up(worker: int) -> None:
    """The first worker trains for an epoch with what takes longest to compile."""
    from truepair.losses import BPR
    from truepair.models.encoders import MF
    from truepair.sampling import Uniform
    from truepair.training import Job, Settings
    from truepair.training.sampled.cpu.trainer import CpuTrainer
    from worlds import two_tastes

    job = Job(MF(dim=4), BPR(), Uniform(), two_tastes(), Settings(epochs=1, device="cpu"))
    if worker == 0:
        # It says on stderr that it compiles. If it fails, the tests of the engine say why
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
            CpuTrainer(job).train(0, 0.01, lambda steps: None)
