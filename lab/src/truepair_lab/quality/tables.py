"""Tables: the lines of the contest as rankings, aims and effort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from truepair_lab.lines import Lines, RunLine, TrialLine
from truepair_lab.markdown import details, duration, metric_name, plain, short, table
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.running.contrasts import model_key
from truepair_lab.quality.cases import AIMS, CASES, NDCG, RECALL, case_title
from truepair_lab.quality.comparisons import FAMILY, Side, debiasing_pairs, sides_of
from truepair_lab.quality.contestants import BASELINES, FAMILIES, FULL_FAMILY, MODELS, Model, parts_of, title
from truepair_lab.quality.settled import chosen_settings, current_runs, mean_of
from truepair_lab.searching import Place
from truepair_lab.statistics import Mean, bold, contrast_text, sign_of

_NOT_RUN = "not run"


@dataclass(frozen=True)
class Gap:
    """a − b on NDCG@20, over the same users."""

    value: float
    low: float
    high: float
    p: float  # by Holm's correction

    @property
    def sign(self) -> int:
        """1 or -1 where it is significant, else 0."""
        return sign_of(self.value, self.p) or 0

    def __str__(self) -> str:
        return bold(contrast_text(self.value, self.low, self.high, self.p), self.sign != 0)


@dataclass(frozen=True)
class Contest:
    """What the lines say: means over seeds, validation scores, differences."""

    lines: Lines

    @cached_property
    def runs(self) -> dict[Place, list[RunLine]]:
        """The final runs, with the best settings."""
        return current_runs(self.lines)

    @cached_property
    def cases(self) -> list[str]:
        """Those with runs, in the contest's order, without those of the former protocol."""
        return [name for name in self._with_runs if not CASES[name].former]

    @cached_property
    def former(self) -> list[str]:
        """The cases of the former protocol."""
        return [name for name in self._with_runs if CASES[name].former]

    @cached_property
    def _with_runs(self) -> list[str]:
        return [name for name in CASES if any(place[0] == name for place in self.runs)]

    def mean(self, case: str, model: Model, metric: str = NDCG) -> Mean | None:
        """The mean over seeds; None where nothing was run."""
        return mean_of(self.runs.get((case, *model), ()), metric)

    def validation(self, case: str, model: Model) -> float | None:
        """The score of the chosen settings on the first validation part."""
        return self._settings(case, model).get("validation")

    def parts(self, case: str, model: Model) -> float | None:
        """Their mean over all validation parts; None where one part chose."""
        return self._settings(case, model).get("parts")

    def _settings(self, case: str, model: Model) -> Mapping[str, Any]:
        return self._chosen.get((case, *model), {})

    @cached_property
    def searched(self) -> set[Place]:
        """The contestants with trials."""
        return {(trial.dataset, trial.encoder, trial.method) for trial in self.lines.trials}

    @cached_property
    def _chosen(self) -> dict[Place, dict[str, Any]]:
        return chosen_settings(self.lines)

    @cached_property
    def _sides(self) -> dict[str, dict[str, Side]]:
        return {case: sides_of(self.lines, case) for case in self._with_runs}

    def side(self, case: str, name: str) -> Side | None:
        """A contestant or a family, as comparisons name it."""
        return self._sides.get(case, {}).get(name)

    def models(self, case: str) -> list[tuple[Model, Mean]]:
        """The contestants that were run, the best first."""
        found = [(model, mean) for model in MODELS if (mean := self.mean(case, model))]
        return sorted(found, key=lambda pair: -pair[1].value)

    def chosen(self, case: str, family: str = FULL_FAMILY) -> Model | None:
        """The contestant that validation chooses in a family: no look at the test part."""
        side = self.side(case, FAMILY + family)
        return None if side is None else side.model

    def gap(self, case: str, a: str, b: str) -> Gap | None:
        """How much a is above b; None where these very runs were not compared."""
        sides = self.side(case, a), self.side(case, b)
        for line in self.lines.contrasts:
            if (line.dataset, line.a, line.b) != (case, a, b) or None in sides:
                continue
            marks = [(side.runs[0].digest, side.runs[0].split) for side in sides if side]
            if marks == [(line.a_digest, line.split), (line.b_digest, line.split)]:
                return Gap(line.difference, line.low, line.high, line.p_corrected)
        return None


# --- tables --------------------------------------------------------------------------------------------


def chosen_table(contest: Contest) -> str:
    """The contestant that validation chooses in each family and case, and the spread of that choice."""
    rows = []
    for case in contest.cases:
        for family in FAMILIES:
            side = contest.side(case, FAMILY + family)
            if side is not None:
                mean = mean_of(side.runs, NDCG)
                spread = "–" if side.spread is None else short(side.spread)
                rows.append([case_title(case), family, title(side.model), mean, spread])
    head = ["case", "family", "chosen on validation", metric_name(NDCG), "spread of the choice"]
    return table(head, rows) if rows else ""


def families_table(contest: Contest) -> str:
    """The differences between the families."""
    names = list(FAMILIES)
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    rows = [
        [case_title(case), *(contest.gap(case, FAMILY + a, FAMILY + b) or "not compared" for a, b in pairs)]
        for case in contest.cases
    ]
    return table(["case", *(f"{a} - {b}" for a, b in pairs)], rows) if rows else ""


def debiasing_table(contest: Contest) -> str:
    """What corrects for unlabelled positives against InfoNCE, and against the same without the correction."""
    rows = []
    for case in contest.cases:
        for a, b in debiasing_pairs():
            gap = contest.gap(case, model_key(a), model_key(b))
            if gap is not None:
                seeds = " / ".join(str(mean.n) for m in (a, b) if (mean := contest.mean(case, m)))
                verdict = {1: "better", -1: "worse", 0: "not significant"}[gap.sign]
                rows.append([case_title(case), title(a), title(b), seeds, gap, verdict])
    head = ["case", "contestant", "compared with", "seeds", f"{metric_name(NDCG)}, difference", ""]
    return table(head, rows) if rows else ""


def aims_table(contest: Contest) -> str:
    """What was aimed at, and what the contestant that validation chooses has reached."""
    rows = []
    for case, aims in AIMS.items():
        chosen = contest.chosen(case)
        for metric, aim in aims.items():
            mean = contest.mean(case, chosen, metric) if chosen else None
            name, reached = (title(chosen), str(mean)) if chosen else (_NOT_RUN, _NOT_RUN)
            rows.append(
                [case_title(case), metric_name(metric), short(aim), name, reached, verdict(mean, aim)]
            )
    head = ["case", "metric", "aim", "chosen on validation", "reached", ""]
    return f"{table(head, rows)}\n\n{_AIMS}"


def verdict(mean: Mean | None, aim: float) -> str:
    """Whether an aim is met."""
    if mean is None:
        return _NOT_RUN
    return "met" if mean.value >= aim else f"**missed by** {short(aim - mean.value)}"


_AIMS = "The contestant that the full-catalogue family chooses counts; mean ± standard deviation over seeds."


def ranking_table(contest: Contest, case: str) -> str:
    """Every contestant of a case, the best on the test part first."""
    chosen = {contest.chosen(case, family) for family in FAMILIES}
    baselines = [(NO_ENCODER, baseline) for baseline in BASELINES]
    rows = []
    for place, (model, mean) in enumerate(contest.models(case), 1):
        gaps = [contest.gap(case, model_key(model), model_key(baseline)) for baseline in baselines]
        scores = contest.validation(case, model), contest.parts(case, model)
        name = title(model) + (" ✓" if model in chosen else "")
        figures = [*("–" if s is None else short(s) for s in scores), mean, contest.mean(case, model, RECALL)]
        rows.append([place, name, mean.n, *figures, *(gap or "–" for gap in gaps)])
    against = [f"{metric_name(NDCG)} - {title(baseline)}" for baseline in baselines]
    head = ["", "contestant", "seeds", "validation", "all parts", metric_name(NDCG), metric_name(RECALL)]
    missing = [title(model) for model in MODELS if not contest.mean(case, model)]
    note = f"\n\nNot run: {', '.join(missing)}." if missing else ""
    if unsearched := [title(m) for m, _ in contest.models(case) if (case, *m) not in contest.searched]:
        note = f"\n\nNot searched: {', '.join(unsearched)}.{note}"
    return table([*head, *against], rows) + note


def trials_table(contest: Contest) -> str:
    """The number of trials of each family; weights of blends are counted apart, as they train nothing."""
    counts = Counter((trial.dataset, trial.encoder, trial.method) for trial in contest.lines.trials)
    trained = {name: [m for m in models if parts_of(m) is None] for name, models in FAMILIES.items()}
    blends = [model for model in FAMILIES[FULL_FAMILY] if parts_of(model) is not None]
    rows = [
        [
            case_title(case),
            *(sum(counts[case, *model] for model in models) for models in trained.values()),
            sum(counts[case, *model] for model in blends),
        ]
        for case in CASES
        if any(place[0] == case for place in counts)
    ]
    return table(["trials", *trained, "weights of blends"], rows) if rows else ""


def effort_table(contest: Contest) -> str:
    """How much each contestant was tuned, and the settings that were found."""
    trials: dict[Place, list[TrialLine]] = {}
    for trial in contest.lines.trials:
        trials.setdefault((trial.dataset, trial.encoder, trial.method), []).append(trial)
    settings = chosen_settings(contest.lines)
    best = {
        place: next(t for t in of if (t.parameters, t.epoch) == (chosen["parameters"], chosen["epoch"]))
        for place, of in trials.items()
        if (chosen := settings.get(place)) is not None
    }
    places = [(case, *model) for case in CASES for model in MODELS if (case, *model) in trials]
    rows = [_effort(place, trials[place], best.get(place)) for place in places]
    head = ["case", "contestant", "trials", "time", "epoch", "settings"]
    return details("Every search", table(head, rows)) if rows else "No search was run."


def _effort(place: Place, trials: Sequence[TrialLine], best: TrialLine | None) -> list[object]:
    time, name = duration(sum(trial.seconds for trial in trials)), title(place[1:])
    if best is None:
        return [case_title(place[0]), name, len(trials), time, "–", "–"]
    named = [n for n in sorted(best.parameters) if len({repr(t.parameters.get(n)) for t in trials}) > 1]
    chosen = ", ".join(f"{n} {plain(best.parameters[n])}" for n in named) or "–"
    return [case_title(place[0]), name, len(trials), time, best.epoch, chosen]
