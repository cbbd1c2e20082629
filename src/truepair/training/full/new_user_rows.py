"""Folding in by InfoNCE over the full catalogue, one user at a time, in compiled code: a few milliseconds.

The steps are those of `new_users.fold_in`, with gradients in closed form. For one user PyTorch spends most
of the time between its operations; here a step reads the items once, a block at a time, while they are in
cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.data.ids import Codes
from truepair.training.job import Job
from truepair.training.sampled.cpu.arithmetic import compiled, exp32
from truepair.training.sampled.plan import Floats

Doubles = npt.NDArray[np.float64]
_SLOW, _FAST, _EPSILON = 0.999, 0.9, 1e-8  # of Adam, as in PyTorch
_HIGHEST = 80.0  # e^80 is a number of float32, and 1 / (1 + e^80) is 0 for all that it matters
_LOWEST = -87.0  # e^-87 is the smallest normal number of float32
_BLOCK = 128  # items whose vectors stay in cache between their scores and the gradient
_compiled = partial(compiled, nogil=True, _nrt=True)  # they make arrays


class History(NamedTuple):
    """What a user has."""

    items: Codes
    weight: Floats
    disliked: Codes


class Numbers(NamedTuple):
    """What a step of a user depends on beside the items."""

    dislike: float  # log of the weight of a disliked item
    cosine: float  # the temperature of cosine scores, 0 for dot products
    temperature: float  # of InfoNCE
    n_pairs: float  # of training
    l2: float


def fold_in_rows(
    items: Floats, job: Job, temperature: float, n_pairs: float, rates: Sequence[float]
) -> Floats:
    """The vectors [n_users, d] of the job's users, after a step of Adam for each rate.

    A vector starts as the mean of the user's items. `items` [n_items, d] have a last column for popularity if
    the encoder has one; `temperature` is that of InfoNCE, and `n_pairs` those of training.
    """
    encoder, history, settings = job.encoder, job.interactions, job.settings
    weights, dislikes = history.weight_in_history, history.dislikes
    width = items.shape[1] - bool(encoder.popularity)
    additions = np.zeros(len(items), np.float32)
    if encoder.popularity:
        np.divide(items[:, -1], np.float32(temperature), out=additions)
    items = np.ascontiguousarray(items)
    cosine = encoder.temperature if encoder.scoring == "cosine" else 0.0
    dislike, found = math.log(settings.dislike_weight), np.zeros((history.n_users, width), np.float32)
    for user in range(history.n_users):
        own = slice(*history.indptr[user : user + 2])
        codes = np.array(history.items[own])  # Numba compiles for writable arrays
        if not len(codes):
            continue
        found[user] = items[codes, :width].mean(axis=0)
        if len(codes) < history.n_items:
            weight = np.ones(len(codes)) if weights is None else weights[own]
            disliked = np.empty(0, np.int64) if dislikes is None else np.array(dislikes.items_of(user))
            of_user = History(codes, weight.astype(np.float32), disliked)
            l2 = settings.l2_users * len(codes) / n_pairs + settings.weight_decay
            numbers = Numbers(dislike, cosine, temperature, n_pairs, l2)
            _move(items, additions, found[user], of_user, np.array(rates), numbers)
    return found


@_compiled
def _move(
    items: Floats, additions: Floats, vector: Floats, history: History, rates: Doubles, numbers: Numbers
) -> None:
    """Move a vector in place, by a step of Adam for each rate."""
    own, disliked = history.items, history.disliked
    dislike, cosine, temperature, n_pairs, l2 = numbers
    width = len(vector)
    shifts = additions.copy()
    for item in disliked:
        shifts[item] += np.float32(dislike)
    for item in own:
        shifts[item] = np.float32(-1e30)  # no part of the sum
    first, second = np.zeros(width, np.float32), np.zeros(width, np.float32)
    gradient, scaled = np.empty(width, np.float32), np.empty(width, np.float32)
    for step in range(len(rates)):
        scale, length = 1.0, 1.0
        if cosine > 0:
            length = max(math.sqrt(_dot(vector, vector, width)), 1e-12)
            scale = 1 / (length * cosine)
        scaled[:] = vector * np.float32(scale / temperature)
        _gradient(items, additions, shifts, scaled, history, gradient)
        gradient *= np.float32(1 / (temperature * n_pairs))
        if cosine > 0:  # only the part across the vector changes a cosine
            gradient -= np.float32(_dot(gradient, vector, width) / length**2) * vector
            gradient *= np.float32(scale)
        by_step = rates[step] / (1 - _FAST ** (step + 1))
        unbiased = 1 / math.sqrt(1 - _SLOW ** (step + 1))
        for at in range(width):
            g = gradient[at] + np.float32(l2) * vector[at]
            first[at] += np.float32(1 - _FAST) * (g - first[at])
            second[at] += np.float32(1 - _SLOW) * (g * g - second[at])
            divisor = np.sqrt(second[at]) * np.float32(unbiased) + np.float32(_EPSILON)
            vector[at] -= np.float32(by_step) * first[at] / divisor


@_compiled
def _gradient(
    items: Floats, additions: Floats, shifts: Floats, vector: Floats, history: History, gradient: Floats
) -> None:
    """Of Σ_own weight · (log(e^{s⁺} + Σ_j e^{s_j}) − s⁺), by the vector; the scores have shifts."""
    width, n, own, weight = len(vector), len(items), history.items, history.weight
    gradient[:] = 0
    scores = np.empty(_BLOCK, np.float32)
    top, total = np.float32(-1e30), np.float32(0)
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        highest = np.float32(-1e30)
        for j in range(size):
            scores[j] = _dot(items[start + j], vector, width) + shifts[start + j]
            highest = max(highest, scores[j])
        if highest > top:  # what was added up is relative to the highest score so far
            shrink = np.float32(math.exp(max(top - highest, np.float32(_LOWEST))))
            total *= shrink
            gradient *= shrink
            top = highest
        for j in range(size):
            scores[j] = exp32(scores[j] - top)
        for j in range(size):
            total += scores[j]
        fours = size // 4 * 4
        for j in range(0, fours, 4):  # fewer loads and stores of the gradient
            a, b, c, d = start + j, start + j + 1, start + j + 2, start + j + 3
            p, q, r, s = scores[j], scores[j + 1], scores[j + 2], scores[j + 3]
            for at in range(width):
                gradient[at] += p * items[a, at] + q * items[b, at] + r * items[c, at] + s * items[d, at]
        for j in range(fours, size):
            for at in range(width):
                gradient[at] += scores[j] * items[start + j, at]
    whole, pushes, pulls = float(top) + math.log(total), np.float32(0), np.zeros(width, np.float32)
    for place in range(len(own)):
        item = own[place]
        score = _dot(items[item], vector, width) + additions[item]
        push = np.float32(weight[place] / (1 + math.exp(min(score - whole, _HIGHEST))))
        pushes += push
        for at in range(width):
            pulls[at] += push * items[item, at]
    gradient *= np.float32(pushes / total)
    gradient -= pulls


@_compiled
def _dot(left: Floats, right: Floats, width: int) -> np.float32:
    total = np.float32(0)
    for at in range(width):
        total += left[at] * right[at]
    return total
