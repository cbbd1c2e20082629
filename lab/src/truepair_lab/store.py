"""The line store: one JSON object a line, appended to *.jsonl files of a folder.

A folder of lines is all that a report needs. Files may be split, joined and copied between machines; the
order of the lines does not matter, and files may be compressed (*.jsonl.gz). Of two lines with one key the
later counts. A line that cannot be read is left out and named, so what it reported is run again: a process
that was killed may leave half a line.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_origin, get_type_hints

from truepair.errors import InputError, StorageError


class Line(Protocol):
    """A dataclass; `kind` distinguishes the lines of a folder; it is "" where a folder holds one kind alone.

    `older` has names that fields had in lines before: older name -> field.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    kind: ClassVar[str]
    older: ClassVar[Mapping[str, str]]

    @property
    def key(self) -> Hashable:
        """What must not be run twice."""


AnyLine = TypeVar("AnyLine", bound=Line)
Value = TypeVar("Value")
_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)


def append(path: Path, *lines: Line) -> None:
    """Add lines to a file, in one write, so that several processes may share it."""
    text = "".join(_text(line) + "\n" for line in lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.exists() and path.stat().st_size > 0 and not _ends_whole(path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, (("\n" if torn else "") + text).encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise StorageError(f"cannot write to {path}: {error.strerror or error}.") from error


def _text(line: Line) -> str:
    named = {"kind": line.kind} if line.kind else {}
    return json.dumps({**named, **asdict(line)}, ensure_ascii=False, allow_nan=False)


def rounded(value: Any) -> Any:
    """The same value with six digits in every float: more digits are noise, and would make lines long."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{field.name: rounded(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, Mapping):
        return {name: rounded(part) for name, part in value.items()}
    return type(value)(map(rounded, value)) if isinstance(value, list | tuple) else value


def _ends_whole(path: Path) -> bool:
    """Whether the last line is whole."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read(folder: Path, *kinds: type[AnyLine]) -> tuple[list[AnyLine], list[str]]:
    """Every line of every *.jsonl and *.jsonl.gz file of a folder, and where a line could not be read."""
    by_kind = {kind.kind: kind for kind in kinds}
    found: dict[tuple[str, Hashable], AnyLine] = {}
    broken: list[str] = []
    for path in sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")], key=_place):
        for place, text in _texts(path):
            try:
                line = _parsed(text, by_kind)
                found[line.kind, line.key] = line
            except (ValueError, TypeError, RecursionError, InputError) as error:
                broken.append(f"{path.name}, line {place}: {error}")
    return list(found.values()), broken


def _place(path: Path) -> tuple[str, bool]:
    """By name, a compressed file before lines that were added to a new one of its name."""
    return path.name.removesuffix(".gz"), path.suffix != ".gz"


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        # A torn line may end in half a letter
        with opener(path, "rt", encoding="utf-8", errors="replace") as file:
            yield from ((place, text) for place, text in enumerate(file, 1) if text.strip())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise StorageError(f"{path} is damaged: {error}.") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}.") from error


def read_object(path: Path, kind: type[Value], remedy: str) -> Value:
    """The one JSON object of a file, as a dataclass. If it is another, the error ends with the remedy."""
    try:
        return _built(kind, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, TypeError, RecursionError, InputError) as error:
        raise StorageError(f"{path} holds no results of this version ({error}); {remedy}.") from error


def _parsed(text: str, kinds: Mapping[str, type[AnyLine]]) -> AnyLine:
    values = json.loads(text)
    kind = kinds.get(values.pop("kind", "")) if isinstance(values, dict) else None
    if kind is None:
        raise InputError(f"its kind is none of {', '.join(kinds)}.")
    return _built(kind, {kind.older.get(name, name): value for name, value in values.items()})


def _built(kind: type[Value], values: Any) -> Value:
    """A dataclass of JSON values; parts that are dataclasses, or tuples of them, are built as well."""
    if not isinstance(values, dict):
        raise InputError(f"{values!r:.60} is no {kind.__name__}.")
    hints = _hints(kind)
    return kind(**{name: _part(name, hints.get(name), value) for name, value in values.items()})


def _part(name: str, wanted: Any, value: Any) -> Any:
    if is_dataclass(wanted) and isinstance(wanted, type):
        return _built(wanted, value)
    if get_origin(wanted) is tuple and isinstance(value, list):
        return tuple(_part(name, get_args(wanted)[0], part) for part in value)
    if wanted is not None and not _fits(value, wanted):
        raise InputError(f"{name} = {value!r:.60} is of another type.")
    return value


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a JSON value is of the type that a field wants."""
    if value is None:
        return type(None) in get_args(wanted)
    types = {
        get_origin(part) or part
        for part in (get_args(wanted) if get_origin(wanted) is UnionType else [wanted])
    }
    if Mapping in types:
        return isinstance(value, dict) and _numbers_fit(value.values(), get_args(wanted)[1:])
    if Sequence in types:
        return isinstance(value, list)
    if float in types:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, tuple(kind for kind in types if isinstance(kind, type)))


def _numbers_fit(values: Iterable[Any], wanted: Sequence[Any]) -> bool:
    """Metrics are numbers; parameters may be anything."""
    return float not in wanted or all(isinstance(value, int | float) for value in values)
