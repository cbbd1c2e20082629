"""Texts: batches of a source's columns, parsed by their roles; what text becomes depends on all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from truepair.data.columns import (
    INTEGER_TYPES,
    TIME_TYPES,
    Raw,
    cleaned_ids,
    numbers,
    parse_times,
    prints_again,
    timestamps,
)
from truepair.data.ids import is_text, plain_type, to_arrow
from truepair.data.rows.weighting import kind_texts
from truepair.errors import InputError

Columns = dict[str, pa.Array]


@dataclass
class Texts:
    """Parses batches; columns of text whose type depends on later rows stay text until all are seen."""

    raw: Raw
    kinds: dict[str, list[pa.DataType]] = field(default_factory=dict)
    """Role -> the types that all text so far can be cast to."""
    types: dict[str, pa.DataType] = field(default_factory=dict)

    def parsed(
        self, batches: Iterator[Sequence[pa.Array]], roles: list[str]
    ) -> Iterator[tuple[int, Columns]]:
        """The columns of each batch."""
        start = 0
        for batch in batches:
            here = replace(self.raw, place=partial(_place, self.raw, start))
            columns = {
                role: self.parse(here, role, values) for role, values in zip(roles, batch, strict=True)
            }
            if len(columns["user"]):
                yield start, columns
            start += len(columns["user"])

    def parse(self, raw: Raw, role: str, values: pa.Array) -> pa.Array:
        """A column of a batch; text of ids and times stays text, see `settled`."""
        if role in ("user", "item"):
            found = cleaned_ids(raw, role, values)
            if is_text(found.type) and not raw.typed:
                kinds = self.kinds.setdefault(role, list(INTEGER_TYPES))
                self.kinds[role] = [kind for kind in kinds if prints_again(found, kind)]
            elif plain_type(values.type) == pa.uint64():
                found = found.cast(pa.uint64())  # another batch may need all of its bits
        elif role == "time":
            found = self._parse_times(raw, values)
        else:
            found = (kind_texts if role == "kind" else numbers)(raw, role, values)
        if (first := self.types.setdefault(role, found.type)) != found.type:
            raise InputError(
                f"{raw.source}: {role} is {first} first and {found.type} later; convert the column."
            )
        return found

    def _parse_times(self, raw: Raw, values: pa.Array) -> pa.Array:
        array = to_arrow(values, "time")
        if not is_text(array.type):
            return timestamps(raw, "time", array)
        kinds = self.kinds.setdefault("time", list(TIME_TYPES))
        left = [kind for kind in kinds if _can_parse(raw, array, kind)]
        if not left:
            parse_times(raw, "time", array, kinds)  # raises, with the row
        self.kinds["time"] = left
        return array

    def settled(self, columns: Columns) -> Columns:
        """Text cast to the type that all of it has; ids that are no integers stay text."""
        for role, kinds in self.kinds.items():
            if role == "time":
                columns[role] = timestamps(
                    self.raw, role, parse_times(self.raw, role, columns[role], kinds[:1])
                )
            elif kinds:
                columns[role] = columns[role].cast(kinds[0])
        return columns


def _place(raw: Raw, start: int, row: int) -> str:
    return raw.place(start + row)


def _can_parse(raw: Raw, text: pa.Array, kind: pa.DataType) -> bool:
    try:
        parse_times(raw, "time", text, [kind])
    except InputError:
        return False
    return True
