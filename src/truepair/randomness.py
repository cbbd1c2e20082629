"""Counter-based random numbers: a pure function of (seed, position), the same on every machine.

A draw is `mix(key + position·γ)`: the SplitMix64 generator, evaluated at any position. There is no hidden
state. A run that is stopped and resumed therefore draws the same numbers, on CPU and on CUDA, with any
version of NumPy or PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # not imported at run time: reading and splitting do not need PyTorch
    import torch

_GAMMA = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_WORDS = 1 << 64
_MASK = _WORDS - 1


def stream_key(seed: int, *path: int) -> int:
    """The 64-bit key of the stream that `seed` and integers such as (epoch, step) name.

    >>> stream_key(0, 1, 2) == stream_key(0, 1, 2) != stream_key(0, 2, 1)
    True
    """
    key = _mix_int((seed + _GAMMA) & _MASK)
    for part in path:
        key = _mix_int(((key ^ _mix_int((part + 2 * _GAMMA) & _MASK)) + _GAMMA) & _MASK)
    return key


def random_bits(key: int, n: int, first: int = 0) -> npt.NDArray[np.uint64]:
    """`n` random 64-bit words of the stream `key`, from the position `first` on; all of a stream differ."""
    x = np.arange(first + 1, first + n + 1, dtype=np.uint64)
    x *= np.uint64(_GAMMA)
    x += np.uint64(key)
    for shift, factor in _MIX:
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    x ^= x >> np.uint64(_LAST_SHIFT)
    return x


def random_order(key: int, n: int) -> npt.NDArray[np.int64]:
    """A random permutation of 0 … n-1."""
    return np.argsort(random_bits(key, n), kind="stable")


def random_words(key: int, shape: tuple[int, ...], device: torch.device, first: int = 0) -> torch.Tensor:
    """The words of `random_bits` as non-negative int64: 63 bits each, the lowest bit is dropped.

    `first` leaves out so many words of the stream.
    """
    import torch

    n = int(np.prod(shape))
    x = torch.arange(first + 1, first + n + 1, dtype=torch.int64, device=device)
    x = x.mul_(_GAMMA - _WORDS).add_(key - _WORDS if key >> 63 else key)  # as signed integers
    for shift, factor in _MIX:
        x = x.bitwise_xor_(_logical_shift(x, shift)).mul_(factor - _WORDS)
    x = x.bitwise_xor_(_logical_shift(x, _LAST_SHIFT))
    return _logical_shift(x, 1).view(shape)


def _mix_int(x: int) -> int:
    for shift, factor in _MIX:
        x = ((x ^ (x >> shift)) * factor) & _MASK
    return x ^ (x >> _LAST_SHIFT)


def _logical_shift(x: torch.Tensor, shift: int) -> torch.Tensor:
    return (x >> shift).bitwise_and_((1 << (64 - shift)) - 1)
