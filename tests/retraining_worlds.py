"""A shop with three tastes: a model of what people did at first, and a store with what they did later."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")  # versions of a served model are kept with it

import truepair as tp
from truepair.serving.events.event import Event
from truepair.serving.events.store import EventStore
from truepair.serving.retraining.rounds import RetrainingPlan

N_USERS, N_ITEMS, N_NEW = 90, 48, 24
KINDS = {"like": 1.0, "dislike": -1.0}


def tastes(n_users, seed=0):
    """User -> items of their third, in the order in which they like them: 4 old ones, then 8 that are new."""
    rng = np.random.default_rng(seed)
    old, new = ([np.arange(u % 3 + start, end, 3) for u in range(n_users)]
                for start, end in ((0, N_ITEMS), (N_ITEMS, N_ITEMS + N_NEW)))  # fmt: skip
    return {u: np.concatenate([rng.permutation(old[u])[:4], rng.permutation(new[u])]) for u in range(n_users)}


@cache
def _fitted(name, settings):
    """The bytes of a model file of everybody's first four likes."""
    pairs = [(u, i) for u, items in tastes(N_USERS + 20).items() if u < N_USERS for i in items[:4]]
    model = tp.Recommender(**{"dim": 8, "epochs": 20, "auto": False, **dict(settings)})
    table = {"user": [name(f"u{u}") for u, _ in pairs], "item": [name(f"i{i}") for _, i in pairs]}
    times = {"time": [1_000_000_000 + n for n in range(len(pairs))]} if "trend" in dict(settings) else {}
    model.fit(table | times)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.truepair"
        model.save(path)
        return path.read_bytes()


class Shop:
    """A folder with a model file and a store of events."""

    def __init__(self, folder, name=str, **settings):
        self.folder, self.name = Path(folder), name
        self.path, self.store_path = self.folder / "model.truepair", self.folder / "events.sqlite"
        self.likes = tastes(N_USERS + 20)
        self.path.write_bytes(_fitted(name, tuple(settings.items())))
        self.model = tp.Recommender.load(self.path)
        self.store = EventStore(self.store_path)
        self.time = 0

    def user(self, u):
        return self.name(f"u{u}")

    def item(self, i):
        return self.name(f"i{i}")

    def add(self, rows):
        """Store events (user, item) or (user, item, kind, weight), each a second after the one before."""
        events = []
        for user, item, *rest in rows:
            kind, weight = [*rest, "like", 1.0][:2] if not rest else [*rest, 1.0][:2]
            self.time += 1_000_000
            events.append(Event(str(user), str(item), kind, weight, self.time, None))
        return self.store.add([events])[0]

    def add_visits(self, start=4, end=8, users=None):
        """What all people like next, in turns; the last 20 people and the items are new to the model."""
        users = range(N_USERS + 20) if users is None else users
        self.add([(self.user(u), self.item(self.likes[u][n])) for n in range(start, end) for u in users])

    def plan(self, **changes):
        return RetrainingPlan(
            **{"model": str(self.path), "store": str(self.store_path), "kinds": KINDS, **changes}
        )
