"""Functions in processes of their own, which start warm: forked from a server that has imported truepair."""

import multiprocessing

# The server has no threads, so that a fork of it is safe, and imports once what every child needs.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    [
        "pandas",
        "torch",
        "torch._dynamo",  # PyTorch's optimizers import it at their first step
        "safetensors.torch",
        "truepair.evaluation",
        "truepair.recommender",
        "truepair.training",
        "truepair.training.distributed.run",
        "truepair.search.running",
    ]
)


def start(function, *args):
    """A started process that runs `function`, which lies at the top of a module, with `args`."""
    process = _server.Process(target=function, args=args)
    process.start()
    return process


def exit_code(function, *args):
    """Run `function` to its end: 0, 1 after an exception, or minus the signal that killed the process."""
    process = start(function, *args)
    process.join()
    return process.exitcode
