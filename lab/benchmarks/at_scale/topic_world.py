"""A world of any size whose structure is known: users with three topics each, items with one.

A user draws an item from one of their topics, or in `MIXED` of the draws from any; within a topic popular
items come more often, with density ∝ x^(1/POWER − 1). The chance of a pair is therefore known, and so are the
best possible lists. Rows are made a million at a time.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import truepair as tp
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.evaluation import Validation

TOPICS, OWN, MIXED, POWER = 24, 3, 0.15, 2.5
USERS_AT_ONCE = 20_000
PER_USER, PER_ITEM = 50, 500
ROWS_PER_PAIR = 1.3  # some draws repeat a pair
_AT_ONCE = 4_000_000

Codes = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


class World(NamedTuple):
    """The numbers from which all else follows."""

    pairs: int
    seed: int = 0

    @property
    def users(self) -> int:
        """How many users there are."""
        return max(self.pairs // PER_USER, 100)

    @property
    def items(self) -> int:
        """How many items; a whole number for each topic."""
        return max(self.pairs // PER_ITEM // TOPICS, 5) * TOPICS

    def item_order(self) -> Codes:
        """The items, topic by topic, the popular ones first; the ids say nothing."""
        return np.random.default_rng([self.seed, 1]).permutation(self.items)

    def tastes(self, first: int, last: int) -> npt.NDArray[np.float64]:
        """The share of each topic in the draws of users first … last − 1. [users, TOPICS]"""
        rng = np.random.default_rng([self.seed, 2, first])
        shares = np.zeros((last - first, TOPICS))
        own = rng.random(shares.shape).argpartition(OWN, axis=1)[:, :OWN]
        np.put_along_axis(shares, own, rng.dirichlet(np.ones(OWN), last - first), axis=1)
        return (1 - MIXED) * shares + MIXED / TOPICS

    def starts(self) -> range:
        """The first users of the pieces in which rows are made."""
        return range(0, self.users, USERS_AT_ONCE)

    def rows(self, first: int) -> pa.Table:
        """The rows of a piece."""
        last = min(first + USERS_AT_ONCE, self.users)
        rng = np.random.default_rng([self.seed, 3, first])
        mean = ROWS_PER_PAIR * PER_USER
        counts = 1 + rng.negative_binomial(3, 3 / (2 + mean), last - first)
        users = np.repeat(np.arange(last - first), counts)
        below = self.tastes(first, last).cumsum(axis=1)
        topics = (rng.random(len(users))[:, None] >= below[users]).sum(axis=1).clip(max=TOPICS - 1)
        size = self.items // TOPICS
        ranks = (size * rng.random(len(users)) ** POWER).astype(np.int64)
        return pa.table({"user_id": users + first, "item_id": self.item_order()[topics * size + ranks]})

    def vectors(self, users: Codes, items: Codes) -> tuple[Vectors, Vectors]:
        """Of these ids; a product is the chance that a draw of the user is the item, up to a factor."""
        size, place = self.items // TOPICS, np.empty(self.items, np.int64)
        place[self.item_order()] = np.arange(self.items)
        shares = np.diff((np.arange(size + 1) / size) ** (1 / POWER))
        of_items = np.zeros((len(items), TOPICS), np.float32)
        of_items[np.arange(len(items)), place[items] // size] = shares[place[items] % size]
        starts = users // USERS_AT_ONCE * USERS_AT_ONCE
        of_users = np.empty((len(users), TOPICS), np.float32)
        for first in np.unique(starts).tolist():
            mine = starts == first
            tastes = self.tastes(first, min(first + USERS_AT_ONCE, self.users))
            of_users[mine] = tastes[users[mine] - first]
        return of_users, of_items


def make(world: World, folder: Path, memory: str) -> float:
    """The seconds to make a world in a folder: rows, prepared parts, and train as Parquet for others.

    A folder with this world, made whole before, is used again.
    """
    made = folder / "world.json"
    if made.exists():
        facts = json.loads(made.read_text())
        if World(facts["pairs"], facts["seed"]) != world:
            raise ValueError(f"{folder} has another world ({made.name}: {facts}); name an empty folder")
        return float(facts["seconds"])
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(world, folder / "rows.parquet")
    options = {"test": 0.1, "valid": 0.1, "seed": world.seed, "memory": memory}
    tp.prepare_interactions(folder / "rows.parquet", folder / "prepared", **options)  # type: ignore[arg-type]
    (folder / "rows.parquet").unlink()
    write_codes(part(folder, "train"), folder / "train.parquet")
    seconds = time.perf_counter() - began
    made.write_text(json.dumps(world._asdict() | {"seconds": seconds}))
    return seconds


def write_rows(world: World, path: Path) -> None:
    """The rows, a piece at a time."""
    with pq.ParquetWriter(path, pa.schema({"user_id": pa.int64(), "item_id": pa.int64()})) as out:
        for first in world.starts():
            out.write_table(world.rows(first))


def write_codes(train: Interactions, path: Path) -> None:
    """The pairs as codes."""
    schema = pa.schema({"user": pa.int32(), "item": pa.int32()})
    with pq.ParquetWriter(path, schema) as out:
        for first in range(0, len(train), _AT_ONCE):
            codes = [c[first : first + _AT_ONCE].astype(np.int32) for c in (train.users, train.items)]
            out.write_table(pa.table(dict(zip(schema.names, codes, strict=True))))


def part(folder: Path, name: str) -> Interactions:
    """A part of the split, as memory maps."""
    found = tp.open_prepared(folder / "prepared" / name)
    assert isinstance(found, Interactions)
    return found


class Judge:
    """NDCG@20 of vectors, for a sample of the users who have pairs in a part."""

    def __init__(self, folder: Path, name: str, n: int) -> None:
        """`name` is "valid" or "test"; pairs of earlier parts are left out of the lists."""
        target, self.train = part(folder, name), part(folder, "train")
        known = np.flatnonzero((target.user_counts > 0) & (self.train.user_counts > 0))
        self.sample = np.sort(np.random.default_rng(7).choice(known, min(n, len(known)), replace=False))
        earlier = ("train",) if name == "valid" else ("train", "valid")
        seen = [self._of_sample(part(folder, each)) for each in earlier]
        self.validation = Validation(self._of_sample(target), seen, "ndcg@20")
        self.ids = target.user_ids, target.item_ids

    def _of_sample(self, whole: Interactions) -> Interactions:
        starts = whole.indptr
        rows = [whole.items[starts[user] : starts[user + 1]] for user in self.sample]
        users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        items = np.concatenate(rows).astype(np.int64)
        return Interactions(users, items, IdMap.range(len(rows)), IdMap.range(whole.n_items))

    def score(self, users: Vectors, items: Vectors) -> float:
        """`users` are the vectors of the sample."""
        return self.validation.score(np.ascontiguousarray(users), np.ascontiguousarray(items))

    def bounds(self, world: World) -> dict[str, float]:
        """The scores of popularity alone, and of the chances by which the pairs were drawn."""
        users, items = (np.asarray(ids.ids) for ids in self.ids)
        popularity = self.train.item_counts[:, None].astype(np.float32)
        alike = np.ones((len(self.sample), 1), np.float32)
        chances = world.vectors(users[self.sample], items)
        return {"popularity": self.score(alike, popularity), "known chances": self.score(*chances)}
