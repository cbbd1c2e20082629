"""Durations of data time, and the unit of a time column."""

import numpy as np
import pytest

from truepair.data.durations import shown_time, time_length, total_seconds
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.errors import InputError


def with_times(*times):
    n = len(times)
    return Interactions(np.arange(n), np.arange(n), IdMap.range(n), IdMap.range(n), time=np.array(times))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604_800), ("12h", 43_200), ("2w", 1_209_600), ("1.5h", 5400), ("90s", 90), (" 1d 2min ", 86_520)],
)
def test_a_duration_is_the_sum_of_its_parts(text, seconds):
    assert total_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "7", "d", "7 days", "-7d", "7d?", "1m", "0d", "0.0h", "1e9d", "٣d", "9" * 5000 + "d", "7D"],
)
def test_anything_else_is_no_duration(text):
    assert total_seconds(text) is None
    with pytest.raises(InputError, match=r"every = .* is no duration.*'7d'"):
        time_length("every", text, with_times(1.7e9))


@pytest.mark.parametrize(
    ("now", "day"), [(1_700_000_000, 86_400), (1.7e12, 86_400e3), (1.7e15, 86_400e6), (1.7e18, 86_400e9)]
)
def test_the_unit_of_times_follows_from_their_size(now, day):
    assert time_length("every", "1d", with_times(0, now)) == day
    assert shown_time(now, with_times(0, now)) == "2023-11-14 22:13"


def test_dates_are_microseconds():
    dates = read_interactions({"user": [1, 2], "item": [1, 1], "time": ["2024-05-30", "2024-05-31"]})
    assert time_length("every", "1d", dates) == np.ptp(dates.time)
    assert shown_time(dates.time.max(), dates) == "2024-05-31 00:00"


def test_times_that_are_no_clock_need_a_number():
    rows = with_times(0, 1, 2000)
    with pytest.raises(InputError, match=r"every = '7d' needs dates; times are at most 2000"):
        time_length("every", "7d", rows)
    assert time_length("every", 500, rows) == 500
    assert shown_time(500, rows) == "500"


@pytest.mark.parametrize("number", [0, -1, float("nan"), float("inf"), True, None, [7]])
def test_a_number_is_above_zero(number):
    with pytest.raises(InputError, match="every = "):
        time_length("every", number, with_times(1.7e9))


def test_the_least_integer_has_a_size():
    assert time_length("every", "1s", with_times(-(2**63), 0)) == 1e9
