"""Publishing: the manifest that grows with each step, and the folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from truepair.data.interactions import Step
from truepair.data.prepared.array_files import ArrayFile
from truepair.data.prepared.manifest import SPLIT, WHOLE, Manifest, Part, write_manifest
from truepair.data.prepared.opening import OpenedFolder
from truepair.errors import StorageError
from truepair.storage.atomic import flush_folder
from truepair.storage.types import Json
from truepair.storage.versions import package_version

Done = tuple[Json, list[ArrayFile]]
"""What a step makes: values of the manifest, and arrays. `history` are the steps that it adds."""


def after(made: Manifest, done: Done, folder: str = "", replaces: str = "all/") -> Manifest:
    """The manifest after a step that wrote its arrays below `folder`, in place of those that begin so."""
    facts, files = done
    history = (*made.history, *(Step(**step) for step in facts.get("history", ())))
    arrays = {name: file for name, file in made.arrays.items() if not name.startswith(replaces)}
    arrays |= {file.file.removeprefix(folder).removesuffix(".npy"): file for file in files}
    return replace(made, **{**facts, "history": history, "arrays": arrays})


def check_new(path: Path) -> None:
    """Raise if there is something at the path."""
    if os.path.lexists(path):
        raise StorageError(f"{path} exists; remove it, or choose another folder.")


def publish(folder: Path, made: Manifest, target: Path) -> None:
    """Move the arrays below `folder` to their places beside the manifest, and rename that to `target`."""
    lengths = {name: made.arrays.get(f"{name}/users") for name in (*WHOLE, *SPLIT)}
    parts = {name: Part(users.shape[0]) for name, users in lengths.items() if users is not None}
    log = made.arrays.get("log/users")
    about = {**made.about, "truepair": package_version("truepair")}
    made = replace(made, parts=parts, events=None if log is None else log.shape[0], about=about)
    opened = OpenedFolder(folder, made)
    hashed = {name: replace(part, hash=opened.part(name).hash) for name, part in parts.items()}
    result = folder / "result"
    shutil.rmtree(result, ignore_errors=True)
    write_manifest(result, replace(made, parts=hashed))
    for name, file in made.arrays.items():
        place = result / f"{name}.npy"
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / file.file, place)
    for inside in {place.parent for place in result.rglob("*.npy")} | {result}:
        flush_folder(inside)
    os.rename(result, target)
    flush_folder(target.parent)
