"""Distributions of scores: draws follow them, expectations are exact, bad parameters are told."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import expit

from truepair.errors import InputError
from truepair_lab.theory.probability import auc, preference, supervised_bpr, supervised_loss, whole
from truepair_lab.theory.scores import (
    POPULATIONS,
    Cosine,
    Discrete,
    Gaussian,
    Gumbel,
    Logistic,
    population,
    uniforms,
)

SHAPES = {
    "gaussian": (Gaussian(0.5, 1.5), lambda s: mpmath.npdf(s, 0.5, 1.5), [-14, 0.5, 15]),
    "logistic": (
        Logistic(-0.5, 0.5),
        lambda s: mpmath.sech((s + 0.5) / 1) ** 2 / 2,
        [-40, -0.5, 40],
    ),
    "gumbel": (
        Gumbel(0.8, 0.8),
        lambda s: mpmath.exp(-(s - 0.8) / 0.8 - mpmath.exp(-(s - 0.8) / 0.8)) / 0.8,
        [-4, 0.8, 40],
    ),
    "cosine": (
        Cosine(3.0, 2.0),
        lambda s: 6 * ((s + 1) / 2) ** 2 * (1 - ((s + 1) / 2) ** 3) / 2,
        [-1, 1],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_expectations_agree_with_integrals_of_the_density(name):
    scores, density, ends = SHAPES[name]
    for anchor in (-1.0, 0.7):
        exact = mpmath.quad(lambda s, a=anchor: density(s) / (1 + mpmath.exp(s - a)), ends)
        assert preference(np.array([anchor]), scores)[0] == pytest.approx(float(exact), abs=1e-10)


@pytest.mark.parametrize("name", POPULATIONS)
def test_weights_sum_to_one_and_draws_follow_the_nodes(name):
    for scores in (POPULATIONS[name].positives, POPULATIONS[name].negatives):
        values, weights = scores.nodes()
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        drawn = scores.at(uniforms(7, 40_000))
        for edge in np.quantile(drawn, [0.1, 0.5, 0.9]) + 1e-9:
            assert (drawn <= edge).mean() == pytest.approx(weights[values <= edge].sum(), abs=0.02)


def test_a_discrete_expectation_is_the_sum_over_its_values():
    scores = Discrete((0.0, 2.0), (0.25, 0.75))
    assert preference(np.array([1.0]), scores)[0] == 0.25 * expit(1.0) + 0.75 * expit(-1.0)
    assert set(scores.at(uniforms(1, 1000))) == {0.0, 2.0}


def test_cosine_scores_stay_in_their_interval():
    values, _ = Cosine(1.5, 2.5).nodes()
    assert values.min() >= -1
    assert values.max() <= 1


@pytest.mark.parametrize("tau", [0.0, 0.2, 0.9])
def test_the_unlabelled_mix_has_its_share_of_positives(tau):
    of = population("gaussian")
    drawn = of.unlabelled(tau, uniforms(3, 40_000))
    assert np.isfinite(drawn).all()
    assert drawn.mean() == pytest.approx(tau * 1.0, abs=0.03)  # positives have mean 1, negatives 0; se .006


def test_uniforms_are_open_and_repeatable():
    u = uniforms(5, 100, 10)
    assert u.shape == (100, 10)
    assert 0 < u.min() < u.max() < 1
    assert (u == uniforms(5, 100, 10)).all()


def test_limits_are_ordered_as_jensen_says():
    for of in POPULATIONS.values():
        assert -math.log(auc(of)) < supervised_loss(of) < supervised_bpr(of)


def test_one_score_stands_for_a_mean():
    anchors, mean = np.array([-1.0, 3.0]), np.array([0.2, 0.9])
    assert expit(anchors[:, None] - whole(anchors, mean))[:, 0] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(0.0, 0.0), r"sd = 0\.0 .* > 0"),
        (lambda: Gaussian(math.nan), "mean = nan"),
        (lambda: Logistic(0.0, -1.0), "scale = -1"),
        (lambda: Gumbel(0.0, math.inf), "scale = inf"),
        (lambda: Cosine(0.0, 1.0), "a = 0"),
        (lambda: Discrete((1.0,), (0.5,)), "whose sum is 1"),
        (lambda: Discrete((1.0, math.nan), (0.5, 0.5)), "finite"),
        (lambda: population("gausian"), "Did you mean 'gaussian'"),
    ],
)
def test_bad_distributions_are_told(make, message):
    with pytest.raises(InputError, match=message):
        make()
