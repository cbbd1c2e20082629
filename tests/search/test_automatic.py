"""Automatic settings: what is chosen, by which pairs, how often it is repeated to the bit, and a budget."""

import dataclasses
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import truepair as tp
from truepair.data.durations import budget_seconds
from truepair.data.ids import IdMap
from truepair.data.simulation import simulate_world
from truepair.errors import InputError
from truepair.evaluation import Validation
from truepair.models.closed_forms import EASE
from truepair.recommender.holdout import hold_out
from truepair.search import automatic, plan
from truepair.search.automatic import chosen_settings, judging_metric
from truepair.search.blend_choice import Judge, choose_blend
from truepair.search.plan import FIRST_PLACE, FIRST_POPULARITY, Point, SettingsSearch, Stopwatch, climb
from truepair.search.settings_file import settings_file
from truepair.search.trials import Trial
from truepair.spec import SEARCHED
from truepair.training import EpochRecord, FitResult

QUICK = {"device": "cpu", "epochs": 3, "metric": "ndcg@10", "batch_size": 32}


@pytest.fixture(scope="module")
def data():
    return simulate_world(150, 60, tau=0.1, density=0.3, seed=1).observed


@pytest.fixture(scope="module")
def model(data):
    return tp.Recommender(**QUICK).fit(data)


def same(one, other):
    """Whether two models give the same scores to the bit."""
    return one.recommend(k=5).equals(other.recommend(k=5))


# --- what is chosen --------------------------------------------------------------------------------------


def test_what_was_chosen_is_told_and_can_be_repeated(data, model, tmp_path):
    facts = model.facts_["automatic"]
    assert {"temperature", "popularity", "dim", "learning_rate"} <= set(facts["chosen"])
    assert facts["hold out"] == "hold_out(how='random', share=0.1, seed=0)"
    best = max(facts["trials"], key=lambda trial: trial["score"])
    assert facts["chosen"]["temperature"] in (facts["trials"][-1]["temperature"], best["temperature"])
    used = model.model_.parameters_json()
    assert {name: used[name] for name in facts["chosen"]} == facts["chosen"]
    again = eval(facts["repeat"], {"Recommender": tp.Recommender, "EASE": EASE})
    assert same(again.fit(data), model)
    assert "automatic" not in again.facts_
    model.save(tmp_path / "m")
    loaded = tp.load(tmp_path / "m")
    assert loaded.facts_["automatic"] == facts
    assert not loaded.auto  # what was chosen is given now
    assert same(loaded.fit(data), model)


def test_a_search_says_how_far_it_is_and_how_long_it_may_take(data, capsys):
    made = tp.Recommender(**QUICK).fit(data, progress=True).facts_["automatic"]["trials"]
    lines = [line for line in capsys.readouterr().err.splitlines() if " run " in line]
    found = [
        re.fullmatch(r".* run (\d+) of at most (\d+): .*; done in ([\d,]+) s at most", line) for line in lines
    ]
    assert [int(each[1]) for each in found] == list(range(1, len(made) + 1))
    assert {int(each[2]) for each in found} == {int(found[0][2])}
    assert len(made) <= int(found[0][2])


def test_the_same_seed_chooses_the_same(data, model):
    again = tp.Recommender(**QUICK).fit(data)
    facts = (each.facts_["automatic"] for each in (model, again))
    trials = [[{**t, "seconds": 0} for t in each["trials"]] for each in facts]
    assert trials[0] == trials[1]
    assert same(again, model)


def test_nothing_is_chosen_that_is_given(data):
    fixed = {"temperature": 0.3, "popularity": 0.5, "dim": 8, "blend": "ease"}
    for name, value in fixed.items():
        found = tp.Recommender(**QUICK, **{name: value}).fit(data)
        facts = found.facts_["automatic"]
        assert name not in facts["chosen"]
        assert all(trial.get(name, value) == value for trial in facts["trials"][-1:])
    both = tp.Recommender(**QUICK, temperature=0.3, popularity=0.5).fit(data)
    assert len(both.facts_["automatic"]["trials"]) == 1  # there is nothing to climb


def test_it_can_be_switched_off(data):
    plain = tp.Recommender(**QUICK, auto=False).fit(data)
    assert "automatic" not in plain.facts_
    encoder = plain.result_.job.encoder
    assert (encoder.temperature, encoder.popularity, encoder.dim) == (0.15, 0.0, 128)
    with pytest.raises(InputError, match=r"auto.*True or False"):
        tp.Recommender(auto="no").fit(data)


@pytest.mark.parametrize(
    "other",
    [
        {"loss": "bpr"}, {"loss": tp.InfoNCE()}, {"sampler": "uniform"}, {"encoder": tp.MF(dim=4)},
        {"encoder": "ease"}, {"scoring": "dot"}, {"stop_after": 1}, {"auto": False},
    ],
)  # fmt: skip
def test_other_models_have_fixed_settings(other):
    assert tp.Recommender(**other).spec.searched == ()
    assert tp.Recommender().spec.searched == SEARCHED


def test_a_hold_out_that_is_asked_for_is_not_replaced(data):
    with pytest.raises(InputError, match="time"):
        tp.Recommender(**QUICK, hold_out="last").fit(data)


def test_too_little_data_is_said(data):
    few = data.take(data.users < 60)
    facts = tp.Recommender(**QUICK).fit(few).facts_["automatic"]
    assert facts == {
        "skipped": "51 users with held-out pairs are too few to choose settings by; it takes 100."
    }


def test_a_list_that_would_hold_all_items_is_judged_by_half_of_them(data):
    model = tp.Recommender(**{**QUICK, "metric": "recall@60"}).fit(data)  # of 60 items: always 1
    facts = model.facts_["automatic"]
    assert facts["metric"] == "recall@30"
    assert len({trial["score"] for trial in facts["trials"]}) > 1
    assert max(trial["score"] for trial in facts["trials"]) < 1
    assert model.model_.parameters_json()["metric"] == "recall@60"
    assert judging_metric("ndcg@59", 60) == "ndcg@59"


# --- by which pairs --------------------------------------------------------------------------------------


def test_the_search_is_judged_in_the_way_of_the_test_part(data, monkeypatch):
    monkeypatch.setattr(automatic, "_LEAST_USERS", 5)
    timed = dataclasses.replace(data, time=np.random.default_rng(0).permutation(len(data)))
    short = {**QUICK, "epochs": 1, "temperature": 0.2, "popularity": 0.0, "blend": EASE()}

    def how(source, **more):
        return tp.Recommender(**short, **more).fit(source).facts_["automatic"]["hold out"]

    assert "temporal(" in how(timed)
    assert "'last'" in how(dataclasses.replace(timed, time_kind="order"))
    assert "'last'" in how(timed, hold_out="last")
    assert "'random'" in how(timed, hold_out="random")
    assert "'random'" in how(tp.split_random(timed, test=0.1))
    assert "'last'" in how(tp.split_leave_last_out(timed))
    assert "temporal(" in how(tp.split_temporal(timed, test=0.1))
    given = tp.split_random(timed, test=0.1, valid=0.1)
    assert how(given) == given.recipe


def test_more_is_held_out_where_few_users_have_a_past_and_a_future(data, monkeypatch):
    latest = data.users * 30 + np.random.default_rng(0).permutation(len(data)) % 600  # they come one by one
    timed = dataclasses.replace(data, time=latest)
    users = {
        share: np.count_nonzero(hold_out(timed, "time", share).valid.user_counts) for share in (0.1, 0.2)
    }
    assert users[0.1] < users[0.2]
    for least, expected in ((users[0.1], "0.1"), (users[0.2], "0.2"), (data.n_users, "how='last'")):
        monkeypatch.setattr(automatic, "_LEAST_USERS", least)
        monkeypatch.setattr(automatic, "_LEAST_IN_TIME", least)
        assert expected in automatic._held_out_in_time(timed, "auto", 0).recipe


def test_the_test_part_has_no_say(data):
    split = tp.split_random(data, test=0.3)
    model = tp.Recommender(**QUICK).fit(split)
    other = dataclasses.replace(split, test=split.test.take(np.arange(len(split.test)) % 2 == 0))
    assert same(tp.Recommender(**QUICK).fit(other), model)


# --- the plan --------------------------------------------------------------------------------------------


def test_short_runs_climb_and_are_few(data, monkeypatch):
    """On a landscape with one top, the climb finds it."""
    asked = []

    def landscape(jobs, judge, **_):
        found = []
        for job in jobs:
            t, g = np.log2(job.encoder.temperature / 0.1) * 4, job.encoder.popularity
            asked.append((round(t), round(g, 3), job.encoder.dim, job.settings.epochs))
            score = 1 - 0.004 * abs(t - 6) - 0.05 * abs(g - 1.2)
            record = EpochRecord(job.settings.epochs, 0.0, None, score, 0.01, 0.0)
            shape = (job.interactions.n_users, 2), (job.interactions.n_items, 2)
            vectors = [torch.zeros(size) for size in shape]
            found.append(FitResult(*vectors, "full", job, (record,), job.settings.epochs, score=score))
        return found

    monkeypatch.setattr(plan, "fit_many", landscape)
    monkeypatch.setattr(plan, "_MOST_WORK", 9)
    found = chosen_settings(tp.Recommender(device="cpu").spec, _whole(data)).spec
    assert asked[:3] == [(place, 0.8, 64, 14) for place in (4, 0, 8)]
    assert asked[-1] == (5, 1.2, 256, 40)  # one place below the best
    assert len(asked) <= 11
    assert (found.trained.temperature, found.trained.popularity, found.trained.dim) == (0.238, 1.2, 256)
    assert (found.settings.epochs, found.searched) == (40, ())


RESULTS = Path(__file__).parents[2] / "lab" / "results" / "automatic" / "short-runs.jsonl"
GRIDS = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid['case']}-{grid['seed']}")
def test_the_climb_ends_near_the_top_of_what_was_measured(grid):
    """Grids of short runs, on held-out pairs of ten datasets: docs/automatic.md."""
    points = itertools.product(grid["places"], grid["popularities"])
    measured = dict(zip(points, itertools.chain(*grid["scores"]), strict=True))
    found = {}

    def run(points):
        found.update({point: measured[point.place, point.popularity] for point in points})

    first = Point(FIRST_PLACE, FIRST_POPULARITY, grid["dim"], grid["epochs"])
    top = climb(first, ("temperature", "popularity"), 9, run, found)
    assert found[top] > 0.99 * max(measured.values())
    assert len(found) <= 9


def _whole(data):
    return tp.split_given(data, data.take(np.zeros(len(data), dtype=bool)))


@pytest.mark.parametrize(
    ("scores", "epoch"), [((0.5, 0.6, 0.599), 3), ((0.5, 0.6, 0.55), 2), ((0.7, 0.6, 0.5), 1)]
)
def test_training_stops_early_only_for_a_clear_gain(scores, epoch):
    history = tuple(EpochRecord(n, 0.0, None, score, 0.1, 0.0) for n, score in enumerate(scores, 1))
    assert plan._last_good(FitResult(None, None, "full", history=history)) == (epoch, scores[epoch - 1])


def test_the_search_learns_from_some_of_many_users(data, monkeypatch):
    seen = []
    whole = plan.fit_many

    def counted(jobs, judge, **options):
        seen.extend((job.interactions.n_users, judge.target.n_users) for job in jobs)
        return whole(jobs, judge, **options)

    monkeypatch.setattr(plan, "fit_many", counted)
    monkeypatch.setattr(automatic, "MOST_USERS", 120)
    monkeypatch.setattr(automatic, "_LEAST_USERS", 50)
    model = tp.Recommender(**QUICK).fit(data)
    assert set(seen) == {(120, 120)}
    assert model.facts_["automatic"]["hold out"].endswith(" of 120 of the 150 users")
    assert model.matrices()[0].shape[0] == 150


def test_a_run_that_fails_is_not_chosen(data, monkeypatch):
    whole = plan.fit_many

    def failing(jobs, *args, **options):
        found = whole(jobs, *args, **options)
        return [
            tp.errors.TrainingError("diverged") if j.encoder.temperature == 0.2 else f
            for j, f in zip(jobs, found, strict=True)
        ]

    monkeypatch.setattr(plan, "fit_many", failing)
    facts = tp.Recommender(**QUICK).fit(data).facts_["automatic"]
    assert any(trial["score"] is None for trial in facts["trials"])
    assert facts["chosen"]["temperature"] != 0.2


def test_it_ends_with_an_error_where_no_run_ends_well(data):
    with pytest.raises(tp.errors.TrainingError):
        tp.Recommender(**QUICK, learning_rate=1e38).fit(data)


def test_the_full_run_is_left_out_where_it_decides_nothing(data):
    model = tp.Recommender(**QUICK, blend="none").fit(data)
    trials = model.facts_["automatic"]["trials"]
    assert {trial["dim"] for trial in trials} == {64}
    assert model.model_.parameters_json()["dim"] == 256
    assert model.facts_["automatic"]["blend"] is None


def test_a_sample_of_users_has_those_who_judge(data, monkeypatch):
    monkeypatch.setattr(automatic, "MOST_USERS", 110)
    split = tp.split_random(data, test=0.1, valid=0.1)
    few = split.valid.take(split.valid.users >= 40)
    split = dataclasses.replace(split, valid=few)
    n = int((few.user_counts > 0).sum())
    assert n < 110
    users = automatic.some_users(split, seed=0)
    assert len(users) == 110
    assert set(np.unique(few.users)) <= set(users.tolist())


def test_without_a_validation_part_users_with_one_pair_come_last(data, monkeypatch):
    monkeypatch.setattr(automatic, "MOST_USERS", 110)
    first = data.indptr[:-1]
    kept = np.isin(np.arange(len(data)), first) | (data.users < 100)  # the others have one pair
    split = tp.split_given(data.take(kept), data.take(~kept))
    assert set(range(100)) <= set(automatic.some_users(split, seed=0).tolist())


@pytest.mark.parametrize(("most", "n_items", "expected"), [(110, 60, 110), (20, 60, 30), (20, 400, None)])
def test_a_sample_has_half_as_many_users_as_items(data, most, n_items, expected, monkeypatch):
    monkeypatch.setattr(automatic, "MOST_USERS", most)
    larger = dataclasses.replace(data, item_ids=IdMap.range(n_items))
    split = tp.split_random(larger, test=0.1)
    users = automatic.some_users(split, seed=0)
    assert (None if users is None else len(users)) == expected


def test_some_of_a_sample_judge(data, monkeypatch):
    part = hold_out(data, "random", 0.2)
    assert automatic.judged_by_some(part, seed=0) is part
    monkeypatch.setattr(automatic, "MOST_USERS", 30)
    found = automatic.judged_by_some(part, seed=0)
    judges = np.flatnonzero(found.valid.user_counts)
    assert len(judges) == 30
    assert np.array_equal(found.valid.keys, part.valid.keys[np.isin(part.valid.users, judges)])
    assert found.train is part.train
    others = np.flatnonzero(automatic.judged_by_some(part, seed=1).valid.user_counts)
    assert set(judges) != set(others)


def test_the_pairs_of_a_sample_keep_their_columns(data):
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(1, 100, len(data)) for name in ("rating", "weight", "time")}
    whole = dataclasses.replace(data, **columns, time_kind="order")
    users = np.array([0, 5, 6, 149])
    found, chosen = automatic.only_users(whole, users), np.isin(data.users, users)
    assert found.items.tolist() == data.items[chosen].tolist()
    assert users[found.users].tolist() == data.users[chosen].tolist()
    assert (found.n_users, found.n_items, found.time_kind) == (4, data.n_items, "order")
    for name, column in columns.items():
        assert getattr(found, name).tolist() == column[chosen].tolist()
    assert not len(automatic.only_users(whole, np.empty(0, np.int64)))


@pytest.mark.parametrize("how", ["last", "time"])
def test_a_sample_is_held_out_by_time(data, how, monkeypatch):
    monkeypatch.setattr(automatic, "MOST_USERS", 120)
    monkeypatch.setattr(automatic, "_LEAST_USERS", 5)
    timed = dataclasses.replace(data, time=np.random.default_rng(0).permutation(len(data)))
    facts = tp.Recommender(**QUICK, hold_out=how).fit(timed).facts_["automatic"]
    assert facts["hold out"].startswith("temporal(" if how == "time" else f"hold_out(how={how!r}")


@pytest.mark.parametrize(("given", "sample"), [(None, 8), (4, 4), (100, 16), (1000, 80)])
def test_a_sample_has_a_part_of_a_given_block(data, given, sample, monkeypatch):
    blocks = []
    whole = plan.fit_many

    def kept(jobs, judge, **options):
        blocks.extend((job.settings.batch_size, job.settings.optimizer_state) for job in jobs)
        return whole(jobs, judge, **options)

    monkeypatch.setattr(plan, "fit_many", kept)
    fixed = {"epochs": 1, "optimizer_state": "half", "metric": "ndcg@10"}
    spec = tp.Recommender(device="cpu", batch_size=given, **fixed).spec
    spec = dataclasses.replace(spec, searched=("temperature",))
    many = dataclasses.replace(data, user_ids=IdMap.range(1875))  # the data are a sample of 8% of these
    part = hold_out(data, "random", 0.1)
    monkeypatch.setattr(plan, "default_batch_size", lambda *size: 16)
    search = SettingsSearch(spec, part, many, Stopwatch(None), users=np.arange(150))
    search.run()
    assert {state for _, state in blocks} == {"device"}
    assert {block for block, _ in blocks} == {sample}
    assert search.whole_size.batch == (given or search.whole_size.batch)


def test_the_time_of_everything_is_that_of_the_counted_work(data):
    spec = tp.Recommender(device="cpu", batch_size=50).spec
    part = hold_out(data, "random", 0.1)
    alone = SettingsSearch(spec, part, part.train, Stopwatch(None))
    assert alone._times_longer(64) == 1
    many = dataclasses.replace(data, user_ids=IdMap.range(1500))
    sampled = SettingsSearch(spec, part, many, Stopwatch(None), users=np.arange(150))
    steps = 30 / -(-150 // sampled.size.batch)
    assert 0.3 * steps < sampled._times_longer(64) < 10 * steps


def test_a_state_that_cannot_be_kept_elsewhere_is_an_error_before_the_search(data, monkeypatch):
    monkeypatch.setattr(plan, "fit_many", None)
    with pytest.raises(InputError, match="optimizer_state = 'half' needs 64 steps in an epoch or more"):
        tp.Recommender(**QUICK, optimizer_state="half").fit(data)


COMPILING = 9.0


@pytest.mark.parametrize("epoch", [0.02, 0.1, 0.3])  # seconds, at dim 64
@pytest.mark.parametrize("limit", [40.0, 120.0, 600.0])
def test_a_budget_is_used(data, monkeypatch, epoch, limit):
    """By a clock that only training moves: compilation first, then epochs in proportion to the dimension."""
    clock, compiled = [0.0], []
    monkeypatch.setattr(plan, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def trained(job):
        took, history = epoch * job.encoder.dim / 64, []
        for number in range(1, job.settings.epochs + 1):
            first = 0.0 if compiled else COMPILING
            compiled.append(number)
            clock[0] += took + first
            score = 0.1 if number == job.settings.epochs else None
            history.append(EpochRecord(number, 1.0, None, score, 0.01, took + first))
        nothing = torch.zeros(1, 1)
        return FitResult(nothing, nothing, "full", job, tuple(history), job.settings.epochs)

    monkeypatch.setattr(plan, "fit_many", lambda jobs, *_, **__: [trained(job) for job in jobs])
    monkeypatch.setattr(plan, "training_work", lambda size, dim, epochs: dim * epochs)
    spec = tp.Recommender(device="cpu", metric="ndcg@10", blend="none").spec
    part = hold_out(data, "random", 0.1)
    search = SettingsSearch(spec, part, part.train, Stopwatch(limit))
    search.run()
    whole = epoch * search.chosen["dim"] / 64 * search.chosen["epochs"]  # the training on everything
    used, is_full = clock[0] + whole, (search.chosen["dim"], search.chosen["epochs"]) == (256, 40)
    assert used <= limit
    assert is_full or used >= 0.7 * limit
    short = {
        trial.parameters["epochs"] for trial in list(search.trials.values())[1:-1]
    }  # between the probe and the full run
    assert short == {max(1, min(search._short().epochs, int(0.05 * limit / epoch)))}  # for that, one is timed


def short_run(point, seconds):
    parameters = {"dim": point.dim, "epochs": point.epochs}
    return Trial(0, parameters, 0.1, 1, "complete", seconds=seconds)


def test_the_first_run_which_may_compile_does_not_shorten_the_full_one(data):
    spec = tp.Recommender(device="cpu").spec
    part, point = hold_out(data, "random", 0.1), Point(4, 0.8, 64, 1)
    search = SettingsSearch(spec, part, part.train, Stopwatch(1000.0))
    search.trials = {name: short_run(point, seconds) for name, seconds in enumerate((100.0, 0.1, 0.2))}
    assert search._full(point).epochs == 40
    search.trials = {0: search.trials[0]}
    assert search._full(point).epochs < 40


def test_no_full_run_judges_a_blend_that_cannot_be(data, monkeypatch):
    monkeypatch.setattr(plan, "MOST_ITEMS", data.n_items - 1)
    facts = tp.Recommender(**QUICK).fit(data).facts_["automatic"]
    assert {trial["dim"] for trial in facts["trials"]} == {64}
    assert facts["blend"] == {"skipped": f"EASE has a number for each two of {data.n_items} items"}
    given = {"temperature": 0.2, "popularity": 0.0, "dim": 8}
    facts = tp.Recommender(**QUICK, **given).fit(data).facts_["automatic"]
    assert (facts["trials"], facts["chosen"]) == ([], {})


@pytest.mark.parametrize(
    ("free", "dim"), [(1e12, 512), (2 * 24 * 512 * 210, 512), (2 * 24 * 512 * 210 - 1, 256), (1.0, 64)]
)
def test_the_dimension_on_a_gpu_fits_into_half_of_its_memory(data, free, dim, monkeypatch):
    assert data.n_users + data.n_items == 210
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1e12))
    assert plan.largest_dim(torch.device("cuda"), data.n_users, data.n_items) == dim


@pytest.mark.parametrize(
    ("n_users", "dim"),
    [(210, 256), (480_000, 256), (500_000, 128), (970_000, 128), (1_000_000, 64), (10**7, 64)],
)
def test_the_dimension_on_a_cpu_needs_three_gigabytes_at_most(data, n_users, dim):
    assert plan.largest_dim(torch.device("cpu"), n_users, data.n_items) == dim
    assert dim == 64 or 24 * dim * (n_users + data.n_items) <= 3e9


# --- after a fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("blend", ["ease", "none"])
def test_everything_after_a_fit_uses_what_was_chosen(data, tmp_path, blend):
    fitted = tp.Recommender(**QUICK, blend=blend).fit(data)
    fitted.save(tmp_path / "m")
    loaded = tp.load(tmp_path / "m")
    ids = data.item_ids.ids.to_pylist()
    history = {"user": ["new", "new"], "item": ids[:2]}
    for model in (fitted, loaded):
        guest = model.fold_in(history)
        guest.save(tmp_path / "guest")
        assert tp.load(tmp_path / "guest").recommend(k=3).equals(guest.recommend(k=3))
    assert fitted.similar_items(ids[:3], k=4).equals(loaded.similar_items(ids[:3], k=4))
    assert fitted.similar_users(k=2, users=[data.user_ids.ids[0].as_py()]).equals(
        loaded.similar_users(k=2, users=[data.user_ids.ids[0].as_py()])
    )
    assert fitted.fold_in(history).recommend(k=3).equals(loaded.fold_in(history).recommend(k=3))


# --- the blend -------------------------------------------------------------------------------------------


def test_dense_lists_are_judged_as_validation_judges(data):
    part = hold_out(data, "random", 0.2)
    rng = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 4, generator=rng) for n in (data.n_users, data.n_items))
    judge = Judge.of(part.train, part.valid, "ndcg@10", 0, torch.device("cpu"))
    expected = Validation(part.valid, part.train, "ndcg@10").score(users, items)
    assert judge.per_user(judge.trained_scores(users, items)).mean() == pytest.approx(expected)
    solved = EASE(l2=20.0).solve(part.train)
    expected = Validation(part.valid, part.train, "ndcg@10").score(*solved)
    assert judge.per_user(judge.ease_scores(EASE(l2=20.0), part.train)).mean() == pytest.approx(expected)


def test_lists_with_ties_are_judged_as_validation_judges(data):
    part = hold_out(data, "random", 0.2)
    rng = torch.Generator().manual_seed(0)
    users = torch.ones(data.n_users, 1)
    for items in (torch.zeros(data.n_items, 1), torch.randint(3, (data.n_items, 1), generator=rng).float()):
        for metric in ("ndcg@10", "recall@3", "ndcg@60"):
            judge = Judge.of(part.train, part.valid, metric, 0, torch.device("cpu"))
            expected = Validation(part.valid, part.train, metric).score(users, items)
            assert judge.per_user(judge.trained_scores(users, items)).mean() == pytest.approx(expected)


def blend_of(part, users, items, **limits):
    judge = Judge.of(part.train, part.valid, "ndcg@10", 0, torch.device("cpu"))
    return choose_blend(judge, judge.trained_scores(users, items), part.train, 1.0, **limits)


def test_a_blend_is_chosen_where_it_helps_and_only_there(data):
    part = hold_out(data, "random", 0.2)
    rng = torch.Generator().manual_seed(0)
    found = blend_of(part, *[torch.randn(n, 4, generator=rng) for n in (data.n_users, data.n_items)])
    assert found.ease is not None
    assert found.blended > found.alone
    found = blend_of(part, torch.from_numpy(part.valid.csr().toarray() * 9.0), torch.eye(data.n_items))
    assert found.ease is None


def test_regularisations_are_as_many_as_allowed(data):
    part = hold_out(data, "random", 0.2)
    noise = [torch.zeros(n, 4) for n in (data.n_users, data.n_items)]
    assert len(blend_of(part, *noise).tried) > 3
    assert len(blend_of(part, *noise, most=3).tried) == 3


# --- a budget --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2min", 120), ("1h30min", 5400), (7, 7), ("1.5 h", 5400)]
)
def test_a_budget_is_read(text, seconds):
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "fast", "2min!", "0s", -1, 0, float("nan"), "1d"])
def test_a_budget_that_is_none_is_an_error(text, data):
    with pytest.raises(InputError, match="budget"):
        tp.Recommender(**QUICK).fit(data, budget=text)


def test_a_budget_bounds_the_runs(data, monkeypatch):
    class Late(Stopwatch):
        @property
        def seconds(self):  # every look at the clock takes a second
            self.looks = getattr(self, "looks", 0) + 1
            return float(self.looks)

    monkeypatch.setattr(automatic, "Stopwatch", Late)
    counts = {}
    for budget in (20, 1000):
        model = tp.Recommender(device="cpu", metric="ndcg@10", batch_size=32).fit(data, budget=budget)
        facts = model.facts_["automatic"]
        counts[budget] = len(facts["trials"])
        assert facts["chosen"]["epochs"] >= 1
    assert counts[20] < counts[1000]


def test_a_short_budget_is_kept_whatever_is_given(data):
    for given in ({}, {"temperature": 0.2, "popularity": 0.0}):
        model = tp.Recommender(device="cpu", metric="ndcg@10", **given).fit(data, budget=0.01)
        assert model.model_.parameters_json()["epochs"] < 40
        assert (
            model.model_.parameters_json()["temperature"] == 0.2
        )  # the middle: there was no time to look further


def test_a_budget_without_a_choice_is_an_error(data):
    for other in ({"loss": "bpr"}, {"auto": False}):
        with pytest.raises(InputError, match="budget = 2min has no effect"):
            tp.Recommender(**QUICK, **other).fit(data, budget="2min")


# --- checkpoints -----------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_with_its_settings(data, model, tmp_path, monkeypatch):
    path = tmp_path / "c"
    parameters = {**QUICK, "schedule": "constant"}
    tp.Recommender(**{**parameters, "epochs": 2}).fit(data, checkpoint=path)
    before = json.loads(settings_file(path).read_text())
    monkeypatch.setattr(automatic, "SettingsSearch", lambda *_: pytest.fail("there was a search"))
    resumed = tp.Recommender(**parameters).fit(data, checkpoint=path)
    assert len(resumed.result_.history) == 3
    assert resumed.facts_["automatic"]["chosen"] == before["facts"]["automatic"]["chosen"]


@pytest.mark.parametrize("at", ["a short run", "the full run"])
def test_an_interrupted_search_goes_on_where_it_stopped(data, model, tmp_path, monkeypatch, at):
    judged, judge = [], Validation.__call__
    n_trials = len(model.facts_["automatic"]["trials"])
    interrupted = 2 if at == "a short run" else n_trials  # each is judged once, the full one after all

    def stopped(validation, state):
        judged.append(state.epoch)
        if len(judged) == interrupted:
            raise KeyboardInterrupt
        return judge(validation, state)

    path = tmp_path / "c"
    monkeypatch.setattr(Validation, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        tp.Recommender(**QUICK).fit(data, checkpoint=path)
    assert len(json.loads(settings_file(path).read_text())["runs"]) == interrupted - 1
    assert path.with_name("c.search").exists() == (at == "the full run")
    found = tp.Recommender(**QUICK).fit(data, checkpoint=path)
    assert same(found, model)
    trials = [
        [{**trial, "seconds": 0} for trial in each.facts_["automatic"]["trials"]] for each in (found, model)
    ]
    assert trials[0] == trials[1]
    assert len(judged) == n_trials + 1  # the interrupted run again
    assert sorted(each.name for each in tmp_path.iterdir()) == ["c", "c.settings"]


def test_ranks_keep_no_short_runs(data, tmp_path):
    """They could read different ones; the settings are kept all the same."""
    found = tp.Recommender(**QUICK, engine="distributed").fit(data, checkpoint=tmp_path / "c")
    kept = json.loads(settings_file(tmp_path / "c").read_text())
    assert set(kept) == {"key", "facts"}
    assert found.facts_["automatic"]["chosen"] == kept["facts"]["automatic"]["chosen"]


def test_an_interrupted_full_run_of_a_budget_goes_on(data, tmp_path, monkeypatch):
    path, judge, states = tmp_path / "c", Validation.__call__, []

    def stopped(validation, state):
        states.append(state.epoch)
        if state.epoch == 20:  # of the full run
            raise KeyboardInterrupt
        return judge(validation, state)

    parameters = {"device": "cpu", "metric": "ndcg@10"}
    with monkeypatch.context() as patch:
        patch.setattr(Validation, "__call__", stopped)
        with pytest.raises(KeyboardInterrupt):
            tp.Recommender(**parameters).fit(data, budget=600, checkpoint=path)
    full = json.loads(settings_file(path).read_text())["full"]
    assert full[2:] == [256, 40]
    begun = states[-1]
    states.clear()
    with monkeypatch.context() as patch:  # a clock that would choose a shorter one
        patch.setattr(plan.SettingsSearch, "_full", lambda *_: pytest.fail("it was chosen again"))
        patch.setattr(Validation, "__call__", lambda *given: states.append(given[1].epoch) or judge(*given))
        tp.Recommender(**parameters).fit(data, budget=600, checkpoint=path)
    assert begun == 20
    assert states[0] >= 15  # no short run, and the full one goes on


RUN = '{"number": 0, "parameters": {}, "score": 0.5, "epoch": 1, "state": "complete"}'


@pytest.mark.parametrize(
    "runs",
    ["[[]]", '[[[1, 2], "x"]]', "3", f'[[["a", 0.8, 64, 3], {RUN}]]', f"[[[4, 0.8, 64, 1], {RUN}]]"],
)
def test_short_runs_that_cannot_be_read_are_run_again(data, model, tmp_path, runs):
    tp.Recommender(**QUICK).fit(data, checkpoint=tmp_path / "c")
    file = settings_file(tmp_path / "c")
    (tmp_path / "c").unlink()
    file.write_text(json.dumps({"key": json.loads(file.read_text())["key"]})[:-1] + f', "runs": {runs}}}')
    assert same(tp.Recommender(**QUICK).fit(data, checkpoint=tmp_path / "c"), model)


def test_settings_of_another_run_are_not_lost(data, tmp_path):
    tp.Recommender(**QUICK).fit(data, checkpoint=tmp_path / "c")
    before = settings_file(tmp_path / "c").read_text()
    with pytest.raises(
        tp.errors.StorageError, match=r"c\.settings is of a run with other data or parameters"
    ):
        tp.Recommender(**QUICK, seed=1).fit(data, checkpoint=tmp_path / "c")
    assert settings_file(tmp_path / "c").read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"key": 1}', '{"key": "x", "facts": {}}', "[" * 100_000,
        '{"key": "x", "facts": {"automatic": {"chosen": {"dim": "wide"}}}}',
        '{"key": "x", "facts": {"automatic": {"chosen": {"width": 3}}}}',
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_chosen_anew(data, model, tmp_path, text):
    settings_file(tmp_path / "c").write_text(text)
    found = tp.Recommender(**QUICK).fit(data, checkpoint=tmp_path / "c")
    assert same(found, model)
    assert json.loads(settings_file(tmp_path / "c").read_text())["key"]
