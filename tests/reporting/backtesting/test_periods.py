"""Where a backtest cuts time, what is learnt before a cut, and what is judged after it."""

import numpy as np
import pytest

import truepair as tp
from truepair.errors import InputError
from truepair.reporting.backtesting.periods import Timeline

DAY = 86_400
T0 = 1_700_000_000


def pairs_at(*rows):
    """Interactions of (user, item, day) rows."""
    users, items, days = zip(*rows, strict=True)
    return tp.read_interactions({"user": users, "item": items, "time": [T0 + round(d * DAY) for d in days]})


def shown(pairs):
    """The (user, item) ids of interactions."""
    table = pairs.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


ROWS = [("a", 1, 0), ("b", 2, 0.5), ("a", 2, 1.2), ("c", 1, 1.4), ("b", 3, 1.6), ("c", 3, 2.2), ("c", 4, 2.9)]


def test_equal_lengths_end_with_the_data():
    line = Timeline(pairs_at(*ROWS), every="1d")
    assert [p.end - p.start for p in line.periods] == [DAY, DAY]
    assert line.periods[-1].end == T0 + round(2.9 * DAY) + 1
    first, second = line.periods
    assert shown(line.train(first)) == {("a", 1), ("b", 2)}
    assert shown(line.train(second)) == {("a", 1), ("b", 2), ("a", 2), ("c", 1), ("b", 3)}
    assert shown(line.target(first)) == {("a", 2), ("c", 1)}  # nobody had item 3
    assert shown(line.target(second)) == {("c", 3)}
    assert shown(line.since(first, second)) == {("a", 2), ("c", 1), ("b", 3)}
    assert line.train(first).n_items == 2  # the catalogue of that time


def test_what_is_new_is_counted():
    first, second = Timeline(pairs_at(*ROWS), every="1d").periods
    assert (first.pairs, first.judged_pairs, first.users) == (3, 2, 2)
    assert (first.new_user_pairs, first.new_item_pairs) == (1, 1)
    assert (first.catalogue, first.new_items, first.newness) == (2, 1, 1 / 3)
    assert (second.new_user_share, second.new_item_share) == (0, 1 / 2)


def test_every_and_periods_give_the_last_periods():
    rows = [(u, i, day) for day in range(10) for u, i in ((day % 3, 7), (day, day % 2))]
    line = Timeline(pairs_at(*rows), every="1d", periods=3)
    assert len(line.periods) == 3
    assert line.periods[-1].end == T0 + 9 * DAY + 1


def test_periods_alone_have_equally_many_pairs():
    world = tp.simulate_drift(100, 60, periods=4, pairs=20)
    line = Timeline(world, periods=4)
    n = len(world) // 5
    assert [abs(p.pairs - n) <= 2 for p in line.periods] == [True] * 4
    assert abs(len(line.train(line.periods[0])) - n) <= 2


def test_a_window_forgets():
    rows = [(u, i, day) for day in range(10) for u, i in ((day % 3, 7), (day, day % 2))]
    line = Timeline(pairs_at(*rows), every="1d", train="3d")
    assert line.periods[0].start - line.periods[0].train_start == 3 * DAY
    for period in line.periods:
        times = line.train(period).time
        assert period.train_start <= times.min()
        assert times.max() < period.start
        assert len(line.before(period)) > len(line.train(period)) or period.number == 1


def test_no_pair_is_learnt_and_judged():
    world = tp.simulate_drift(80, 50, periods=5, pairs=20)
    line = Timeline(world, every="1w")
    for period in line.periods:
        target = line.target(period)
        assert (line.train(period).time < period.start).all()
        assert ((target.time >= period.start) & (target.time < period.end)).all()
        assert not line.before(period).has(target.users, target.items).any()


def test_a_gap_is_left_out():
    rows = [(u, u % 2, day + u % 4 / 10) for day in (0, 1, 5, 6) for u in range(4 * day, 4 * day + 4)]
    line = Timeline(pairs_at(*rows), every="1d")
    assert line.left_out == 3
    assert [p.number for p in line.periods] == [1, 2]


def test_times_may_be_numbers_without_a_clock():
    table = {"user": [1, 2, 1, 2, 3, 1], "item": [1, 1, 2, 2, 1, 3], "time": [0.0, 1.5, 2.5, 3.5, 4.5, 5.0]}
    line = Timeline(tp.read_interactions(table), every=2)
    assert [p.date for p in line.periods] == ["1", "3"]


def without_times():
    return pairs_at(*ROWS).pairs_only()


def in_order():
    from dataclasses import replace

    return replace(pairs_at(*ROWS), time_kind="order")


@pytest.mark.parametrize(
    ("pairs", "cuts", "says"),
    [
        (without_times, {"every": "1d"}, "needs the time of each pair"),
        (in_order, {"every": "1d"}, "not places in histories"),
        (None, {"every": "7d"}, r"every = '7d' leaves 0 periods to judge; 2 are needed.*2023-11-14 22:13 to"),
        (None, {"every": "1d", "periods": 5}, "leaves 2 periods to judge; 5 are needed"),
        (None, {"every": "1d", "train": "12h"}, "the training window is shorter than a period"),
        (None, {"every": "1s"}, "at most 1,000 are allowed"),
        (None, {"every": "soon"}, "every = 'soon' is no duration"),
        (None, {"every": "1d", "train": "x"}, "train = 'x' is no duration"),
        (None, {"periods": 1}, "periods = 1 is out of range"),
        (None, {"periods": 7}, "too many pairs have the same time"),
    ],
)  # fmt: skip
def test_impossible_cuts_are_errors(pairs, cuts, says):
    with pytest.raises(InputError, match=says):
        Timeline(pairs() if pairs else pairs_at(*ROWS), **cuts)


def test_periods_of_new_items_only_are_an_error():
    rows = [(u, 10 * day + u, day + u / 10) for day in range(4) for u in range(4)]
    with pytest.raises(InputError, match="only 0 of 2 periods have pairs of known items"):
        Timeline(pairs_at(*rows), every="1d")


def test_no_pairs_are_an_error():
    with pytest.raises(InputError, match="no pairs to backtest on"):
        Timeline(pairs_at(*ROWS).take(np.zeros(len(ROWS), dtype=bool)), every="1d")
