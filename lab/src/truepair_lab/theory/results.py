"""What the checks found: plain values, and the JSON file that the page is made from."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truepair_lab.store import read_object


@dataclass(frozen=True)
class Cell:
    """Lemma 1, one cell: the mean of P̂ over rows, its standard error, and the truth."""

    population: str
    anchor: str
    tau: float
    truth: float
    mean: float
    se: float
    z: float


@dataclass(frozen=True)
class Wrong:
    """Lemma 1, an estimator that is wrong on purpose: what the same test says of it."""

    name: str
    worst: float  # largest |z| with a fixed anchor
    beyond: int  # cells beyond the bound
    cells: int
    least_tau: float | None  # the smallest τ at which it is caught
    by_tau: tuple[float, ...]  # largest |z| with a fixed anchor, for each τ > 0
    drawn: float  # largest |z| with drawn anchors


@dataclass(frozen=True)
class Clamped:
    """What the shipped floor adds to the mean of P̂ on small samples."""

    tau: float
    size: int  # M = N
    share: float  # of rows at the floor
    bias: float
    se: float


@dataclass(frozen=True)
class Lemma1:
    """The estimator's mean against the truth."""

    rows: int
    extra: int
    unlabelled: int
    bound: float  # for |z|, over all cells together
    clamped: int
    means: tuple[Cell, ...]
    wrong: tuple[Wrong, ...]
    floor: tuple[Clamped, ...]


@dataclass(frozen=True)
class Gap:
    """Lemma 2, one point: loss − supervised loss over rows."""

    population: str
    design: str  # which of M and N is `size`; the other is infinite
    estimator: str
    size: int
    gap: float  # mean absolute value
    gap_se: float
    bias: float
    bias_se: float
    sd: float
    clamped: int


@dataclass(frozen=True)
class Exponent:
    """A power law through points: measure ∝ size^value."""

    population: str
    design: str
    estimator: str
    measure: str  # gap, bias, sd
    value: float
    se: float
    points: int


@dataclass(frozen=True)
class Limit:
    """The supervised loss, what the shipped loss reaches at the largest size, and BPR with true negatives."""

    population: str
    supervised: float
    reached: float
    reached_se: float
    bpr: float


@dataclass(frozen=True)
class Lemma2:
    """How the gap to the supervised loss shrinks."""

    tau: float
    rows: int
    gaps: tuple[Gap, ...]
    exponents: tuple[Exponent, ...]
    limits: tuple[Limit, ...]


@dataclass(frozen=True)
class Error:
    """Lemma 3, one cell: the mean absolute error of the loss; the bounds follow from (τ, M, N)."""

    tau: float
    extra: int
    unlabelled: int
    error: float
    clamped: float  # share of rows


@dataclass(frozen=True)
class Corner:
    """The worst two-point population for (τ, N): its exact mean absolute error, by the loss's floor."""

    tau: float
    size: int  # N
    infinite: bool  # M = ∞, else M = N
    floor: str  # "shipped" or "cosine"
    error: float
    positives_up: float  # share of positives at +1, the rest at −1
    negatives_up: float


@dataclass(frozen=True)
class Lemma3:
    """Observed errors, to be held against the bounds."""

    rows: int
    errors: tuple[Error, ...]
    tried: int  # two-point populations × sizes × τ × floors
    printed_broken: int  # of these, how many break the printed bound
    corners: tuple[Corner, ...]


@dataclass(frozen=True)
class Weight:
    """A row's weight in the gradient, against what it would be with τ = 0, by mean_n σ(s⁺−s_n)."""

    tau: float
    means: tuple[float, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Identity:
    """The AUC-level correction is affine; the loss-level one is not."""

    models: int
    half_error: float  # |mean over all ordered pairs of positives − ½|, largest over models
    affine_error: float  # |AUC_PN − (AUC_PU − τ/2)/(1−τ)|, largest over models and τ
    auc_swaps: int  # pairs of models that the two AUCs put in different order
    loss_swaps: int  # pairs of models that the corrected and the uncorrected loss put in different order
    pairs: int
    tau: float
    auc_pu: tuple[float, ...]  # of the first models, as are the next three
    auc_pn: tuple[float, ...]
    loss_plain: tuple[float, ...]
    loss_debiased: tuple[float, ...]
    weights: tuple[Weight, ...]


@dataclass(frozen=True)
class Results:
    """All results that the page shows."""

    seed: int
    quick: bool
    lemma1: Lemma1
    lemma2: Lemma2
    lemma3: Lemma3
    identity: Identity


def as_text(results: Results) -> str:
    """JSON with one row a line; a number that is none is an error, not `NaN`."""
    plain = dataclasses.asdict(results)
    parts = [f"{json.dumps(name)}: {_part(value)}" for name, value in plain.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _part(value: Any) -> str:
    def dump(part: Any) -> str:
        return json.dumps(part, allow_nan=False, ensure_ascii=False)

    if not isinstance(value, dict):
        return dump(value)
    lines = [
        f" {dump(name)}: "
        + ("[\n  " + ",\n  ".join(map(dump, part)) + "]" if isinstance(part, tuple | list) else dump(part))
        for name, part in value.items()
    ]
    return "{\n" + ",\n".join(lines) + "}"


def read_results(path: Path) -> Results:
    """The results in a file that `truepair-lab theory --save` wrote."""
    return read_object(path, Results, f"`truepair-lab theory --save {path}` writes them anew")
