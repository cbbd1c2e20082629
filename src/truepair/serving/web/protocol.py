"""BoundedProtocol: uvicorn's HTTP with bounds on how long and how large the head of a request may be.

Without them, a client that never ends its headers holds memory and a connection for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 1 << 16
HEAD_SECONDS = 10.0
LINGER_SECONDS = 2.0
"""How long the rest of a request is read, and thrown away, after the answer: callers read that
afterwards, and a connection that is closed with unread bytes may lose it."""
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. The seconds are attributes, so that tests need not wait."""

    head_seconds, linger_seconds = HEAD_SECONDS, LINGER_SECONDS
    _size = 0  # bytes since the last head was complete
    _in_head, _is_refused = True, False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; its first request must begin and have a whole head soon."""
        super().connection_made(transport)
        self._close_after(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._keep_open()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of several."""
        if self._is_refused:
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._close_after(self.head_seconds)
        super().data_received(data)
        self._size = self._size + len(data) if self._in_head else 0
        if self._size > HEAD_BYTES and not self.transport.is_closing():
            self._is_refused = True
            if self.cycle is not None:
                self.cycle.disconnected = True  # its answer would come after the refusal
            self.transport.write(_TOO_LARGE)
            self._close_after(self.linger_seconds)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """The head of a request is complete."""
        self._in_head = False
        self._keep_open()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is complete."""
        if self.cycle is not None and self.cycle.response_complete:
            self._keep_open()
            self.cycle.more_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer was sent, maybe before the body had come."""
        super().on_response_complete()
        if self.cycle is not None and self.cycle.response_complete and self.cycle.more_body:
            self._close_after(self.linger_seconds)
        elif self._in_head and not self.pipeline:  # the next request has begun
            self._close_after(self.head_seconds)

    def _close_after(self, seconds: float) -> None:
        self._keep_open()
        self._deadline = self.loop.call_later(seconds, self._close)

    def _keep_open(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self, *_: object) -> None:
        self._deadline = None
        self.transport.close()
