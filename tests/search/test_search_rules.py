"""Small rules of a search by hand: which trial is the best, and which way a parameter leans."""

from dataclasses import replace

import pytest

from truepair.search.domains import Choice, Range
from truepair.search.report import best_trials, tendency
from truepair.search.running import Tuning, best_of
from truepair.search.trials import Trial


def trial(number, score, **parameters):
    return Trial(number, parameters, score, None, "complete")


def test_of_equal_trials_the_earliest_is_the_best():
    trials = [trial(number, score) for number, score in enumerate((0.1, 0.4, 0.4, 0.2))]
    assert best_of(trials).number == best_of(trials[::-1]).number == 1


def test_pruned_trials_are_not_among_the_best():
    trials = (trial(0, 0.2), replace(trial(1, 0.9), state="pruned"), trial(2, 0.4), trial(3, 0.2))
    assert [one.number for one in best_trials(Tuning(trials[2], trials, {}, ()))] == [2, 0, 3]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_tendency_is_the_rank_correlation_with_the_score(sign):
    trials = tuple(trial(k, sign * k**3 / 1000, rate=float(k), other=1.0, kind="a") for k in range(12))
    space = {"rate": Range(0.0, 12.0), "other": Range(0.0, 2.0), "kind": Choice(["a", "b"])}
    found = Tuning(trials[0], trials, space, ())
    assert tendency(found, "rate") == pytest.approx(sign)
    assert tendency(found, "other") is tendency(found, "kind") is None
