"""The counted work of automatic settings: what limits a search without a clock, and the climb within it."""

import numpy as np
import pytest
import torch

import truepair as tp
from truepair.data.simulation import simulate_world
from truepair.search import plan
from truepair.search.automatic import chosen_settings
from truepair.search.blend_choice import ranking_work, regularisation_work
from truepair.search.plan import Point, RunSize, climb, training_work
from truepair.training import EpochRecord, FitResult

FIRST = Point(4, 0.4, 64, 14)


# --- the climb -------------------------------------------------------------------------------------------


def climbed(score, wanted=("temperature", "popularity"), most=12, late=lambda made: False, first=FIRST):
    """The top of a landscape, and the points that were asked for."""
    found = {}

    def run(points):
        found.update({point: score(point.place, point.popularity) for point in points})

    top = climb(first, wanted, most, run, found, lambda: late(len(found)))
    return top, list(found)


@pytest.mark.parametrize("place", [-8, -4, 0, 2, 4, 6, 8, 10, 12, 16])
@pytest.mark.parametrize("popularity", [0.0, 0.4, 0.8, 1.2])
def test_the_climb_finds_the_top_of_a_hill(place, popularity):
    top, tried = climbed(lambda p, g: 1 - 0.01 * abs(p - place) - 0.1 * abs(g - popularity), most=99)
    assert (top.place, top.popularity) == (place, popularity)
    assert len(tried) <= 18


def test_the_climb_tries_the_better_side_only():
    _, tried = climbed(lambda p, g: 1 - 0.01 * abs(p - 5), wanted=("temperature",))
    assert [point.place for point in tried] == [4, 0, 8, 6]


def test_a_row_of_temperatures_grows_to_its_better_end():
    _, tried = climbed(lambda p, g: 9 + p, wanted=("temperature",))
    assert [point.place for point in tried] == [4, 0, 8, 12, 14, 10, 16]  # the rest in small steps
    _, tried = climbed(lambda p, g: -p, wanted=("temperature",))
    assert [point.place for point in tried] == [4, 0, 8, -4, -2, -6, -8]


@pytest.mark.parametrize("most", [0, 3, 4, 5, 7])
def test_the_climb_keeps_to_the_number_of_runs(most):
    _, tried = climbed(lambda p, g: p + g, most=most)
    assert len(tried) == max(most, 3)


def test_a_climb_in_popularity_alone():
    top, tried = climbed(lambda p, g: g, wanted=("popularity",))
    assert {point.place for point in tried} == {4}
    assert top.popularity == 2.0


def test_a_late_climb_ends_with_what_it_has():
    top, tried = climbed(lambda p, g: p + g, late=lambda made: made >= 3)
    assert len(tried) == 3
    assert top.place == 8


def test_a_step_that_gains_next_to_nothing_is_not_made():
    top, _ = climbed(lambda p, g: 1 + 1e-4 * g, wanted=("popularity",))
    assert top == FIRST


# --- counted work ----------------------------------------------------------------------------------------


def test_work_grows_with_what_is_done():
    size = RunSize(1000, 500, 5000, 64)
    full = training_work(size, 256, 40)
    assert training_work(size, 256, 20) == full / 2
    assert 0.1 < training_work(size, 64, 14) / full < 0.35
    assert training_work(size._replace(n_items=1000), 256, 40) > full
    assert training_work(size._replace(n_users=2000, n_pairs=10_000), 256, 40) > 2 * full
    assert training_work(size._replace(n_pairs=10_000), 256, 40) > full
    assert training_work(RunSize(10, 500, 64, 64), 8, 1) < training_work(
        RunSize(64, 500, 64, 64), 8, 1
    )  # one step each
    assert ranking_work(10, 20, 30) == 10 * 20 * 90
    data = simulate_world(10, 100, density=0.2, seed=1).observed
    everything = len(data) * 100 + 10 * 100 * 6 * 60  # all users judge
    assert (data.user_counts > 0).all()
    assert regularisation_work(data, data) == 0.7 * 100**3 + everything


def invented(rng, asked):
    """Scores by chance in place of training."""

    def fit(jobs, judge, **_):
        found = []
        for job in jobs:
            asked.append(job)
            record = EpochRecord(job.settings.epochs, 0.0, None, rng.uniform(0.1, 0.2), 0.01, 0.0)
            shape = (job.interactions.n_users, 2), (job.interactions.n_items, 2)
            vectors = [torch.zeros(size) for size in shape]
            found.append(FitResult(*vectors, "full", job, (record,), job.settings.epochs, score=record.score))
        return found

    return fit


@pytest.mark.parametrize(
    ("n_users", "n_items", "density"), [(150, 60, 0.3), (300, 300, 0.05), (200, 1200, 0.03)]
)
def test_the_search_stays_within_three_trainings(n_users, n_items, density, monkeypatch):
    """Whatever the scores are: with the training that follows, four times a single one."""
    data = simulate_world(n_users, n_items, density=density, seed=1).observed
    part = tp.split_given(data, data.take(np.zeros(len(data), dtype=bool)))
    for seed in range(6):
        asked = []
        monkeypatch.setattr(plan, "fit_many", invented(np.random.default_rng(seed), asked))
        found = chosen_settings(tp.Recommender(device="cpu", seed=seed).spec, part)
        size = RunSize(n_users, n_items, len(data), asked[-1].settings.batch_size)
        work = sum(training_work(size, job.encoder.dim, job.settings.epochs) for job in asked)
        blend = found.facts["automatic"]["blend"] or {}
        work += len(blend.get("tried", ())) * regularisation_work(data, data)
        assert work <= 3 * training_work(size, 256, 40)
        assert asked[-1].encoder.dim == 256
        assert 3 <= len(asked) - 1 <= 9


def test_given_epochs_shorten_the_short_runs_too(monkeypatch):
    data = simulate_world(150, 60, density=0.3, seed=1).observed
    part = tp.split_given(data, data.take(np.zeros(len(data), dtype=bool)))
    asked = []
    monkeypatch.setattr(plan, "fit_many", invented(np.random.default_rng(0), asked))
    chosen_settings(tp.Recommender(device="cpu", epochs=10).spec, part)
    assert [job.settings.epochs for job in asked][:3] == [4, 4, 4]
    assert asked[-1].settings.epochs == 10


def test_no_blend_where_ease_takes_longer_than_the_training(monkeypatch):
    data = simulate_world(120, 1500, density=0.02, seed=1).observed
    part = tp.split_given(data, data.take(np.zeros(len(data), dtype=bool)))
    monkeypatch.setattr(plan, "fit_many", invented(np.random.default_rng(1), []))
    facts = chosen_settings(tp.Recommender(device="cpu", epochs=1).spec, part).facts["automatic"]
    assert facts["blend"] == {"skipped": "EASE takes long beside the training"}
