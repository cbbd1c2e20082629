"""How functions are compiled for the CPU; random words; e^x, log(1 + x), softplus, σ in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from truepair.randomness import _GAMMA, _LAST_SHIFT, _MIX
from truepair.storage.compiled_code import compiled_and_kept

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Index = int | np.int64  # a whole number in compiled code
Float = np.float32
_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function, **options: Any) -> _Function:
    """Compile on first use, keep the machine code on disk. NaN and infinity keep their meaning.

    Unless it is parallel, such a function cannot make arrays: it does without counting references, which
    costs more than a row does.
    """
    defaults = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}, "no_cfunc_wrapper": True}
    options = defaults | options
    options.setdefault("_nrt", bool(options.get("parallel")))
    return compiled_and_kept(function, error_model="numpy", **options)


def inlined(function: _Function) -> _Function:
    """`compiled` into its callers: handing over tuples of arrays costs as much as a row does."""
    return compiled(function, forceinline=True)


def without_lock(function: _Function) -> _Function:
    """`compiled` to run without Python's lock: other threads go on meanwhile."""
    return compiled(function, nogil=True)


def parallel(function: _Function) -> _Function:
    """`compiled` to run on Numba's threads, inside of `parallel_kernel`."""
    return compiled(function, parallel=True)


def exactly(function: _Function) -> _Function:
    """`inlined`, for functions whose order of operations carries their accuracy."""
    return compiled(function, fastmath={"contract"}, forceinline=True)


ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
MINUS_INFINITY = np.float32(-math.inf)
_LOWEST, _HIGHEST = np.float32(-87), np.float32(75)  # 10⁴ terms of e⁷⁵ still have a finite sum
_LOG2_E = np.float32(math.log2(math.e))
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E2, _E3, _E4 = np.float32(5.0000001201e-1), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_E5, _E6, _E7 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
_BIAS, _FRACTION = np.int32(127), np.int32(23)
_L3, _L5, _L7, _L9, _L11, _L13, _L15 = (np.float32(2 / k) for k in range(3, 17, 2))


@exactly
def exp32(x: np.float32) -> np.float32:
    """e^x for x in [−87, 75], at whose ends it stays: 2^k · e^r with |r| ≤ ½ ln 2 (Cephes' polynomial)."""
    x = _LOWEST if x < _LOWEST else x  # in this order NaN stays NaN
    x = _HIGHEST if x > _HIGHEST else x
    k = np.floor(x * _LOG2_E + HALF)
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    p = ((((_E7 * r + _E6) * r + _E5) * r + _E4) * r + _E3) * r + _E2
    power: np.float32 = np.int32((np.int32(k) + _BIAS) << _FRACTION).view(np.float32)
    value: np.float32 = (p * (r * r) + r + ONE) * power
    return value


@exactly
def log1p32(x: np.float32) -> np.float32:
    """log(1 + x) for x in [0, 1]: 2·artanh(z) with z = x / (2 + x) ≤ ⅓."""
    z = x / (TWO + x)
    q = z * z
    p = ((((((_L15 * q + _L13) * q + _L11) * q + _L9) * q + _L7) * q + _L5) * q + _L3) * q + TWO
    return z * p


@compiled
def softplus(x: np.float32) -> np.float32:
    """log(1 + e^x)."""
    return (ZERO if x < ZERO else x) + log1p32(exp32(-abs(x)))  # in this order NaN stays NaN


@compiled
def sigmoid(x: np.float32) -> np.float32:
    """1 / (1 + e^{−x})."""
    e = exp32(-abs(x))
    return (ONE if x >= ZERO else e) / (ONE + e)


_STEP = np.uint64(_GAMMA)
(_SHIFT_1, _FACTOR_1), (_SHIFT_2, _FACTOR_2) = ((np.uint64(s), np.uint64(f)) for s, f in _MIX)
_SHIFT_3 = np.uint64(_LAST_SHIFT)


@inlined
def random_bits_at(key: np.uint64, place: np.uint64) -> np.uint64:
    """The word at `place` (from 1) of the stream `key`: `randomness.random_bits(key, place)[-1]`."""
    x = key + place * _STEP
    x = (x ^ (x >> _SHIFT_1)) * _FACTOR_1
    x = (x ^ (x >> _SHIFT_2)) * _FACTOR_2
    return x ^ (x >> _SHIFT_3)
