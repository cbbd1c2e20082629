"""Tables: the lines of the contest as rankings, aims and effort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from truepair_lab.lines import Contrast, Lines, RunLine, TrialLine, digest
from truepair_lab.markdown import details, duration, metric_name, plain, short, table
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.running.contrasts import model_key
from truepair_lab.quality.cases import AIMS, CASES, NDCG, RECALL, case_title
from truepair_lab.quality.contestants import BASELINES, MODELS, Model, title
from truepair_lab.quality.settled import current_runs, mean_of
from truepair_lab.searching import Place, best_trials
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
        """Those with runs, in the contest's order."""
        return [name for name in CASES if any(place[0] == name for place in self.runs)]

    def mean(self, case: str, model: Model, metric: str = NDCG) -> Mean | None:
        """The mean over seeds; None where nothing was run."""
        return mean_of(self.runs.get((case, *model), ()), metric)

    def validation(self, case: str, model: Model) -> float | None:
        """The best trial's score."""
        best = best_trials(self.lines).get((case, *model))
        return None if best is None else best.score

    def models(self, case: str) -> list[tuple[Model, Mean]]:
        """The contestants that were run, the best first."""
        found = [(model, mean) for model in MODELS if (mean := self.mean(case, model))]
        return sorted(found, key=lambda pair: -pair[1].value)

    def chosen(self, case: str) -> Model | None:
        """The trained contestant that validation would choose: no look at the test part."""
        able = [m for m, _ in self.models(case) if m[0] != NO_ENCODER]
        scored = [(score, m) for m in able if (score := self.validation(case, m)) is not None]
        return max(scored)[1] if scored else None

    def gap(self, case: str, a: Model, b: Model) -> Gap | None:
        """How much a is above b; None where these very runs were not compared."""
        for line in self.lines.contrasts:
            if line.dataset != case or not self._is_of(line, case, a, b):
                continue
            return Gap(line.difference, line.low, line.high, line.p_corrected)
        return None

    def _is_of(self, line: Contrast, case: str, a: Model, b: Model) -> bool:
        sides = [self.runs.get((case, *model), []) for model in (a, b)]
        return (line.a, line.b) == (model_key(a), model_key(b)) and all(
            runs and (digest(runs[0].parameters), runs[0].split) == (mark, line.split)
            for runs, mark in zip(sides, (line.a_digest, line.b_digest), strict=True)
        )


# --- tables --------------------------------------------------------------------------------------------


def chosen_table(contest: Contest) -> str:
    """The contestant that validation chooses in each case, against the baselines."""
    rows = []
    for case in contest.cases:
        chosen = contest.chosen(case)
        if chosen is not None:
            gaps = [contest.gap(case, chosen, (NO_ENCODER, baseline)) for baseline in BASELINES]
            mean = contest.mean(case, chosen)
            rows.append([case_title(case), title(chosen), mean, *(gap or "not compared" for gap in gaps)])
    against = [f"- {title((NO_ENCODER, baseline))}" for baseline in BASELINES]
    return table(["case", "chosen on validation", metric_name(NDCG), *against], rows) if rows else ""


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


_AIMS = "The trained contestant with the best validation score counts; mean ± standard deviation over seeds."


def ranking_table(contest: Contest, case: str) -> str:
    """Every contestant of a case, the best on the test part first."""
    chosen = contest.chosen(case)
    rows = []
    for place, (model, mean) in enumerate(contest.models(case), 1):
        gaps = [contest.gap(case, model, (NO_ENCODER, baseline)) for baseline in BASELINES]
        score = contest.validation(case, model)
        name = title(model) + (" ✓" if model == chosen else "")
        figures = [short(score) if score is not None else "–", mean, contest.mean(case, model, RECALL)]
        rows.append([place, name, mean.n, *figures, *(gap or "–" for gap in gaps)])
    against = [f"{metric_name(NDCG)} - {title((NO_ENCODER, baseline))}" for baseline in BASELINES]
    head = ["", "contestant", "seeds", "validation", metric_name(NDCG), metric_name(RECALL), *against]
    missing = [title(model) for model in MODELS if not contest.mean(case, model)]
    note = f"\n\nNot run: {', '.join(missing)}." if missing else ""
    return table(head, rows) + note


def effort_table(contest: Contest) -> str:
    """How much each contestant was tuned, and the settings that were found."""
    trials: dict[Place, list[TrialLine]] = {}
    for trial in contest.lines.trials:
        trials.setdefault((trial.dataset, trial.encoder, trial.method), []).append(trial)
    best = best_trials(contest.lines)
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
