"""RefusalError: an answer that is an error, with its HTTP status and a text for the caller."""

from __future__ import annotations

from truepair.errors import TruepairError


class RefusalError(TruepairError):
    """A request that is not served. The text states the value, what is allowed and the remedy."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.headers = status, headers or {}
