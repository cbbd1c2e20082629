"""Files of the demo: two models and an item table; models are kept in the cache for the next start."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from truepair.data.datasets.loading import cache_dir
from truepair.errors import StorageError
from truepair.recommender.estimator import Recommender
from truepair.serving.demo.world import DemoWorld, Visit, demo_world
from truepair.storage.atomic import atomic_write
from truepair.storage.types import Json
from truepair.storage.versions import package_version

_METRIC = "ndcg@10"
_SETTINGS: Json = {
    "dim": 64, "epochs": 20, "temperature": 0.14, "popularity": 0.8, "learning_rate": 0.02, "auto": False,
    "metric": _METRIC,
}  # fmt: skip
MODELS: dict[str, Json] = {"default": _SETTINGS, "ease": {"encoder": "ease", "metric": _METRIC}}
"""The models by name: the one that is served, and the one beside it."""


class DemoFiles(NamedTuple):
    """What `truepair serve` needs."""

    name: str
    note: str
    """Where the data comes from."""
    model: Path
    beside: Path
    items: Path
    future: Sequence[Visit]
    """What the visitors will do: (user, item, kind)."""


def demo_files(folder: Path, data_dir: Path | None = None, world: DemoWorld | None = None) -> DemoFiles:
    """Files in this folder; the models are those of the cache, or fitted in some seconds and kept there."""
    world = demo_world(data_dir) if world is None else world
    paths = [folder / f"{name}.truepair" for name in MODELS]
    for path, settings in zip(paths, MODELS.values(), strict=True):
        _model(path, world, settings)
    items = folder / "items.parquet"
    pq.write_table(world.items, items)
    return DemoFiles(world.name, world.note, paths[0], paths[1], items, world.future)


def _model(path: Path, world: DemoWorld, settings: Json) -> None:
    key = repr((world.split.hash, sorted(settings.items()), package_version("truepair")))
    name = f"{hashlib.blake2b(key.encode(), digest_size=12).hexdigest()}.truepair"
    kept = cache_dir() / "serve-demo" / name
    with suppress(StorageError, OSError):  # there is none, or none that can be used
        Recommender.load(kept)
        shutil.copyfile(kept, path)
        return
    fitted(world, settings).save(path)
    with suppress(StorageError, OSError):  # a cache that cannot be written costs the next start some seconds
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kept) as file:
            file.write(path.read_bytes())


def fitted(world: DemoWorld, settings: Json) -> Recommender:
    """A model of the world's past, with its scores on the future and their intervals."""
    model = Recommender(**settings).fit(world.split)
    k = int(_METRIC.partition("@")[2])
    found = model.evaluate(world.split, ks=(k,))
    names = [name for name in found.means if name.endswith(f"@{k}")]
    model.facts_["metrics"] |= {f"test {name}": found.mean(name) for name in names}
    model.facts_["intervals"] = {f"test {name}": list(found.interval(name)) for name in names}
    return model
