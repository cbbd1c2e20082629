"""Answers: lists as JSON or as an Arrow stream."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from truepair.serving.id_texts import escaped
from truepair.serving.lists.served_model import PlainList

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"


def wants_arrow(accept: str | None) -> bool:
    """Whether the header Accept names Arrow, and not with q=0."""
    for part in (accept or "").lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        if kind == ARROW:
            return not any(piece.replace(" ", "") in ("q=0", "q=0.0") for piece in parameters)
    return False


def plain_json(found: PlainList) -> bytes:
    """A list as JSON, from texts that are ready: json.dumps takes several times as long."""
    names = found.served.items.as_json
    rows = [
        f'{{"item":{names[code]},"score":{score!r},"rank":{rank}}}'
        for rank, (code, score) in enumerate(zip(found.items.tolist(), found.scores.tolist(), strict=True), 1)
    ]
    start = f'{{"user":{found.served.users.json(found.user)},"basis":"{found.basis}","items":['
    return f"{start}{','.join(rows)}]}}".encode()


def plain_table(found: PlainList) -> pa.Table:
    """A list as a table of user, item, score, rank."""
    n = len(found.items)
    return pa.table(
        {
            "user": found.served.users.typed([found.user] * n),
            "item": found.served.model.seen.item_ids.outside(found.items),
            "score": found.scores,
            "rank": np.arange(1, n + 1),
        }
    )


def grouped_json(table: pa.Table, by: str) -> bytes:
    """A table as {"lists": [{by: id, "items": [row, …]}, …]}; rows of one id are adjacent."""
    rows = table_rows(table)
    lists = [
        {by: key, "items": [{name: value for name, value in row.items() if name != by} for row in group]}
        for key, group in groupby(rows, key=lambda row: row[by])
    ]
    return escaped({"lists": lists}).encode()


def rows_json(table: pa.Table, name: str) -> bytes:
    """A table as {name: [row, …]}."""
    return escaped({name: table_rows(table)}).encode()


def table_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as values of JSON: UUIDs as text, and null for a number that JSON does not have."""
    return [{name: plain_value(value) for name, value in row.items()} for row in table.to_pylist()]


def plain_value(value: Any) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [plain_value(one) for one in value]
    if isinstance(value, dict):
        return {name: plain_value(one) for name, one in value.items()}
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def arrow_stream(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())
