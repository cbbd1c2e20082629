"""Limits: what one request may ask for, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most that a request may hold or ask for; more is refused before any work is done."""

    body: int = 1 << 20  # bytes
    k: int = 1000
    users: int = 1000
    """Users in one request for lists."""
    items: int = 10_000
    """Items in a list of a request."""
    pairs: int = 10_000
    """Pairs in one request for scores."""
    events: int = 1000
    text_length: int = 2000
    """Characters of a condition."""
    seconds: float = 30.0
    """Until a request is answered, or refused."""
    body_seconds: float = 10.0
    """Until the whole body has arrived."""
