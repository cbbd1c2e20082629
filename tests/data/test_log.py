"""The log: events in order, with every repeat; splits cut it, and pairs follow as of the cut."""

import numpy as np
import pytest

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

from truepair import (
    read_interactions,
    split_leave_last_out,
    split_random,
    split_random_per_user,
    split_temporal,
)
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.log import Log, sorted_log, stable_order
from truepair.data.rows.pairs import has_ties, interactions_of
from truepair.data.split_recipes import k_folds
from truepair.errors import InputError
from truepair.recommender.holdout import hold_out, joined, with_validation
from truepair.reporting.backtesting.periods import Timeline

DAY = 86_400
START = 1_600_000_000


def table(*rows, names=("user", "item", "time")):
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def pairs(part):
    found = part.to_table()
    return set(zip(found["user"].to_pylist(), found["item"].to_pylist(), strict=True))


def distinct_rows(ties=False, weight=False, n=400, users=30, items=40):
    random = np.random.default_rng(7)
    keys = random.choice(users * items, n, replace=False)
    time = random.integers(0, 20, n) if ties else random.permutation(n) + START
    found = {"user": keys // items, "item": keys % items, "time": time}
    if weight:
        found |= {"weight": random.integers(1, 9, n), "rating": random.integers(1, 6, n)}
    return found


def hashes(data):
    """The recipe's name -> the hash of its split."""
    found = {
        "read": data,
        "random": split_random(data, 0.2, 0.1, 3),
        "per_user": split_random_per_user(data, 0.2, 0.1, 3),
        "k_folds": k_folds(data, 3, 0.1, 3)[1],
    }
    if data.time is not None:
        found |= {
            "last": split_leave_last_out(data, 2, 1, 3),
            "temporal": split_temporal(data, 0.2, 0.1),
            "hold_last": hold_out(data, "last", 0.2, 3),
            "hold_time": hold_out(data, "time", 0.2, 3),
            "validated": with_validation(split_temporal(data, 0.3), 0.2, 3),
        }
    return {name: split.hash for name, split in found.items()}


# --- order -----------------------------------------------------------------------------------------


def test_the_log_is_in_order_and_keeps_repeats():
    data = read_interactions(table((2, "b", 5), (1, "b", 9), (1, "a", 3), (1, "b", 1), (1, "c", 3)))
    log = data.log
    assert log.to_table().to_pydict() == {
        "user": [1, 1, 1, 1, 2],
        "item": ["b", "a", "c", "b", "b"],
        "time": [1, 3, 3, 9, 5],
    }
    assert log.users.dtype == log.items.dtype == np.int32
    assert len(data) == 4
    assert data.item_ids.outside(log.histories.of(0)).to_pylist() == ["b", "a", "c", "b"]
    assert list(log.histories.indptr) == [0, 4, 5]


def test_without_repeats_the_log_follows_from_the_pairs():
    data = read_interactions(table((1, "c", 3), (1, "b", 1), (1, "a", 2)))
    assert data.stored_log is None
    assert data.origin.places is None  # the times decide
    assert data.log.to_table()["item"].to_pylist() == ["b", "a", "c"]


def test_equal_times_are_in_the_order_of_the_source():
    data = read_interactions(table((1, "c", 3), (1, "b", 3), (2, "a", 3), (1, "a", 1)))
    assert data.stored_log is None
    assert data.origin.places.dtype == np.uint32
    assert data.log.to_table()["item"].to_pylist() == ["a", "c", "b", "a"]
    for seed in range(5):
        assert pairs(split_leave_last_out(data, seed=seed).test) == {(1, "b")}


@pytest.mark.parametrize("time", [[0, 1, 2, 2], [0.5, 1.5, 2.5, 2.5], [0, 1, 2**60, 2**60]])
def test_ties_are_found_in_any_column_of_times(time):
    rows = {"user": [1, 1, 1, 1], "item": [4, 3, 2, 1], "time": time}
    assert read_interactions(rows).origin.places is not None
    rows["user"] = [1, 1, 1, 2]
    assert read_interactions(rows).origin.places is None


@pytest.mark.parametrize("few", [2, 300])
@pytest.mark.parametrize("unit", [1, 10**12, 2**55, 0.5, -1e9, 1e300])
def test_ties_are_those_of_equal_users_and_times(unit, few):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        users = np.sort(rng.integers(0, 9, few // 2 + 4))
        time = (rng.integers(-100, 100, len(users)) if few == 2 else np.arange(len(users)) - 60) * unit
        time[rng.integers(0, len(users))] = time[0]
        found = set(zip(users.tolist(), time.tolist(), strict=True))
        assert has_ties(users, time) == (len(found) < len(users))
    assert not has_ties(np.empty(0, np.int64), np.empty(0))
    assert has_ties(np.array([3, 3]), np.array([0.0, -0.0]))
    assert not has_ties(np.array([3, 4]), np.array([2**63 - 1, -(2**63)]))


@pytest.mark.parametrize(
    "keys",
    [
        np.array([], np.int64),
        np.array([3]),
        np.array([5, -2, 5, -2, 0]),
        np.array([2**62, -(2**62), 7, 2**62, 7]),  # a span of 64 bits
        np.array([2**63 - 1, -(2**63), 0, 0]),
        np.array([1, 3, 2, 3]) * 2**60,
        np.array([9, 9, 9]) * 10**17,
        np.array([4, 1, 4, 0], np.int32),
        np.array([2**32 - 1, 0, 2**32 - 1], np.uint32),
        np.array([0.5, -1.5, 0.5, 0.0]),
    ],
)
def test_the_order_is_stable_for_keys_of_any_span(keys):
    order, ordered = stable_order(keys)
    assert order.tolist() == np.argsort(keys, kind="stable").tolist()
    assert ordered.tolist() == np.sort(keys).tolist()


@pytest.mark.parametrize("unit", [1, 10**6])
@pytest.mark.parametrize("span", [10, 10**9, 10**12])
def test_a_log_of_random_rows_is_sorted(unit, span):
    rng = np.random.default_rng(span)
    users, items, time = (rng.integers(0, n, 3000) for n in (40, 50, span))
    log = sorted_log(Log(users, items, IdMap.range(40), IdMap.range(50), time=time * unit))
    order = np.lexsort((time, users))
    assert log.users.tolist() == users[order].tolist()
    assert log.items.tolist() == items[order].tolist()
    assert log.time.tolist() == (time * unit)[order].tolist()
    places = rng.permutation(3000).astype(np.uint32)
    log = sorted_log(Log(users, items, IdMap.range(40), IdMap.range(50), time=time * unit), places)
    assert log.items.tolist() == items[np.lexsort((places, time, users))].tolist()


def test_the_seed_decides_ties_where_the_source_is_not_known():
    n = 40
    data = Interactions(
        np.zeros(n, int), np.arange(n), IdMap.range(1), IdMap.range(n), time=np.zeros(n, np.int64)
    )
    assert len({split_leave_last_out(data, seed=seed).hash for seed in range(5)}) > 1


def test_without_times_events_are_the_pairs():
    data = read_interactions({"user": [2, 1, 1, 1], "item": [5, 6, 5, 6]})
    assert data.stored_log is None
    assert data.log.users is data.users
    assert list(data.log.histories.items) == list(data.items)


def test_dislikes_are_events():
    names = ("user", "item", "rating", "time")
    rows = table(("u", "a", 5, 1), ("u", "b", 1, 2), ("u", "c", 5, 3), ("u", "a", 1, 4), names=names)
    data = read_interactions(rows, max_disliked_rating=2)
    assert list(data.log.disliked) == [False, True, False, True]
    assert list(data.log.histories.of(0)) == [0, 2]
    early = interactions_of(data.log.before(4))
    assert pairs(early) == {("u", "a"), ("u", "c")}
    assert list(early.disliked) == [1]


def test_dislikes_without_times_come_first():
    data = Interactions(
        np.array([0, 0]),
        np.array([0, 2]),
        IdMap.range(1),
        IdMap.range(3),
        rating=np.array([4.0, 5.0]),
        weight=np.array([2, 3]),
        time=np.array([7, 9]),
        disliked=np.array([1]),
    )
    assert interactions_of(data.log).hash == data.hash
    assert list(data.log.time) == [7, 7, 9]
    assert interactions_of(data.pairs_only().log).hash == data.pairs_only().hash


def test_before_needs_times():
    with pytest.raises(InputError, match="no times"):
        read_interactions({"user": [1], "item": [1]}).log.before(3)


def test_adjacency_files_have_positions(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("0 5 6 5 7\n1 6 5\n")
    data = read_interactions(path, chronological=True)
    assert data.time_kind == data.log.time_kind == "order"
    assert data.log.to_table().to_pydict() == {
        "user": [0, 0, 0, 0, 1, 1],
        "item": [5, 6, 5, 7, 6, 5],
        "order": [0, 1, 2, 3, 0, 1],
    }


# --- subsets ---------------------------------------------------------------------------------------

REPEATED = [
    ("u", "a", 1),
    ("v", "a", 1),
    ("u", "b", 2),
    ("u", "a", 3),
    ("v", "c", 4),
    ("u", "c", 5),
    ("w", "d", 9),
]


def test_parts_over_pairs_carry_all_events_of_their_pairs():
    data = read_interactions(table(*REPEATED))
    split = split_random(data, 0.4, seed=1)
    logs = [part.log.to_table().to_pylist() for part in (split.train, split.test)]
    assert sorted(map(str, logs[0] + logs[1])) == sorted(map(str, data.log.to_table().to_pylist()))
    for part in (split.train, split.test):
        assert interactions_of(part.log).hash == part.hash
    assert interactions_of(data.take([3, 0]).log).hash == data.take([3, 0]).hash


def test_filters_and_catalogues_keep_the_log():
    data = read_interactions(table(*REPEATED))
    core = data.k_core(2)
    assert interactions_of(core.log).hash == core.hash
    assert core.log.to_table()["item"].to_pylist() == ["a", "a", "c", "a", "c"]
    wide = data.with_items(["0", "a", "b", "c", "d", "e"])
    assert interactions_of(wide.log).hash == wide.hash
    assert data.pairs_only().stored_log is None


def test_a_least_rating_holds_for_events():
    rows = table(
        ("u", "a", 2, 1), ("u", "a", 5, 2), ("u", "b", 1, 3), names=("user", "item", "rating", "time")
    )
    found = read_interactions(rows).with_min_rating(4)
    assert found.log.to_table().to_pydict() == {"user": ["u"], "item": ["a"], "rating": [5.0], "time": [2]}


# --- splits ----------------------------------------------------------------------------------------


def test_a_repeat_purchase_is_known_and_is_not_judged():
    rows = table(
        ("ann", "milk", 1),
        ("bob", "milk", 2),
        ("ann", "tea", 3),
        ("bob", "tea", 4),
        ("ann", "milk", 10),
        ("bob", "jam", 11),
    )
    split = split_temporal(read_interactions(rows), at=10)
    assert pairs(split.train) == {("ann", "milk"), ("bob", "milk"), ("ann", "tea"), ("bob", "tea")}
    assert list(split.train.time) == [1, 3, 2, 4]
    assert pairs(split.test) == {("bob", "jam")}
    assert "1 later event of pairs that were liked before: not judged" in split.notes
    names = split.train.item_ids.outside(split.train.log.histories.of(0)).to_pylist()
    assert names == ["milk", "tea"]


def test_the_last_new_pair_of_each_user():
    rows = [("u", item, at) for at, item in enumerate("abaca")]
    split = split_leave_last_out(read_interactions(table(*rows, ("v", "a", 0), ("v", "b", 1))))
    assert pairs(split.train) == {("u", "a"), ("u", "b"), ("v", "a")}
    assert pairs(split.test) == {("u", "c"), ("v", "b")}
    assert split.train.log.to_table()["item"].to_pylist() == ["a", "b", "a", "a"]
    assert "1 later event" in split.notes[0]


def test_weights_and_counts_are_those_before_the_cut():
    rows = table(*[("u", "a", t) for t in (1, 2, 8, 9)], ("u", "b", 7), ("u", "b", 8), ("v", "a", 3))
    split = split_temporal(read_interactions(rows, duplicates="sum"), at=7)
    assert split.train.to_table().to_pylist() == [
        {"user": "u", "item": "a", "weight": 2.0, "time": 2},
        {"user": "v", "item": "a", "weight": 1.0, "time": 3},
    ]
    assert split.test.to_table()["weight"].to_pylist() == [2.0]


def test_a_later_dislike_is_not_known_before_the_cut():
    names = ("user", "item", "rating", "time")
    rows = table(("u", "a", 5, 1), ("u", "b", 5, 2), ("u", "a", 1, 8), ("u", "c", 5, 9), names=names)
    split = split_temporal(read_interactions(rows, max_disliked_rating=2), at=5)
    assert pairs(split.train) == {("u", "a"), ("u", "b")}
    assert split.train.disliked is None
    assert pairs(split.test) == {("u", "c")}


def test_a_hold_out_and_its_parts_joined_are_everything():
    rows = [(u, i, START + 37 * (u + 1) * (i + 2) % 101) for u in range(8) for i in range(6)]
    again = [(u, i, START + 500 + u) for u in range(8) for i in range(2)]
    data = read_interactions(table(*rows, *again), duplicates="sum")
    for how in ("last", "time"):
        split = hold_out(data, how, 0.3)
        assert not split.valid.has(split.train.users, split.train.items).any()
        assert joined([split.train, split.valid]).hash == data.hash
    split = hold_out(data, "random", 0.3)
    assert joined([split.train, split.valid]).hash == data.hash


def test_isolated_pairs_stay_in_train():
    rows = [
        ("u", "a", 1),
        ("v", "a", 1),
        ("v", "b", 2),
        ("u", "b", 3),
        ("u", "a", 4),
        ("w", "c", 9),
        ("w", "c", 10),
    ]
    split = hold_out(read_interactions(table(*rows)), "time", 0.5)
    assert pairs(split.train) >= {("w", "c")}
    assert pairs(split.valid) == {("u", "b")}


def test_a_backtest_does_not_judge_what_users_had():
    rows = [(f"u{u}", f"i{(u + k) % 6}", START + DAY * k) for u in range(6) for k in range(4)]
    again = [(f"u{u}", f"i{u}", START + DAY * 3 + 5) for u in range(6)]
    line = Timeline(read_interactions(table(*rows, *again)), every="1d")
    plain = Timeline(read_interactions(table(*rows)), every="1d")
    last = line.periods[-1]
    assert last.pairs == last.judged_pairs == 6
    assert pairs(line.target(last)) == {(f"u{u}", f"i{(u + 3) % 6}") for u in range(6)}
    assert not pairs(line.target(last)) & pairs(line.before(last))
    assert len(line.train(last)) == len(line.before(last))
    assert len(plain.before(plain.periods[-1])) == 18


KNOWN = {
    "plain": {
        "read": "87f6f3483126358acfbbc131cd0e6c07",
        "random": "6cf619e112e9408d7f5f8f4e4c8c5de6",
        "per_user": "5ea360bb4e604ec7eadde107bc9ebf79",
        "k_folds": "d897058fc4e3603944f4ed46b78036bf",
        "last": "dfc30fb406d9ba128a5ad79e54b323a3",
        "temporal": "bd84d8af1f3ef212a68c3fa6170b5061",
        "hold_last": "b97aa7c3be879226d13f60b545af65d0",
        "hold_time": "7cb78a27ab6a09e39787086c14cd2ee5",
        "validated": "56ea427b1a4bd360c73eb6403f272cd1",
    },
    "weighted": {
        "read": "833d05e817886530481ead4e162b0ef9",
        "random": "8b6358f8dbc058128aa170e19a53f64d",
        "per_user": "ca444affa409b28769474e472d717b1b",
        "k_folds": "767c1840ea4fa7f55164b61fd5c22f53",
        "last": "8a381c1b10d48dd656bc0f218cce9ff3",
        "temporal": "4d93a87b5a3c041a787e148c7fc15510",
        "hold_last": "e07af52e846d5052125223951fc0d111",
        "hold_time": "96199e39b65ff562974b08d6b2cb6785",
        "validated": "7fec5c4ff7e17cb39fa896cbac9b340c",
    },
    "no times": {
        "read": "85eaa335db081dd2f8b98efa7d8417c3",
        "random": "406fb9fae417e69c10c7dfd44fdeb21f",
        "per_user": "b38dd77e364e69770af5ab1391cc025c",
        "k_folds": "b4f8d93e2d05be84cd01481c046dfedd",
    },
    "ties": {
        "read": "f5c3c23caeab7899d4e96d1fcf65da63",
        "random": "7bd1ace48b4fbc8db8b895c6a50ac602",
        "per_user": "3fb570f5c3642c178ec591c774efe88f",
        "k_folds": "6c553fef4a8cf0d423017b1b3e864af0",
        "temporal": "9604b5073a63e3fa9fea9ae4d91ae8ec",
        "hold_time": "d336c368a85ec225682a92b919b42241",
    },
}


def test_splits_without_repeats_are_those_of_version_0_1():
    plain = distinct_rows()
    without = {name: np.concatenate([plain[name], plain[name][:50]]) for name in ("user", "item")}
    data = {
        "plain": plain,
        "weighted": distinct_rows(weight=True),
        "no times": without,
        "ties": distinct_rows(ties=True),
    }
    for name, rows in data.items():
        found = hashes(read_interactions(rows))
        assert {recipe: found[recipe] for recipe in KNOWN[name]} == KNOWN[name]


# --- the slow definition ---------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),  # user
        st.integers(0, 3),  # item
        st.integers(0, 9),  # time
        st.integers(1, 5),  # rating; 1 is a dislike
        st.integers(1, 4),  # weight
    ),
    min_size=1,
    max_size=30,
)
NAMES = ("user", "item", "time", "rating", "weight")
CATALOGUE = list(range(4))
POLICIES = st.sampled_from(["last", "first", "max", "strongest", "sum"])


def read(rows, policy, **options):
    """The rows after one of each user and item, so that ids do not depend on them."""
    ids = [(code, code, -1, 3, 1) for code in range(4)]
    return read_interactions(
        table(*ids, *rows, names=NAMES), duplicates=policy, max_disliked_rating=1, items=CATALOGUE, **options
    )


def slow_pairs(rows, policy):
    """Pair -> (rating, weight, time) of likes, and the set of dislikes, row by row."""
    by_pair = {}
    for place, (user, item, time, rating, weight) in enumerate(rows):
        by_pair.setdefault((user, item), []).append((time, place, rating, weight))
    likes, dislikes = {}, set()
    for pair, events in by_pair.items():
        ordered = sorted(events)
        deciding = {"first": ordered[0], "max": max(ordered, key=lambda e: (e[2], e[0], e[1]))}
        if deciding.get(policy, ordered[-1])[2] <= 1:
            dislikes.add(pair)
            continue
        liked = [event for event in ordered if event[2] > 1]
        chosen = {
            "first": liked[0],
            "max": max(liked, key=lambda e: (e[2], e[0], e[1])),
            "strongest": max(liked, key=lambda e: (e[3], e[0], e[1])),
        }.get(policy, liked[-1])
        weight = sum(event[3] for event in liked) if policy == "sum" else chosen[3]
        likes[pair] = (float(chosen[2]), float(weight), chosen[0])
    return likes, dislikes


def found_pairs(part):
    likes = {
        (row["user"], row["item"]): (row["rating"], row["weight"], row["time"])
        for row in part.to_table().to_pylist()
    }
    disliked = [] if part.disliked is None else part.disliked
    return likes, {divmod(int(key), part.n_items) for key in disliked}


@settings(max_examples=150, deadline=None)
@given(EVENTS, POLICIES, st.integers(0, 10))
def test_parts_are_the_pairs_of_the_rows_before_and_after_the_cut(rows, policy, cut):
    rows = [(code, code, -1, 3, 1) for code in range(4)] + rows
    data = read_interactions(
        table(*rows, names=NAMES), duplicates=policy, max_disliked_rating=1, items=CATALOGUE
    )
    assert found_pairs(data) == slow_pairs(rows, policy)
    assert interactions_of(data.log).hash == data.hash
    split = split_temporal(data, at=cut)
    early, late = [row for row in rows if row[2] < cut], [row for row in rows if row[2] >= cut]
    known = {row[:2] for row in early if row[3] > 1}
    assert found_pairs(split.train) == slow_pairs(early, policy)
    if late:
        new = [row for row in late if row[:2] not in known]
        assert found_pairs(split.test) == slow_pairs(new, policy)
        again = sum(row[:2] in known and row[3] > 1 for row in late)
        assert any("not judged" in note for note in split.notes) == bool(
            again and data.stored_log is not None
        )


@settings(max_examples=100, deadline=None)
@given(EVENTS, EVENTS, EVENTS, POLICIES, st.sampled_from([None, "3d"]))
def test_nothing_after_the_cut_changes_train(early, late, other, policy, half_life):
    def moved(rows, days):
        return [(u, i, START + DAY * (t + days), r, w) for u, i, t, r, w in rows]

    ids = [(code, code, START, 3, 1) for code in range(4)]
    early = ids + moved(early, 0)
    cut = START + 20 * DAY
    trains = [
        split_temporal(
            read_interactions(
                table(*early, *moved(later, 20), names=NAMES),
                duplicates=policy,
                max_disliked_rating=1,
                half_life=half_life,
            ),
            at=cut,
        ).train
        for later in (late, other, late[:1])
    ]
    alone = read_interactions(
        table(*early, names=NAMES), duplicates=policy, max_disliked_rating=1, half_life=half_life
    )
    assert {train.hash for train in trains} == {alone.hash}


# --- a half-life and the strongest event -----------------------------------------------------------


def test_an_old_purchase_does_not_lower_the_weight_of_today():
    today = [("u", "a", START + 365 * DAY, 5.0), ("v", "b", START + 365 * DAY, 1.0)]
    options = {"duplicates": "strongest", "half_life": "30d"}
    names = ("user", "item", "time", "weight")
    recent = read_interactions(table(*today, names=names), **options)
    both = read_interactions(table(("u", "a", START, 10.0), *today, names=names), **options)
    assert both.hash == recent.hash


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 50)), min_size=1, max_size=5),
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from([None, "log", "cap:10"]),
)
def test_one_more_old_row_never_lowers_a_weight(rows, age, weight, counts):
    names = ("user", "item", "time", "weight")
    now = ("v", "b", START + 61 * DAY, 1)
    events = [("u", "a", START + DAY * day, w) for day, w in rows]
    options = {"duplicates": "strongest", "half_life": "10d", "counts": counts}
    before = read_interactions(table(now, *events, names=names), **options)
    after = read_interactions(
        table(now, ("u", "a", START - DAY * age, weight), *events, names=names), **options
    )
    assert after.weight[0] >= before.weight[0]
    assert after.time[0] >= before.time[0]
