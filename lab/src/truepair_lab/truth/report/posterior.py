"""The lines of weights by a first model -> a section of docs/truth.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from truepair_lab.markdown import csv_text, joined, short, table
from truepair_lab.statistics import Mean, significant
from truepair_lab.truth.lines import PosteriorLine
from truepair_lab.truth.report.summary import CASE_TITLES, NDCG
from truepair_lab.truth.weighted_infonce import KIND, TITLES

PLAIN, TRUE, FOUND, GOAL = "infonce", "posterior", "posterior-auto", "supervised"
SHOWN = {
    TRUE: "true",
    TRUE + KIND: "true, InfoNCE's kind of scores",
    FOUND: "estimated",
    FOUND + KIND: "estimated, InfoNCE's kind of scores",
}


@dataclass(frozen=True)
class Trial:
    """All lines of one case and one exposure."""

    title: str
    lines: tuple[PosteriorLine, ...]

    @cached_property
    def by_name(self) -> dict[str, dict[int, PosteriorLine]]:
        """Lines of each treatment by seed, in the order of the titles."""
        found: dict[str, dict[int, PosteriorLine]] = {}
        for line in sorted(self.lines, key=lambda line: (_place(line.treatment), line.seed)):
            found.setdefault(line.treatment, {})[line.seed] = line
        return found

    def mean(self, name: str) -> Mean | None:
        """NDCG@20 against the truth, over seeds."""
        return Mean.of(line.quality[NDCG] for line in self.by_name.get(name, {}).values())

    def gain(self, name: str, validation: bool = False) -> Mean | None:
        """Less plain InfoNCE, seed by seed: against the truth, or on the validation part."""
        own, plain = self.by_name.get(name, {}), self.by_name.get(PLAIN, {})
        pairs = [(own[seed], plain[seed]) for seed in own if seed in plain]
        if validation:
            return Mean.of(a.score - b.score for a, b in pairs)
        return Mean.of(a.quality[NDCG] - b.quality[NDCG] for a, b in pairs)

    @cached_property
    def significant(self) -> frozenset[tuple[str, bool]]:
        """The (treatment, on validation) that differ significantly from InfoNCE, of all that are compared."""
        compared = [(name, validation) for name in SHOWN for validation in (False, True)]
        return significant({(n, v): self.gain(n, v) for n, v in [*compared, (GOAL, False)]})

    def closed(self, name: str) -> float | None:
        """The gain over that of the supervised model; None where that is not significantly above 0."""
        gain, goal = self.gain(name), self.gain(GOAL)
        if gain is None or goal is None or goal.value <= 0 or (GOAL, False) not in self.significant:
            return None
        return gain.value / goal.value

    def first(self, name: str) -> PosteriorLine | None:
        """The line of the lowest seed."""
        return next(iter(self.by_name.get(name, {}).values()), None)


def _place(name: str) -> tuple[int, bool]:
    return list(TITLES).index(name.removesuffix(KIND)), name.endswith(KIND)


def _named(name: str) -> str:
    return TITLES[name.removesuffix(KIND)] + (", InfoNCE's kind of scores" if name.endswith(KIND) else "")


def trials_of(lines: Iterable[PosteriorLine]) -> list[Trial]:
    """The lines by case: the simulation first, then by name."""
    groups: dict[tuple[str, str, float], list[PosteriorLine]] = {}
    for line in lines:
        groups.setdefault((line.case, line.exposure, line.hide), []).append(line)
    order = list(CASE_TITLES)
    ranked = sorted(
        groups, key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k[1] != "random")
    )
    return [Trial(_title(*group), tuple(groups[group])) for group in ranked]


def _title(case: str, exposure: str, hide: float) -> str:
    name = CASE_TITLES.get(case, case)
    return f"{name}, as people chose" if exposure == "self" else f"{name}, {exposure} exposure"


def section(trials: Sequence[Trial]) -> str:
    """The whole section."""
    return joined(_HEAD, quality_table(trials), gain_table(trials), _GAINS)


# --- tables ----------------------------------------------------------------------------------------------


def quality_table(trials: Sequence[Trial]) -> str:
    """NDCG@20 of each treatment, and the priors."""
    head = ["data", "seeds", "true τ", "estimated τ", *TITLES.values()]
    rows = []
    for trial in trials:
        means = [trial.mean(name) for name in TITLES]
        plain = trial.by_name.get(PLAIN, {})
        taus = [
            Mean.of(line.tau for line in plain.values()),
            Mean.of(line.prior or 0.0 for line in trial.by_name.get(FOUND, {}).values()),
        ]
        cells = [str(len(plain)), *("–" if tau is None else short(tau.value, 3) for tau in taus)]
        rows.append([trial.title, *cells, *("–" if mean is None else mean.text() for mean in means)])
    return table(head, rows)


def gain_table(trials: Sequence[Trial]) -> str:
    """Differences to plain InfoNCE with their intervals; the share of the gap; what P says of the labels."""
    head = [
        "data",
        "τ",
        "NDCG@20 − InfoNCE's",
        "gap closed",
        "on validation",
        "P of positives",
        "P of others",
    ]
    rows = []
    for trial in trials:
        for name, tau in SHOWN.items():
            gain, seen, closed = trial.gain(name), trial.gain(name, validation=True), trial.closed(name)
            if gain is None or seen is None:
                continue
            lines = trial.by_name[name].values()
            p = [statistics.fmean(line.chance[part] for line in lines) for part in ("positive", "negative")]
            share = "–" if closed is None else f"{round(100 * closed)}%"
            bold = [(name, validation) in trial.significant for validation in (False, True)]
            cells = [gain.interval(bold[0]), share, seen.interval(bold[1]), *(short(value, 3) for value in p)]
            rows.append([trial.title, tau, *cells])
    return table(head, rows)


def chosen_csv(trials: Sequence[Trial]) -> str:
    """Scores, temperature and weight decay that validation chose on seed 0; the epochs."""
    head = ["data", "treatment", "scores", "temperature", "at an end", "weight decay", "at an end", "epochs"]
    rows = []
    for trial in trials:
        for name, lines in trial.by_name.items():
            line, epochs = next(iter(lines.values())), " ".join(str(each.epoch) for each in lines.values())
            chosen = [line.temperature, _end(line, 1), line.weight_decay, _end(line, 2)]
            rows.append([trial.title, _named(name), line.scoring, *chosen, epochs])
    return csv_text(head, rows)


def _end(line: PosteriorLine, place: int) -> str:
    """`lowest` or `highest` where the value at this place of the search is at that end of what was tried."""
    tried = {float(each[place] or 0) for each in line.search if each[0] == line.scoring}
    chosen = line.temperature if place == 1 else line.weight_decay
    if len(tried) < 2 or chosen not in (min(tried), max(tried)):
        return ""
    return "lowest" if chosen == min(tried) else "highest"


_HEAD = """\
## Weights by a first model, over the full catalogue

The loss `infonce-posterior` against InfoNCE, both with [full-catalogue
training](../../docs/full-catalogue.md): unlabelled items weigh 1 − P, where P = P(positive | score of a
first model), calibrated ([the loss](posterior.md)). The first model is InfoNCE with the same
settings, trained on the train part; its scores are calibrated on the validation part, which also chooses
epochs and settings. The supervised model is InfoNCE that knows all labels but the judged ones. Every
treatment has the same search on seed 0: thirteen temperatures up to 12.8 with cosines, and four from 1 to 8
with four weight decays each with inner products; MF with 32 factors, Adam at 0.005, 64 users a batch, up to
100 epochs with a patience of 15."""

_GAINS = """\
Differences are seed by seed, with 95% intervals by Student's t. Bold ones are significant: p corrected by
Holm over all differences of a row's data. “Gap closed” is the gain over that of the supervised model,
where that one is significant. P is given as its mean over hidden positives and over true negatives. Where
validation chose another kind of scores than for InfoNCE, a second row has InfoNCE's kind."""
