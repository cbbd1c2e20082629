"""Functions on several ranks at once: processes that start warm, joined by gloo."""

import os
import pickle
import socket
import tempfile
import traceback
from contextlib import closing
from pathlib import Path

import processes


def on_ranks(n, function, *args, rank_of_call=True):
    """What `function(*args)` returns on each of `n` ranks; it lies at the top of a module.

    An exception of a rank takes the place of its result.
    """
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        started = [processes.start(_work, rank, n, port, folder, function, args) for rank in range(n)]
        for process in started:
            process.join(120)
            if process.exitcode is None:
                process.kill()
        return [_result(Path(folder, str(rank)), process) for rank, process in enumerate(started)]


def values(n, function, *args):
    """The same; an exception of a rank is raised."""
    found = on_ranks(n, function, *args)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def free_port():
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _result(path, process):
    if not path.exists():
        return RuntimeError(f"rank {path.name} ended with {process.exitcode}")
    return pickle.loads(path.read_bytes())


def _work(rank, size, port, folder, function, args):
    import torch

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        found = function(*args)
    except Exception as error:
        error.add_note(traceback.format_exc())
        found = error
    Path(folder, f"{rank}.new").write_bytes(pickle.dumps(found))
    os.replace(Path(folder, f"{rank}.new"), Path(folder, str(rank)))
