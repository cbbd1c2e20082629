"""Functions on several ranks at once: processes that start warm, joined by gloo."""

import os
import pickle
import socket
import tempfile
from contextlib import closing
from pathlib import Path

import processes


def on_ranks(n, function, *args, **variables):
    """What `function(*args)` returns on each of `n` ranks; it lies at the top of a module.

    An exception of a rank takes the place of its result. `variables` are those of the environment.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "MASTER_ADDR": "127.0.0.1"}
        environment |= {"MASTER_PORT": free_port(), **variables}
        started = [processes.start(_work, rank, environment, folder, function, args) for rank in range(n)]
        for process in started:
            process.join(300)
            if process.exitcode is None:
                process.kill()
        return [_result(Path(folder, str(rank)), process) for rank, process in enumerate(started)]


def values(n, function, *args, **variables):
    """The same; an exception of a rank is raised."""
    found = on_ranks(n, function, *args, **variables)
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


def _work(rank, environment, folder, function, args):
    import torch

    torch.set_num_threads(1)
    os.environ |= {name: str(value) for name, value in environment.items()}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        found = function(*args)
    except Exception as error:
        found = error
    try:
        content = pickle.dumps(found)
    except Exception:  # an error that does not pickle
        content = pickle.dumps(RuntimeError(repr(found)))
    Path(folder, f"{rank}.new").write_bytes(content)
    os.replace(Path(folder, f"{rank}.new"), Path(folder, str(rank)))
