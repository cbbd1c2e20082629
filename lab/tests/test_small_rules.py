"""Small rules of the lab's pages by hand: verdicts, sums, choices."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from truepair.training import Settings
from truepair_lab.benchmarks.contest import _chosen
from truepair_lab.lines import Lines, Session
from truepair_lab.paper.report.bars import Reached
from truepair_lab.paper.report.claims import Claim
from truepair_lab.paper.report.questions import Answer
from truepair_lab.paper.report.running_time import session_table
from truepair_lab.prior_study.groups import Group
from truepair_lab.prior_study.lines import EstimateLine
from truepair_lab.quality.contestants import SEEDS, seeds_of
from truepair_lab.statistics import Mean
from truepair_lab.theory.auc_identity import _swaps
from truepair_lab.theory.results import read_results
from truepair_lab.theory.running import verdicts
from truepair_lab.truth.fitting import Trial, best_of
from truepair_lab.truth.treatments import EVERY

THEORY = Path(__file__).parents[1] / "results" / "theory.json"


@pytest.mark.parametrize(("bar", "met"), [(0.399, True), (0.4, True), (0.401, False)])
def test_a_bar_is_met_where_it_is_just_reached(bar, met):
    found = {("paper", "dpl"): (Mean(0.4, None, 1), ""), ("paper", "dpl-hard"): (Mean(0.9, None, 1), "")}
    assert Reached("ml-100k", "mf", bar, ("dpl",), found).met() is met


def test_answers_without_a_spread_do_not_count_against_a_claim():
    answers = [Answer(1, 1e-6, "yes", ("a",)), Answer(1, None, "who knows", ("b",))]
    assert Claim("so it is", "Table I", lambda lines: iter(answers)).judge(Lines()).mark == "holds"


def test_the_time_of_a_machine_is_that_of_all_its_sessions():
    sessions = [Session(f"2026-01-0{day}", "CPU", "run", 2, 90.0) for day in (1, 2, 3)]
    assert "| CPU | 3 | 6 | 4.5 min |" in session_table(Lines(sessions=sessions))


def test_a_pair_that_changes_places_counts_once():
    a = np.array([0.1, 0.2, 0.3, 0.3])
    assert _swaps(a, a) == 0
    assert _swaps(a, np.array([0.2, 0.1, 0.3, 0.4])) == 1
    assert _swaps(a, -a) == 5  # the two equal ones have no order


def test_every_wrong_estimator_must_be_caught():
    kept = read_results(THEORY)
    escaped = dataclasses.replace(kept.lemma1.wrong[0], worst=0.5)
    first = dataclasses.replace(kept.lemma1, wrong=(escaped, *kept.lemma1.wrong[1:]))
    held = [check.holds for check in verdicts(kept)]
    missed = [check.holds for check in verdicts(dataclasses.replace(kept, lemma1=first))]
    assert all(held)
    assert missed.count(False) == 1


def test_the_best_settings_have_the_highest_score():
    trials = [Trial(Settings(seed=seed), score) for seed, score in enumerate((0.1, None, 0.3, 0.3, 0.2))]
    assert best_of(trials).seed == 2


def test_wrong_priors_are_wrong_by_their_factor():
    case = SimpleNamespace(tau=0.1, user_tau=(0.1, 0.2))
    found = {name: EVERY[name].loss(case).tau for name in ("dpl-tau-half", "dpl-tau-2", "dpl-tau-5")}
    assert found == pytest.approx({"dpl-tau-half": 0.05, "dpl-tau-2": 0.2, "dpl-tau-5": 0.5})
    assert EVERY["dpl-tau-5"].loss(SimpleNamespace(tau=0.3)).tau == 0.9  # no share is above 1


def test_seeds_of_a_contestant():
    assert list(seeds_of("exact-infonce", 2)) == [0, 1]
    assert len(seeds_of("exact-infonce", None)) == SEEDS
    assert list(seeds_of("ease", 4)) == [0]


def test_an_interval_covers_the_truth_from_both_sides():
    line = EstimateLine("worlds", "random", 0.1, 0, 0.1, 0.1, 0.1, 0.1, 0.0, 0.0, {}, 0.8, 0.05, {}, 10, True)
    intervals = [(0.05, 0.15), (0.1, 0.2), (0.05, 0.1), (0.01, 0.09), (0.11, 0.2)]
    lines = [dataclasses.replace(line, low=low, high=high) for low, high in intervals]
    assert Group("worlds", "random", lines).n_covered == 3


def test_the_recorded_contestant_is_a_trained_one():
    found = {("-", "ease"): {"validation": 0.9}, ("mf", "a"): {"validation": 0.4}}
    assert _chosen({**found, ("mf", "b"): {"validation": 0.5}}) == ("mf", "b")
    assert _chosen({("-", "ease"): {"validation": 0.9}}) is None
