"""A candidate learns from the store, is judged on what neither model knows, and takes over if not worse."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats

import truepair as tp
from retraining_worlds import KINDS, N_ITEMS, N_USERS, Shop
from services import integer
from truepair.errors import InputError, StorageError
from truepair.evaluation.statistics import sign_flip_test
from truepair.recommender.estimator import Recommender
from truepair.serving.events.event import Kinds
from truepair.serving.events.store import EventReader
from truepair.serving.id_texts import IdTexts
from truepair.serving.lists.histories import UserHistories
from truepair.serving.retraining import rounds
from truepair.serving.retraining.decisions import Decision
from truepair.serving.retraining.judging import MOST_USERS, judged, loss_test, verdict
from truepair.serving.retraining.rounds import check_retrainable, retrain
from truepair.serving.retraining.training_data import split_events
from truepair.serving.retraining.versions import Versions


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def divided(shop, until=0, judged=0, kinds=KINDS):
    reader = EventReader(shop.store_path)
    return split_events(shop.model.seen_, reader.table(), Kinds(kinds), until, judged)


def pairs(interactions):
    table = interactions.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


# --- what is learnt, what judges -----------------------------------------------------------------------


def test_the_newest_fifth_judges_and_the_rest_is_learnt(shop):
    visits = [(f"u{u}", f"x{n}") for n in range(5) for u in range(20)]
    shop.add(visits)
    found = divided(shop)
    assert pairs(found.learnt) == set(visits[:80])
    assert pairs(found.judging) == set(visits[80:])
    assert (found.cut, found.last, found.events, found.new_events, found.judged_events) == (
        80,
        100,
        100,
        100,
        20,
    )
    assert pairs(found.known) == pairs(shop.model.seen_) | set(visits[:80])
    assert found.new_pairs == 80
    later = divided(shop, until=80)
    assert (later.new_events, later.judged_events, later.cut) == (20, 4, 96)
    assert pairs(later.learnt) == set(visits[:96])


def test_an_event_judges_once(shop):
    visits = [(f"u{u}", f"x{n}") for n in range(5) for u in range(20)]
    shop.add(visits)
    found = divided(shop, judged=100)
    assert found.judging is None
    assert pairs(found.learnt) == set(visits)
    assert pairs(divided(shop, judged=90).judging) == set(visits[90:])


def test_what_was_known_before_does_not_judge(shop, monkeypatch):
    monkeypatch.setattr("truepair.serving.retraining.training_data.JUDGED", 1.0)
    known = ("u0", f"i{shop.likes[0][0]}")
    shop.add([("u1", "x1"), ("u2", "x2", "dislike"), ("u3", "x3"), ("u4", "x4"), ("u5", "x5"), ("u6", "x6"),
              ("u7", "x7"), ("u8", "x8")])  # fmt: skip
    shop.add([known, ("u1", "x1"), ("u2", "x2"), ("u3", "x9"), ("u3", "x9", "dislike"), ("u4", "x9")])
    found = divided(shop, until=8, judged=8)
    assert found.judged_events == 6
    assert pairs(found.judging) == {("u4", "x9")}


def test_what_is_learnt_is_what_the_service_counts(shop):
    """With a model that has learnt them, the events fold nobody in."""
    kinds = {"view": 1.0, "buy": 10.0, "hide": -1.0, "look": 0.0}
    has = [f"i{i}" for i in shop.likes[0][:4]]
    rows = [(has[0], "view"), (has[1], "hide"), ("x1", "view", 0.1), ("x1", "buy", 3.0), ("x1", "view", 0.2),
            ("x2", "hide"), ("x2", "view", 0.3), ("x3", "buy"), ("x3", "hide"), ("x4", "look"),
            ("x4", "gone")]  # fmt: skip
    shop.add([("u0", *row) for row in rows])
    shop.add([("new", "x1", "hide"), ("new", "x5", "buy", 0.7), ("u1", "x6", "view")])
    found = divided(shop, judged=10**6, kinds=kinds)
    assert found.new_events == 12
    for learnt in (
        shop.model.update(found.learnt, epochs=0),
        tp.Recommender(dim=4, epochs=1, auto=False).fit(found.known),
    ):
        people = histories(learnt, shop, kinds)
        assert people.of(["u0", "new", "u1"]) == [None] * 3
        assert people.history(learnt.seen_.user_ids.find(["u0"])[0]) == {
            code(learnt, item): weight
            for item, weight in {has[0]: 1.0, has[1]: -1.0, has[2]: 1.0, has[3]: 1.0, "x1": 30.0, "x2": 0.3,
                                 "x3": -1.0}.items()
        }  # fmt: skip


def test_the_stronger_of_a_known_pair_and_an_event_counts(shop):
    seen = tp.read_interactions({"user": ["a", "a"], "item": ["x", "y"], "weight": [5.0, 5.0]})
    shop.add([("a", "x", "like", 2.0), ("a", "y", "like", 7.0), ("a", "z", "like", 3.0)])
    found = split_events(seen, EventReader(shop.store_path).table(), Kinds(), 0, 3)
    assert found.known.weight.tolist() == [5.0, 7.0, 3.0]


def histories(learnt, shop, kinds):
    users, items = (IdTexts.of(ids, "id") for ids in (learnt.seen_.user_ids, learnt.seen_.item_ids))
    people = UserHistories(learnt.model_, users, items, Kinds(kinds))
    people.reader = EventReader(shop.store_path)
    return people


def code(learnt, item):
    return int(learnt.seen_.item_ids.find([item])[0])


def test_ids_that_the_model_cannot_have_are_left_out(tmp_path):
    shop = Shop(tmp_path, name=integer)
    shop.add([(1, 3000), ("ann", 3), (2, "tea"), (3, "+5"), (4, "007"), (-5, 4000), (10**19, 7)])
    found = divided(shop, judged=10**6)
    assert pairs(found.learnt) == {(1, 3000), (-5, 4000)}
    assert found.events == 7
    assert found.new_events == 2


@pytest.mark.parametrize(
    "rows", [[], [("u1", "x", "dislike")], [("u1", "x"), ("u1", "x", "dislike")], [("u1", "x", "gone")]]
)
def test_without_a_like_there_is_nothing_to_learn(shop, rows):
    shop.add(rows)
    found = divided(shop, judged=10**6)
    assert (found.learnt, found.judging, found.new_pairs) == (None, None, 0)
    assert found.known is shop.model.seen_


# --- judging ---------------------------------------------------------------------------------------------


def test_models_are_judged_as_they_are_served(shop):
    """The lists of a model for the judged people are those of `fold_in` with what they did until the cut."""
    for n in range(3):  # items that the model knows
        for u, likes in shop.likes.items():
            others = [i for i in range(u % 3, N_ITEMS, 3) if i not in likes]
            shop.add([(f"u{u}", f"i{others[n]}")])
    found = divided(shop)
    new = Recommender.load(shop.path).update(found.learnt)
    judgement = judged(new, shop.model, shop.model, found, Kinds(KINDS), "ndcg@5")
    target = found.judging
    for evaluation, model in ((judgement.running, shop.model), (judgement.candidate, new)):
        people = target.user_ids.outside(np.flatnonzero(target.user_counts)).to_pylist()
        assert evaluation.n_users == len(people)
        expected = [ndcg(model, found, user, target) for user in people]
        assert evaluation.mean("ndcg@5") == pytest.approx(np.mean(expected), abs=1e-6)
    assert judgement.best is judgement.running


def ndcg(model, found, user, target, k=5):
    """By hand, from the public interface."""
    known = {item for one, item in pairs(found.known) if one == user}
    history = [item for item in known if item in model.seen_.item_ids.ids.to_pylist()]
    trained = {item for one, item in pairs(model.seen_) if one == user}
    if trained == set(history) and trained:
        listed = model.recommend([user], k=k)["item"].to_pylist()
    elif history:
        listed = (
            model.fold_in({"user": [user] * len(history), "item": history})
            .recommend([user], k=k)["item"]
            .to_pylist()
        )
    else:
        listed = model.recommend([user], k=k, unknown="popular")["item"].to_pylist()
    wanted = {item for one, item in pairs(target) if one == user}
    gains = [(item in wanted) / np.log2(rank + 1) for rank, item in enumerate(listed, 1)]
    return sum(gains) / sum(1 / np.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))


def test_of_very_many_people_some_are_drawn(shop, monkeypatch):
    shop.add_visits(4, 6)
    found = divided(shop)
    monkeypatch.setattr("truepair.serving.retraining.judging.MOST_USERS", 10)
    assert MOST_USERS > 10
    first, again = (judged(*[shop.model] * 3, found, Kinds(KINDS), "ndcg@5") for _ in range(2))
    assert first.candidate.n_users == 10
    assert (first.candidate.users == again.candidate.users).all()
    assert (first.candidate.values("ndcg@5") == first.running.values("ndcg@5")).all()


# --- the guard -------------------------------------------------------------------------------------------


def test_the_loss_is_tested_by_users_in_pairs():
    """By hand: d = candidate - .9 former, a t-test of its mean, and the users that a normal d needs."""
    former, candidate = np.array([0.5, 0.3, 0.4, 0.8]), np.array([0.5, 0.4, 0.2, 0.8])
    kept = candidate - 0.9 * former
    found = loss_test(candidate, former, 0.1)
    assert found.p == pytest.approx(stats.ttest_1samp(kept, 0, alternative="greater").pvalue)
    root = (stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) * kept.std(ddof=1) / (0.1 * former.mean())
    assert found.needed == np.ceil(root**2)
    assert loss_test(candidate, former, 0.0).needed == MOST_USERS
    zeros = np.zeros(4)
    assert loss_test(zeros, zeros, 0.02) == (0.5, MOST_USERS)
    assert loss_test(zeros + 1, zeros + 1, 0.02) == (0.0, 0)
    assert loss_test(zeros, zeros + 1, 0.02)[0] == 1.0


def outcomes(change, users, margin=0.02, best=1.0, samples=400):
    """How often a candidate is promoted, refused or waits; scores of users differ by half of their mean."""
    found = []
    for seed in range(samples):
        rng = np.random.default_rng([users, seed])
        served, new, top = rng.normal(1, 0.5 / np.sqrt(2), (3, users))
        tests = [
            loss_test((1 + change) * new, old, margin) for old in (served, best * top)[: 1 + (best != 1)]
        ]
        found.append(verdict(tests, users))
    return {name: found.count(name) / samples for name in ("promoted", "refused", "waited")}


def test_with_few_users_a_worse_candidate_waits_or_is_refused():
    for change, users in [(-0.1, 30), (-0.1, 300), (-0.02, 300), (-0.9, 30)]:
        assert outcomes(change, users)["promoted"] <= 0.01
    assert outcomes(0.0, 100)["waited"] >= 0.95
    assert outcomes(-0.9, 100)["refused"] >= 0.95
    assert outcomes(0.5, 100)["promoted"] >= 0.95


def test_with_enough_users_the_margin_decides():
    enough = 4200  # (2.486 * .5 / .02)² = 3,864
    assert outcomes(-0.02, enough)["promoted"] <= 0.08  # .05 but for chance
    assert outcomes(0.0, enough)["promoted"] >= 0.75  # .8 or more but for chance
    assert outcomes(0.0, enough)["waited"] == 0
    assert outcomes(-0.1, enough)["refused"] == 1
    assert outcomes(-0.02, 700, margin=0.05)["promoted"] > outcomes(-0.02, 700)["promoted"]
    assert outcomes(0.0, enough, best=1.05)["promoted"] <= 0.01  # 5% below the best former model


def test_an_untrained_candidate_is_not_promoted_by_30_users():
    """Real models and lists: without a margin, most of these 24 candidates took over."""
    n, promoted, before = 30, 0, 0
    world = tp.simulate_world(320, 60, tau=0.2, density=0.1, seed=1)
    split = tp.split_random(world.observed, test=0.3, seed=0)
    served = tp.Recommender(dim=8, epochs=10, auto=False).fit(split.train).evaluate(split).values("ndcg@20")
    for seed in range(3):
        new = tp.Recommender(dim=8, epochs=1, learning_rate=1e-9, auto=False, seed=seed).fit(split.train)
        values = new.evaluate(split).values("ndcg@20")
        for start in range(0, 8 * n, n):
            rows = slice(start, start + n)
            difference = values[rows] - served[rows]
            before += difference.mean() > 0 or sign_flip_test(difference) >= 0.05
            promoted += verdict([loss_test(values[rows], served[rows], 0.02)], n) == "promoted"
    assert (before > 12, promoted) == (True, 0)


def test_small_losses_do_not_add_up(shop, monkeypatch):
    """A candidate as good as the served model does not take over if both are worse than a former one."""
    shop.add_visits()
    assert retrain(shop.plan()).decision == "promoted"
    versions = Versions(shop.path)
    state, data = versions.state(), divided(shop, judged=10**6)
    assert state.best == 1
    bad(shop.model, data).save(versions.path(2))
    assert versions.promote(2, state.until[1], state.judged, Decision("promoted", "", 2), state, False)
    shop.add_visits(8, 11)
    monkeypatch.setattr(rounds._Round, "_trained", lambda self, running, data: ("fit", running))
    decision = retrain(shop.plan())
    assert (decision.decision, decision.best, decision.against) == ("refused", 1, 2)
    assert decision.candidate == decision.running
    assert decision.best_score["mean"] > decision.running["mean"]
    assert "the best one (version 1) 0." in decision.reason


def test_a_candidate_that_waits_is_judged_again_with_more_users(shop, monkeypatch):
    monkeypatch.setattr(rounds._Round, "_trained", lambda self, running, data: ("fit", running))
    shop.add_visits()
    first = retrain(shop.plan(margin=0.0))  # no better than the served model
    assert (first.decision, first.needed, first.by) == ("waited", MOST_USERS, "fit")
    assert first.reason.startswith("88 users have judged, and 20,000 are needed: ndcg@20 ")
    assert Versions(shop.path).state().judged == 0
    shop.add_visits(8, 9)
    assert retrain(shop.plan(margin=0.0)).judged_events == 110


# --- decisions -------------------------------------------------------------------------------------------


def test_a_better_candidate_is_promoted_with_new_people_and_items(shop):
    shop.add_visits()
    content = shop.path.read_bytes()
    decision = retrain(shop.plan())
    assert decision.decision == "promoted", decision
    assert decision.difference["mean"] > 0
    assert decision.people >= 30
    assert (decision.version, decision.against, decision.by) == (1, 0, "fit")
    n = 4 * (N_USERS + 20)
    assert (decision.events, decision.new_events, decision.judged_events) == (n, n, n // 5)
    for numbers in (decision.candidate, decision.running, decision.difference):
        assert numbers["low"] <= numbers["mean"] <= numbers["high"]
    state = Versions(shop.path).open()
    assert (state.current, state.until[1], state.judged) == (1, n - n // 5, n)
    served = Recommender.load(Versions(shop.path).path(1))
    assert set(served.seen_.user_ids.ids.to_pylist()) > set(shop.model.seen_.user_ids.ids.to_pylist())
    assert Versions(shop.path).log.newest(5) == [decision.as_json()]
    assert shop.path.read_bytes() == content  # the model file is never changed


def test_the_next_candidate_goes_on_from_the_promoted_one(shop):
    shop.add_visits()
    retrain(shop.plan())
    shop.add_visits(8, 9, users=range(40))
    second = retrain(shop.plan(users=20, margin=0.5))
    assert (second.version, second.against) == (2, 1)
    assert second.new_events == 88 + 40
    assert second.by == "update"
    assert Versions(shop.path).state().stack == (0, 1, 2)


def test_a_significantly_worse_candidate_is_refused(shop, monkeypatch):
    shop.add_visits()
    retrain(shop.plan())
    shop.add_visits(8, 11)
    monkeypatch.setattr(rounds._Round, "_trained", lambda self, running, data: ("fit", bad(running, data)))
    decision = retrain(shop.plan())
    assert decision.decision == "refused"
    assert decision.p > 0.999
    assert decision.people < decision.needed  # it is beyond doubt
    assert decision.difference["mean"] < 0
    versions = Versions(shop.path)
    assert versions.state().current == 1
    assert versions.log.newest(1)[0]["decision"] == "refused"
    assert [path.name for path in versions.folder.glob("*.truepair")] == ["1.truepair"]
    monkeypatch.undo()
    again = retrain(shop.plan())  # the same events do not judge a second time
    assert (again.decision, again.people) == ("waited", 0)


def bad(running, data):
    """A model that ranks the wrong items first."""
    found = tp.Recommender(dim=8, epochs=4, auto=False).fit(data.known)
    scorer = found.model_.scorer
    found.model_ = dataclasses.replace(found.model_, scorer=dataclasses.replace(scorer, items=-scorer.items))
    return found


def test_with_too_few_people_nothing_is_trained(shop, monkeypatch):
    monkeypatch.setattr(rounds._Round, "_trained", None)
    shop.add_visits(users=range(10))
    decision = retrain(shop.plan())
    assert decision.decision == "waited"
    assert decision.reason.startswith(
        "8 users have a new like among the newest 8 of 40 new events, and 30 are"
    )
    assert Versions(shop.path).state().current == 0
    assert Versions(shop.path).state().counted == 40
    nothing = retrain(shop.plan(store=str(empty(shop))))
    assert (nothing.decision, nothing.events) == ("waited", 0)
    assert nothing.reason == "none of the 0 new events is a pair that the model could learn"


def empty(shop):
    from truepair.serving.events.store import EventStore

    EventStore(shop.folder / "empty.sqlite").close()
    return shop.folder / "empty.sqlite"


def test_the_way_of_training_can_be_given(shop, monkeypatch):
    shop.add_visits()
    assert retrain(shop.plan(by="update")).by == "update"
    with pytest.raises(InputError, match="--retrain-by = 'x' is not known"):
        shop.plan(by="x")
    with pytest.raises(InputError, match="--judge-people = 1 is out of range"):
        shop.plan(users=1)
    with pytest.raises(InputError, match="--judge-margin = 1 is out of range"):
        shop.plan(margin=1)


def test_settings_that_were_chosen_automatically_are_kept(shop):
    chosen = {"dim": 5, "epochs": 2, "temperature": 0.3}
    spec = tp.Recommender(seed=4, auto=False, **chosen).spec
    model = tp.Recommender(seed=4)
    model.model_, model.output_ = dataclasses.replace(shop.model.model_, spec=spec), "pandas"
    found = rounds._fitted(model, shop.model.seen_)
    assert {name: getattr(found, name) for name in chosen} == chosen
    assert (found.auto, found.seed, found.output_) == (False, 4, "pandas")


@pytest.mark.parametrize("settings", [{"encoder": "ease"}, {"encoder": "popular"}], ids=str)
def test_closed_forms_are_retrained(tmp_path, settings):
    shop = Shop(tmp_path, **{"dim": None, "epochs": None, "auto": True, **settings})
    shop.add_visits()
    assert retrain(shop.plan()).decision in ("promoted", "refused")


def test_integer_ids_are_retrained(tmp_path):
    shop = Shop(tmp_path, name=integer)
    shop.add_visits()
    assert retrain(shop.plan()).decision == "promoted"
    assert Recommender.load(Versions(shop.path).path(1)).seen_.user_ids.ids.type == pa.int64()


def test_a_model_with_features_is_refused_at_once():
    features = {"item": ["a", "b", "c"], "kind": ["x", "y", "x"]}
    clicks = {"user": [1, 1, 2, 2], "item": ["a", "b", "b", "c"]}
    hybrid = tp.Recommender(encoder="hybrid", dim=2, epochs=1, auto=False).fit(clicks, item_features=features)
    with pytest.raises(
        InputError, match="a model with encoder = 'hybrid' cannot be retrained by the service"
    ):
        check_retrainable(hybrid)


def test_a_model_with_a_trend_is_updated(shop):
    """A new fit would need the times of all events, which a model does not keep."""
    liked = shop.model.seen_.to_table().to_pydict()
    liked["time"] = [1_700_000_000 + n for n in range(len(liked["user"]))]
    trend = tp.Trend(("1h",), (1.0,), own=0.5)
    tp.Recommender(dim=8, epochs=5, auto=False, device="cpu", trend=trend).fit(liked).save(shop.path)
    shop.add_visits()
    assert retrain(shop.plan()).by == "update"
    with pytest.raises(InputError, match="--retrain-by fit: this model has a trend"):
        retrain(shop.plan(by="fit"))


def test_a_rollback_while_a_candidate_is_trained_wins(shop, monkeypatch):
    shop.add_visits()
    retrain(shop.plan())
    shop.add_visits(8, 10)
    train = rounds._Round._trained

    def rolled_back_meanwhile(self, running, data):
        Versions(shop.path).roll_back()
        return train(self, running, data)

    monkeypatch.setattr(rounds._Round, "_trained", rolled_back_meanwhile)
    decision = retrain(shop.plan())
    assert decision.decision in ("overtaken", "refused")
    assert Versions(shop.path).state().current == 0
    assert [path.name for path in Versions(shop.path).folder.glob("*.truepair")] == ["1.truepair"]


def test_after_a_rollback_the_same_candidate_does_not_come_back_by_itself(shop):
    shop.add_visits()
    assert retrain(shop.plan()).decision == "promoted"
    Versions(shop.path).roll_back()
    assert retrain(shop.plan()).decision == "waited"
    shop.add_visits(8, 10)
    newer = retrain(shop.plan())  # judged by events that came later
    assert newer.against == 0
    assert newer.version in (2, None)


def test_who_was_deleted_is_forgotten(shop):
    shop.add_visits()
    shop.store.delete_user("u1")
    shop.store.delete_user("u2")
    shop.add([("u2", "i3")])
    shop.add_visits(8, 9, users=range(3, 90))
    assert retrain(shop.plan()).decision == "promoted"
    served = Recommender.load(Versions(shop.path).path(1))
    assert "u1" not in served.seen_.user_ids.ids.to_pylist()
    assert {item for user, item in pairs(served.seen_) if user == "u2"} <= {"i3"}


def test_a_failure_changes_nothing(shop, monkeypatch):
    shop.add_visits()
    before = sorted(path.name for path in shop.folder.iterdir())
    with pytest.raises(InputError, match=r"there is no store .*nothing.sqlite"):
        retrain(shop.plan(store=str(shop.folder / "nothing.sqlite")))

    def full(self, path):
        raise StorageError("No space left on device")

    monkeypatch.setattr(Recommender, "save", full)
    with pytest.raises(StorageError, match="No space left"):
        retrain(shop.plan())
    assert Versions(shop.path).state().current == 0
    assert not list(Versions(shop.path).folder.glob("*.truepair*"))
    assert set(before) <= {path.name for path in shop.folder.iterdir()}
    monkeypatch.undo()
    assert retrain(shop.plan()).decision == "promoted"


def test_two_trainers_do_not_train_at_once(shop):
    shop.add_visits()
    with Versions(shop.path).training():
        assert retrain(shop.plan()) is None


def test_the_vectors_of_the_model_are_not_changed(shop):
    users = shop.model.model_.scorer.users.clone()
    shop.add_visits()
    retrain(shop.plan(by="update"))
    assert torch.equal(users, shop.model.model_.scorer.users)


# --- the rule of the model ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [{"duplicates": "sum"}, {"counts": "log", "duplicates": "sum"}, {"half_life": "3s", "duplicates": "sum"}],
    ids=str,
)
def test_weights_follow_the_rule_that_the_model_was_fitted_with(shop, rule):
    """As one reading of what was fitted and what came later; what was learnt is not learnt again."""
    played = {"user": ["a", "a", "b"], "item": ["x", "y", "x"], "weight": [50.0, 2.0, 3.0]}
    shop.time = start = 1_700_000_000_000_000  # microseconds
    first = {**played, "time": [start - 4_000_000, start - 3_000_000, start - 2_000_000]}
    options = {"feedback": {"like": 1.0, "dislike": -1.0}, "kind": "kind"}
    seen = tp.read_interactions({**first, "kind": ["like"] * 3}, **options, **rule)
    shop.add([("a", "x", "like", 1.0), ("b", "z", "like", 2.0), ("a", "x", "like", 4.0)])
    table = EventReader(shop.store_path).table()
    once = split_events(seen, table, Kinds(KINDS), 0, 3)
    times = {
        "time": first["time"] + [start + second * 1_000_000 for second in (1, 2, 3)],
        "kind": ["like"] * 6,
    }
    whole = {
        name: played[name] + more for name, more in (("user", ["a", "b", "a"]), ("item", ["x", "z", "x"]))
    }
    weight = played["weight"] + [1.0, 2.0, 4.0]
    expected = tp.read_interactions({**whole, "weight": weight, **times}, **options, **rule)
    assert pairs(once.known) == pairs(expected)
    for found, wanted in zip(once.known.to_table().to_pylist(), expected.to_table().to_pylist(), strict=True):
        assert found["weight"] == pytest.approx(wanted["weight"])
    later = split_events(seen, table, Kinds(KINDS), 2, 3)
    assert len(later.learnt.log) == 1
