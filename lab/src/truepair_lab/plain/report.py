"""The report: the lines of the plain call -> docs/plain.md; the same bytes each time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from truepair.errors import InputError
from truepair.evaluation.comparison import SIGNIFICANT
from truepair.reporting.page import write_text
from truepair_lab.lines import Lines, read_lines
from truepair_lab.markdown import details, duration, joined, metric_name, plain, short, table, unread
from truepair_lab.plain.baselines import (
    BASELINES,
    FOLDER,
    IALS_DIM,
    SWEEPS,
    TRIALS,
    Baseline,
    baseline_of,
    chosen_trial,
    contest_case,
    ials_parameters,
)
from truepair_lab.plain.cases import AIMS, CASES
from truepair_lab.plain.lines import FitTime, PlainLine, PlainLines, plain_name, read_plain
from truepair_lab.quality.cases import NDCG, RECALL
from truepair_lab.quality.contestants import title
from truepair_lab.quality.part_scores import read_contest
from truepair_lab.quality.settled import mean_of
from truepair_lab.quality.tables import Gap, verdict
from truepair_lab.quality.user_values import read_values
from truepair_lab.reporting.answers import Answer
from truepair_lab.statistics import Difference, Mean, corrected

Row = tuple[str, str]  # case, processor
_PROCESSORS = {"cpu": "CPU", "cuda": "GPU"}


@dataclass(frozen=True)
class Study:
    """The lines of a folder and of the contest, and the values of users beside them."""

    folder: Path
    contest_folder: Path

    @cached_property
    def lines(self) -> PlainLines:
        """Of the plain call, and of iALS's time."""
        return read_plain(self.folder)

    @cached_property
    def own(self) -> Lines:
        """Of the baselines that were tuned here."""
        return read_lines(self.folder / FOLDER)

    @cached_property
    def contest(self) -> Lines:
        """Of the contest."""
        return read_contest(self.contest_folder)

    @cached_property
    def runs(self) -> dict[Row, list[PlainLine]]:
        """By case and processor, in the order of cases and seeds."""
        found: dict[Row, list[PlainLine]] = {}
        for line in sorted(self.lines.runs, key=lambda line: line.seed):
            found.setdefault((line.case, line.processor), []).append(line)
        return {row: found[row] for case in CASES for row in ((case, p) for p in _PROCESSORS) if row in found}

    @cached_property
    def baselines(self) -> dict[tuple[str, str], Baseline | None]:
        """Tuned EASE and tuned iALS of each case that has a line."""
        return {
            (case, family): baseline_of(
                case, family, self.own, self.contest, self.folder, self.contest_folder
            )
            for case in dict.fromkeys(case for case, _ in self.runs)
            for family in BASELINES
        }

    @cached_property
    def gaps(self) -> dict[tuple[Row, str], Gap]:
        """The plain call minus each baseline; p is corrected over all of them."""
        found = {
            (row, family): each
            for row in self.runs
            for family in BASELINES
            if (each := self._difference(row, family)) is not None
        }
        p_values = corrected([each.p() for each in found.values()])
        return {
            key: _gap(each, 1.0 if p is None else p)
            for (key, each), p in zip(found.items(), p_values, strict=True)
        }

    def _difference(self, row: Row, family: str) -> Difference | None:
        """Over the same users, each the mean of its seeds; None where their values are not at hand."""
        runs, baseline, values = (
            self.runs[row],
            self.baselines[row[0], family],
            read_values(self.folder, row[0]),
        )
        own = [values[name] for line in runs if (name := plain_name(line)) in values]
        if baseline is None or len(own) < len(runs) or baseline.runs[0].split != runs[0].split:
            return None
        over_users = np.mean(own, axis=0) - baseline.values
        n = len(over_users)
        return Difference(float(over_users.mean()), float(over_users.std(ddof=1)) / math.sqrt(n), n - 1)

    def ials_time(self, row: Row) -> FitTime | None:
        """The time of one fit of iALS with the settings that count."""
        wanted = ials_parameters(row[0], self.own, self.contest)
        found = [t for t in self.lines.times if (t.case, t.processor, dict(t.parameters)) == (*row, wanted)]
        return found[-1] if found else None


def _gap(each: Difference, p: float) -> Gap:
    assert each.error is not None
    half = float(student.ppf(1 - SIGNIFICANT / 2, each.freedom)) * each.error
    return Gap(each.value, each.value - half, each.value + half, p)


# --- the page ------------------------------------------------------------------------------------------


def rebuild_report(folder: Path, contest: Path, out: Path) -> Path:
    """Read the lines of a folder and of the contest, and write the page."""
    study = Study(folder, contest)
    if not (study.lines.runs or study.own.trials):
        raise InputError(
            f"{folder} holds no runs and no trials; `truepair-lab plain tune` and `run` write them."
        )
    return write_text(out, report_text(study))


def report_text(study: Study) -> str:
    """The page as Markdown."""
    return "\n\n".join(_sections(study)) + "\n"


def _sections(study: Study) -> Iterator[str]:
    yield _QUESTION
    yield ANSWER.of(study.lines.runs, study.lines.times, study.gaps.items())
    yield f"## Aims\n\n{aims_table(study)}"
    if not study.runs:
        yield "No call has a line yet: `truepair-lab plain run` adds them."
    else:
        yield f"## Against tuned baselines\n\n{_DIFFERENCES}\n\n{differences_table(study)}"
        yield f"## Time\n\n{_TIME}\n\n{time_table(study)}"
        every = details("Every call", settings_table(study))
        yield f"## Chosen settings\n\n{_CHOSEN}\n\n{spread_table(study)}\n\n{every}"
    yield f"## Protocol\n\n{_PROTOCOL}\n\n{cases_table(study)}"
    yield joined(_REBUILD, unread([*study.lines.broken, *study.own.broken]))


def row_title(row: Row) -> str:
    """`MovieLens-1M, GPU`."""
    case, processor = row
    return f"{CASES[case].title}, {_PROCESSORS[processor]}"


def plain_mean(runs: Sequence[PlainLine], metric: str) -> Mean:
    """Over seeds."""
    mean = Mean.of(line.metrics[metric] for line in runs)
    assert mean is not None
    return mean


def aims_table(study: Study) -> str:
    """What was aimed at, and what the plain call reached."""
    rows = []
    for case, aims in AIMS.items():
        mine = [row for row in study.runs if row[0] == case]
        for metric, aim in aims.items():
            named = [metric_name(metric), short(aim)]
            rows += [
                [row_title(row), *named, mean, mean.n, verdict(mean, aim)]
                for row in mine
                for mean in [plain_mean(study.runs[row], metric)]
            ]
            if not mine:
                rows.append([CASES[case].title, *named, "not run", 0, "not run"])
    return table(["case", "metric", "aim", "reached", "seeds", ""], rows)


def differences_table(study: Study) -> str:
    """The plain call against tuned EASE and tuned iALS."""
    rows = []
    for row, runs in study.runs.items():
        found = [study.baselines[row[0], family] for family in BASELINES]
        means = [each and mean_of(each.runs, NDCG) for each in found]
        gaps = [study.gaps.get((row, family), "not compared") for family in BASELINES]
        rows.append([row_title(row), len(runs), plain_mean(runs, NDCG), *(m or "–" for m in means), *gaps])
    head = ["case", "seeds", f"plain, {metric_name(NDCG)}", *(f"tuned {name}" for name in BASELINES)]
    return table([*head, *(f"plain - {name}" for name in BASELINES)], rows)


def time_table(study: Study) -> str:
    """Seconds of the whole call, and as multiples of one training and of one fit of iALS."""
    rows = []
    for row, runs in study.runs.items():
        alone = [line for line in runs if line.alone]
        timed, ials = alone or runs, study.ials_time(row)
        whole, automatic = (
            statistics.fmean(getattr(line, name) for line in timed) for name in ("seconds", "automatic")
        )
        fit = whole - automatic
        against = ["–", "–"] if ials is None else [duration(ials.seconds), _times(whole / ials.seconds)]
        busy = not alone or (ials is not None and not ials.alone)
        device = timed[0].device + (", beside other work" if busy else "")
        rows.append(
            [row_title(row), device, len(timed), duration(whole), duration(fit), _times(whole / fit),
             *against, f"{automatic / whole:.0%}"]
        )  # fmt: skip
    head = ["case", "device", "calls", "whole call", "final fit", "multiple", "one fit of iALS", "multiple"]
    return table([*head, "automatic part"], rows)


def _times(ratio: float) -> str:
    return f"{ratio:.1f} x"


_SHOWN = ("temperature", "popularity", "dim", "epochs", "stop_after", "blend", "blend_weight")


def spread_table(study: Study) -> str:
    """How much the seeds, and with them the chosen settings, matter."""
    rows = []
    for row, runs in study.runs.items():
        values = [line.metrics[NDCG] for line in runs]
        chosen = [dict.fromkeys(_setting(line, name) for line in runs) for name in _SHOWN]
        rows.append(
            [row_title(row), plain_mean(runs, NDCG), short(max(values) - min(values)),
             *(" / ".join(each) for each in chosen)]
        )  # fmt: skip
    return table(["case", metric_name(NDCG), "largest - smallest", *_SHOWN], rows)


def settings_table(study: Study) -> str:
    """What each call chose, by which hold-out, after how many trials, and what it reached."""
    rows = [
        [row_title(row), line.seed, line.hold_out, line.trials, *(_setting(line, name) for name in _SHOWN),
         *(short(line.metrics[metric]) for metric in (NDCG, RECALL)), duration(line.seconds)]
        for row, runs in study.runs.items()
        for line in runs
    ]  # fmt: skip
    figures = [metric_name(NDCG), metric_name(RECALL), "time"]
    return table(["case", "seed", "hold-out", "trials", *_SHOWN, *figures], rows)


def _setting(line: PlainLine, name: str) -> str:
    value = line.chosen.get(name)
    if isinstance(value, Mapping):
        return ", ".join(
            plain(part) if key == "kind" else f"{key} {plain(part)}" for key, part in value.items()
        )
    return "–" if value is None else plain(value)


def cases_table(study: Study) -> str:
    """The cases, and where their baselines were tuned."""
    rows = []
    for case, entry in CASES.items():
        name = contest_case(case, study.contest)
        trials = [chosen_trial(study.own, case, family) for family in BASELINES]
        tuned = (
            f"the contest's, `{name}`" if name
            else " and ".join(f"{title((t.encoder, t.method))}, validation {short(t.score or 0)}"
                              for t in trials if t) or "not tuned"
        )  # fmt: skip
        rows.append([entry.title, f"`{case}`", entry.about, tuned])
    return table(["case", "name", "split", "baselines"], rows)


# --- texts ---------------------------------------------------------------------------------------------

_QUESTION = """\
# The plain call against tuned baselines

**Question.** `Recommender()` without any setting chooses its settings by itself
([automatic settings](../../docs/automatic.md)). Is it as good as EASE and iALS after a search for their best
settings? EASE has degree exponents, which validation prefers in all ten cases. What does it cost?

Every number is computed from a JSON line of a run in `results/plain` and `results/quality`.
`truepair-lab plain report` writes this page."""

ANSWER = Answer(
    "f7e443e97371",
    """\
On nine of ten datasets. Of 28 differences from tuned EASE and tuned iALS, 14 are significantly in favour of
the plain call: both on MovieLens-1M (CPU and GPU), Gowalla and Yelp2018, iALS on KuaiRec and Jester (CPU and
GPU), EASE on the sparse (CPU and GPU) and the medium world. One is against it: iALS on the dense world
(-.0034), where neither dot products nor fewer dimensions gained anything on held-out pairs.

All aims are met, on MovieLens-1M, Gowalla and Yelp2018 with 3 seeds.

On two cores of a CPU the whole call takes 18.8 s on MovieLens-100k and 114.8 s on MovieLens-1M, 3.8 and 3.3
times the final fit. On an H200 it takes 2 to 33 s: on the three larger datasets 2.3 to 3.2 times the final
fit, on Jester and the sparse world 3.9 and 4.4 times, and 6.5 times on MovieLens-100k, where that fit takes
0.3 s. All of these were timed alone.""",
)

_DIFFERENCES = f"""\
NDCG@20 on the test part, mean ± standard deviation over seeds. Differences are over the same users, each the
mean of its seeds, with 95% intervals over users. p is Student's, by Holm's correction over all differences of
this table; bold ones are significant (p below {SIGNIFICANT:g})."""

_TIME = """\
The mean over calls with nothing else running; where there is none, the table says “beside other work”.
“Final fit” is the training with the chosen settings on all pairs, blend included: the whole call without the
automatic part. Where a short run won or training stops early, it is a part of the full training that the
[limit of the search](../../docs/automatic.md#what-it-costs) is about, and the multiple is larger.
“One fit of iALS” has the settings of its search, so that the search costs nothing here. Code was
compiled before."""

_CHOSEN = """\
Each seed holds out other pairs and chooses by itself, so that the spread over seeds includes that of the
choice. A dash is a default."""

_PROTOCOL = f"""\
The plain call is `Recommender(seed=seed).fit(split)`, on train and validation together; it holds out pairs of
its own. The automatic settings were developed on held-out pairs of train, but for one thing. Two former
versions of them had been evaluated on these test parts (the last one: .1485 on Gowalla, .4262 on
MovieLens-1M, within .0016 of today's on the others). Two things changed after that. The popularity that short
runs begin with was decided on held-out pairs. That more users judge a blend was not: a run on the test part
of MovieLens-1M had shown that last digits decided about it (.4204 or .4263), so give that row less weight.
Lists rank the whole catalogue without the items of train; on KuaiRec and Coat they rank the judged pairs,
whose true labels are known.

EASE is the better of plain EASE and EASE with degree exponents, on validation; iALS has regularisation
scaled by frequency. Both have the settings and runs of the [contest](quality.md) where it has the case;
it evaluated these test parts before. On Jester and the worlds each search has {TRIALS} trials (plain EASE
fewer, as it has one parameter) on a random validation part, pruned ones included. The ranges are the
contest's, except that iALS has dimensions from {IALS_DIM.low} to {IALS_DIM.high} and {SWEEPS} sweeps at
most; as there, a range grows where the best is at its edge. The final runs learn from train and
validation, iALS with 3 seeds."""

_REBUILD = """\
## How to rebuild

```sh
truepair-lab plain tune      # searches of the baselines that the contest does not have: validation only
truepair-lab plain run       # the plain call and the final runs of these baselines
truepair-lab plain report    # this page, from the lines alone
```

The same lines give the same page."""
