"""The manifest of a prepared folder: what is in it, as JSON with a checksum. docs/prepare.md has it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal, NamedTuple

from truepair.data.interactions import EXTRA, Step
from truepair.data.log import Policy
from truepair.data.prepared.array_files import ArrayFile
from truepair.data.prepared.id_files import ARROW_TYPES
from truepair.data.rows.options import ReadOptions
from truepair.data.rows.pairs import DUPLICATES
from truepair.data.rows.weighting import check_policy
from truepair.errors import InputError, StorageError, check_choice, check_number
from truepair.storage.atomic import atomic_write
from truepair.storage.plain_values import every_value, from_json, read_record
from truepair.storage.types import Json

KIND = "truepair prepared interactions"
VERSION = 3
"""Version 1 has no events, places and policy; in version 2 places are those in the source."""

NAME = "manifest.json"

WHOLE = ("all",)
SPLIT = ("train", "valid", "test")
"""Names of parts: a folder has all pairs in one, or train, perhaps valid, and test."""


@dataclass(frozen=True)
class Part:
    """One part: its pairs and the hash of its `Interactions`; None if the writer did not compute it."""

    pairs: int
    hash: str | None = None


@dataclass(frozen=True)
class Manifest:
    """What a folder holds."""

    users: int = 0
    items: int = 0
    user_type: str = ""
    item_type: str = ""
    parts: dict[str, Part] = field(default_factory=dict)
    arrays: dict[str, ArrayFile] = field(default_factory=dict)
    """Path without .npy -> the file."""
    time_kind: Literal["clock", "order"] = "clock"
    recipe: str | None = None
    """Of the split."""
    history: tuple[Step, ...] = ()
    about: Json = field(default_factory=dict)
    """Source, options and versions, for readers."""
    policy: Policy = field(default=Policy())
    events: int | None = None
    """Of the log that all parts share; None if there is none."""

    def to_json(self) -> Json:
        """The content of the file, without its checksum."""
        values = asdict(self)
        arrays = values.pop("arrays")
        values["policy"].pop("table")  # of the caller who opens the folder
        for described in arrays.values():
            described.pop("file")
        sizes = {role: values.pop(role) for role in ("users", "items")}
        types = {f"{role}_ids": values.pop(f"{role}_type") for role in ("user", "item")}
        return {"kind": KIND, "version": VERSION, **sizes, **types, **values, "arrays": arrays}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it last: a folder without it is incomplete."""
    content = manifest.to_json()
    text = json.dumps({**content, "digest": _digest(content)}, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(folder / NAME) as file:
        file.write(text.encode())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; anything wrong with it is a StorageError."""
    path = folder / NAME
    try:
        content = from_json(path.read_bytes())
        every_value(content)  # raises if they are nested too deeply
    except (OSError, ValueError, RecursionError, InputError) as error:
        raise StorageError(f"{path} cannot be read: {error!s:.300}. It is damaged or foreign.") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise StorageError(f"{path} is not the manifest of prepared interactions; give another folder.")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise StorageError(
            f"{folder} was prepared in version {version}; this truepair reads up to {VERSION}; upgrade it."
        )
    digest = content.pop("digest", None)
    if digest is not None and digest != _digest(content):
        raise StorageError(f"{path} is damaged: its checksum does not match its content; prepare it again.")
    try:
        made = _from_json(content)
        _check(made)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"{path} is damaged or foreign: {error!r:.300}; prepare it again.") from error
    return made


def _from_json(content: Json) -> Manifest:
    if content["version"] not in range(1, VERSION + 1):
        raise ValueError(f"version {content['version']!r:.20} never existed")
    arrays = {name: {**described, "file": f"{name}.npy"} for name, described in content["arrays"].items()}
    types = {f"{role}_type": content[f"{role}_ids"] for role in ("user", "item")}
    known = {field.name: content[field.name] for field in fields(Manifest) if field.name in content}
    return read_record(Manifest, {**known, **types, "arrays": arrays})


def _check(made: Manifest) -> None:
    """Raise a ValueError unless names, types and shapes fit together."""
    names = tuple(made.parts)
    if names != WHOLE and not (set(names) <= set(SPLIT) and {"train", "test"} <= set(names)):
        raise ValueError(f"parts {names!r:.80}")
    for kind in (made.user_type, made.item_type):
        if kind not in ARROW_TYPES:
            raise ValueError(f"ids of type {kind!r:.20}")
    policy = made.policy
    check_choice("duplicates", policy.duplicates, DUPLICATES)
    if policy.now is not None:
        check_number("now", policy.now)
    check_policy(policy)
    if policy.reading is not None:
        ReadOptions(**policy.reading)
    expected = expected_arrays(made)
    for name, allowed in expected.items():
        one = made.arrays.get(name)
        if one is None:
            if allowed.required:
                raise ValueError(f"{name} is not among its arrays")
        elif one.dtype not in allowed.dtypes or not allowed.fits(one.shape):
            raise ValueError(f"{name} has the type {one.dtype!r:.20} and the shape {one.shape!r:.60}")
    if unknown := set(made.arrays) - set(expected):
        raise ValueError(f"unknown arrays {sorted(unknown)!r:.80}")


class Expected(NamedTuple):
    """Types and shape of an array; None is any length."""

    dtypes: tuple[str, ...]
    shape: tuple[int | None, ...]
    required: bool = True

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array may have this shape."""
        return len(shape) == len(self.shape) and all(
            want is None or want == have for want, have in zip(self.shape, shape, strict=True)
        )


_CODES = ("<i4", "<i8")
_NUMBERS = ("<f8", "<i8")
_PLACES = ("<u2", "<u4", "<i8")


def expected_arrays(made: Manifest) -> dict[str, Expected]:
    """All arrays that such a folder may have."""
    found: dict[str, Expected] = {}
    for who, n, kind in (("user", made.users, made.user_type), ("item", made.items, made.item_type)):
        found |= _id_arrays(f"{who}_ids", n, kind)
    for name, part in made.parts.items():
        found |= {f"{name}/{code}": Expected(_CODES, (part.pairs,)) for code in ("users", "items")}
        found[f"{name}/starts"] = Expected(("<i8",), (made.users + 1,))
        found[f"{name}/popularity"] = Expected(("<i8",), (made.items,))
        found |= {f"{name}/{column}": Expected(_NUMBERS, (part.pairs,), False) for column in EXTRA}
        found[f"{name}/places"] = Expected(_PLACES, (part.pairs,), False)
    if made.events is not None:
        events = (made.events,)
        found |= {f"log/{code}": Expected(_CODES, events) for code in ("users", "items")}
        found |= {f"log/{column}": Expected(_NUMBERS, events, column == "time") for column in EXTRA}
        found["log/disliked"] = Expected(("|b1",), events, False)
    return {**found, "disliked": Expected(("<i8",), (None,), False)}


def _id_arrays(name: str, n: int, kind: str) -> dict[str, Expected]:
    if kind == "uuid":
        return {f"{name}/values": Expected(("|u1",), (n, 16))}
    if kind in ("int64", "uint64"):
        return {f"{name}/values": Expected(("<i8" if kind == "int64" else "<u8",), (n,))}
    starts = Expected(("<i8",), (n + 1,))
    return {f"{name}/values": Expected(("|u1",), (None,)), f"{name}/starts": starts}


def _digest(content: Json) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
