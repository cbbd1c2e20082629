"""Models with a trend: chosen by the future, saved, updated, listed at a moment, for every encoder."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import truepair as tp
from truepair.data.interactions import Interactions
from truepair.errors import InputError, StorageError
from truepair.evaluation import Validation
from truepair.models.trend import Trend
from truepair.recommender.fitting import end_of
from truepair.recommender.lists import ListOptions

QUICK = {"epochs": 4, "batch_size": 64}
WEEK = 604_800


@pytest.fixture(scope="module")
def world():
    return tp.simulate_drift(400, 150, periods=8, pairs=25, drift=0.2, lifetime=2.0, seed=1)


@pytest.fixture(scope="module")
def chosen(world):
    return tp.Recommender(**QUICK).fit(world)


TREND = Trend(("2d", "10d"), (0.5, 1.0), 0.2)
LATELY = dataclasses.replace(TREND, own=2.0, own_half_life=3)
FORMS = [{"encoder": "ease"}, {"encoder": "itemknn"}, {"dim": 8, "auto": False, **QUICK}]
BLEND = {"dim": 8, "auto": False, "blend": "ease", "popularity": 0.5, **QUICK}


def rows(table):
    return table.to_pydict()


def test_a_world_whose_items_fade_gets_a_trend(chosen):
    facts = chosen.facts_["automatic"]
    assert facts["hold out"].startswith("temporal(")
    assert facts["trend"]["with trend"] > facts["trend"]["alone"]
    assert facts["trend"]["twice as popular lately"].endswith("times as likely")
    assert chosen.spec_.trend is not None
    assert "trend=Trend(" in facts["repeat"]


def test_the_call_that_repeats_a_fit_gives_the_same_lists(world, chosen):
    names = {"Recommender": tp.Recommender, "EASE": tp.EASE, "Trend": Trend}
    again = eval(chosen.facts_["automatic"]["repeat"], names)
    assert again.fit(world).recommend(k=5).equals(chosen.recommend(k=5))


def test_a_random_hold_out_knows_no_future(world):
    model = tp.Recommender(**QUICK).fit(tp.split_random(world, test=0.2, seed=1))
    assert model.spec_.trend is None
    assert model.facts_["automatic"]["trend"] is None


def test_data_without_times_have_no_trend(world):
    plain = Interactions(world.users, world.items, world.user_ids, world.item_ids)
    model = tp.Recommender(**QUICK).fit(plain)
    assert model.spec_.trend is None
    with pytest.raises(InputError, match="needs the time of each pair"):
        tp.Recommender(encoder="ease", trend=TREND).fit(plain)


@pytest.mark.parametrize("form", [*FORMS, BLEND], ids=["ease", "itemknn", "mf", "blend"])
def test_scores_are_those_without_a_trend_and_its_term(world, form):
    plain, model = tp.Recommender(**form).fit(world), tp.Recommender(**form, trend=TREND).fit(world)
    with_trend, without = model.model_.scorer, plain.model_.scorer
    users, items = np.repeat(np.arange(5), 150)[: 5 * world.n_items], np.tile(np.arange(world.n_items), 5)
    users = np.repeat(np.arange(5), world.n_items)
    term = TREND.term(model.model_.recent)
    expected = without.scores(users, items) + term[items]
    np.testing.assert_allclose(with_trend.scores(users, items), expected, rtol=1e-4, atol=1e-4)
    listed = model.recommend(k=10)
    order = np.argsort(-expected[: world.n_items], kind="stable")
    new = [item for item in order if item not in set(world.items[world.users == 0])]
    own = [row["item"] for row in listed.to_pylist() if row["user"] == world.user_ids.ids[0].as_py()]
    assert own == world.item_ids.outside(np.array(new[:10])).to_pylist()


@pytest.mark.parametrize("form", [*FORMS, BLEND], ids=["ease", "itemknn", "mf", "blend"])
def test_a_saved_model_lists_alike_at_any_moment(world, form, tmp_path):
    model = tp.Recommender(**form, trend=TREND).fit(world)
    model.save(tmp_path / "model")
    loaded, later = tp.load(tmp_path / "model"), end_of(world) + 3 * WEEK
    for at in (None, later):
        assert loaded.recommend(k=5, at=at).equals(model.recommend(k=5, at=at))
    assert loaded.spec_.trend == TREND
    history = {"user": ["new"] * 3, "item": world.item_ids.ids[:3].to_pylist()}
    assert loaded.fold_in(history).recommend(k=5).equals(model.fold_in(history).recommend(k=5))


def test_new_users_are_encoded_without_the_trend(world):
    plain, model = tp.Recommender(**FORMS[2]).fit(world), tp.Recommender(**FORMS[2], trend=TREND).fit(world)
    history = {"user": ["new"] * 3, "item": world.item_ids.ids[:3].to_pylist()}
    vectors = [one.fold_in(history).model_.scorer.users for one in (plain, model)]
    assert torch.equal(*vectors)


def test_what_was_popular_fades(world):
    model = tp.Recommender(encoder="ease", trend=Trend(("2d",), (3.0,))).fit(world)
    far = model.model_.at(end_of(world) + 500 * WEEK)
    assert np.abs(far.scorer.trend.numpy()).max() < 1e-3 < np.abs(model.model_.scorer.trend.numpy()).max()
    assert rows(model.recommend(k=5)) != rows(model.recommend(k=5, at=end_of(world) + 500 * WEEK))


def test_a_moment_before_the_last_event_is_an_error(world):
    model = tp.Recommender(encoder="ease", trend=TREND).fit(world)
    with pytest.raises(InputError, match="before the last event"):
        model.recommend(k=5, at="2024-01-02")
    with pytest.raises(InputError, match="is no time"):
        model.recommend(k=5, at="soon")
    with pytest.raises(InputError, match="the model has no trend"):
        tp.Recommender(encoder="ease").fit(world).recommend(k=5, at="2034-01-02")


def test_users_without_a_row_get_what_is_popular_now(world):
    model = tp.Recommender(encoder="ease", trend=Trend(("2d",), (3.0,), 1.0)).fit(world)
    best = np.argsort(-model.model_.scorer.trend.numpy(), kind="stable")[:5]
    listed = model.recommend(["nobody"], k=5, unknown="popular")
    assert listed.column("item").to_pylist() == world.item_ids.outside(best).to_pylist()
    shares = listed.column("score").to_numpy()
    assert (shares > 0).all()
    assert shares.sum() < 1


def test_an_update_moves_the_trend_on(world):
    cut = np.sort(world.time)[-len(world) // 8]
    model = tp.Recommender(encoder="ease", trend=TREND).fit(world.take(world.time < cut).k_core(1))
    model.update(world.take(world.time >= cut).k_core(1))
    whole = tp.Recommender(encoder="ease", trend=TREND).fit(world)
    assert model.model_.recent.moment == whole.model_.recent.moment
    np.testing.assert_allclose(model.model_.recent.faded, whole.model_.recent.faded, rtol=1e-9)
    np.testing.assert_allclose(model.model_.scorer.trend, whole.model_.scorer.trend, rtol=1e-4, atol=1e-5)


def test_who_leaves_takes_a_share_of_the_counts(world):
    model = tp.Recommender(encoder="ease", trend=TREND).fit(world)
    before = model.model_.recent.total.copy()
    gone = world.user_ids.ids[:100].to_pylist()
    model.forget(users=gone)
    kept = world.take(world.users >= 100)
    np.testing.assert_allclose(model.model_.recent.total[kept.item_counts > 0].sum(), len(kept))
    assert before.sum() == len(world)
    model.forget(items=world.item_ids.ids[:2].to_pylist())
    assert len(model.model_.recent.total) == model.seen_.n_items


def test_reasons_add_up_with_a_trend(world):
    model = tp.Recommender(**BLEND, trend=TREND).fit(world)
    table = model.recommend(k=3, explain=100).to_pylist()
    for row in table[:30]:
        weights = sum(reason["weight"] for reason in row["because"])
        assert weights + row["rest"] + row["popularity"] == pytest.approx(row["score"], abs=1e-3)


def test_broken_counts_are_refused(world, tmp_path):
    model = tp.Recommender(encoder="ease", trend=TREND).fit(world)
    recent = model.model_.recent
    for broken in (recent._replace(total=-recent.total), recent._replace(lengths=(1.0,))):
        model.model_ = dataclasses.replace(model.model_, recent=broken)
        model.save(tmp_path / "model")
        with pytest.raises(StorageError):
            tp.load(tmp_path / "model")


def test_a_trend_of_a_position_is_an_error():
    table = {"user": [1, 1, 2, 2], "item": [1, 2, 1, 3], "time": [1, 2, 1, 2]}
    ordered = tp.read_interactions(table)
    ordered = dataclasses.replace(ordered, time_kind="order")
    with pytest.raises(InputError, match="places in histories"):
        tp.Recommender(encoder="ease", trend=Trend((1.0,), (1.0,))).fit(ordered)


def test_options_of_lists_know_the_moment():
    assert ListOptions(at=5).at == 5


# --- what a user did lately ------------------------------------------------------------------------------


def test_a_world_whose_tastes_move_gets_what_users_did_lately():
    moving = tp.simulate_drift(400, 150, periods=8, pairs=25, drift=0.6, lifetime=50.0, new_items=0.0, seed=2)
    assert tp.Recommender(**QUICK).fit(moving).spec_.trend.own > 0


def test_vectors_have_what_users_did_lately(world):
    plain, model = (tp.Recommender(**FORMS[2], trend=trend).fit(world) for trend in (TREND, LATELY))
    expected = plain.model_.scorer.users + LATELY.own_part(plain.model_.scorer.items, world.log)
    torch.testing.assert_close(model.model_.scorer.users, expected)
    assert not torch.allclose(model.model_.scorer.users, plain.model_.scorer.users, atol=0.1)


def test_the_order_of_a_history_decides_lists(world):
    model = tp.Recommender(**FORMS[2], trend=LATELY).fit(world)
    items = world.item_ids.ids[:8].to_pylist()
    table = {"user": ["new"] * 8, "item": items, "time": list(range(8))}
    lists = [model.fold_in({**table, "item": order}).recommend(k=5) for order in (items, items[::-1])]
    assert rows(lists[0]) != rows(lists[1])


def test_updates_go_on_from_trained_vectors(world, tmp_path):
    cut = np.sort(world.time)[-len(world) // 8]
    before, after = (world.take(rows).k_core(1) for rows in (world.time < cut, world.time >= cut))
    for updatable in (True, False):
        plain, model = (tp.Recommender(**FORMS[2], trend=trend).fit(before) for trend in (TREND, LATELY))
        plain.save(tmp_path / "plain", updatable=updatable)
        model.save(tmp_path / "model", updatable=updatable)
        plain, model = (tp.load(tmp_path / name).update(after, epochs=1) for name in ("plain", "model"))
        own = LATELY.own_part(model.model_.scorer.items, model.seen_.log)
        torch.testing.assert_close(model.model_.scorer.items, plain.model_.scorer.items, rtol=1e-3, atol=1e-3)
        expected = plain.model_.scorer.users + own
        torch.testing.assert_close(model.model_.scorer.users, expected, rtol=1e-3, atol=1e-2)


def test_a_closed_form_has_no_vectors_for_what_users_did_lately(world):
    with pytest.raises(InputError, match=r"trend.own = 2.0 has no effect"):
        tp.Recommender(encoder="ease", trend=LATELY).fit(world)


@pytest.mark.parametrize("encoder", ["ease", "itemknn"])
def test_a_trend_changes_no_similarity(world, encoder):
    plain, trending = (
        tp.Recommender(encoder=encoder, trend=trend).fit(world) for trend in ("none", Trend(("2d",), (1.0,)))
    )
    items, users = (ids.ids[:5] for ids in (world.item_ids, world.user_ids))
    assert trending.similar_items(items, k=7).equals(plain.similar_items(items, k=7))
    assert trending.similar_users(users, k=7).equals(plain.similar_users(users, k=7))


# --- popularity with a half-life ---------------------------------------------------------------------------


def test_popularity_with_a_half_life_is_that_of_faded_events(world):
    model = tp.Recommender(encoder=tp.Popular("4d")).fit(world)
    age = (end_of(world) - world.time) / (4 * 86_400)
    faded = np.bincount(world.items, np.exp2(-age), minlength=world.n_items)
    shares = world.item_counts + 0.5
    expected = faded + 20 * shares / shares.sum()
    found = np.exp(model.model_.scorer.scores(np.zeros(world.n_items, int), np.arange(world.n_items)))
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), rtol=1e-4)
    again = eval(model.spec_.call(), {"Recommender": tp.Recommender, "Popular": tp.Popular})
    assert again.fit(world).recommend(k=5).equals(model.recommend(k=5))


def test_the_best_half_life_is_chosen_before_the_end(world):
    model = tp.Recommender(encoder=tp.Popular("auto"), metric="ndcg@5").fit(world)
    facts = model.facts_["automatic"]
    assert model.spec_.encoder.half_life == facts["chosen"]["half_life"] in ("1d", "2d", "4d", "8d")
    part = tp.split_temporal(world, test=0.1)
    scores = {
        one: tp.Recommender(encoder=tp.Popular(one)).fit(part).evaluate(part, ks=(5,), cold="separate")
        for one in ("1d", "2d", "4d", "8d", "16d")
    }
    best = max(scores, key=lambda one: scores[one].mean("ndcg@5"))
    assert best == model.spec_.encoder.half_life


def test_a_half_life_needs_times_and_sense(world):
    plain = Interactions(world.users, world.items, world.user_ids, world.item_ids)
    for half_life in ("7d", "auto"):
        with pytest.raises(InputError, match="needs the time of each pair"):
            tp.Recommender(encoder=tp.Popular(half_life)).fit(plain)
    with pytest.raises(InputError, match="'soon' is not a duration"):
        tp.Popular("soon")
    with pytest.raises(InputError, match="has its own"):
        _ = tp.Recommender(encoder=tp.Popular("7d"), trend=TREND).spec


def test_too_few_users_get_what_is_popular_of_all_time():
    few = tp.simulate_drift(40, 30, periods=4, pairs=20, seed=1)
    model = tp.Recommender(encoder=tp.Popular("auto")).fit(few)
    assert "too few" in model.facts_["automatic"]["skipped"]
    assert model.recommend(k=3).equals(tp.Recommender(encoder="popular").fit(few).recommend(k=3))


@pytest.mark.parametrize("times", ["one moment", "new users only"])
def test_times_that_cannot_judge_give_what_is_popular_of_all_time(times):
    users, items = np.divmod(np.arange(2000), 10)
    time = np.full(2000, 1_700_000_000) if times == "one moment" else 1_700_000_000 + 1000 * users
    data = tp.read_interactions({"user": users, "item": items * 7 % 23, "time": time})
    model = tp.Recommender(encoder=tp.Popular("auto"), metric="ndcg@5").fit(data)
    assert model.spec_.encoder == tp.Popular()
    assert model.facts_["automatic"]["skipped"]


# --- what users without history get, and the model without its trend --------------------------------------


def test_new_users_have_weights_of_their_own(world):
    trend = dataclasses.replace(TREND, new_users=(1.0, 0.0, 0.0))
    model = tp.Recommender(encoder="ease", trend=trend).fit(world)
    assert [row["item"] for row in model.recommend(["nobody"], k=5, unknown="popular").to_pylist()] == [
        row["item"]
        for row in tp.Recommender(encoder="popular")
        .fit(world)
        .recommend(["nobody"], k=5, unknown="popular")
        .to_pylist()
    ]


def test_new_users_of_a_world_whose_items_fade_get_recent_items(chosen):
    popularity, *recent = chosen.spec_.trend.new_users
    assert popularity > 0.5
    assert sum(recent) > 0.1


def test_a_timeless_model_is_that_without_a_trend(world):
    plain, model = (tp.Recommender(**FORMS[2], trend=trend).fit(world) for trend in ("none", LATELY))
    timeless = model.model_.timeless()
    assert timeless.spec == plain.spec_
    torch.testing.assert_close(timeless.scorer.users, plain.model_.scorer.users, rtol=1e-4, atol=1e-4)
    assert timeless.appeal is timeless.popularity
    assert timeless.timeless() is timeless


def test_vectors_know_what_was_held_out_once_it_has_judged(world):
    split = tp.split_temporal(world, test=0.1, valid=0.1)
    plain, model = (tp.Recommender(**FORMS[2], trend=trend).fit(split) for trend in (TREND, LATELY))
    items, known = plain.model_.scorer.items, model.seen_.log
    assert len(known) == len(split.train) + len(split.valid)
    expected = plain.model_.scorer.users + LATELY.own_part(items, known)
    torch.testing.assert_close(model.model_.scorer.users, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        model.model_.timeless().scorer.users, plain.model_.scorer.users, rtol=1e-4, atol=1e-4
    )
    judged = model.check_unseen(split, "valid").model_.scorer.users
    expected = plain.model_.scorer.users + LATELY.own_part(items, split.train.log)
    torch.testing.assert_close(judged, expected, rtol=1e-4, atol=1e-4)


# --- nothing of the future --------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.1, 0.3]))
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
def test_what_comes_after_a_cut_changes_no_list(world, seed, share):
    """Later events are shuffled among users, items and times: settings, trend and lists stay the same."""
    cut = np.sort(world.time)[-int(share * len(world))]
    later = world.time >= cut
    rng, table = np.random.default_rng(seed), world.to_table().to_pandas()
    for column in ("user", "item", "time"):
        table.loc[later, column] = rng.permutation(table.loc[later, column].to_numpy())
    lists = []
    for data in (world, tp.read_interactions(table.to_dict("list"))):
        split = tp.split_temporal(data, at=int(cut))
        model = tp.Recommender(epochs=1, metric="ndcg@5").fit(split)
        assert model.spec_.trend is None or model.model_.recent.moment <= cut
        users = split.train.user_ids.ids[:5].to_pylist()
        lists.append(model.recommend(users, k=5, at=int(cut) + WEEK))
    assert lists[0].equals(lists[1])


def test_tuning_for_the_future_says_what_is_popular_lately(world):
    pytest.importorskip("optuna")
    from truepair.reporting.tuning import in_words

    parts = tp.split_temporal(world, test=0.1, valid=0.1)
    space = {"temperature": tp.Range(0.1, 0.4)}
    found = tp.tune(parts, trials=2, space=space, auto=False, metric="ndcg@5", **QUICK)
    popular = tp.Recommender(encoder=tp.Popular("auto"), metric="ndcg@5").fit(parts)
    lately = Validation(parts.valid, parts.train, "ndcg@5").score(*popular.matrices())
    assert found.lately == pytest.approx(lately)
    assert f"What is popular lately, with the best half-life, has ndcg@5 {found.lately:.4f}." in in_words(
        found, "ndcg@5"
    )
    random = tp.tune(tp.split_random(world, test=0.1, valid=0.1), trials=1, space=space, auto=False, **QUICK)
    assert random.lately is None
