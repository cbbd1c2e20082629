"""What a model's facts say about its updates: one record for each, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truepair.errors import InputError
from truepair.storage.plain_values import is_number

UPDATES = "updates"  # the fact: a list of records


def with_record(facts: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """The facts with a record more."""
    return {**facts, UPDATES: [*facts.get(UPDATES, []), dict(record)]}


def described(facts: Mapping[str, Any]) -> str:
    """How often a model was updated, for its repr; empty if never."""
    n = len(facts.get(UPDATES, []))
    return "" if not n else ", updated once" if n == 1 else f", updated {n:,} times"


def check_updates(facts: Mapping[str, Any]) -> None:
    """Raise if the records are not such as updates write."""
    records = facts.get(UPDATES, [])
    if not isinstance(records, list):
        raise InputError(f"the fact {UPDATES!r} is {records!r:.60}, not a list of records.")
    for place, record in enumerate(records, 1):
        if not isinstance(record, dict) or not all(map(_is_plain, record.values())):
            raise InputError(f"the record of update {place} is {record!r:.60}, not names with plain values.")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str) or is_number(value)
