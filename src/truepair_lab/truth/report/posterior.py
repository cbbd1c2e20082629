"""The lines of weights by a first model -> a section of docs/lab/truth.md; sentences are computed too."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from truepair_lab.markdown import short, signed, table
from truepair_lab.statistics import Mean
from truepair_lab.truth.lines import PosteriorLine
from truepair_lab.truth.posterior_study import KIND, TITLES
from truepair_lab.truth.report.summary import CASE_TITLES, NDCG

PLAIN, TRUE, FOUND, GOAL = "infonce", "posterior", "posterior-auto", "supervised"


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
        ours, plain = self.by_name.get(name, {}), self.by_name.get(PLAIN, {})
        pairs = [(ours[seed], plain[seed]) for seed in ours if seed in plain]
        if validation:
            return Mean.of(a.score - b.score for a, b in pairs)
        return Mean.of(a.quality[NDCG] - b.quality[NDCG] for a, b in pairs)

    def way(self, name: str) -> float | None:
        """The gain over that of the supervised twin; None where that is not surely above 0."""
        gain, goal = self.gain(name), self.gain(GOAL)
        if gain is None or goal is None or goal.value <= 0 or not goal.is_significant:
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
    chosen = f"<details>\n<summary>What validation chose</summary>\n\n{chosen_table(trials)}\n\n</details>"
    found = "\n".join(f"- {sentence}" for sentence in sentences(trials))
    return "\n\n".join([_HEAD, found, quality_table(trials), _GAINS, gain_table(trials), chosen])


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
            Mean.of(line.told or 0.0 for line in trial.by_name.get(FOUND, {}).values()),
        ]
        cells = [str(len(plain)), *("–" if tau is None else short(tau.value, 3) for tau in taus)]
        rows.append([trial.title, *cells, *("–" if mean is None else mean.text() for mean in means)])
    return table(head, rows)


def gain_table(trials: Sequence[Trial]) -> str:
    """Differences to plain InfoNCE with their intervals; the share of the way; what P says of the labels."""
    head = [
        "data",
        "τ",
        "NDCG@20 − InfoNCE's",
        "of the way",
        "on validation",
        "P of positives",
        "P of others",
    ]
    rows = []
    for trial in trials:
        for name, tau in (
            (TRUE, "true"),
            (TRUE + KIND, "true, InfoNCE's kind of scores"),
            (FOUND, "estimated"),
            (FOUND + KIND, "estimated, InfoNCE's kind of scores"),
        ):
            gain, seen, way = trial.gain(name), trial.gain(name, validation=True), trial.way(name)
            if gain is None or seen is None:
                continue
            lines = trial.by_name[name].values()
            p = [statistics.fmean(line.chance[part] for line in lines) for part in ("positive", "negative")]
            share = "–" if way is None else f"{round(100 * way)}%"
            told = [gain.interval(), share, seen.interval(), *(short(value, 3) for value in p)]
            rows.append([trial.title, tau, *told])
    return table(head, rows)


def chosen_table(trials: Sequence[Trial]) -> str:
    """Scores, temperature and weight decay that validation chose on seed 0; the epochs."""
    head = ["data", "", "scores", "temperature", "weight decay", "epoch, by seed"]
    rows = []
    for trial in trials:
        for name, lines in trial.by_name.items():
            line, epochs = next(iter(lines.values())), ", ".join(str(each.epoch) for each in lines.values())
            kind = "cosines" if line.scoring == "cosine" else "inner products"
            told = [kind, f"{line.temperature:g}", f"{line.weight_decay:g}", epochs]
            rows.append([trial.title, _named(name), *told])
    return table(head, rows)


# --- sentences -------------------------------------------------------------------------------------------


def sentences(trials: Sequence[Trial]) -> list[str]:
    """What the lines say, in plain words."""
    told = [_verdict(trials, TRUE, "With the true τ"), _verdict(trials, FOUND, "With the estimated τ")]
    told += [_kinds(trials), _way(trials), _chosen_by_validation(trials), _edges(trials)]
    return [sentence for sentence in told if sentence]


def _verdict(trials: Sequence[Trial], name: str, words: str) -> str:
    gains = {trial.title: gain for trial in trials if (gain := trial.gain(name))}
    if not gains:
        return ""
    better = [where for where, gain in gains.items() if gain.is_significant and gain.value > 0]
    worse = [where for where, gain in gains.items() if gain.is_significant and gain.value < 0]
    level = [where for where in gains if where not in better + worse]
    parts = [
        f"{how} {'; '.join(f'{where} {signed(gains[where].value)}' for where in places)}"
        for how, places in (
            ("surely better on", better),
            ("surely worse on", worse),
            ("not surely different on", level),
        )
        if places
    ]
    return f"**{words}** it is, against InfoNCE with the same search, {', '.join(parts)}."


def _kinds(trials: Sequence[Trial]) -> str:
    """Where the weights went with another kind of scores, what they bring with the same."""
    parts = []
    for trial in trials:
        for name, tau in ((TRUE, "the true τ"), (FOUND, "the estimated τ")):
            gain, line = trial.gain(name + KIND), trial.first(name)
            if gain is not None and line is not None:
                other = "inner products" if line.scoring == "dot" else "cosines"
                parts.append(
                    f"{trial.title}, {tau}: validation chose {other}; as InfoNCE has it {_told(gain)}"
                )
    if not parts:
        return ""
    return (
        "**Where validation chose another kind of scores than for InfoNCE**, the difference is not the "
        f"weights' alone. With InfoNCE's kind it is, on {'; on '.join(parts)}."
    )


def _told(gain: Mean) -> str:
    return f"{signed(gain.value)} ({'sure' if gain.is_significant else 'not sure'})"


def _way(trials: Sequence[Trial]) -> str:
    parts = [
        f"{trial.title} {' and '.join(f'{round(100 * way)}%' for way in ways)}"
        for trial in trials
        if (ways := [way for name in (TRUE, FOUND) if (way := trial.way(name)) is not None])
    ]
    if not parts:
        return ""
    return (
        "**Of the way from InfoNCE to its supervised twin** it goes, with the true τ and with the "
        f"estimated one: {'; '.join(parts)}."
    )


def _chosen_by_validation(trials: Sequence[Trial]) -> str:
    agree: list[str] = []
    differ: list[str] = []
    for trial in trials:
        truth, seen = trial.gain(TRUE), trial.gain(TRUE, validation=True)
        if truth is not None and seen is not None:
            (agree if (truth.value > 0) == (seen.value > 0) else differ).append(trial.title)
    if not agree and not differ:
        return ""
    return (
        "**Would validation have told?** The sign of the mean difference on the validation part, which is "
        f"all that one has in life, is that of the truth on {len(agree)} of {len(agree) + len(differ)}"
        + (f"; not on {', '.join(differ)}." if differ else ".")
    )


def _edges(trials: Sequence[Trial]) -> str:
    """Which temperatures and weight decays lie at an end of what was tried with such scores."""
    found = []
    for trial in trials:
        for name in trial.by_name:
            line = trial.first(name)
            ends = [] if line is None else [end for place in (1, 2) if (end := _end(line, place))]
            if ends:
                found.append(f"{trial.title} {_named(name)} ({', '.join(ends)})")
    return f"**At an end of what was tried**: {'; '.join(found)}." if found else ""


def _end(line: PosteriorLine, place: int) -> str:
    tried = {float(each[place] or 0) for each in line.search if each[0] == line.scoring}
    chosen = line.temperature if place == 1 else line.weight_decay
    if len(tried) < 2 or chosen not in (min(tried), max(tried)):
        return ""
    return f"{'lowest' if chosen == min(tried) else 'highest'} {'temperature' if place == 1 else 'decay'}"


_HEAD = """\
## With nothing drawn: weights by a first model

The loss `infonce-posterior` against InfoNCE, both with [exact sampling](../exact.md): unlabelled items weigh
1 − P, P = P(positive | score of a first model), calibrated ([losses](../losses.md)). The first model is
InfoNCE with the very settings of the run, trained on the train part; the validation part is what its scores
are calibrated by, and what chooses epochs and settings, here as everywhere in the lab. The supervised twin is
exact InfoNCE that is told all labels but the judged ones. Every treatment has the same search on seed 0:
thirteen temperatures up to 12.8 with cosines, four from 1 to 8 with four weight decays each with inner
products; MF with 32 factors, Adam at 0.005, 64 users a batch, up to 100 epochs with a patience of 15."""

_GAINS = """\
Differences are seed by seed, with 95% intervals by Student's t, not corrected for being many; bold does not
hold 0. P of positives is its mean over pairs that are in truth positive and were never shown, P of others
that over true negatives: what a first model knows of single pairs."""
