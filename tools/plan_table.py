"""Rebuild the tables of docs/scale.md that compare the cost model with measurements, and the plans.

    python tools/plan_table.py

A test fails while the page has other tables. To add a measurement, add a line to MEASURED.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from truepair.cli.commands.plan import table_row
from truepair.distributed.cost import TrainingSize, columns_of
from truepair.distributed.devices import DEVICES
from truepair.distributed.plan import Estimate, estimate, plan

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"

ML_1M = TrainingSize(6_040, 3_706, 1_000_209, 256, 256, 3_706)
GOWALLA = TrainingSize(29_858, 40_981, 810_128, 64, 1_024, 40_981)
LARGE = TrainingSize(1_000_000, 100_000, 98_000_000, 64, 2_048, 100_000)
DRAWN = TrainingSize(1_000_000, 1_000_000, 98_000_000, 64, 2_048, columns_of(1_000_000))
BILLION = TrainingSize(10**7, 10**6, 1_055_011_172, 64, 8_192, 8_192)
COMMAND = BILLION._replace(batch_size=4_096, n_columns=16_384)
WORLD = TrainingSize(4_000, 3_000, 194_400, 64, 512, 3_000)
DPL = WORLD._replace(family="debiased")


class Measured(NamedTuple):
    """One measurement; a constant of the model may be fitted on it."""

    what: str
    size: TrainingSize
    value: float
    unit: str = "s an epoch"
    ranks: int = 1
    device: str = "h200"
    fitted: bool = False


MEASURED = [
    Measured("98 million pairs, 1,000,000 users x 100,000 items", LARGE, 4.4, fitted=True),
    Measured("the same with 1,000,000 items, 16,384 columns", DRAWN, 2.4, fitted=True),
    Measured("MovieLens-1M, d = 256, blocks of 256", ML_1M, 0.0130, fitted=True),
    Measured("the same, blocks of 128", ML_1M._replace(batch_size=128), 0.0209, fitted=True),
    Measured("Gowalla, d = 64, blocks of 1,024", GOWALLA, 0.055, fitted=True),
    Measured("the same, blocks of 256", GOWALLA._replace(batch_size=256), 0.101, fitted=True),
    Measured("98 million pairs, 1,000,000 users x 100,000 items", LARGE, 6.8, "GB"),
    Measured("the same with 1,000,000 items, 16,384 columns", DRAWN, 4.1, "GB"),
    Measured("Gowalla, d = 64, blocks of 1,024", GOWALLA, 1.29, "GB"),
    Measured("MovieLens-1M, d = 256, blocks of 256", ML_1M, 0.32, "GB"),
    Measured(
        "1,055 million pairs, 10 million users x 1 million items", BILLION, 14.0, "s an epoch", fitted=True
    ),
    Measured("the same", BILLION, 13.2, "GB"),
    Measured("the same, half", BILLION._replace(state="half"), 10.5, "GB"),
    Measured("the same, host", BILLION._replace(state="host"), 7.9, "GB"),
    Measured("the same in blocks of 4,096, 16,384 columns, device", COMMAND, 15.9, "GB, all taken"),
    Measured("InfoNCE, 2 ranks", WORLD, 138, "kB sent a step", 2, "cpu-core"),
    Measured("InfoNCE, 4 ranks", WORLD, 216, "kB sent a step", 4, "cpu-core"),
    Measured("500 columns, 2 ranks", WORLD._replace(n_columns=500), 144, "kB sent a step", 2, "cpu-core"),
    Measured("500 columns, 4 ranks", WORLD._replace(n_columns=500), 225, "kB sent a step", 4, "cpu-core"),
    Measured("DPL, 2 ranks", DPL, 385, "kB sent a step", 2, "cpu-core"),
    Measured("DPL, 4 ranks", DPL, 594, "kB sent a step", 4, "cpu-core"),
    Measured("InfoNCE, 1 rank", WORLD, 19.0, "ms a step", 1, "cpu-core"),
    Measured("InfoNCE, 2 ranks", WORLD, 14.3, "ms a step", 2, "cpu-core"),
    Measured("InfoNCE, 4 ranks on 2 cores", WORLD, 12.8, "ms a step", 4, "cpu-core"),
]
"""Every measurement of full-catalogue training here: docs/performance.md, lab/docs, docs/scale.md."""

PLANS = {
    "A billion pairs on 8 GPUs": (TrainingSize(10**7, 10**6, 10**9, 64, 2_048, columns_of(10**6)), 8),
    "Ten billion pairs on 64 GPUs": (TrainingSize(10**8, 10**7, 10**10, 128, 2_048, columns_of(10**7)), 64),
    "The same in blocks of 8,192 users": (
        TrainingSize(10**8, 10**7, 10**10, 128, 8_192, columns_of(10**7)),
        64,
    ),
}


def predicted(one: Measured) -> float:
    """The model's number for a measurement, in its unit."""
    found = estimate(one.size, one.ranks, DEVICES[one.device])
    if one.unit == "kB sent a step":
        return one.size.epoch_wire(one.ranks) / one.size.steps / 1e3
    if one.unit == "ms a step":
        return 1e3 * (found.seconds - found.wire) / one.size.steps
    return found.device_bytes / 1e9 if one.unit.startswith("GB") else found.seconds


def ratio(one: Measured) -> float:
    """Predicted / measured."""
    return predicted(one) / one.value


def comparison() -> str:
    """All measurements beside the model's numbers."""
    lines = ["| | unit | predicted | measured | ratio |", "|---|---|---|---|---|"]
    for one in MEASURED:
        name = "H200" if one.device == "h200" else "CPU"
        unit = f"{one.unit}, fitted" if one.fitted else one.unit
        numbers = f"{_number(predicted(one))} | {_number(one.value)} | {ratio(one):.2f}"
        lines.append(f"| {name}: {one.what} | {unit} | {numbers} |")
    return "\n".join(lines)


def plans() -> str:
    """The plans, one table each."""
    parts = []
    for title, (size, gpus) in PLANS.items():
        found = plan(size, DEVICES["h200"], gpus)
        head = (
            f"**{title}:** {size.n_users:,} users, {size.n_items:,} items, d = {size.dim}, blocks of "
            f"{size.batch_size:,} users, {size.n_columns:,} columns, H200."
        )
        parts.append(f"{head}\n\n{_markdown(found.estimates, found.best)}")
    return "\n\n".join(parts)


def _markdown(estimates: list[Estimate], best: Estimate | None) -> str:
    rows = [table_row(each, each is best) for each in estimates]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


TABLES = {"comparison": comparison, "plans": plans}


def rebuilt(page: str) -> str:
    """The page with the tables between its marks made anew."""
    for name, make in TABLES.items():
        first, last = f"<!-- {name}: python tools/plan_table.py -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(first)
        assert found, f"{PAGE.name} has no {first}"
        page = f"{before}{first}{make()}\n{last}{rest.partition(last)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rebuilt(PAGE.read_text()))
