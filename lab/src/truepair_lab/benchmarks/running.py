"""Running benchmarks one after the other; what is measured is kept after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from truepair.errors import TruepairError
from truepair_lab.benchmarks.outcome import Options, Outcome
from truepair_lab.reporting.machine import machine, versions

Benchmark = Callable[[Options], Outcome]
Report = dict[str, Any]

FORMAT = 1


def run_benchmarks(
    chosen: Mapping[str, Benchmark], options: Options, keep: Callable[[Report], None]
) -> Report:
    """Run them all; `keep` gets the report after each, and when someone interrupts.

    What cannot run here, for a lack of data, of a peer or of a GPU, is named in the report and left out.
    """
    report: Report = {
        "format": FORMAT,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": versions(),
        "machine": machine(),
        "options": options.facts(),
        "benchmarks": {},
    }
    for name, benchmark in chosen.items():
        options.say(f"--- {name}: {summary(benchmark)}")
        began = time.perf_counter()
        try:
            facts = benchmark(options).facts()
        except TruepairError as error:
            facts = Outcome(skipped=[str(error)]).facts()
        except KeyboardInterrupt:
            report["interrupted"] = name
            keep(report)
            raise
        for text in dict.fromkeys(facts["skipped"]):
            options.say(f"left out: {text}")
        report["benchmarks"][name] = facts | {"seconds": time.perf_counter() - began}
        keep(report)
    return report


def summary(benchmark: Benchmark) -> str:
    """The first line of what a benchmark says about itself."""
    return (benchmark.__doc__ or "").strip().partition("\n")[0]


def rows_of(report: Report) -> Iterable[tuple[str, dict[str, Any]]]:
    """(benchmark, row) of all rows of a report."""
    for name, facts in report["benchmarks"].items():
        for row in facts["rows"]:
            yield name, row
