"""Automatic settings beside a checkpoint: an interrupted run goes on with those it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from truepair.data.split import Split
from truepair.errors import InputError, StorageError
from truepair.recommender.automatic.budget import seconds_of
from truepair.recommender.automatic.choice import Choice, choose, open_choices, repeating_call
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.spec.parameters import as_json, from_json
from truepair.recommender.parts import Parameters, parts_of
from truepair.storage.atomic import atomic_write

_MOST_BYTES = 1 << 20


def settings_file(checkpoint: str | Path) -> Path:
    """The file of the automatic settings of a run with this checkpoint."""
    return Path(checkpoint).with_name(Path(checkpoint).name + ".settings")


def chosen_settings(
    parameters: Parameters,
    given: Collection[str],
    split: Split,
    budget: str | float | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    tables: FeatureTables = NO_TABLES,
) -> Choice:
    """The automatic settings: those of the run that the checkpoint belongs to, or of a new search.

    Settings that cannot be read are chosen anew. Those of another run are an error if its checkpoint exists.
    """
    limit = seconds_of(budget)
    if not open_choices(parameters, given):
        if limit is None:
            return Choice()
        raise InputError(
            f"budget = {budget!s:.60} has no effect: it limits the choice of automatic settings, and there "
            "is nothing to choose here; leave it out, or set epochs."
        )

    def search() -> Choice:
        return choose(parameters, given, split, limit, progress, tables)

    if checkpoint is None:
        return search()
    # a run may go on for more epochs
    stated = {name: as_json(value) for name, value in parameters.items() if name != "epochs"}
    facts: list[Any] = [stated, sorted(given), split.hash, limit]
    if tables != NO_TABLES:
        facts.append(tables.digests)
    key = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
    path = settings_file(checkpoint)
    found = _read_settings(path, parameters)
    if found is None or found[0] != key:
        if found is not None and Path(checkpoint).exists():
            raise StorageError(
                f"{path} is of a run with other data or parameters, whose checkpoint is {checkpoint}. "
                "Give another checkpoint file, or delete both."
            )
        choice = search()
        if choice.facts:
            _write_settings(path, key, choice)
        return choice
    choice = found[1]
    if "repeat" in choice.facts["automatic"]:
        chosen = {name: value for name, value in choice.parameters.items() if name != "auto"}
        choice.facts["automatic"]["repeat"] = repeating_call(parameters, given, chosen)
    return choice


def _read_settings(path: Path, parameters: Parameters) -> tuple[str, Choice] | None:
    """The key and the settings of a file; None if there is none, or none that can be used."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, InputError):
        if path.stat().st_size > _MOST_BYTES:
            return None
        found = json.loads(path.read_bytes())
        restored = {name: from_json(found["parameters"])[name] for name in found["parameters"]}
        parts_of({**parameters, **restored})
        facts = dict(found["facts"])
        if isinstance(found["key"], str) and isinstance(facts["automatic"], dict):
            return found["key"], Choice(restored, facts)
    return None


def _write_settings(path: Path, key: str, choice: Choice) -> None:
    stored = {name: as_json(value) for name, value in choice.parameters.items()}
    with atomic_write(path, "the automatic settings") as file:
        file.write(json.dumps({"key": key, "parameters": stored, "facts": choice.facts}).encode())
