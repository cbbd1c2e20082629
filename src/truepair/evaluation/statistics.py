"""Statistics over users: intervals of means, and tests of differences.

All random numbers come from `truepair.randomness`: the same seed gives the same results on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from truepair.errors import InputError, check_number, check_whole
from truepair.evaluation.metrics import Floats
from truepair.randomness import random_bits, stream_key

_BLOCK = 1 << 20  # random numbers in memory at a time
_BOOTSTRAP, _SIGN_FLIP = 1, 2  # names of streams


def bootstrap_interval(
    values: npt.ArrayLike, level: float = 0.95, *, resamples: int = 2_000, seed: int = 0
) -> tuple[float, float]:
    """The bootstrap interval of the mean, from `resamples` samples of n values with replacement.

    (low, high) are quantiles of the resampled means. Those of (1 ± level) / 2 are too narrow for few users,
    and too low where most of them have a value of 0. So they are expanded (Hesterberg 2015) to Φ(±x),
    x = t √(n / (n - 1)), t Student's quantile of (1 + level) / 2 for n - 1 degrees of freedom; and if the
    values are skewed, the end towards the long tail moves on to Φ(a + (a ± x) / (1 - a(a ± x))), as in the
    BCa interval with the acceleration a = Σd³ / 6(Σd²)^{3/2}, d the distances from the mean.
    docs/evaluation.md has the coverage. No interval can know of values that no user of the sample has.

    >>> bootstrap_interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    """
    level = check_number("level", level, 0, 1, open_low=True, open_high=True)
    resamples = check_whole("resamples", resamples, 1)
    numbers = _checked_values(values)

    def resampled_means(key: int, count: int) -> Floats:
        n = np.uint64(len(numbers))
        codes = (random_bits(key, count * len(numbers)) >> np.uint64(32)) * n >> np.uint64(32)
        return np.asarray(numbers[codes.astype(np.int64)].reshape(count, -1).mean(axis=1))

    means = _in_blocks(resampled_means, resamples, len(numbers), seed, _BOOTSTRAP)
    low, high = np.quantile(means, _ends(numbers, level))
    return float(low), float(high)


def _ends(numbers: Floats, level: float) -> tuple[float, float]:
    """Which quantiles of the resampled means make up for few users, and for a skew of their values."""
    n, d = len(numbers), numbers - numbers.mean()
    if (largest := np.abs(d).max()) == 0 or n == 1:
        return 0.0, 1.0
    d /= largest
    x = stdtrit(n - 1, (1 + level) / 2) * np.sqrt(n / (n - 1))
    a = (d**3).sum() / (6 * (d**2).sum() ** 1.5)
    low, high = (ndtr(a + (a + z) / max(1 - a * (a + z), 1e-12)) for z in (-x, x))
    return float(min(ndtr(-x), low)), float(max(ndtr(x), high))


def sign_flip_test(differences: npt.ArrayLike, *, flips: int = 10_000, seed: int = 0) -> float:
    """The two-sided p-value of a mean paired difference, by a randomisation test.

    If both models are equally good, each user's difference is as likely to have the other sign. With
    random signs s, p = (1 + #{|Σ s_u d_u| ≥ |Σ d_u|}) / (1 + flips).

    >>> sign_flip_test([0.0, 0.0])
    1.0
    """
    flips = check_whole("flips", flips, 1)
    numbers = _checked_values(differences)
    numbers = numbers[numbers != 0]  # their sign has no effect
    observed = abs(numbers.sum())
    rounding = 1e-12 * np.abs(numbers).sum()  # sums in another order may differ by this much: ties

    def flipped_sums(key: int, count: int) -> Floats:
        words = -(-len(numbers) // 64)
        octets = random_bits(key, count * words).astype("<u8").view(np.uint8).reshape(count, -1)
        plus = np.unpackbits(octets, axis=1, count=len(numbers))  # (count, n) of 0 and 1
        return np.asarray(2 * (plus @ numbers) - numbers.sum())

    if len(numbers) == 0:
        return 1.0
    sums = _in_blocks(flipped_sums, flips, len(numbers), seed, _SIGN_FLIP)
    return float((1 + (np.abs(sums) >= observed - rounding).sum()) / (1 + flips))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values with Holm's correction for multiple tests, which bounds the probability of any false positive.

    In increasing order p₁ ≤ … ≤ p_m, the corrected value is max over j ≤ i of min(1, (m - j + 1) p_j).

    >>> holm([0.5, 0.25, 0.125])
    [0.5, 0.5, 0.375]
    """
    p = _checked_values(p_values)
    if p.min() < 0 or p.max() > 1:
        raise InputError(f"p-values go from {p.min():g} to {p.max():g}; they must lie in [0, 1].")
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(1, np.maximum.accumulate(np.arange(len(p), 0, -1) * p[order]))
    return [float(x) for x in corrected]


def _in_blocks(sample: Callable[[int, int], Floats], times: int, n: int, seed: int, stream: int) -> Floats:
    """`times` values of `sample(key, count)`, at most about `_BLOCK` random numbers at once."""
    seed = check_whole("seed", seed, 0, 2**63 - 1)
    block = max(1, _BLOCK // n)

    starts = range(0, times, block)
    return np.concatenate([sample(stream_key(seed, stream, at), min(block, times - at)) for at in starts])


def _checked_values(values: npt.ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) == 0 or not np.isfinite(numbers).all():
        raise InputError(
            f"an array of shape {numbers.shape} with {(~np.isfinite(numbers)).sum()} values that are not "
            "finite cannot be used; give a 1-D array of one or more finite numbers."
        )
    return numbers
