"""Differences between contestants and between families, over the same users, with the spread of the choice.

A difference has two sources of chance: which users are judged, and which validation part chose the settings.
The second is the standard deviation, over the parts, of the difference on the test part between what either
side would have chosen by that part alone. Errors are added as squares; the interval and p are Student's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from scipy.stats import t as student

from truepair.evaluation.comparison import SIGNIFICANT
from truepair.evaluation.statistics import holm
from truepair_lab.lines import Contrast, Lines, RunLine, append_line, digest
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.running.contrasts import model_key
from truepair_lab.quality.cases import NDCG
from truepair_lab.quality.contestants import (
    BASELINES,
    CONTROL,
    DEBIASED,
    FAMILIES,
    HARD,
    INFONCE,
    MODELS,
    Model,
)
from truepair_lab.quality.part_scores import Scored, choice_of, read_contest, scored_trials
from truepair_lab.quality.settled import current_runs, final_parameters, mean_of, runs_of, settings_of_trial
from truepair_lab.quality.user_values import Values, keep_values_of, read_values, values_name
from truepair_lab.searching import best_trials
from truepair_lab.statistics import Difference, Mean, weighted

RunKey = tuple[str, str, str, str]  # case, encoder, method, checksum of the parameters
FAMILY = "family "  # before the name of a family, in lines
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a difference: a contestant, or a family with the contestant that it chose."""

    name: str  # as lines have it
    model: Model
    runs: Sequence[RunLine]
    by_part: tuple[float, ...]  # NDCG@20 on the test part of what each validation part alone would choose

    @property
    def spread(self) -> float | None:
        """The standard deviation over the parts; None where one part chose."""
        return statistics.stdev(self.by_part) if len(self.by_part) > 1 else None


@lru_cache(maxsize=32)
def sides_of(lines: Lines, case: str) -> dict[str, Side]:
    """The contestants and the families of a case that have final runs, by name."""
    scored, runs, every = scored_trials(lines), current_runs(lines), runs_of(lines)
    found: dict[str, Side] = {}
    for model in MODELS:
        if own := runs.get((case, *model)):
            parts = _by_part(scored.get((case, *model), ()), case, every)
            found[model_key(model)] = Side(model_key(model), model, own, parts)
    for family, models in FAMILIES.items():
        candidates = [each for model in models for each in scored.get((case, *model), ())]
        choice = choice_of(candidates)
        key = _key(choice.by_mean, case) if choice else _best_of_first_part(lines, case, models)
        if key is not None and (own := every.get(key)):
            name = FAMILY + family
            found[name] = Side(name, (key[1], key[2]), own, _by_part(candidates, case, every))
    return found


def _best_of_first_part(lines: Lines, case: str, models: Sequence[Model]) -> RunKey | None:
    """The settings with the highest score on the first validation part, where no other part was scored."""
    best, runs = best_trials(lines), current_runs(lines)
    scored = [
        (trial.score or 0.0, (case, *model, runs[case, *model][0].digest))
        for model in models
        if (trial := best.get((case, *model))) is not None and (case, *model) in runs
    ]
    return max(scored)[1] if scored else None


def _key(scored: Scored, case: str) -> RunKey:
    return case, *scored.model, digest(final_parameters(settings_of_trial(scored)))


def _by_part(
    candidates: Sequence[Scored], case: str, runs: Mapping[RunKey, Sequence[RunLine]]
) -> tuple[float, ...]:
    """The means over seeds on the test part; empty where one of them was not run."""
    choice = choice_of(candidates)
    if choice is None:
        return ()
    means = [mean_of(runs.get(_key(each, case), ()), NDCG) for each in choice.by_part]
    return tuple(mean.value for mean in means if mean) if all(means) else ()


def pairs_of(sides: Mapping[str, Side]) -> Iterator[tuple[Side, Side]]:
    """Every trained contestant against the baselines, these against each other, what corrects for unlabelled
    positives against InfoNCE and against the same without the correction, and the families against each
    other."""
    baselines = [model_key((NO_ENCODER, method)) for method in BASELINES]
    trained = [model for model in MODELS if model[0] != NO_ENCODER]
    pairs = [(model_key(model), baseline) for model in trained for baseline in baselines]
    pairs += [(a, b) for at, a in enumerate(baselines) for b in baselines[at + 1 :]]
    pairs += [(model_key(a), model_key(b)) for a, b in debiasing_pairs()]
    families = [FAMILY + name for name in FAMILIES]
    pairs += [(a, b) for at, a in enumerate(families) for b in families[at + 1 :]]
    yield from ((sides[a], sides[b]) for a, b in pairs if a in sides and b in sides)


def debiasing_pairs() -> list[tuple[Model, Model]]:
    """Each contestant that expects positives among the unlabelled, and its control, against InfoNCE of the
    same encoder; and the contestant against its control."""
    corrected = [m for m in MODELS if m[1] in (*DEBIASED, CONTROL)]
    return [(m, (m[0], INFONCE)) for m in corrected] + [(("mf", HARD), ("mf", CONTROL))]


def difference_of(a: Side, b: Side, values: Mapping[str, Values]) -> tuple[Difference, int] | None:
    """a − b, and the number of users; None where the values of users are not at hand."""
    names = values_name(a.runs[0]), values_name(b.runs[0])
    if any(name not in values for name in names):
        return None
    over_users = values[names[0]] - values[names[1]]
    n = len(over_users)
    value, error = float(over_users.mean()), float(over_users.std(ddof=1)) / math.sqrt(n)
    choice = _choice_error(a, b)
    return weighted((1, Difference(value, error, n - 1)), *choice), n


def _choice_error(a: Side, b: Side) -> list[tuple[float, Difference]]:
    """The error by the choice of settings, as an estimate of 0; a side that one part chose has one value."""
    parts = max(len(a.by_part), len(b.by_part))
    if parts < 2:
        return []
    sides = [side.by_part if len(side.by_part) == parts else (0.0,) * parts for side in (a, b)]
    spread = Mean.of(own - other for own, other in zip(*sides, strict=True))
    assert spread is not None
    return [(1, Difference(0.0, spread.sd, parts - 1))] if spread.sd else []


def compare_case(case: str, out: Path, say: Say) -> int:
    """The differences of a case, anew: one file, one correction for contestants and one for families."""
    lines = read_contest(out)
    sides = sides_of(lines, case)
    keep_values_of(out, case, {values_name(side.runs[0]): side.runs for side in sides.values()}.values())
    values = read_values(out, case)
    found = [(a, b, each) for a, b in pairs_of(sides) if (each := difference_of(a, b, values)) is not None]
    if not found:
        say(f"{case}: nothing to compare; `truepair-lab quality run` keeps the values of users")
        return 0
    path = out / f"contrasts-{case}.jsonl"
    path.unlink(missing_ok=True)
    for of_families in (False, True):
        group = [each for each in found if each[0].name.startswith(FAMILY) == of_families]
        p_values = [difference.p() or 0.0 for _, _, (difference, _) in group]
        corrected = holm(p_values) if group else []
        for (a, b, (difference, users)), p, p_corrected in zip(group, p_values, corrected, strict=True):
            append_line(path, _line(case, a, b, difference, users, p, p_corrected))
    say(f"{case}: {len(found)} comparisons over {found[0][2][1]:,} users")
    return len(found)


def _line(
    case: str, a: Side, b: Side, difference: Difference, users: int, p: float, corrected: float
) -> Contrast:
    assert difference.error is not None
    half = float(student.ppf(1 - SIGNIFICANT / 2, difference.freedom)) * difference.error
    value, first, second = difference.value, a.runs[0], b.runs[0]
    return Contrast(
        case, a.name, b.name, NDCG, min(len(a.runs), len(b.runs)), users, round(value, 6),
        round(value - half, 6), round(value + half, 6), float(f"{p:.6g}"), float(f"{corrected:.6g}"),
        first.split, first.digest, second.digest,
    )  # fmt: skip
