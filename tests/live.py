"""A service that listens on a port of this machine, in a thread."""

import threading
import time
from contextlib import contextmanager, nullcontext

import pytest

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from truepair.serving.web.protocol import BoundedProtocol
from truepair.serving.web.running import bound_socket, configuration


@contextmanager
def listening(service, **seconds):
    """The port; `seconds` are attributes of the protocol, such as head_seconds=0.1."""
    config = configuration(service)
    config.http = type("ImpatientProtocol", (BoundedProtocol,), seconds)
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext
    with bound_socket("127.0.0.1", 0, service.tokens) as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
