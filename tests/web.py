"""A local HTTP server that misbehaves as told, for the tests of downloads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Serves `files`; each request uses up the next of `behaviours`, and the last one of `always` stays."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.behaviours: list[Behaviour] = []
        self.always: Behaviour = serve
        self.paths: list[str] = []
        self.closing = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the play."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        behaviours = self.server.behaviours
        (behaviours.pop(0) if behaviours else self.server.always)(self)

    def log_message(self, format: str, *args: object) -> None:
        pass

    @property
    def content(self) -> bytes:
        return self.server.files[self.path.removeprefix("/")]

    def begin(self, status: int = 200, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


@contextmanager
def running_server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


# --- behaviours ------------------------------------------------------------------------------------


def serve(handler: Handler) -> None:
    """As it should be."""
    handler.begin(Content_Length=len(handler.content))
    handler.wfile.write(handler.content)


def without_length(handler: Handler) -> None:
    handler.begin()
    handler.wfile.write(handler.content)


def truncate(after: int) -> Behaviour:
    """Declares all of it, sends `after` bytes, and hangs up."""

    def behave(handler: Handler) -> None:
        handler.begin(Content_Length=len(handler.content))
        handler.wfile.write(handler.content[:after])

    return behave


def stall(after: int | None) -> Behaviour:
    """Sends `after` bytes and then nothing more; with None, not even an answer."""

    def behave(handler: Handler) -> None:
        if after is not None:
            truncate(after)(handler)
            handler.wfile.flush()
        handler.server.closing.wait(30)

    return behave


def hang_up(handler: Handler) -> None:
    """No answer at all."""
    handler.close_connection = True


def half_a_chunk(handler: Handler) -> None:
    """A chunked body that ends within a chunk."""
    handler.begin(Transfer_Encoding="chunked")
    handler.wfile.write(b"40\r\n" + handler.content[:10])


def corrupt(handler: Handler) -> None:
    """The right length, one bit wrong."""
    content = bytearray(handler.content)
    content[len(content) // 2] ^= 1
    handler.begin(Content_Length=len(content))
    handler.wfile.write(content)


def status(code: int) -> Behaviour:
    return lambda handler: handler.begin(code, Content_Length=0)


def redirect(to: str, code: int = 302) -> Behaviour:
    return lambda handler: handler.begin(code, Location=to, Content_Length=0)
