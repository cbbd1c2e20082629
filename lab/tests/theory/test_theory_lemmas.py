"""The lemmas, on small draws: the shipped loss passes, and what is wrong on purpose does not."""

import math

import numpy as np
import pytest
import torch

from truepair.errors import InputError
from truepair.losses import DPL, Rows
from truepair_lab.theory import lemma1, lemma2, lemma3
from truepair_lab.theory.auc_identity import (
    anchor_weights,
    corrected_auc,
    run_identity,
    smooth_auc,
)
from truepair_lab.theory.estimators import HALF, WRONG, shipped
from truepair_lab.theory.scores import POPULATIONS

ROWS = 400
CELLS = 20
BOUND = lemma1.bound(CELLS)  # false alarms: one in a thousand seeds, for all cells of a test together


# --- Lemma 1 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_mean_of_the_estimate_is_the_truth(name):
    """Tolerance: |z| < 4.06. Power: a bias of .02 is seen with 99% probability in every cell."""
    for anchor in (*lemma1.ANCHORS, lemma1.DRAWN):
        found = lemma1.estimate_mean(shipped, name, anchor, 0.3, ROWS)
        assert abs(found.z) < BOUND
        assert lemma1.detectable(found.se, CELLS) < 0.02


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_estimators_fail_the_same_test(wrong):
    worst = max(
        abs(lemma1.estimate_mean(WRONG[wrong], "gaussian", anchor, 0.3, ROWS).z) for anchor in lemma1.ANCHORS
    )
    assert worst > 2 * BOUND


def test_wrong_estimators_are_right_without_hidden_positives():
    for estimate in WRONG.values():
        assert abs(lemma1.estimate_mean(estimate, "gaussian", "middle", 0.0, ROWS).z) < BOUND


def test_one_half_is_right_over_drawn_anchors_only():
    assert abs(lemma1.estimate_mean(WRONG[HALF], "gaussian", lemma1.DRAWN, 0.3, ROWS).z) < BOUND
    assert abs(lemma1.estimate_mean(WRONG[HALF], "gaussian", "high", 0.3, ROWS).z) > 2 * BOUND


def test_the_test_has_the_power_it_states():
    """A bias of the stated size, added to the shipped estimate, is seen in nearly all of 40 repetitions."""
    se = lemma1.estimate_mean(shipped, "cosine", "middle", 0.1, ROWS).se
    bias = lemma1.detectable(se, CELLS)

    def biased(draw):
        rows = shipped(draw)
        return Rows(-torch.log((-rows.loss).exp() + bias), rows.clamped)

    zs = [lemma1.estimate_mean(biased, "cosine", "middle", 0.1, ROWS, seed).z for seed in range(40)]
    assert sum(z > BOUND for z in zs) >= 37  # 99% each: fewer than 37 of 40 has a chance of 1e-4


def test_the_floor_makes_small_samples_too_high():
    found = lemma1._floored(0.5, 1, 4000, 0)
    assert found.share > 0.02
    assert found.bias > 4 * found.se
    assert lemma1._floored(0.1, 50, 400, 0).bias == pytest.approx(0, abs=1e-12)


def test_bounds_grow_with_the_cells():
    assert lemma1.bound(1) == pytest.approx(3.29, abs=0.01)
    assert lemma1.bound(120) > lemma1.bound(20) > lemma1.bound(1)


# --- Lemma 2 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", lemma2.DESIGNS)
def test_the_gap_shrinks_by_the_right_powers(design):
    """Tolerance: .1 for the mean absolute gap and .2 for the mean, four standard errors of these fits."""
    sizes = [32, 64, 128, 256]
    gaps = [lemma2.measure_gaps("cosine", design, n, 600, 11 * n)[0] for n in sizes]
    assert not any(gap.clamped for gap in gaps)
    for measure, expected, tolerance in (("gap", -0.5, 0.1), ("bias", -1.0, 0.2)):
        values = [getattr(gap, measure) for gap in gaps]
        slope, se = lemma2.fit_exponent(sizes, values, [getattr(gap, f"{measure}_se") for gap in gaps])
        assert slope == pytest.approx(expected, abs=tolerance)
        assert 4 * se < tolerance


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_estimator_stops_short_of_the_limit(wrong):
    small, large = (lemma2.measure_gaps("gaussian", "M = N", n, 200, n, [wrong]) for n in (256, 1024))
    assert large[0].gap < 0.6 * small[0].gap  # the shipped loss: half
    assert large[1].gap > 0.8 * small[1].gap
    assert large[1].gap > 3 * large[0].gap


def test_the_mean_gap_is_the_plain_mean_with_less_noise():
    gap = lemma2.measure_gaps("cosine", "N", 64, 3000, 5)[0]
    plain_se = gap.sd / math.sqrt(3000)
    assert gap.bias_se < plain_se / 5
    assert gap.bias > 0


def test_a_power_law_needs_good_points():
    for bad in (([1], [1.0], [1.0]), ([1, 2], [1.0, 0.0], [1.0, 1.0]), ([1, 2], [1.0, math.nan], [1.0, 1.0])):
        with pytest.raises(InputError, match="power law"):
            lemma2.fit_exponent(*bad)


# --- Lemma 3 -------------------------------------------------------------------------------------------


def test_the_bounds_are_the_formulas():
    assert lemma3.printed(0.2, 4, 16) == pytest.approx(
        math.e**2 * (math.sqrt(2 * math.pi / 16) + 0.2 * math.sqrt(2 * math.pi / 4))
    )
    assert lemma3.corrected(0.2, 4, 16) == pytest.approx(lemma3.printed(0.2, 4, 16) / 0.8)
    assert lemma3.simple(0.0, None, 1) == pytest.approx((math.e**2 - 1) / 2)
    assert lemma3.printed(0.2, None, 16) < lemma3.printed(0.2, 10**9, 16)


@pytest.mark.parametrize("tau", [0.01, 0.1, 0.5])
def test_smooth_cosine_scores_keep_all_bounds(tau):
    for m, n in ((1, 1), (4, 64), (64, 4)):
        found = lemma3.measure_error(tau, m, n, 300, 9)
        assert found.error < 0.1 * lemma3.printed(tau, m, n)


def test_the_exact_error_is_that_of_draws():
    tau, m, n, up, down = 0.3, 3, 6, 0.4, 0.2
    exact = lemma3.exact_error(tau, m, n, up, down)
    rng = np.random.default_rng(0)
    pos, extra = (2.0 * (rng.random(shape) < up) - 1 for shape in (20_000, (20_000, m)))
    unlabelled = 2.0 * (rng.random((20_000, n)) < tau * up + (1 - tau) * down) - 1
    loss = DPL(tau=tau)(*map(torch.from_numpy, (pos, extra, unlabelled))).numpy()
    truth = down / (1 + np.exp(1 - pos)) + (1 - down) / (1 + np.exp(-1 - pos))
    errors = np.abs(loss + np.log(truth))
    assert exact == pytest.approx(errors.mean(), abs=4 * errors.std() / math.sqrt(20_000))


def test_the_printed_bound_is_broken_and_the_corrected_one_is_not():
    error = lemma3.exact_error(0.98, None, 1024, 0.25, 1.0)
    assert error > lemma3.printed(0.98, None, 1024)
    assert error < 0.1 * lemma3.corrected(0.98, None, 1024)


def test_the_simple_bound_holds_with_its_floor():
    for tau in (0.1, 0.5, 0.9, 0.99):
        for size in (1, 16, 256):
            error = lemma3.exact_error(tau, size, size, 0.5, 1.0, "cosine")
            assert error < lemma3.simple(tau, size, size)


def test_below_a_prior_no_cosine_estimate_meets_zero():
    """The worst case: an anchor at −1, all unlabelled at +1, all extra positives at −1."""
    anchor, up = torch.tensor([-1.0], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    for tau, clamped in ((lemma3.ALWAYS_POSITIVE - 1e-6, False), (lemma3.ALWAYS_POSITIVE + 1e-6, True)):
        assert bool(DPL(tau=tau, floor=1e-12).rows(anchor, -up, up).clamped) is clamped


# --- the identity --------------------------------------------------------------------------------------


def test_positives_compare_at_one_half_whatever_the_scores():
    scores = np.random.default_rng(1).standard_cauchy(50)
    assert smooth_auc(scores, scores) == pytest.approx(0.5, abs=1e-14)


def test_the_auc_keeps_its_order_and_the_loss_does_not():
    found = run_identity(40, 3)
    assert found.half_error < 1e-14
    assert found.affine_error < 1e-14
    assert found.auc_swaps == 0
    assert found.loss_swaps > 0


def test_another_constant_than_one_half_breaks_the_identity():
    pos, neg = np.array([0.0, 1.0, 3.0]), np.array([-1.0, 0.5])
    pu, tau = smooth_auc(pos, np.concatenate([pos, neg])), 0.6
    assert corrected_auc(pu, tau) == pytest.approx(smooth_auc(pos, neg), abs=1e-14)
    assert abs((pu - tau * 0.6) / (1 - tau) - smooth_auc(pos, neg)) > 0.1


def test_weights_follow_their_formula_and_end_at_the_floor():
    weights = anchor_weights([0.1, 0.2, 0.5, 0.9], 0.3)
    assert weights == pytest.approx([0, 0.2 / 0.05, 0.5 / 0.35, 0.9 / 0.75])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lemma1.estimate_mean(shipped, "gaussian", "lowest", 0.1, 10), "anchor = 'lowest'.*'low'"),
        (lambda: lemma1.estimate_mean(shipped, "gaussian", "low", 1.0, 10), "tau = 1.0"),
        (lambda: lemma1.estimate_mean(shipped, "gaussian", "low", 0.1, 1), "at least two rows"),
        (lambda: lemma2.measure_gaps("gaussian", "N", 0, 10, 1), "size = 0"),
        (lambda: lemma3.printed(1.0, 1, 1), "tau = 1.0"),
        (lambda: lemma3.printed(0.1, 0, 1), "extra = 0"),
        (lambda: lemma3.exact_error(0.1, 1, 1, 1.5, 0.0), "up = 1.5"),
        (lambda: lemma3.exact_error(0.1, 1, 1, 0.5, 0.0, "none"), "floor = 'none'"),
        (lambda: corrected_auc(math.nan, 0.1), "auc_pu = nan"),
        (lambda: smooth_auc(np.array([]), np.array([1.0])), "finite scores on both sides"),
        (lambda: smooth_auc(np.array([math.nan]), np.array([1.0])), "finite scores on both sides"),
        (lambda: run_identity(1, 0), "models = 1"),
    ],
)
def test_bad_input_is_told_and_never_becomes_nan(call, message):
    with pytest.raises(InputError, match=message):
        call()
