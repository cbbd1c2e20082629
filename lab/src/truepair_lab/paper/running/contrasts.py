"""Which differences of the clean protocol are real: paired over users, corrected for being many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from truepair.evaluation.comparison import SIGNIFICANT
from truepair.evaluation.statistics import bootstrap_interval, holm, sign_flip_test
from truepair_lab.lines import Contrast, RunLine, append_line, digest, read_lines
from truepair_lab.paper.presets import CHOOSE_BY, ENCODERS, METHODS, NO_ENCODER, REFERENCES
from truepair_lab.paper.running.plan import settled, tuned_settings
from truepair_lab.paper.running.runs import Say, per_user_file

Values = npt.NDArray[np.float64]
Model = tuple[str, str]  # encoder, method
Runs = Mapping[Model, Sequence[RunLine]]  # one run a seed
PairsOf = Callable[[Mapping[Model, Values]], Sequence[tuple[Model, Model]]]  # what is compared with what


def make_contrasts(dataset: str, out: Path, say: Say) -> int:
    """Compare the clean runs of a dataset, with the best trials' settings; gives how many contrasts."""
    return compare_runs(dataset, _current_runs(dataset, out), _pairs, out, say)


def compare_runs(dataset: str, of: Runs, pairs_of: PairsOf, out: Path, say: Say) -> int:
    """Compare runs over the same users, each model the mean of its seeds; gives how many contrasts.

    The file of a dataset's contrasts is written anew: one family, one correction.
    """
    runs = {model: lines for model, lines in of.items() if _are_at_hand(lines, out, say)}
    means = {model: _mean_over_seeds(lines, out) for model, lines in runs.items()}
    pairs = pairs_of(means)
    if not pairs:
        say(f"{dataset}: nothing to compare; the values of each user lie beside the clean runs' lines")
        return 0
    say(f"{dataset}: {len(pairs)} comparisons over {len(means[pairs[0][0]]):,} users")
    differences = [means[a] - means[b] for a, b in pairs]
    p_values = [sign_flip_test(difference, flips=flips_for(len(pairs))) for difference in differences]
    path = out / f"contrasts-{dataset}.jsonl"
    path.unlink(missing_ok=True)
    for (a, b), difference, p, corrected in zip(pairs, differences, p_values, holm(p_values), strict=True):
        low, high = bootstrap_interval(difference)
        first, second = runs[a][0], runs[b][0]
        contrast = Contrast(
            dataset, model_key(a), model_key(b), CHOOSE_BY, min(len(runs[a]), len(runs[b])), len(difference),
            round(float(difference.mean()), 6), round(low, 6), round(high, 6), p, corrected,
            first.split, first.digest, second.digest,
        )  # fmt: skip
        append_line(path, contrast)
    return len(pairs)


def flips_for(contrasts: int) -> int:
    """Sign flips for so many contrasts: the least p, corrected for all, is a fifth of SIGNIFICANT at most.

    With too few flips no difference, however large, could be significant.
    """
    return max(10_000, math.ceil(5 * contrasts / SIGNIFICANT))


def _current_runs(dataset: str, out: Path) -> dict[Model, list[RunLine]]:
    """The clean runs of each model, those with the settings of its best trial."""
    lines = read_lines(out)
    wanted = {place: digest(settled(best)) for place, best in tuned_settings(lines).items()}
    found: dict[Model, list[RunLine]] = {}
    for line in lines.runs:
        place = line.dataset, line.encoder, line.method
        if (line.study, line.dataset) == ("clean", dataset) and line.digest == wanted.get(place):
            found.setdefault((line.encoder, line.method), []).append(line)
    return found


def _are_at_hand(lines: Sequence[RunLine], out: Path, say: Say) -> bool:
    missing = [per_user_file(out, line).name for line in lines if not per_user_file(out, line).exists()]
    if missing:
        say(f"not compared: {model_key((lines[0].encoder, lines[0].method))}, as {missing[0]} is not there")
    return not missing


def _mean_over_seeds(lines: Sequence[RunLine], out: Path) -> Values:
    values = [np.load(per_user_file(out, line), allow_pickle=False) for line in lines]
    mean: Values = np.mean(values, axis=0, dtype=np.float64)
    return mean


def _pairs(means: Mapping[Model, Values]) -> list[tuple[Model, Model]]:
    """What the report asks: every model against the best, against BPR of its encoder, against EASE and iALS;
    DPL against every loss of its encoder; LightGCN against MF; reference points against each other."""
    if not means:
        return []
    best = max(means, key=lambda model: float(means[model].mean()))
    points = [(NO_ENCODER, method) for method in REFERENCES]
    found: list[tuple[Model, Model]] = [(best, model) for model in means]
    for encoder in ENCODERS:
        losses = [(encoder, method) for method in METHODS]
        found += [(loss, (encoder, other)) for loss in losses for other in ("bpr", "dpl", "dpl-hard")]
        found += [(loss, (NO_ENCODER, point)) for loss in losses for point in ("ease", "ials")]
    found += [(("lightgcn", method), ("mf", method)) for method in METHODS]
    found += [(a, b) for a in points for b in points]
    distinct: dict[frozenset[Model], tuple[Model, Model]] = {}
    for a, b in found:
        if a != b and a in means and b in means:
            distinct.setdefault(frozenset((a, b)), (a, b))
    return list(distinct.values())


def model_key(model: Model) -> str:
    """As lines of comparisons name a model: "lightgcn dpl", "ease"."""
    encoder, method = model
    return method if encoder == NO_ENCODER else f"{encoder} {method}"
