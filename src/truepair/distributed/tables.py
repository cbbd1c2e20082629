"""Tables of a cluster: which of their columns a prepared folder gets, and the options of writing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from truepair.data.columns import Raw
from truepair.data.interactions import EXTRA, Interactions
from truepair.data.preparing.parts import Shares, shares_of
from truepair.data.preparing.publishing import check_new
from truepair.data.preparing.sorted_pairs import write_sorted_pairs
from truepair.data.preparing.sorted_rows import Tables
from truepair.data.reading import ReadOptions
from truepair.data.sources.file_opening import expanded
from truepair.data.split import Split
from truepair.errors import InputError, did_you_mean
from truepair.storage.types import Table

OPTIONS = ("user", "item", *EXTRA, "min_rating", "duplicates")
"""The options of `prepare_interactions` that `write_prepared` takes, beside those of a split."""

SPLIT_OPTIONS = ("test", "valid", "seed")


@dataclass(frozen=True)
class Writing:
    """A call of `write_prepared`, checked before the cluster begins."""

    target: Path
    source: str
    """The table's name in messages."""
    columns: dict[str, int]
    """Role -> position of the column."""
    options: ReadOptions
    shares: Shares | None

    @property
    def in_order(self) -> bool:
        """Whether rows of a pair must be in the order of the table: they may differ, and one is kept."""
        return len(self.columns) > 2

    @property
    def may_drop_repeats(self) -> bool:
        """Whether equal rows may become one before they are merged."""
        return not self.in_order and self.options.policy not in ("sum", "error")

    def write(self, tables: Tables) -> Interactions | Split:
        """Write the folder from sorted tables, and open it."""
        return write_sorted_pairs(tables, self.target, self.source, self.options, self.shares)


def plan_writing(
    names: Sequence[str], folder: str | Path, source: str, options: Mapping[str, Any]
) -> Writing:
    """The columns and options of a call; an error if `folder` exists or an option cannot be used."""
    for name in options:
        if name not in (*OPTIONS, *SPLIT_OPTIONS):
            raise _unknown(name)
    chosen = ReadOptions(**{name: options[name] for name in OPTIONS if name in options})
    shares = shares_of(**{name: options[name] for name in SPLIT_OPTIONS if name in options})
    columns = chosen.find_columns(Raw(source, names, lambda positions: []))
    target = expanded(folder).absolute()
    check_new(target)
    return Writing(target, source, columns, chosen, shares)


def _unknown(name: str) -> InputError:
    if name in [each.name for each in fields(ReadOptions)]:
        return InputError(
            f"write_prepared has no option {name!r}; write the table as Parquet, and use `truepair prepare`."
        )
    hint = did_you_mean(name, [*OPTIONS, *SPLIT_OPTIONS])
    return InputError(f"{name!r} is no option of write_prepared.{hint}")


def role_columns(table: Table, columns: Mapping[str, str]) -> pa.Table:
    """The columns of these names, under the names of their roles."""
    return pa.table({role: table[name] for role, name in columns.items()})


def numbered(table: pa.Table, block: int) -> pa.Table:
    """A block of a table with the column `row`: numbers that rise over all blocks."""
    return table.append_column("row", pa.array(np.arange(len(table)) + (block << 33)))
