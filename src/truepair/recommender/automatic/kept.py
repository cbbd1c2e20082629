"""Automatic settings beside a checkpoint: an interrupted run goes on with those it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from truepair.data.split import Split
from truepair.errors import InputError
from truepair.recommender.automatic.budget import seconds_of
from truepair.recommender.automatic.choice import Choice, choose, open_choices
from truepair.recommender.parameters import as_json, from_json
from truepair.recommender.parts import Parameters, parts_of
from truepair.storage.atomic import atomic_write
from truepair.storage.versions import package_version

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
) -> Choice:
    """The automatic settings: those of the run that the checkpoint belongs to, or of a new search.

    A file of other data, other parameters or another version, and one that cannot be read, is replaced.
    """
    limit = seconds_of(budget)
    if limit is not None and not open_choices(parameters, given):
        raise InputError(
            f"budget = {budget} has no effect: it limits the choice of automatic settings, and there is "
            "nothing to choose here; leave it out, or set epochs."
        )

    def search() -> Choice:
        return choose(parameters, given, split, limit, progress)

    if checkpoint is None:
        return search()
    # a run may go on for more epochs
    stated = {name: as_json(value) for name, value in parameters.items() if name != "epochs"}
    facts = [stated, sorted(given), split.hash, limit, package_version("truepair")]
    key = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
    return _kept(settings_file(checkpoint), key, parameters, search)


def _kept(path: Path, key: str, parameters: Parameters, search: Callable[[], Choice]) -> Choice:
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, InputError):
        if path.stat().st_size <= _MOST_BYTES:
            found = json.loads(path.read_bytes())
            restored = {name: from_json(found["parameters"])[name] for name in found["parameters"]}
            parts_of({**parameters, **restored})
            if found["key"] == key:
                return Choice(restored, dict(found["facts"]))
    choice = search()
    if choice.facts:
        stored: dict[str, Any] = {name: as_json(value) for name, value in choice.parameters.items()}
        with atomic_write(path, "the automatic settings") as file:
            file.write(json.dumps({"key": key, "parameters": stored, "facts": choice.facts}).encode())
    return choice
