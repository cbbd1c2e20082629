"""Workers share the work of compiling: each function is compiled by one of them, different ones at a time.

The largest compiled functions take half a minute each. Without this every worker would compile all of them on
a machine that has no machine code yet, or wait for another one.
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


def warm_up(worker: int, workers: int) -> None:
    """Train for an epoch with this worker's share of what takes longest to compile."""
    from truepair.losses import BPR
    from truepair.models.encoders import MF, LightGCN
    from truepair.sampling import BNS, Uniform
    from truepair.training import Job, Settings
    from truepair.training.sampled.cpu.engine import CpuTrainer
    from truepair.training.sampled.hogwild.engine import FastTrainer
    from worlds import two_tastes

    plain, graph, in_batch = MF(dim=4), LightGCN(dim=4), BNS(pool=6, in_batch=True)
    settings, data = Settings(epochs=1, device="cpu"), two_tastes()
    kernels = [  # in an order in which two workers get as much to do
        (CpuTrainer, plain, in_batch),
        (CpuTrainer, plain, Uniform()),
        (FastTrainer, plain, Uniform()),
        (CpuTrainer, graph, Uniform()),
    ]
    for trainer, encoder, sampler in kernels[worker::workers]:
        # It says on stderr that it compiles. If it fails, the tests of the engine say why
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
            trainer(Job(encoder, BPR(), sampler, data, settings)).train(0, 0.01, lambda steps: None)
