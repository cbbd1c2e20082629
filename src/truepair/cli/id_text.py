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


def read_ids(ids: IdMap, what: str, listed: str | None, file: Path | None = None) -> pa.Array | None:
    """The ids in a comma list, or those in a file, one a line (`-`: stdin), as `as_ids` gives them."""
    if listed is None and file is None:
        return None
    try:
        if file is None:
            texts = str(listed).split(",")
        else:
            text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
            texts = text.splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {what} ids from {file}: {error}.") from error
    if found := [text.strip() for text in texts if text.strip()]:
        return as_ids(found, ids, what)
    source = file or repr(listed)
    raise InputError(f"{source} names no {what}; give ids separated by commas, or a file with one a line.")


def read_ids_or_file(ids: IdMap, what: str, text: str | None) -> pa.Array | None:
    """The ids in a file of that name, or in a comma list."""
    is_file = text is not None and os.path.isfile(text)
    return read_ids(ids, what, text, Path(str(text)) if is_file else None)


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
