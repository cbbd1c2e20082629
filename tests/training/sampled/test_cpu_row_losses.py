"""Compiled rows against the losses in float64 autograd, and weighted draws against `Draws`, bit for bit."""

import dataclasses
import itertools
from functools import cache, partial

import numpy as np
import pytest
import torch

from loss_values import fused_values, one_of
from truepair.losses import DCL, DPL, LOSSES
from truepair.models.encoders import MF
from truepair.randomness import random_bits, stream_key
from truepair.sampling import DNS, Draws, Popularity, Uniform
from truepair.training import Job, Settings
from truepair.training.sampled.cpu.arithmetic import compiled, exp32, log1p32, random_bits_at
from truepair.training.sampled.cpu.inner_loop import choose_hardest
from truepair.training.sampled.cpu.losses import loss_row
from truepair.training.sampled.cpu.weighted_draws import unlabelled_at, weighted_tables_of
from truepair.training.sampled.plan import FUSED_LOSSES, plan_of, prior_of
from worlds import interactions_of, two_tastes


def plan_for(loss, m=3, n=4, sampler=None, data=None):
    data = two_tastes(n_users=3, n_items=12, each=4) if data is None else data
    settings = Settings(n_extra=m, n_unlabelled=n, device="cpu")
    return plan_of(Job(MF(dim=2), loss, sampler or Uniform(), data, settings))


small_plan = cache(plan_for)  # for rows by the thousand


def ours(loss, scores, m, n, user=0, padding=0):
    plan = small_plan(loss, m, n)
    padded = np.concatenate([scores, np.full(padding, 3)]).astype(np.float32)
    gradient = np.full(len(padded), np.nan, np.float32)
    tau, log_rest = prior_of(loss)
    place = user if len(tau) > 1 else 0
    value, clamped = loss_row(plan, tau[place], log_rest[place], padded, gradient)
    return value, gradient[: 1 + plan.m + n], clamped


def theirs(loss, scores, m, n, user=0):
    """The same from `losses`, in float64; scores as float32 has them."""
    return next(rows_by_definition(loss, scores[None], m, [user]))


def rows_by_definition(loss, scores, m, users):
    """Value, gradient and clamping of rows of scores [B, 1+M+N], one after the other."""
    s = torch.from_numpy(scores.astype(np.float32).astype(np.float64)).requires_grad_()
    rows = loss.rows(s[:, 0], s[:, 1 : 1 + m], s[:, 1 + m :], torch.tensor(users))
    if rows.loss.requires_grad:
        rows.loss.sum().backward()
    gradients = np.zeros(s.shape) if s.grad is None else s.grad.numpy()
    clamped = [False] * len(s) if rows.clamped is None else rows.clamped.tolist()
    yield from zip(rows.loss.tolist(), gradients, clamped, strict=True)


VALUES = fused_values(FUSED_LOSSES, taus=(0.0, 0.2, 0.6))
ONE_OF_EACH = [one_of(kind) for kind in FUSED_LOSSES]
SHAPES = [(0, 1), (1, 1), (2, 1), (0, 7), (3, 4), (10, 10), (5, 33), (17, 100)]


def test_every_kind_of_loss_is_here():
    assert {type(loss) for loss in VALUES} == set(FUSED_LOSSES) <= set(LOSSES.values())


@pytest.mark.parametrize("loss", VALUES, ids=str)
@pytest.mark.parametrize("size", [0.1, 1.0, 5.0])
def test_value_gradient_and_clamping_are_those_of_the_losses(loss, size):
    rng = np.random.default_rng(0)
    seen = set()
    for m, n in SHAPES:
        m = m if loss.uses_extra else 0
        scores = rng.normal(size=(20, 1 + m + n)) * size
        for trial, expected in enumerate(rows_by_definition(loss, scores, m, [k % 3 for k in range(20)])):
            value, gradient, clamped = ours(loss, scores[trial], m, n, trial % 3, padding=trial % 5 * 3)
            assert clamped == expected[2]
            # P_u − τ·P_p has fewer digits than its terms, the fewer the nearer they are
            slack = (1 + np.abs(expected[1]).max() * 5) / (1 - np.max(getattr(loss, "tau", 0.0)))
            assert abs(value - expected[0]) <= 1e-6 * slack + 2e-6 * abs(expected[0])
            bound = 5e-7 * slack + 1e-5 * slack * np.abs(expected[1])
            assert (np.abs(gradient - expected[1]) <= bound).all()
            seen.add(clamped)
    assert len(seen) == 2 or not hasattr(loss, "tau") or loss.tau != 0.97


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=str)
def test_small_gradients_keep_their_digits(loss):
    m = 2 if loss.uses_extra else 0
    scores = np.array([25.0, *[-1.0] * m, 0.0, 1.0])  # every derivative is about e^−25
    if isinstance(loss, DCL):
        loss = dataclasses.replace(loss, min_score=-100.0)
    value, gradient, _ = ours(loss, scores, m, 2)
    expected = theirs(loss, scores, m, 2)
    np.testing.assert_allclose(gradient, expected[1], rtol=2e-5)
    np.testing.assert_allclose(value, expected[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss", VALUES, ids=str)
def test_extreme_scores(loss):
    m, n = (2 if loss.uses_extra else 0), 3
    patterns = ["above", "below", "mixed", "far apart", "extra above"]
    for pattern, height in itertools.product(patterns, [40.0, 100.0, 1e4]):
        extra, unlabelled, near = [0.0, 0.5][:m], np.zeros(n), np.array([0.0, 0.3, -0.4])
        anchor, extra, unlabelled = {
            "above": (-height, [-height + 1, -height][:m], height + near),
            "below": (height, [height, 3.0][:m], -height + near),
            "mixed": (0.0, extra, np.array([height, -height, 0.5])),
            "far apart": (-height, [height, -height][:m], np.array([height, 0.0, -height / 2])),
            "extra above": (0.0, [height, height][:m], near),
        }[pattern]
        scores = np.array([anchor, *extra, *unlabelled])
        value, gradient, clamped = ours(loss, scores, m, n)
        expected = theirs(loss, scores, m, n)
        assert clamped == expected[2]
        # a score of 1e4 has a last place of 1e-3, so its exponential has three digits
        relative = 1e-6 * height
        np.testing.assert_allclose(value, expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            gradient, expected[1], rtol=relative + 1e-5, atol=relative * np.abs(expected[1]).max() + 1e-7
        )


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=str)
@pytest.mark.parametrize("base", [0.0, -80.0, 80.0])
def test_a_score_that_is_not_finite_is_never_hidden(loss, base):
    """NaN gives NaN. An infinite score gives what the definition does, or a loss that is not finite."""
    m, n = (2 if loss.uses_extra else 0), 3
    for place in range(1 + m + n):
        for odd in (np.nan, np.inf, -np.inf):
            scores = np.linspace(base, 0, 1 + m + n)
            scores[place] = odd
            expected = theirs(loss, scores, m, n)[0]
            value = ours(loss, scores, m, n)[0]
            if np.isnan(odd):
                assert np.isnan(value)
            elif np.isfinite(value):
                np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@partial(compiled, _nrt=True)
def apply(function, xs):
    out = np.empty_like(xs)
    for i in range(len(xs)):
        out[i] = function(xs[i])
    return out


def relative_error(function, exact, xs):
    expected = exact(xs.astype(np.float64))
    return np.abs(apply(function, xs).astype(np.float64) / expected - 1).max() / 2**-23


def test_exp_and_log1p_are_right_to_about_two_places_of_float32():
    xs = np.linspace(-86.9, 74.9, 1_000_003).astype(np.float32)
    assert relative_error(exp32, np.exp, xs) < 1.5
    small = np.linspace(-1, 1, 1_000_003).astype(np.float32)
    assert relative_error(exp32, np.exp, small) < 1.0
    unit = np.concatenate([np.linspace(1e-6, 1, 1_000_003), np.logspace(-30, 0, 1001)]).astype(np.float32)
    assert relative_error(log1p32, np.log1p, unit) < 2.0


def test_exp_stays_at_its_ends_and_keeps_what_is_not_a_number():
    xs = np.array([-np.inf, -1e30, -87, 75, 1e30, np.inf, np.nan, 0], np.float32)
    low, high = np.exp(-87.0), np.exp(75.0)
    np.testing.assert_allclose(apply(exp32, xs), [low, low, low, high, high, high, np.nan, 1], rtol=1e-6)


# --- draws ---------------------------------------------------------------------------------------------


def test_random_bits():
    key = stream_key(3, 1, 4)
    expected = random_bits(key, 50)
    assert [random_bits_at(np.uint64(key), np.uint64(p)) for p in range(1, 51)] == expected.tolist()


def nearly_all():
    """Users with all items but the first, the last, some in the middle; with one item; with all."""
    rows = [range(1, 50), range(49), [i for i in range(50) if i not in (7, 20, 21)], [30], range(50), [0, 49]]
    return interactions_of([list(row) for row in rows], 50)


@pytest.mark.parametrize("sampler", [Uniform(), Popularity(), Popularity(alpha=0.5)], ids=str)
@pytest.mark.parametrize("data", [two_tastes(), nearly_all()], ids=["two tastes", "nearly all"])
def test_weighted_draws_are_those_of_the_reference_bit_for_bit(sampler, data):
    draws, key, n = Draws(data, sampler), stream_key(5, 2, 9), 5
    expected = draws.batch(draws.anchors, 0, n, key).unlabelled.flatten().tolist()
    words = (random_bits(stream_key(key, 2), len(expected)) >> np.uint64(1)).astype(np.int64)
    users = draws.users[draws.anchors].repeat_interleave(n).numpy()
    tables, places = weighted_tables_of(draws), words % draws.free.numpy()[users]
    assert [unlabelled_at(tables, *at) for at in zip(users, places, strict=True)] == expected


@pytest.mark.parametrize("n", [1, 2, 6, 7])
def test_the_hardest_are_those_of_dns_equal_ones_included(n):
    rng = np.random.default_rng(n)
    plan = plan_for(DPL(tau=0.1), 2, n, DNS(pool=8))
    for _ in range(300):
        items = np.arange(100, 111, dtype=np.int32)
        scores = rng.integers(0, 6, 11).astype(np.float32)  # with many equal ones
        scores[rng.random(11) < 0.1] = np.nan
        order = torch.from_numpy(-scores[3:]).argsort(stable=True)[:n].numpy()
        expected = items[3:][order].tolist(), scores[3:][order].tolist()
        choose_hardest(plan, items, scores)
        assert items[:3].tolist() == [100, 101, 102]
        assert items[3 : 3 + n].tolist() == expected[0]
        np.testing.assert_array_equal(scores[3 : 3 + n], expected[1])
