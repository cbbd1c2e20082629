"""Which differences of the clean protocol are real: paired over users, corrected for being many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from truepair.evaluation.statistics import bootstrap_interval, holm, sign_flip_test
from truepair.experiments.lines import Contrast, RunLine, append_line, read_lines
from truepair.experiments.paper.presets import CHOOSE_BY, ENCODERS, METHODS, NO_ENCODER
from truepair.experiments.paper.running import Say, per_user_file

Values = npt.NDArray[np.float32]


def make_contrasts(dataset: str, out: Path, say: Say) -> int:
    """Compare the clean runs of a dataset whose users' values are at hand; gives how many contrasts."""
    runs = [line for line in read_lines(out).runs if (line.study, line.dataset) == ("clean", dataset)]
    means, seeds = _means_over_seeds(runs, out)
    pairs = [(a, b) for a, b in _pairs() if a in means and b in means]
    if not pairs:
        say(f"{dataset}: nothing to compare; the values of each user lie beside the clean runs' lines")
        return 0
    say(f"{dataset}: {len(pairs)} comparisons over {len(means[pairs[0][0]]):,} users")
    differences = [means[a].astype(np.float64) - means[b] for a, b in pairs]
    p_values = [sign_flip_test(difference) for difference in differences]
    for (a, b), difference, p, corrected in zip(pairs, differences, p_values, holm(p_values), strict=True):
        low, high = bootstrap_interval(difference)
        contrast = Contrast(
            dataset, a, b, CHOOSE_BY, min(seeds[a], seeds[b]), len(difference),
            round(float(difference.mean()), 6), round(low, 6), round(high, 6), p, corrected, runs[0].split,
        )  # fmt: skip
        append_line(out / f"contrasts-{dataset}.jsonl", contrast)
    return len(pairs)


def _pairs() -> list[tuple[str, str]]:
    """Everything against BPR of its encoder and against the strong reference points; DPL against InfoNCE."""
    found = []
    for encoder in ENCODERS:
        found += [(f"{encoder} {method}", f"{encoder} bpr") for method in METHODS if method != "bpr"]
        found += [(f"{encoder} {method}", f"{encoder} infonce") for method in ("dpl", "dpl-hard")]
        found += [(f"{encoder} {method}", point) for method in METHODS for point in ("ease", "ials")]
    return [*found, ("ease", "ials"), ("ease", "itemknn"), ("itemknn", "popularity")]


def _means_over_seeds(runs: Sequence[RunLine], out: Path) -> tuple[Mapping[str, Values], Mapping[str, int]]:
    values: dict[str, list[Values]] = {}
    for line in runs:
        name = line.method if line.encoder == NO_ENCODER else f"{line.encoder} {line.method}"
        path = per_user_file(out, line)
        if path.exists():
            values.setdefault(name, []).append(np.load(path, allow_pickle=False))
    means = {name: np.mean(found, axis=0) for name, found in values.items()}
    return means, {name: len(found) for name, found in values.items()}
