"""Targets: prepared folders with a changed file, or with a changed manifest whose checksum is right."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzing.mutations import ALPHABET, places_of, with_change
from fuzzing.target import Target
from truepair.data.prepared.manifest import NAME, _digest
from truepair.data.prepared.opening import open_prepared
from truepair.data.preparing.prepare import prepare_interactions

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ROWS = {
    "user": ["ann", "bob", "bob", "cat", "€"],
    "item": [7, 7, 9, 5, 9],
    "rating": [1.0, 5.0, 2.0, 4.0, 5.0],
    "time": [1, 2, 3, 4, 5],
}


def _sound(folder: Path) -> Path:
    """A sound folder, made once."""
    made = folder / "sound"
    if not made.exists():
        prepare_interactions(_ROWS, made, memory="600MB", max_disliked_rating=2)
    return made


def _seeds(folder: Path) -> list[bytes]:
    """The name of a file, and its content."""
    made = _sound(folder)
    files = sorted(path for path in made.rglob("*") if path.is_file())
    return [f"{path.relative_to(made)}\0".encode() + path.read_bytes() for path in files]


def _changed(folder: Path, file: str, content: bytes) -> Path:
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_sound(folder), copy)
    (copy / file).write_bytes(content)
    return copy


def _open_bytes(data: bytes, folder: Path) -> None:
    name, _, content = data.partition(b"\0")
    names = {str(path.relative_to(_sound(folder))) for path in _sound(folder).rglob("*") if path.is_file()}
    file = name.decode("latin-1")
    _use(_changed(folder, file if file in names else NAME, content))


def _use(folder: Path) -> None:
    """Only a verified folder may be used: the values of others are not read when it is opened."""
    repr(open_prepared(folder))
    found: Any = open_prepared(folder, verify=True)
    found.to_table()
    found.k_core(1)


def _cases() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    value = (
        st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(ALPHABET, max_size=5)
        | st.sampled_from([[], {}, [1], {"a": 1}, "int64", "<i8", "<f8", 2**62, 10**30])
    )  # fmt: skip
    return st.lists(st.tuples(st.integers(0, 2**16), st.booleans(), value), min_size=1, max_size=3)


def _open_facts(data: bytes, folder: Path) -> None:
    content = json.loads((_sound(folder) / NAME).read_text(encoding="utf-8"))
    content.pop("digest")
    for where, drop, value in json.loads(data):
        places = places_of(content)
        place = places[where % len(places)]
        content = with_change(content, place, value, drop=drop and bool(place))
    if isinstance(content, dict):
        content["digest"] = _digest(content)
    _use(_changed(folder, NAME, json.dumps(content).encode()))


PREPARED = [
    Target("prepared bytes", _open_bytes, _seeds, 20),
    Target("prepared facts", _open_facts, lambda folder: [], 20, _cases),
]
