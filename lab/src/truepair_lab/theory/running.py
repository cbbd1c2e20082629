"""All checks in a row, and the verdict on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from truepair.errors import check_whole
from truepair_lab.store import rounded
from truepair_lab.theory.auc_identity import EXACT, run_identity
from truepair_lab.theory.lemma1 import detectable, run_lemma1
from truepair_lab.theory.lemma2 import ERRORS, EXPECTED, LEVELS_OFF, SHIPPED, run_lemma2
from truepair_lab.theory.lemma3 import BOUNDS, HARD_SIZES, place_of, run_lemma3
from truepair_lab.theory.results import Lemma1, Lemma2, Lemma3, Results


class Check(NamedTuple):
    """What should be so, what was seen, and whether it is so."""

    part: str
    claim: str
    seen: str
    holds: bool


class _Sizes(NamedTuple):
    lemma1: int
    lemma2: int
    lemma3: int
    hard: tuple[int, ...]
    models: int


_WHOLE, _QUICK = _Sizes(4000, 2000, 1000, HARD_SIZES, 200), _Sizes(300, 200, 50, (16, 1024), 60)


def run_theory(seed: int = 0, quick: bool = False, say: Callable[[str], None] = lambda _: None) -> Results:
    """Run every check: about a minute, or some seconds when `quick`, with wider errors and less power."""
    seed, sizes = check_whole("seed", seed, 0, 2**63 - 1), _QUICK if quick else _WHOLE
    say("Lemma 1: the mean of the estimator …")
    first = run_lemma1(sizes.lemma1, seed)
    say("Lemma 2: the gap to the supervised loss …")
    second = run_lemma2(sizes.lemma2, seed)
    say("Lemma 3: the error and its bounds …")
    third = run_lemma3(sizes.lemma3, seed, sizes.hard)
    say("The identity behind the AUC …")
    fourth = run_identity(sizes.models, seed)
    results: Results = rounded(Results(seed, quick, first, second, third, fourth))
    return results


def verdicts(results: Results) -> list[Check]:
    """Every check, in the order of the page."""
    checks = [*_lemma1(results.lemma1), *_lemma2(results.lemma2), *_lemma3(results.lemma3)]
    identity = results.identity
    exact = max(identity.half_error, identity.affine_error)
    return [
        *checks,
        Check(
            "identity",
            "AUC_PN = (AUC_PU − τ/2)/(1−τ), exactly, and it never changes an order",
            f"off by {exact:.1e} at most; {identity.auc_swaps} of {identity.pairs:,} pairs change places",
            exact <= EXACT and not identity.auc_swaps,
        ),
        Check(
            "identity",
            "the loss is not affine: the correction changes the order of models",
            f"{identity.loss_swaps} of {identity.pairs:,} pairs change places",
            identity.loss_swaps > 0,
        ),
    ]


def _lemma1(found: Lemma1) -> list[Check]:
    worst = max(abs(mean.z) for mean in found.means)
    least = detectable(max(mean.se for mean in found.means), len(found.means))
    return [
        Check(
            "Lemma 1",
            "the mean of P̂ is the truth",
            f"largest |z| {worst:.2f} of {len(found.means)} cells, bound {found.bound:.2f}; "
            f"a bias of {least:.4f} would be seen",
            worst <= found.bound and not found.clamped,
        ),
        Check(
            "Lemma 1",
            "every wrong estimator is caught",
            f"{sum(w.worst > found.bound for w in found.wrong)} of {len(found.wrong)}; "
            f"least of their largest |z| {min(w.worst for w in found.wrong):.1f}",
            all(w.worst > found.bound for w in found.wrong),
        ),
    ]


def _lemma2(found: Lemma2) -> list[Check]:
    checks = []
    for measure, words in (("gap", "mean absolute gap"), ("bias", "mean gap")):
        expected, tolerance = EXPECTED[measure]
        fits = [e for e in found.exponents if (e.estimator, e.measure) == (SHIPPED, measure)]
        claim = f"the {words} falls as size^{expected:g} (± {tolerance:g})"
        holds = all(abs(fit.value - expected) <= max(tolerance, ERRORS * fit.se) for fit in fits)
        values = [fit.value for fit in fits]
        checks.append(
            Check("Lemma 2", claim, f"exponents from {min(values):.3f} to {max(values):.3f}", holds)
        )
    wrong = [e.value for e in found.exponents if e.estimator != SHIPPED]
    claim = f"wrong estimators stop short of the limit (exponent > {LEVELS_OFF:g})"
    seen = f"exponents from {min(wrong):.3f} to {max(wrong):.3f}"
    return [*checks, Check("Lemma 2", claim, seen, min(wrong) > LEVELS_OFF)]


def _lemma3(found: Lemma3) -> list[Check]:
    cells: list[tuple[float, tuple[float, int | None, int]]]
    cells = [(e.error, (e.tau, e.extra, e.unlabelled)) for e in found.errors]
    hard = [(c.error, place_of(c)) for c in found.corners]
    tight = [(c.error, place_of(c)) for c in found.corners if c.floor == "cosine"]
    checks = []
    for name, over in (("corrected", cells + hard), ("simple", tight)):
        ratios = [error / BOUNDS[name](*place) for error, place in over]
        broken = sum(ratio > 1 for ratio in ratios)
        seen = f"{broken} of {len(ratios)} above it; largest error/bound {max(ratios):.3f}"
        checks.append(Check("Lemma 3", f"the {name} bound holds", seen, not broken))
    seen = f"{found.printed_broken} of {found.tried:,} two-point cases above it"
    return [*checks, Check("Lemma 3", "the printed bound fails for τ near 1", seen, found.printed_broken > 0)]
