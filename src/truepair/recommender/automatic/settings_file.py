"""Automatic settings beside a checkpoint: an interrupted run goes on with those it began with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from truepair.data.split import Split
from truepair.errors import InputError, StorageError
from truepair.recommender.automatic.budget import seconds_of
from truepair.recommender.automatic.choice import AutomaticSettings, choose
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.spec import Spec
from truepair.spec.parameters import as_json, from_json
from truepair.storage.atomic import atomic_write

_MOST_BYTES = 1 << 20


def settings_file(checkpoint: str | Path) -> Path:
    """The file of the automatic settings of a run with this checkpoint."""
    return Path(checkpoint).with_name(Path(checkpoint).name + ".settings")


def chosen_settings(
    spec: Spec,
    split: Split,
    budget: str | float | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    tables: FeatureTables = NO_TABLES,
) -> AutomaticSettings:
    """The automatic settings: those of the run that the checkpoint belongs to, or of a new search.

    Settings that cannot be read are chosen anew. Those of another run are an error if its checkpoint exists.
    """
    limit = seconds_of(budget)
    if not spec.searched and limit is not None:
        raise InputError(
            f"budget = {budget!s:.60} has no effect: it limits the choice of automatic settings, and there "
            "is nothing to choose here; leave it out, or set epochs."
        )
    if checkpoint is None or not spec.searched:
        return choose(spec, split, limit, progress, tables)
    # a run may go on for more epochs
    stated = {name: as_json(value) for name, value in spec.parameters().items() if name != "epochs"}
    about: list[Any] = [stated, spec.searched, split.hash, limit]
    if tables != NO_TABLES:
        about.append(tables.digests)
    key = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()
    path = settings_file(checkpoint)
    found = _read_settings(path, spec)
    if found is not None and found[0] == key:
        return found[1]
    if found is not None and Path(checkpoint).exists():
        raise StorageError(
            f"{path} is of a run with other data or parameters, whose checkpoint is {checkpoint}. "
            "Give another checkpoint file, or delete both."
        )
    choice = choose(spec, split, limit, progress, tables)
    if choice.facts:
        with atomic_write(path, "the automatic settings") as file:
            file.write(json.dumps({"key": key, "facts": choice.facts}).encode())
    return choice


def _read_settings(path: Path, spec: Spec) -> tuple[str, AutomaticSettings] | None:
    """The key and the settings of a file; None if there is none, or none that can be used."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, InputError):
        if path.stat().st_size > _MOST_BYTES:
            return None
        found = json.loads(path.read_bytes())
        facts, settled = dict(found["facts"]), dataclasses.replace(spec, searched=(), given_rate=True)
        chosen = facts["automatic"].get("chosen", {})
        restored = {name: value for name, value in from_json(chosen).items() if name in chosen}
        if isinstance(found["key"], str):
            made = settled.varied(**restored)
            if chosen:
                facts["automatic"]["repeat"] = made.call()
            return found["key"], AutomaticSettings(made, facts)
    return None
