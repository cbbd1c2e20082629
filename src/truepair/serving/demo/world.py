"""The data of the demo: MovieLens-100k, or a simulated world; its past is learnt, its future visits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from truepair.data.datasets.loading import load, load_titles
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_given, split_temporal
from truepair.errors import DownloadError
from truepair.storage.types import Array

LIKED = 4
"""Ratings from here on are likes; those up to 2 are dislikes when visitors act."""
_FUTURE = 0.15  # the share of the newest likes, which no model learns from

Visit = tuple[object, object, str]
"""What a visitor does: (user, item, kind)."""


@dataclass(frozen=True, eq=False)
class DemoWorld:
    """What the demo serves, and what its visitors will do."""

    name: str
    note: str
    """Where the data comes from, as readable text."""
    split: Split
    future: tuple[Visit, ...]
    """(user, item, kind) in the order of time."""
    items: pa.Table


def demo_world(
    data_dir: Path | None = None, load: Callable[..., Interactions] = load, seed: int = 0
) -> DemoWorld:
    """MovieLens-100k from a folder, the cache or the network; where there is none, a simulated world."""
    try:
        ratings = load("ml-100k", data_dir)
        titles = load_titles("ml-100k", data_dir)
    except DownloadError:
        note = "MovieLens-100k is not on this machine and cannot be downloaded: this world is simulated"
        return _simulated(note, seed)
    assert ratings.rating is not None
    likes = ratings.with_min_rating(LIKED)
    split = split_temporal(likes, test=_FUTURE)
    assert ratings.time is not None
    assert split.test.time is not None
    newest = ratings.take(ratings.time >= split.test.time.min())
    assert newest.time is not None
    assert newest.rating is not None
    order = np.argsort(newest.time, kind="stable")
    kinds = np.where(newest.rating >= LIKED, "like", np.where(newest.rating <= 2, "dislike", ""))
    return DemoWorld(
        "MovieLens-100k",
        "MovieLens-100k: movies that users rated 4 or 5",
        split,
        _future(newest, order, kinds),
        _table(list(titles), list(titles.values()), "year"),
    )


def _simulated(note: str, seed: int) -> DemoWorld:
    world = simulate_world(800, 600, tau=0.1, density=0.04, exposure="popularity", seed=seed)
    hidden, random = world.hidden, np.random.default_rng(seed)
    ids = world.observed.item_ids.ids.to_pylist()
    coming = hidden.take(np.sort(random.choice(len(hidden), min(len(hidden), 10_000), replace=False)))
    order = random.permutation(len(coming))
    kinds = np.full(len(coming), "like")
    return DemoWorld(
        "a simulated world",
        note,
        split_given(world.observed, coming),
        _future(coming, order, kinds),
        _table(ids, ids, "genre"),
    )


def _table(ids: Sequence[object], titles: Sequence[str], column: str) -> pa.Table:
    """The item table; what is in brackets at the end of a title is a column, too."""
    ends = (re.search(r"\(([^()]+)\)\s*$", title) for title in titles)
    return pa.table({"item": ids, "title": titles, column: [end and end[1] for end in ends]})


def _future(pairs: Interactions, order: Codes, kinds: Array) -> tuple[Visit, ...]:
    order = order[kinds[order] != ""]
    users = pairs.user_ids.outside(pairs.users[order]).to_pylist()
    items = pairs.item_ids.outside(pairs.items[order]).to_pylist()
    return tuple(zip(users, items, kinds[order].tolist(), strict=True))
