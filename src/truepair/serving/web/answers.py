"""Answers: lists as JSON or as an Arrow stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from operator import methodcaller
from typing import Any

import numpy as np
import pyarrow as pa
from fastapi import Request
from fastapi.responses import Response

from truepair.serving.id_texts import escaped
from truepair.serving.lists.served_model import PlainList
from truepair.serving.web.routing import ARROW, JSON
from truepair.storage.types import Json

_SHOWN = (
    *("epoch", "engine", "training loss", "training curve", "clamped share", "automatic"),
    *("prior", "reading", "weights", "dislikes", "updates", "versions"),
)
"""The facts of a model file that its page shows: how it was trained, what was chosen automatically."""


def wants_arrow(request: Request) -> bool:
    """Whether the header Accept names Arrow, and not with q=0."""
    for part in request.headers.get("accept", "").lower().split(","):
        kind, _, parameters = part.partition(";")
        if kind.strip() == ARROW:
            return not {"q=0", "q=0.0"} & set(parameters.replace(" ", "").split(";"))
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


def table_response(
    request: Request, table: pa.Table, name: str, about: dict[str, object] | None = None
) -> Response:
    """A table as an Arrow stream where the request accepts that; else as JSON: {name: [row, …]}.

    The fields `about` come first, in place of the columns of these names. The rows of `lists` are in the
    lists of their users: [{"user": id, "items": [row, …]}, …]; rows of one user are adjacent.
    """
    if wants_arrow(request):
        return arrow_response(table)
    about = about or {}
    rows: list[dict[str, object]] = table_rows(table.drop_columns(list(about)))
    if name == "lists":
        groups = groupby(rows, key=methodcaller("pop", "user"))
        rows = [{"user": user, "items": list(group)} for user, group in groups]
    return Response(escaped({**about, name: rows}), media_type=JSON)


def table_rows(table: pa.Table) -> list[Json]:
    """The rows as values of JSON: UUIDs as text, and null for a number that JSON does not have."""
    return [{name: plain_value(value) for name, value in row.items()} for row in table.to_pylist()]


def plain_value(value: object) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [plain_value(one) for one in value]
    if isinstance(value, dict):
        return {name: plain_value(one) for name, one in value.items()}
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def arrow_response(table: pa.Table) -> Response:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return Response(bytes(sink.getvalue()), media_type=ARROW)


def shown_facts(facts: Mapping[str, object]) -> Json:
    """The facts to show, without those that have a value for each user or item.

    `metrics` is a list of name, value and interval (null where none was computed).
    """
    metrics, intervals = (_dict(facts.get(name)) for name in ("metrics", "intervals"))
    rows = [
        {"name": name, "value": value, "interval": intervals.get(name)} for name, value in metrics.items()
    ]
    found: Json = {"metrics": rows}
    found |= {name: facts[name] for name in _SHOWN if facts.get(name) is not None}
    return plain_value(found)  # type: ignore[no-any-return]


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}
