"""Summary: lines by setting (case, exposure, share hidden), means over seeds, and the share of the gap."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from truepair_lab.statistics import Mean, significant
from truepair_lab.truth.lines import TruthLine
from truepair_lab.truth.treatments import EVERY

CASE_TITLES = {"simulation": "Simulation", "kuairec": "KuaiRec", "jester5k": "Jester", "coat": "Coat"}
NDCG, BASELINE, GOAL = "ndcg@20", "bpr", "supervised"
COMPARED = (
    ("DPL − BPR", "dpl", BASELINE),
    ("DPL − DPL with τ = 0: the correction itself", "dpl", "dpl-tau-0"),
    ("DPL with ½ for the extra positives − DPL", "dpl-half", "dpl"),
    ("DPL with each user's τ − DPL with one τ", "dpl-user", "dpl"),
)


@dataclass(frozen=True)
class Setting:
    """All lines of one case, one exposure and one share hidden."""

    case: str
    exposure: str
    hide: float
    lines: tuple[TruthLine, ...]

    @property
    def title(self) -> str:
        """`KuaiRec, random exposure`."""
        name = CASE_TITLES.get(self.case, self.case)
        how = "as people chose" if self.exposure == "self" else f"{self.exposure} exposure"
        return f"{name}, {how}"

    @cached_property
    def by_name(self) -> dict[str, list[TruthLine]]:
        """Lines of each treatment by seed, in the order of the table of treatments."""
        found: dict[str, list[TruthLine]] = {}
        for line in sorted(self.lines, key=lambda line: (_place(line.treatment), line.seed)):
            found.setdefault(line.treatment, []).append(line)
        return found

    def mean(self, name: str, metric: str = NDCG) -> Mean | None:
        """A metric of a treatment, over its seeds."""
        return Mean.of(line.quality[metric] for line in self.by_name.get(name, ()))

    def gain(self, name: str, metric: str = NDCG) -> Mean | None:
        """The difference to BPR, seed by seed."""
        return self.difference(name, BASELINE, metric)

    def difference(self, a: str, b: str, metric: str = NDCG) -> Mean | None:
        """a − b, seed by seed; None where no seed has both."""
        return Mean.of(x - y for x, y in self._pairs(a, b, metric))

    @cached_property
    def significant(self) -> frozenset[tuple[str, str]]:
        """The (a, b) whose NDCG@20 differs significantly, of all that the page compares in this setting."""
        pairs = [(name, BASELINE) for name in self.by_name if name != BASELINE]
        pairs += [(a, b) for _, a, b in COMPARED]
        return significant({(a, b): self.difference(a, b) for a, b in pairs})

    def closed(self, name: str, goal: str = GOAL, metric: str = NDCG) -> Mean | None:
        """(loss − BPR) / (goal − BPR), seed by seed; None where the goal is not significantly above BPR."""
        gap = self.gain(goal, metric)
        if gap is None or gap.value <= 0 or not ((goal, BASELINE) in self.significant or gap.n == 1):
            return None
        gains = dict(zip(self._seeds(name, BASELINE), self._pairs(name, BASELINE, metric), strict=True))
        goals = dict(zip(self._seeds(goal, BASELINE), self._pairs(goal, BASELINE, metric), strict=True))
        shared = [seed for seed in gains if seed in goals]
        return Mean.of((gains[s][0] - gains[s][1]) / (goals[s][0] - goals[s][1]) for s in shared)

    def probe(self, name: str, measure: str) -> Mean | None:
        """A measure of a treatment at its best epoch, over seeds that have it."""
        lines = [line for line in self.by_name.get(name, []) if line.probes]
        found = [line.probes[-1][1].get(measure) for line in lines]
        return Mean.of(value for value in found if value is not None)

    def clamped(self, name: str) -> float | None:
        """The share of rows that met the loss's floor, the mean over seeds."""
        found = [line.clamped for line in self.by_name.get(name, []) if line.clamped is not None]
        return statistics.fmean(found) if found else None

    @property
    def observed(self) -> float:
        """The share of observed pairs, the validation part among them."""
        facts = self.lines[0].facts
        return (facts["train"] + facts["valid"]) / (facts["users"] * facts["items"])

    def edge(self, name: str) -> str:
        """`lowest` or `highest` where a weight decay was chosen at that end of what was tried, else empty.

        A treatment without a search of its own has the one of the treatment that lent it its settings.
        """
        lender = EVERY[name].settings_of if name in EVERY else None
        lines = self.by_name.get(name, [])
        searched = [each for each in (*lines, *self.by_name.get(lender or "", [])) if each.search]
        tried = {trial[1] or 0.0 for each in searched[:1] for trial in each.search}
        if len(tried) < 2 or not lines:
            return ""
        chosen = lines[0].settings["weight_decay"]
        return "lowest" if chosen == min(tried) else "highest" if chosen == max(tried) else ""

    def _seeds(self, *names: str) -> list[int]:
        have = [{line.seed for line in self.by_name.get(name, [])} for name in names]
        return sorted(set.intersection(*have))

    def _pairs(self, a: str, b: str, metric: str) -> list[tuple[float, float]]:
        of = {
            name: {line.seed: line.quality[metric] for line in self.by_name.get(name, [])} for name in (a, b)
        }
        return [(of[a][seed], of[b][seed]) for seed in self._seeds(a, b)]


def settings_of(lines: Iterable[TruthLine]) -> list[Setting]:
    """The lines by setting: the simulation first, then by name."""
    groups: dict[tuple[str, str, float], list[TruthLine]] = {}
    for line in lines:
        groups.setdefault((line.case, line.exposure, line.hide), []).append(line)
    order = list(CASE_TITLES)
    key = lambda k: (order.index(k[0]) if k[0] in order else len(order), k[0], k[1] != "random", k[1], k[2])  # noqa: E731
    return [Setting(*group, tuple(groups[group])) for group in sorted(groups, key=key)]


def title(name: str) -> str:
    """A treatment as people write it."""
    return EVERY[name].title if name in EVERY else name


def _place(name: str) -> int:
    return list(EVERY).index(name) if name in EVERY else len(EVERY)
