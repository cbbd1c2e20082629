"""IdTexts: ids in addresses and JSON <-> codes of the model; "12" finds the integer 12."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np
import pyarrow as pa

from truepair.data.ids import Codes, IdMap
from truepair.errors import InputError

LONGEST = 256
"""Characters of an id at most."""
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 cannot say


@dataclass(frozen=True, eq=False)
class IdTexts:
    """The ids of a model's users or items, as text and as JSON."""

    what: str
    """`user` or `item`, for messages."""
    kind: pa.DataType
    codes: dict[str, int]

    @cached_property
    def names(self) -> list[str]:
        """Code -> text."""
        return list(self.codes)

    @cached_property
    def values(self) -> list[str | int]:
        """Code -> value for JSON."""
        return [self.value(text) for text in self.codes]

    @staticmethod
    def of(ids: IdMap, what: str) -> IdTexts:
        """The texts of all ids of a map."""
        kind, values = ids.ids.type, ids.ids.to_pylist()
        if pa.types.is_large_binary(kind):
            raise InputError(f"the {what} ids of the model are bytes, not text; fit it with text ids.")
        return IdTexts(what, kind, {str(value): code for code, value in enumerate(values)})

    def text(self, value: object) -> str:
        """The text of an id of a request; InputError if it cannot be an id of the model's type."""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InputError(f"{self.what} = {value!r:.60} is no id; give text or a whole number.")
        text = str(value)  # a body with more than 4,300 digits is not JSON
        if not 0 < len(text) <= LONGEST:
            raise InputError(f"a {self.what} id of {len(text):,} characters: give 1 to {LONGEST}.")
        if not pa.types.is_integer(self.kind) and self.kind != pa.uuid():
            if not text.isascii() and _SURROGATE.search(text):
                raise InputError(f"{self.what} = {text!r:.60} is no Unicode text; correct it.")
            return text
        try:
            return str(uuid.UUID(text) if self.kind == pa.uuid() else self._integer(text))
        except ValueError:
            kinds = "UUIDs" if self.kind == pa.uuid() else "integers"
            raise InputError(
                f"{self.what} = {text!r:.60} is no id of this model; its {self.what} ids are {kinds}."
            ) from None

    def texts(self, values: Sequence[object]) -> list[str]:
        """Those of several ids."""
        return [self.text(value) for value in values]

    def find(self, texts: Sequence[str]) -> Codes:
        """The codes of ids; -1 for an id that the model does not know."""
        return np.fromiter(map(self.codes.get, texts, repeat(-1)), np.int64, len(texts))

    def typed(self, texts: Sequence[str]) -> pa.Array:
        """Texts of ids as an array of the model's type."""
        if self.kind == pa.uuid():
            return pa.array([uuid.UUID(text).bytes for text in texts], pa.uuid())
        return pa.array(texts, pa.large_string()).cast(self.kind)

    def value(self, text: str) -> str | int:
        """An id as a value for JSON: an integer where the model's ids are integers."""
        return int(text) if pa.types.is_integer(self.kind) else text

    def _integer(self, text: str) -> int:
        """The number that a text says; a ValueError if the model's type does not have it."""
        low, high = (-(2**63), 2**63 - 1) if self.kind == pa.int64() else (0, 2**64 - 1)
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or not low <= int(text) <= high:
            raise ValueError
        return int(text)


def escaped(value: object) -> str:
    """JSON in ASCII, in which HTML finds no tag and no entity."""
    text = _ENCODER.encode(value)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
