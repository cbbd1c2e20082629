"""Results as tables of the caller's type: pandas, polars or Arrow."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from truepair.storage.types import Table

Output = Literal["arrow", "pandas", "polars"]
OUTPUTS = ("arrow", "pandas", "polars")


def output_of(source: object) -> Output:
    """The table type for results: that of `source` if it is pandas or polars, else Arrow."""
    family = type(source).__module__.partition(".")[0]
    if family == "pandas":
        return "pandas"
    return "polars" if family == "polars" else "arrow"


def to_output(table: pa.Table, output: Output) -> Table:
    """The table as pandas, polars or pyarrow."""
    if output == "pandas":
        return table.to_pandas()
    if output == "polars":
        import polars

        return polars.from_arrow(table)
    return table
