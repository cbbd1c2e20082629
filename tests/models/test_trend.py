"""The trend: its definition event by event, what it must not know, and what changes it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import truepair as tp
from truepair.errors import InputError
from truepair.models.trend import Counts, Trend, lately, lengths_of, tried_half_lives

DAY = 86_400
START = 1_700_000_000


def log_of(events):
    """The log of (user, item, day) events."""
    users, items, days = (list(column) for column in zip(*events, strict=True))
    time = [START + round(day * DAY) for day in days]
    return tp.read_interactions({"user": users, "item": items, "time": time}).log


def definition(log, moment, trend):
    """The term of each item, event by event."""
    n, lengths = len(log.item_ids), lengths_of(trend.half_lives, log)
    total, faded = np.zeros(n), np.zeros((len(lengths), n))
    for item, time in zip(log.items, log.time, strict=True):
        if time < moment:
            total[item] += 1
            for row, length in enumerate(lengths):
                faded[row, item] += 2 ** (-(moment - time) / length)
    shares = (total + 0.5) / (total + 0.5).sum()
    term = trend.popularity * np.log(shares)
    for row, weight in enumerate(trend.weights):
        recent = (faded[row] + 20 * shares) / (faded[row].sum() + 20)
        term += weight * np.log(recent / shares)
    return term


EVENTS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 6), st.floats(0, 40, width=32)), min_size=3, max_size=60
)


@given(events=EVENTS, day=st.floats(0, 50), weights=st.tuples(*[st.floats(-3, 3)] * 2))
@settings(max_examples=60, deadline=None)
def test_terms_follow_the_definition(events, day, weights):
    log, trend = log_of(events), Trend(("2d", "10d"), weights, 0.7)
    moment = START + day * DAY
    found = trend.term(Counts.of(log, moment, lengths_of(trend.half_lives, log)))
    np.testing.assert_allclose(found, definition(log, moment, trend), rtol=1e-5, atol=1e-5)


@given(events=EVENTS, later=EVENTS, day=st.floats(0, 40))
@settings(max_examples=40, deadline=None)
def test_events_at_the_moment_or_later_change_nothing(events, later, day):
    moment = START + round(day * DAY)
    everything = [(1, item, 0.0) for item in range(1, 7)] + events
    kept = [event for event in everything if START + round(event[2] * DAY) < moment]
    changed = kept + [(u, i, day + d) for u, i, d in later] + [(1, item, day) for item in range(1, 7)]
    one, other = (Counts.of(log_of(log), moment, (DAY, 7 * DAY)) for log in (everything, changed))
    np.testing.assert_array_equal(one.total, other.total)
    np.testing.assert_array_equal(one.faded, other.faded)


@given(events=EVENTS, day=st.floats(0, 40), more=st.floats(0, 20))
@settings(max_examples=40, deadline=None)
def test_counts_move_on_as_new_events_come(events, day, more):
    log, moment = log_of(events), START + day * DAY
    later = moment + more * DAY
    moved = Counts.of(log, moment, (DAY, 7 * DAY)).at(later)
    new = (log.time >= moment) & (log.time < later)
    moved.add(log.items[new], log.time[new])
    whole = Counts.of(log, later, (DAY, 7 * DAY))
    np.testing.assert_allclose(moved.total, whole.total)
    np.testing.assert_allclose(moved.faded, whole.faded, atol=1e-9)


def test_dislikes_are_no_events_and_repeats_are():
    table = {"user": [1, 1, 2, 2], "item": ["a", "a", "a", "b"], "time": [START + k for k in range(4)]}
    kinds = {**table, "kind": ["buy", "buy", "return", "buy"]}
    rated = tp.read_interactions(kinds, feedback={"buy": 1, "return": -1})
    counts = Counts.of(rated.log, START + 10.0, (DAY,))
    assert counts.total.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"half_lives": ("7d",), "weights": (1.0, 2.0)}, "1 half_lives and 2 weights"),
        ({"half_lives": (), "weights": ()}, "one half-life or more"),
        ({"half_lives": ("7 days",)}, "'7 days' is not a duration"),
        ({"half_lives": (0,)}, "half_lives"),
        ({"half_lives": "7d"}, "half_lives"),
        ({"weights": (float("nan"),)}, "weights"),
        ({"new_users": (1.0,)}, "1 weights of new_users for 1 half_lives"),
    ],
)
def test_a_bad_trend_is_an_error(given, message):
    with pytest.raises(InputError, match=message):
        Trend(**given)


def test_half_lives_that_are_tried_fit_the_data():
    assert tried_half_lives(log_of([(1, 1, 0), (1, 2, 30)])) == ("1d", "4d")
    assert tried_half_lives(log_of([(1, 1, 0), (1, 2, 3000)])) == ("1d", "4d", "16d", "64d", "256d")
    hours = tried_half_lives(log_of([(1, 1, 0), (1, 2, 1)]))
    assert hours == (675.0, 2700.0, 10800.0, 43200.0)
    unknown = tp.read_interactions({"user": [1, 1], "item": [1, 2], "time": [0, 128]}).log
    assert tried_half_lives(unknown) == (1.0, 4.0, 16.0, 64.0)
    assert tried_half_lives(log_of([(1, 1, 0), (1, 2, 0)])) == ()
    with pytest.raises(InputError, match="give numbers in their unit"):
        lengths_of(("1d",), unknown)


@given(events=EVENTS, half_life=st.floats(0.5, 20))
@settings(max_examples=40, deadline=None)
def test_what_users_did_lately_follows_the_definition(events, half_life):
    log = log_of(events)
    items = torch.randn(len(log.item_ids), 3, generator=torch.Generator().manual_seed(0))
    found = lately(items, log, half_life)
    for user in range(len(log.user_ids)):
        own, total, expected = log.histories.of(user), 0.0, torch.zeros(3)
        for place, item in enumerate(own):
            weight = 2 ** (-(len(own) - 1 - place) / half_life)
            expected += weight * items[item] / items[item].norm()
            total += weight
        torch.testing.assert_close(found[user], expected / total, rtol=1e-4, atol=1e-5)
    some = np.arange(len(log.user_ids))[::2]
    torch.testing.assert_close(lately(items, log, half_life, some), found[some])


def test_without_an_order_all_of_a_history_counts_alike():
    log = tp.read_interactions({"user": [1, 1, 2], "item": [1, 2, 2]}).log
    items = torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    torch.testing.assert_close(lately(items, log, 1.0), torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
