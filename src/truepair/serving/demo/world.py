"""The data of the demo: MovieLens-100k, or a simulated world; its past is learnt, its future visits.

Its files: two models, which are kept in the cache for the next start, and an item table.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from truepair.data.datasets.loading import cache_dir, load, load_titles
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_given, split_temporal
from truepair.errors import DownloadError, StorageError
from truepair.recommender.estimator import Recommender
from truepair.storage.types import Array, Json
from truepair.storage.versions import package_version

LIKED = 4
"""Ratings from here on are likes; those up to 2 are dislikes when visitors act."""
_FUTURE = 0.15  # the share of the newest likes, which no model learns from

_K = 10
_METRIC = f"ndcg@{_K}"
_SETTINGS: Json = {
    "dim": 64, "epochs": 20, "temperature": 0.14, "popularity": 0.8, "learning_rate": 0.02, "auto": False,
    "metric": _METRIC,
}  # fmt: skip
MODELS: dict[str, Json] = {"default": _SETTINGS, "ease": {"encoder": "ease", "metric": _METRIC}}
"""The models by name: the one that is served, and the one beside it."""

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


def demo_world(data_dir: Path | None = None) -> DemoWorld:
    """MovieLens-100k from a folder, the cache or the network; where there is none, a simulated world."""
    try:
        ratings = load("ml-100k", data_dir)
        titles = load_titles("ml-100k", data_dir)
    except DownloadError:
        return _simulated()
    split = split_temporal(ratings.with_min_rating(LIKED), test=_FUTURE)
    times, rating = np.asarray(ratings.time), np.asarray(ratings.rating)
    order = np.argsort(times, kind="stable")
    order = order[times[order] >= np.asarray(split.test.time).min()]
    kinds = np.where(rating >= LIKED, "like", np.where(rating <= 2, "dislike", ""))
    return DemoWorld(
        "MovieLens-100k",
        "MovieLens-100k: movies that users rated 4 or 5",
        split,
        _future(ratings, order, kinds),
        _table(list(titles), list(titles.values()), "year"),
    )


def _simulated() -> DemoWorld:
    world = simulate_world(800, 600, tau=0.1, density=0.04, exposure="popularity", seed=0)
    hidden, random = world.hidden, np.random.default_rng(0)
    ids = world.observed.item_ids.ids.to_pylist()
    coming = hidden.take(np.sort(random.choice(len(hidden), min(len(hidden), 10_000), replace=False)))
    return DemoWorld(
        "a simulated world",
        "MovieLens-100k is not on this machine and cannot be downloaded: this world is simulated",
        split_given(world.observed, coming),
        _future(coming, random.permutation(len(coming)), np.full(len(coming), "like")),
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


# --- files -----------------------------------------------------------------------------------------------


class DemoFiles(NamedTuple):
    """What `truepair serve` needs, beside the world."""

    model: Path
    beside: Path
    items: Path


def demo_files(folder: Path, world: DemoWorld) -> DemoFiles:
    """Files in this folder; the models are those of the cache, or fitted in some seconds and kept there."""
    model, beside = (folder / f"{name}.truepair" for name in MODELS)
    for path, settings in zip((model, beside), MODELS.values(), strict=True):
        _model(path, world, settings)
    items = folder / "items.parquet"
    pq.write_table(world.items, items)
    return DemoFiles(model, beside, items)


def _model(path: Path, world: DemoWorld, settings: Json) -> None:
    key = repr((world.split.hash, sorted(settings.items()), package_version("truepair")))
    name = f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.truepair"
    kept = cache_dir() / "serve-demo" / name
    with suppress(StorageError, OSError):  # there is none, or none that can be used
        Recommender.load(kept)
        shutil.copyfile(kept, path)
        return
    model = fitted(world, settings)
    model.save(path)
    with suppress(StorageError):  # a cache that cannot be written costs the next start some seconds
        model.save(kept)


def fitted(world: DemoWorld, settings: Json) -> Recommender:
    """A model of the world's past, with its scores on the future and their intervals."""
    model = Recommender(**settings).fit(world.split)
    found = model.evaluate(world.split, ks=(_K,))
    names = [name for name in found.means if name.endswith(f"@{_K}")]
    model.facts_["metrics"] |= {f"test {name}": found.mean(name) for name in names}
    model.facts_["intervals"] = {f"test {name}": list(found.interval(name)) for name in names}
    return model
