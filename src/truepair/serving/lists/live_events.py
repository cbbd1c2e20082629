"""LiveEvents: the store as the histories of all loaded models see it. Each hears of every new event."""

from __future__ import annotations

import threading
import weakref

from truepair.serving.events.store import EventReader
from truepair.serving.lists.histories import Histories


class LiveEvents:
    """A reader that several models share: while one takes over from another, both answer requests.

    A reader reports a new event once. Here all models are told before anybody is answered.
    """

    def __init__(self, reader: EventReader) -> None:
        self.reader = reader
        self._models: weakref.WeakSet[Histories] = weakref.WeakSet()  # one that is let go is forgotten
        self._lock = threading.Lock()

    def attach(self, people: Histories) -> None:
        """Let these histories read the store, and hear of new events."""
        with self._lock:
            self._models.add(people)
        people.reader = self

    def refresh(self) -> None:
        """Have all histories forget the vectors of people who did something since the last call."""
        with self._lock:
            if changed := self.reader.changed_users():
                for people in self._models:
                    people.forget(changed)

    def of_user(self, user: str) -> list[tuple[str, str, float]]:
        """A person's events, oldest first."""
        return self.reader.of_user(user)
