"""Differences over seeds: Welch's t against SciPy's, and what is not known."""

import pytest
from scipy import stats

from truepair_lab.markdown import signed
from truepair_lab.statistics import (
    Difference,
    Mean,
    corrected,
    difference,
    relative,
    sign_of,
    significant,
    weighted,
)

A, B = [0.351, 0.354, 0.349, 0.356, 0.352], [0.340, 0.352, 0.347]


def mean(values):
    found = stats.describe(values)
    return Mean(float(found.mean), float(found.variance) ** 0.5, len(values))


def test_a_difference_is_welchs_and_so_are_its_p_and_its_interval():
    gap, scipys = difference(mean(A), mean(B)), stats.ttest_ind(A, B, equal_var=False)
    assert gap.p() == pytest.approx(scipys.pvalue)
    assert gap.freedom == pytest.approx(scipys.df)
    low, high = scipys.confidence_interval(0.95)
    assert [gap.p(end) for end in (low, high)] == pytest.approx([0.05, 0.05])


def test_few_seeds_need_more_than_two_standard_errors():
    gap = difference(Mean(0.4 + 0.0025, 0.001, 3), Mean(0.4, 0.001, 3))
    assert gap.value / gap.error > 3
    assert gap.p() == pytest.approx(0.0377, abs=1e-3)
    assert Difference(2.5, 1.0, 4).sign == 0
    assert Difference(3.0, 1.0, 4).sign == 1
    assert Difference(-3.0, 1.0, 4).sign == -1


@pytest.mark.parametrize("few", [Mean(0.4, None, 1), Mean(0.4, 0.001, 2)])
def test_with_fewer_than_three_seeds_nothing_is_known(few):
    gap = difference(few, Mean(0.3, 0.001, 5))
    assert (gap.p(), gap.sign, gap.error) == (None, None, None)
    assert str(gap) == "+.1000 (spread unknown)"


def test_no_spread_at_all_is_significant():
    exact = difference(Mean(0.4, 0.0, 3), Mean(0.3, 0.0, 3))
    assert (exact.p(), exact.sign) == (0.0, 1)
    assert difference(Mean(0.4, 0.0, 3), Mean(0.4, 0.0, 3)).sign == 0


def test_sums_and_shares():
    halves = weighted((0.5, Mean(0.4, 0.03, 9)), (0.5, Mean(0.2, 0.04, 16)))
    assert (halves.value, halves.error) == pytest.approx((0.3, 0.005 * 2**0.5))
    assert halves.freedom == pytest.approx(4 / (1 / 8 + 1 / 15))
    share = relative(Mean(0.11, 0.001, 4), Mean(0.10, 0.001, 4))
    assert (share.value, share.error) == pytest.approx((0.1, 0.005 * 2**0.5))
    assert relative(Mean(0.1, 0.01, 4), Mean(0.0, 0.0, 4)).p() is None


def test_holm_is_over_what_is_known():
    assert corrected([0.5, None, 0.25, 0.125]) == [0.5, None, 0.5, 0.375]
    assert corrected([None]) == [None]
    assert [sign_of(1, p) for p in (0.049, 0.05, None)] == [1, 0, None]


def test_a_mean_of_differences_is_tested_by_students_t():
    values = [0.010, 0.013, 0.011, 0.008]
    found, scipys = Mean.of(values), stats.ttest_1samp(values, 0.0)
    assert found.p == pytest.approx(scipys.pvalue)
    low, high = scipys.confidence_interval(0.95)
    assert found.interval() == f"+.0105 [{signed(low)}, {signed(high)}]"
    assert found.interval(is_significant=True) == f"**+.0105 [{signed(low)}, {signed(high)}]**"


def test_a_mean_is_significant_only_beyond_its_spread_and_from_three_seeds_on():
    known = {
        "a": (0.010, 0.011, 0.012),
        "b": (0.01, -0.01, 0.02),
        "c": (0.010, 0.0101),
        "d": (0.01,),
        "e": (),
    }
    means = {name: Mean.of(values) for name, values in known.items()}
    assert means["e"] is None
    assert [means[name].p is None for name in "cd"] == [True, True]
    assert significant(means) == {"a"}


def test_the_contrasts_of_a_case_are_corrected_together():
    """One alone is significant at p = .02; beside three that say nothing it is not."""
    alone = {"a": Mean.of((0.010, 0.013, 0.016))}
    assert alone["a"].p == pytest.approx(0.0174, abs=1e-3)
    assert significant(alone) == {"a"}
    assert significant(alone | {name: Mean.of((0.01, -0.01, 0.02)) for name in "bcd"}) == frozenset()
    assert significant({}) == frozenset()


def test_means_and_intervals_as_text():
    assert Mean.of((0.5, 0.5)).text() == ".5000 ± .0000"
    assert Mean.of((-0.00001,)).text() == ".0000"
    assert Mean.of((0.01,)).interval() == "+.0100"
    assert Mean.of((0.01, 0.012, 0.011)).interval(True) == "**+.0110 [+.0085, +.0135]**"
    assert Mean.of((-0.01, 0.012)).interval().startswith("+.0010 [-")
    assert Mean.of((0.01, 0.03)).reach == pytest.approx((0.02 - 0.0002**0.5, 0.02 + 0.0002**0.5))
