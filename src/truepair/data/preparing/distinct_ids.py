"""Distinct ids of a stream of tables."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import IdMap, canonical_ids
from truepair.errors import InputError

MANY = 1 << 24
"""Ids, repeated ones among them, that are kept before they are made distinct."""

Maps = dict[str, IdMap]


class DistinctIds:
    """The distinct ids of both roles in tables that come one after the other."""

    def __init__(self) -> None:
        self.rows = 0
        self._found: dict[str, list[pa.Array]] = {"user": [], "item": []}

    def add(self, table: pa.Table) -> None:
        """Count the table's rows, and keep its ids."""
        self.rows += len(table)
        for role, kept in self._found.items():
            kept.append(pc.unique(table[role]))
            if sum(map(len, kept)) > MANY:
                kept[:] = [pc.unique(pa.concat_arrays(kept))]

    def maps(self, source: str) -> Maps:
        """The ids of all tables in order; an error if one is missing."""
        return {
            role: IdMap.of(_complete(pa.concat_arrays(kept), role, source), role)
            for role, kept in self._found.items()
        }


def _complete(ids: pa.Array, role: str, source: str) -> pa.Array:
    """The ids in their own type; an error if one is missing: null, NaN or empty."""
    found = canonical_ids(ids, role)
    is_text = found.type in (pa.large_string(), pa.large_binary())
    if found.null_count or (is_text and pc.any(pc.equal(pc.binary_length(found), 0)).as_py()):
        raise InputError(
            f"{source}: {role} has missing ids (null, NaN or empty); correct them, or drop their rows."
        )
    return found
