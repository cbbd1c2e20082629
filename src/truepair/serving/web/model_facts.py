"""Facts of a model file for the page: scores, the training, and what was chosen automatically."""

from __future__ import annotations

from collections.abc import Mapping

from truepair.serving.web.answers import plain_value
from truepair.storage.types import Json

_SHOWN = (
    *("epoch", "engine", "training loss", "training curve", "clamped share", "automatic"),
    *("prior", "reading", "weights", "dislikes", "updates", "versions"),
)


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
