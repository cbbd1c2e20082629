"""Figures: what the service does, as JSON, from the same counters as /metrics."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from prometheus_client import CollectorRegistry

from truepair.storage.types import Json

OWN = ("/v1/service", "/", "/page/{name}", "/metrics", "/health/live", "/health/ready")
"""Routes that watch the service; they are not counted among its requests."""
_PREFIX = "truepair_"
_SHOWN = ("requests", "request_seconds", "events", "gathered_requests", "fold_ins", "store_failures")


class Figures:
    """Totals since the start; a page that asks twice has rates."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry, self._start = registry, time.monotonic()

    def now(self) -> Json:
        """All figures."""
        samples: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
        others = []
        for family in self.registry.collect():
            name = family.name.removeprefix(_PREFIX)
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                samples[sample.name.removeprefix(_PREFIX)].append((sample.labels, sample.value))
                if name not in _SHOWN and not sample.name.endswith("_bucket"):
                    others.append(
                        {"name": _words(sample.name, sample.labels), "about": family.documentation,
                         "value": sample.value}
                    )  # fmt: skip
        return {
            "seconds": round(time.monotonic() - self._start, 3),
            **_requests(samples),
            "events": {labels["result"]: int(value) for labels, value in samples["events_total"]},
            "gathered": {
                "products": int(_value(samples["gathered_requests_count"])),
                "requests": int(_value(samples["gathered_requests_sum"])),
                "sizes": _buckets(samples["gathered_requests_bucket"]),
            },
            "fold_ins": int(_value(samples["fold_ins"])),
            "store_failures": int(_value(samples["store_failures"])),
            "others": others,
        }


def _requests(samples: dict[str, list[tuple[dict[str, str], float]]]) -> Json:
    routes: dict[str, Json] = {}
    for labels, value in samples["requests_total"]:
        route = labels["route"]
        if route in OWN:
            continue
        row = routes.setdefault(route, {"route": route, "requests": 0, "refused": 0, "failed": 0})
        row["requests"] += int(value)
        row["refused"] += int(value) if labels["status"].startswith("4") else 0
        row["failed"] += int(value) if labels["status"][0] in "05" else 0
    counts = {labels["route"]: value for labels, value in samples["request_seconds_count"]}
    for labels, total in samples["request_seconds_sum"]:
        if labels["route"] in routes:
            mean = total / max(counts.get(labels["route"], 0), 1)
            routes[labels["route"]]["mean_ms"] = round(mean * 1000, 3)
    used = [one for one in samples["request_seconds_bucket"] if one[0]["route"] in routes]
    rows = sorted(routes.values(), key=lambda row: -row["requests"])
    totals = {name: sum(row[name] for row in rows) for name in ("requests", "refused", "failed")}
    return {**totals, "latency": _buckets(used), "routes": rows}


def _buckets(samples: list[tuple[dict[str, str], float]]) -> dict[str, list[Any]]:
    """Upper bounds, and how many were at most that; the last bound, of all, is null."""
    total: dict[float, float] = defaultdict(float)
    for labels, value in samples:
        total[float(labels["le"])] += value
    bounds = sorted(total)
    return {
        "bounds": [None if bound == float("inf") else bound for bound in bounds],
        "counts": [int(total[bound]) for bound in bounds],
    }


def _value(samples: list[tuple[dict[str, str], float]]) -> float:
    return samples[0][1] if samples else 0.0


def _words(name: str, labels: dict[str, str]) -> str:
    """The readable name of a figure: `truepair_cached_people` -> `cached people`."""
    parts = [name.removeprefix(_PREFIX).removesuffix("_total").replace("_", " "), *labels.values()]
    return ", ".join(parts)
