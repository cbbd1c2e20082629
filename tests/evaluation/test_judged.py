"""Judged candidates, against an oracle that ranks one user at a time in plain Python."""

import math
import os
import re
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import truepair as tp
from truepair.data.datasets.loading import load_split
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError
from truepair.evaluation import METRICS, compare, evaluate
from truepair.ranking.prepared_items import tie_order

N_USERS, N_ITEMS, KS = 40, 30, (1, 3, 50)


def oracle(scored, k):
    """Metrics of one user by their definitions; `scored` is a list of (score, label), ties in order."""
    ranked = [label for _, label in sorted(scored, key=lambda pair: -pair[0])]
    n_positive, best = sum(ranked), ranked[:k]
    places = [place for place, label in enumerate(best, start=1) if label]
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, n_positive) + 1))
    precisions = [sum(best[:place]) / place for place in places]
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for (a, is_positive), (b, other) in product(scored, scored)
        if is_positive and not other
    ]
    return {
        f"precision@{k}": len(places) / k,
        f"recall@{k}": len(places) / n_positive,
        f"ndcg@{k}": sum(1 / math.log2(place + 1) for place in places) / ideal,
        f"hit@{k}": float(bool(places)),
        f"mrr@{k}": 1 / places[0] if places else 0.0,
        f"map@{k}": sum(precisions) / n_positive,
        "auc": sum(wins) / len(wins),
    }


def make_world(seed=0):
    """Matrices, train, judged pairs, positive ones; users 0, 1 have one kind of label, 35 … no train pair."""
    rng = np.random.default_rng(seed)
    ids = IdMap.range(N_USERS), IdMap.range(N_ITEMS)
    train = rng.random((N_USERS, N_ITEMS)) < np.linspace(0.05, 0.6, N_ITEMS)
    train[35:] = False
    judged = ~train & (rng.random(train.shape) < 0.4)
    judged[2] = False  # nothing is judged
    label = judged & (rng.random(train.shape) < 0.4)
    label[0], label[1] = judged[0], False
    label[3:] |= judged[3:] & (np.cumsum(judged[3:], axis=1) == 1)  # the others have a positive
    matrices = rng.normal(size=(N_USERS, 5)), rng.normal(size=(N_ITEMS, 5))
    return matrices, *(Interactions(*np.nonzero(mask), *ids) for mask in (train, judged, label))


MATRICES, TRAIN, JUDGED, POSITIVE = make_world()


def expected(cold="popular"):
    """user -> metrics."""
    found = {}
    for user in range(N_USERS):
        items, positive = JUDGED.items_of(user), set(POSITIVE.items_of(user).tolist())
        if not 0 < len(positive) < len(items):
            continue
        scores = MATRICES[1] @ MATRICES[0][user] if user < 35 or cold == "model" else TRAIN.item_counts
        in_order = sorted(items, key=tie_order(N_ITEMS).tolist().index)  # of ties, the first is best
        scored = [(float(scores[i]), int(i) in positive) for i in in_order]
        found[user] = {name: value for k in KS for name, value in oracle(scored, k).items()}
    return found


def as_matrices(kind):
    users, items = (torch.tensor(matrix, dtype=torch.float32) for matrix in MATRICES)
    return (sp.csr_array(users.numpy()), items) if kind == "sparse" else (users, items)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("cold", ["popular", "separate", "model"])
def test_against_the_oracle(cold, kind):
    found = evaluate(as_matrices(kind), POSITIVE, candidates=JUDGED, train=TRAIN, ks=KS, cold=cold)
    by_hand = expected(cold)
    users = [user for user in by_hand if user < 35 or cold != "separate"]
    assert found.users.tolist() == users
    assert list(found.per_user) == [*(f"{name}@{k}" for name in METRICS for k in KS), "auc"]
    for name, values in found.per_user.items():
        assert values == pytest.approx([by_hand[user][name] for user in users]), name
        assert found.mean(name) == pytest.approx(values.mean())
    assert found.cold_users.tolist() == [user for user in by_hand if user >= 35]
    assert (found.n_users_without_target, found.n_users_all_positive) == (1, 1)
    assert found.catalogue == {}


def test_a_table_with_labels_is_the_same_as_two_interactions():
    model = tp.Recommender(dim=4, epochs=2, device="cpu").fit(Split(TRAIN, None, TRAIN.take([]), "given"))
    both = evaluate(model, POSITIVE, candidates=JUDGED, train=TRAIN)
    label = POSITIVE.has(JUDGED.users, JUDGED.items)
    table = pd.DataFrame({"user": JUDGED.users, "item": JUDGED.items, "label": label}).sample(
        frac=1, random_state=0
    )
    for one in (table, table.astype({"label": float}), table.rename(columns={"user": "customer_id"})):
        assert model.evaluate(candidates=one).means == both.means
    split = Split(TRAIN, None, POSITIVE, "given")
    assert model.evaluate(split, candidates=JUDGED).means == both.means
    assert compare(both, model.evaluate(split, candidates=JUDGED)).difference == 0
    # a stranger is ranked by popularity, as a user without a trained pair
    stranger = pd.DataFrame({"user": 999, "item": np.arange(N_ITEMS), "label": np.arange(N_ITEMS) % 2})
    wider = model.evaluate(candidates=pd.concat([table, stranger]))
    assert wider.groups["without history"]["users"] == both.groups["without history"]["users"] + 1
    assert wider.groups["with history"] == both.groups["with history"]


def test_strangers_are_people_without_history():
    """A model that does not know users 35 … at all ranks as one that knows them by name only."""
    label = POSITIVE.has(JUDGED.users, JUDGED.items)
    table = pd.DataFrame({"user": JUDGED.users, "item": JUDGED.items, "label": label})
    fewer = Interactions(TRAIN.users, TRAIN.items, IdMap.range(35), TRAIN.item_ids)
    ours = evaluate((MATRICES[0][:35], MATRICES[1]), candidates=table, train=fewer)
    both = evaluate(MATRICES, POSITIVE, candidates=JUDGED, train=TRAIN)
    assert ours.groups == both.groups
    assert ours.groups["without history"]["users"] == 5


def test_ties_are_broken_as_in_lists():
    """A constant scorer orders candidates as the full ranking does, and has the AUC of chance."""
    constant = np.ones((N_USERS, 1)), np.ones((N_ITEMS, 1))
    found = evaluate(constant, POSITIVE, candidates=JUDGED, train=TRAIN, ks=(3,), cold="model")
    assert found.mean("auc") == 0.5
    everything = np.ones((N_USERS, N_ITEMS), dtype=bool)
    everything[JUDGED.users, JUDGED.items] = False
    hidden = Interactions(*np.nonzero(everything), JUDGED.user_ids, JUDGED.item_ids)
    lists = evaluate(constant, POSITIVE, exclude=hidden, train=TRAIN, ks=(3,), cold="model")
    both = np.isin(lists.users, found.users)
    np.testing.assert_array_equal(found.values("ndcg@3"), lists.values("ndcg@3")[both])


def test_it_shows_what_it_did():
    found = evaluate(MATRICES, POSITIVE, candidates=JUDGED, train=TRAIN, ks=(3,))
    lines = found.table().splitlines()
    assert [line.split()[0] for line in lines[1:8]] == [*METRICS, "auc"]
    assert lines[-1] == (
        f"{found.n_users} users evaluated on their judged items; left out: 1 without a positive item, 1 with "
        "positive items only"
    )
    assert found.interval("auc")[0] < found.mean("auc") < found.interval("auc")[1]
    with pytest.raises(InputError, match="metric = 'coverage' is not known"):
        found.mean("coverage@3")
    full = evaluate(MATRICES, POSITIVE, exclude=TRAIN, ks=(3,))
    with pytest.raises(InputError, match="metric = 'auc' is not of the form"):
        full.mean("auc")
    with pytest.raises(InputError, match=r"the users differ|different targets"):
        compare(found, full, "ndcg@3")


TABLE = pd.DataFrame({"user": [3, 3, 4], "item": [0, 1, 0], "label": [1, 0, 1]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exclude": TRAIN}, "with candidates, nothing else is ranked; leave out exclude"),
        ({"train": None}, "with candidates, train is needed"),
        ({"target": None}, "candidates must have the column label"),
        ({"candidates": TABLE}, "give the candidates as Interactions too"),
        ({"candidates": TABLE, "target": None, "train": TRAIN.take(TRAIN.users < 3)}, "none of the 1 users"),
        ({"candidates": TABLE.assign(label=5), "target": None}, "label = rating >= 4"),
        ({"candidates": TABLE.assign(label=1), "target": None}, "no user has a positive and a negative one"),
        ({"candidates": TABLE.assign(item=99), "target": None}, "rows, and"),
        ({"candidates": TABLE.assign(item=[0, 99, 1]), "target": None}, "unknown item: 99"),
        (
            {"candidates": TABLE.drop(columns="label"), "target": None},
            "'label': the table has no such column",
        ),
        ({"target": JUDGED, "candidates": POSITIVE}, "target interactions are not among the candidates"),
        ({"train": JUDGED}, "candidates are also in train, so the model would be evaluated on what it has"),
        ({"train": make_world()[1].take([0])}, "none of the"),
        (
            {"model": (np.ones((3, 5)), MATRICES[1])},
            "train has 40 users x 30 items, but 3 x 30 are ranked",
        ),
        ({"cold": "error"}, "users have no trained pair"),
    ],
    ids=str,
)
def test_errors_say_what_is_wrong(arguments, message):
    good = {"model": MATRICES, "target": POSITIVE, "candidates": JUDGED, "train": TRAIN, "ks": (3,)}
    with pytest.raises(InputError, match=re.escape(message)):
        evaluate(**{**good, **arguments})


def test_a_target_is_needed():
    with pytest.raises(InputError, match="there is no target; give a Split"):
        evaluate(MATRICES)
    with pytest.raises(InputError, match="split is a NoneType"):
        tp.Recommender().evaluate()


DATA = Path(os.environ.get("TRUEPAIR_DATA", "."))


needs_coat = pytest.mark.skipif(
    not (DATA / "coat" / "test.ascii").is_file(), reason="TRUEPAIR_DATA has no files of Coat"
)


@needs_coat
def test_the_recipe_of_the_docs_gives_its_table(capsys):
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    recipe = re.search(r"^```py\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)[1]
    exec(compile(recipe, "evaluation.md", "exec"), {})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    written = re.findall(r"^\| `(\w+)`.* \| (\.\d+) \| (\.\d+) \| (\.\d+) \|$", page, flags=re.MULTILINE)
    assert len(written) == 3
    for (encoder, users, *figures), (name, *table) in zip(printed, written, strict=True):
        assert (encoder, users) == (name, "225")
        assert [float(x) for x in figures] == pytest.approx([float(x) for x in table], abs=0.002)


@needs_coat
def test_coat_against_the_oracle():
    split = load_split("coat", DATA)
    likes = split.train.take(split.train.rating >= 4)
    found = tp.Recommender(encoder="ease", device="cpu").fit(likes)
    table = split.test.to_table().to_pandas()
    table["label"] = table.rating >= 4
    ours = found.evaluate(candidates=table.drop(columns="rating"), ks=(5,), cold="separate")
    scores = found.score(table[["user", "item"]]).score
    by_hand = [
        oracle(list(zip(rows.score, rows.label, strict=True)), 5)
        for user, rows in table.assign(score=scores).groupby("user")
        if 0 < rows.label.sum() < len(rows) and (likes.users == likes.user_ids.codes([user])[0]).any()
    ]
    assert ours.n_users == len(by_hand) > 200
    for name in ("ndcg@5", "recall@5", "auc"):
        assert ours.mean(name) == pytest.approx(np.mean([one[name] for one in by_hand]))
