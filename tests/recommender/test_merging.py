"""Known and new interactions as one: what one reading of all events gives."""

import numpy as np
import pytest

import truepair as tp
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.recommender.updating.merging import merged


def of(pairs, **columns):
    users, items = zip(*pairs, strict=True)
    user_ids, item_ids = IdMap.of(list(users)), IdMap.of(list(items))
    columns = {name: np.array(values) for name, values in columns.items() if values is not None}
    return Interactions(
        user_ids.codes(list(users)), item_ids.codes(list(items)), user_ids, item_ids, **columns
    )


def pairs_of(data):
    table = data.to_table().to_pylist()
    return {(row.pop("user"), row.pop("item")): row for row in table}


def test_the_newer_values_of_a_pair_win():
    known = of([("b", "y"), ("a", "x")], rating=[1.0, 2.0], time=[5, 6])
    new = of([("a", "x"), ("a", "z"), ("0", "y")], rating=[3.0, 4.0, 5.0], time=[7, 8, 9])
    assert pairs_of(merged(known, new)) == {
        ("b", "y"): {"rating": 1.0, "time": 5},
        ("a", "x"): {"rating": 3.0, "time": 7},
        ("a", "z"): {"rating": 4.0, "time": 8},
        ("0", "y"): {"rating": 5.0, "time": 9},
    }


def test_a_pair_without_a_weight_has_one():
    found = pairs_of(merged(of([("a", "x"), ("a", "y")]), of([("a", "x")], weight=[3.0])))
    assert found == {("a", "x"): {"weight": 3.0}, ("a", "y"): {"weight": 1.0}}
    found = pairs_of(merged(of([("a", "x"), ("a", "y")], weight=[3.0, 2.0]), of([("a", "x")])))
    assert found == {("a", "x"): {"weight": 1.0}, ("a", "y"): {"weight": 2.0}}


def test_columns_of_one_part_only_are_left_out():
    assert pairs_of(merged(of([("a", "x")]), of([("b", "x")], time=[1]))) == {("a", "x"): {}, ("b", "x"): {}}


def test_items_of_the_catalogue_stay():
    known = of([("a", "x")]).with_items(["x", "never"])
    assert merged(known, of([("a", "new")])).item_ids.ids.to_pylist() == ["never", "new", "x"]


@pytest.mark.parametrize("side", ["user", "item"])
def test_ids_of_two_types(side):
    new = [(1, "x")] if side == "user" else [("a", 1)]
    with pytest.raises(InputError, match=rf"known {side} ids are of type large_string.*int64, such as 1"):
        merged(of([("a", "x")]), of(new))


def disliked_of(data):
    """The disliked pairs, in ids."""
    if data.disliked is None:
        return None
    users, items = np.divmod(data.disliked, data.n_items)
    names = data.user_ids.outside(users).to_pylist(), data.item_ids.outside(items).to_pylist()
    return set(zip(*names, strict=True))


def test_what_is_new_counts_among_likes_and_dislikes():
    known = of([("a", "x"), ("b", "y"), ("b", "z")], disliked=[1])  # a dislikes y
    new = of([("a", "y"), ("c", "x"), ("b", "w")], disliked=None)
    assert disliked_of(known) == {("a", "y")}
    assert disliked_of(merged(known, new)) is None  # liked now
    assert ("a", "y") in pairs_of(merged(known, new))
    other = of([("b", "z"), ("d", "y")], disliked=[0])  # b dislikes y now
    found = merged(known, other)
    assert disliked_of(other) == {("b", "y")}
    assert disliked_of(found) == {("a", "y"), ("b", "y")}
    assert set(pairs_of(found)) == {("a", "x"), ("b", "z"), ("d", "y")}
    assert merged(of([("a", "x")]), of([("b", "y")])).disliked is None


# --- one rule for repeats ------------------------------------------------------------------------------

OLD = {
    "user": ["a", "a", "a", "b", "b", "c"], "item": ["x", "x", "y", "x", "z", "y"],
    "kind": ["view", "buy", "view", "view", "return", "view"], "time": [10, 20, 30, 40, 50, 60],
    "weight": [50.0, 2.0, 1.0, 4.0, 1.0, 3.0],
}  # fmt: skip
NEW = {
    "user": ["a", "a", "b", "d", "b"], "item": ["x", "y", "z", "x", "x"],
    "kind": ["view", "return", "buy", "view", "view"], "time": [70, 80, 90, 100, 110],
    "weight": [1.0, 1.0, 2.0, 5.0, 1.0],
}  # fmt: skip
BOTH = {name: OLD[name] + NEW[name] for name in OLD}
RULES = {
    "the last": {},
    "the first": {"duplicates": "first"},
    "the sum": {"duplicates": "sum"},
    "the strongest": {"duplicates": "strongest"},
    "kinds": {"feedback": {"view": 1, "buy": 10, "return": -1}},
    "kinds that are added": {"feedback": {"view": 1, "buy": 10, "return": -1}, "duplicates": "sum"},
    "counts": {"duplicates": "sum", "counts": "log"},
    "counts without times": {"duplicates": "sum", "counts": "cap:5", "time": False},
    "half-lives": {"half_life": "2d"},
    "half-lives of sums": {"half_life": "2d", "duplicates": "sum"},
    "the strongest after half-lives": {"half_life": "2d", "duplicates": "strongest"},
}


def timed(rows, first):
    n = len(rows["user"])
    return {**rows, "time": [1_700_000_000 + 86_400 * (first + day) for day in range(n)]}


@pytest.mark.parametrize("options", RULES.values(), ids=RULES)
def test_an_update_of_a_closed_form_is_a_fit_on_all_events(options, tmp_path):
    """Also through a file, and in two steps."""
    old, new, both = timed(OLD, 0), timed(NEW, 6), timed(BOTH, 0)
    fitted = tp.Recommender(encoder="ease", device="cpu").fit(both, **options)
    model = tp.Recommender(encoder="ease", device="cpu").fit(old, **options)
    model.save(tmp_path / "m")
    steps = [{name: column[:3] for name, column in new.items()}, {n: c[3:] for n, c in new.items()}]
    for found in (model.update(new), tp.load(tmp_path / "m").update(steps[0]).update(steps[1])):
        assert found.reading_ == fitted.reading_
        weights = [0 if seen.weight is None else seen.weight for seen in (found.seen_, fitted.seen_)]
        np.testing.assert_allclose(*weights, rtol=1e-12)
        assert disliked_of(found.seen_) == disliked_of(fitted.seen_)
        for one, other in zip(found.matrices(), fitted.matrices(), strict=True):
            one, other = (m.toarray() if hasattr(m, "toarray") else m.numpy() for m in (one, other))
            np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"duplicates": "sum"}, {"time": False}], ids=str)
def test_a_pair_that_is_liked_again_after_a_return_has_its_former_likes(options, tmp_path):
    """A dislike takes the likes away only while it is the newest row."""
    rules = {"feedback": {"view": 1, "buy": 10, "return": -1}, **options}
    old = {"user": ["a", "a", "b"], "item": ["x", "x", "x"], "kind": ["buy", "return", "view"]}
    new = {"user": ["a", "b"], "item": ["x", "y"], "kind": ["view", "view"]}
    old, new = timed(old, 0), timed(new, 3)
    fitted = tp.read_interactions({name: old[name] + new[name] for name in old}, **rules)
    model = tp.Recommender(encoder="ease", device="cpu").fit(old, **rules)
    assert disliked_of(model.seen_) == {("a", "x")}
    model.save(tmp_path / "m")
    for found in (tp.load(tmp_path / "m").update(new), model.update(new)):
        weights = {pair: row["weight"] for pair, row in pairs_of(fitted).items()}
        assert {pair: row["weight"] for pair, row in pairs_of(found.seen_).items()} == weights
        assert found.seen_.disliked is None


def test_fifty_plays_and_one_more_are_not_one():
    model = tp.Recommender(encoder="ease", device="cpu").fit(OLD, duplicates="sum", time=False)
    model.update({"user": ["a"], "item": ["x"]})
    assert pairs_of(model.seen_)["a", "x"] == {"weight": 53.0}


def test_a_model_of_new_pairs_only_refuses_a_known_one():
    pairs = {"user": ["a", "b"], "item": ["x", "y"]}
    model = tp.Recommender(encoder="ease", device="cpu").fit(pairs, duplicates="error")
    with pytest.raises(InputError, match=r"user 'b' has item 'y' already, .*duplicates='last'"):
        model.update({"user": ["b", "c"], "item": ["y", "x"]})
    assert model.update({"user": ["b", "c"], "item": ["y", "x"]}, duplicates="last").seen_.n_users == 3


def test_data_that_were_read_without_a_rule_of_the_model_are_refused():
    model = tp.Recommender(encoder="ease", device="cpu").fit(OLD, feedback=RULES["kinds"]["feedback"])
    plain = tp.read_interactions(NEW)
    with pytest.raises(InputError, match=r"with feedback = None, and those of the model with \{'view'"):
        model.update(plain)
    assert model.update(tp.read_interactions(NEW, **model.reading_)).seen_.disliked is not None
    split = tp.split_random(tp.read_interactions(OLD), 0.3, seed=1)
    with pytest.raises(InputError, match=r"were read with feedback = None.*\*\*model.reading_"):
        model.evaluate(split)


def test_a_folded_in_history_with_kinds_is_read_with_them_or_refused():
    model = tp.Recommender(encoder="ease", device="cpu").fit(OLD, feedback=RULES["kinds"]["feedback"])
    for history in (NEW, tp.read_interactions(NEW)):
        with pytest.raises(InputError, match=r"column of kinds that was not read.*\*\*model.reading_"):
            model.fold_in(history)
    assert model.fold_in(NEW, **model.reading_).seen_.disliked is not None
    assert model.fold_in(NEW, kind=False).seen_.disliked is None
    assert model.fold_in({"user": ["guest"], "item": ["x"]}).seen_.n_users == 1


def test_options_of_reading_work_where_they_are_advised(tmp_path):
    path = tmp_path / "today.csv"
    path.write_text("user,item\na,x\n,y\nb,x\nb,y\n")
    model = tp.Recommender(encoder="ease", device="cpu")
    with pytest.raises(InputError, match="pass missing='drop'"):
        model.fit(path)
    model.fit(path, missing="drop")
    assert model.reading_ == {"missing": "drop"}
    assert len(model.update(path).seen_) == 3  # the recipe drops such rows too
    other = tp.Recommender(encoder="ease", device="cpu").fit({"user": ["a", "b"], "item": ["x", "y"]})
    with pytest.raises(InputError, match="pass missing='drop'"):
        other.update(path)
    assert len(other.update(path, missing="drop").seen_) == 4 - 1
    with pytest.raises(InputError, match=r"'missing' is no parameter .* give it to read_interactions"):
        tp.tune(path, missing="drop")
    with pytest.raises(InputError, match="missing = 'drop' has no effect on data already read"):
        model.fit(tp.read_interactions(path, missing="drop"), missing="drop")
    with pytest.raises(TypeError, match="unexpected keyword argument 'mising'"):
        model.fit(path, mising="drop")


def test_rules_of_the_fit_that_do_not_suit_new_data_are_named_and_can_be_changed():
    model = tp.Recommender(encoder="ease", device="cpu").fit(
        OLD, feedback=RULES["kinds"]["feedback"], kind="kind"
    )
    likes = {"user": ["a"], "item": ["z"]}
    with pytest.raises(InputError, match=r"no such column.*as the data of the fit were: .*kind='kind'"):
        model.update(likes)
    assert model.update(likes, feedback=None, kind=None).seen_.has(0, 2)


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.mark.parametrize("new_unit", UNITS)
@pytest.mark.parametrize("unit", UNITS)
def test_new_times_of_another_unit_are_those_of_the_model(unit, new_unit):
    """A CSV has dates, and the events of today seconds since 1970."""
    rules = {"half_life": "2d", "feedback": {"view": 1, "buy": 10, "return": -1}}
    old, new = timed(OLD, 0), timed(NEW, 6)
    both = tp.read_interactions(timed(BOTH, 0), **rules)
    old["time"] = [time * UNITS[unit] for time in old["time"]]
    new["time"] = [time * UNITS[new_unit] for time in new["time"]]
    model = tp.Recommender(encoder="ease", device="cpu").fit(old, **rules).update(new)
    np.testing.assert_allclose(model.seen_.weight, both.weight, rtol=1e-12)
    assert disliked_of(model.seen_) == disliked_of(both)


def test_times_that_cannot_be_compared_are_refused():
    model = tp.Recommender(encoder="ease", device="cpu").fit(timed(OLD, 0), duplicates="sum", counts="log")
    with pytest.raises(
        InputError, match=r"the known times go up to 1.70043e\+09, and the new ones up to 110"
    ):
        model.update(NEW)


def test_the_trend_of_an_update_has_the_unit_of_the_fit():
    old, new = timed(OLD, 0), timed(NEW, 6)
    parameters = {"dim": 2, "epochs": 1, "auto": False, "device": "cpu", "trend": tp.Trend(("2d",), (1.0,))}
    fitted = tp.Recommender(**parameters).fit(timed(BOTH, 0), weight=False).model_.recent
    new["time"] = [time * 1000 for time in new["time"]]
    found = tp.Recommender(**parameters).fit(old, weight=False).update(new, epochs=0).model_.recent
    assert found.moment == fitted.moment
    np.testing.assert_allclose(found.faded, fitted.faded)


@pytest.mark.parametrize("is_read", [False, True])
def test_rows_of_a_new_file_are_later_than_those_of_the_fit(is_read):
    """Their numbers begin at 0 again; the order says whether a return or a purchase was the last."""
    rules = {"feedback": {"view": 1, "buy": 10, "return": -1}, "counts": "cap:20", "duplicates": "sum"}
    rules |= {"chronological": True, "time": False}
    both = tp.read_interactions(BOTH, **rules)
    model = tp.Recommender(encoder="ease", device="cpu").fit(OLD, **rules)
    model.update(tp.read_interactions(NEW, **rules) if is_read else NEW)
    assert pairs_of(model.seen_) == {pair: {"weight": row["weight"]} for pair, row in pairs_of(both).items()}
    assert disliked_of(model.seen_) == disliked_of(both)


def test_what_a_user_did_lately_stays_known_after_an_update_without_times(tmp_path):
    """New events are the latest, and known ones stay in their order."""
    trend = tp.Trend((20.0,), (1.0,), own=1.0, own_half_life=1.0)
    model = tp.Recommender(dim=2, epochs=1, auto=False, device="cpu", trend=trend)
    old = {"user": ["a", "a", "a", "b"], "item": ["z", "x", "y", "x"], "time": [10, 20, 30, 40]}
    model.fit(old).update({"user": ["a", "b"], "item": ["w", "z"]})
    model.save(tmp_path / "m")
    model = tp.load(tmp_path / "m").update({"user": ["a"], "item": ["v"], "time": [5]})
    log = model.seen_.log
    of_a = log.histories.of(int(log.user_ids.codes(["a"], "user")[0]))
    assert log.item_ids.outside(of_a).to_pylist() == ["z", "x", "y", "w", "v"]
    assert (log.time_kind, log.time.tolist()) == ("order", [0, 1, 2, 3, 4, 0, 1])
