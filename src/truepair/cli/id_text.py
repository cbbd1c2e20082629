"""Ids as text: what users type or list in a file -> ids of the type that a model knows."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from truepair.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.data.ids import IdMap


def separated(text: str, what: str) -> list[str]:
    """The ids in a comma list."""
    return _some([part.strip() for part in text.split(",")], repr(text), what)


def separated_or_listed(text: str, what: str) -> list[str]:
    """The ids in a file of that name, one a line, or in a comma list."""
    return lines_of(Path(text), what) if os.path.isfile(text) else separated(text, what)


def lines_of(path: Path, what: str) -> list[str]:
    """The ids in a file, one a line; `-` is stdin."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {what} ids from {path}: {error}.") from error
    return _some([line.strip() for line in text.splitlines()], str(path), what)


def _some(texts: list[str], source: str, what: str) -> list[str]:
    if found := [text for text in texts if text]:
        return found
    raise InputError(f"{source} names no {what}; give ids separated by commas, or a file with one a line.")


def as_ids(texts: list[str], ids: IdMap, what: str) -> pa.Array:
    """The texts as an Arrow array of the type of `ids`."""
    import pyarrow as pa

    kind = ids.ids.type
    try:
        if kind == pa.uuid():
            return pa.array([uuid.UUID(text).bytes for text in texts], kind)
        return pa.array(texts, pa.large_string()).cast(kind)
    except ValueError:
        for text in texts if len(texts) > 1 else ():
            as_ids([text], ids, what)  # the first that does not fit raises
        raise InputError(
            f"unknown {what}: {texts[0]!r}; the model's {what} ids are of type {kind}, such as "
            f"{ids.ids[0].as_py()}."
        ) from None
