"""The scorer: named parts, rows and columns; sums with EASE, by hand, saved, folded in, and refused."""

from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from truepair.data.split_recipes import split_random
from truepair.errors import InputError, StorageError
from truepair.evaluation import evaluate
from truepair.models import factor_matrices
from truepair.models.closed_forms import EASE
from truepair.models.scorer import Scorer, closed_scorer
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import KIND, VERSION
from truepair.storage.tensor_file import read_tensors, write_tensors
from worlds import distinctive, interactions_of, two_tastes

QUICK = {"dim": 6, "epochs": 4, "learning_rate": 0.05, "device": "cpu", "seed": 1}
PLUS = {"blend": EASE(l2=20, user_power=0.2, item_power=0.3), "blend_weight": 0.7}
WORLD = two_tastes(n_users=40, n_items=30, each=6)


def made(**changes):
    return Recommender(**{**QUICK, **PLUS, **changes}).fit(WORLD)


@pytest.fixture(scope="module")
def fitted():
    return made()


def scores_of(model):
    """Of all users and items, in float64."""
    users, items = (x.toarray() if sp.issparse(x) else x.numpy() for x in model.matrices())
    return users.astype(np.float64) @ items.T.astype(np.float64)


def ease_of(data, l2, user_power=0.0, item_power=0.0):
    """x_u B by hand: see `EASE`."""
    x = data.csr().toarray().astype(np.float64)
    by_item = np.maximum(x.sum(axis=0), 1) ** -item_power
    weighted = np.maximum(x.sum(axis=1), 1)[:, None] ** -user_power * x * by_item
    weighted *= np.sqrt(x.sum() / (weighted**2).sum())
    p = np.linalg.inv(weighted.T @ weighted + l2 * np.eye(x.shape[1]))
    b = -p / np.diag(p)
    np.fill_diagonal(b, 0)
    return x @ (by_item[:, None] * b / by_item)


# --- the scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ["mf", "lightgcn"])
@pytest.mark.parametrize("popularity", [0.0, 0.2])
def test_scores_are_the_trained_ones_and_those_of_ease_times_the_weight(encoder, popularity):
    alone = Recommender(**QUICK, encoder=encoder, popularity=popularity).fit(WORLD)
    summed = made(encoder=encoder, popularity=popularity)
    expected = scores_of(alone) + 0.7 * ease_of(WORLD, 20, 0.2, 0.3)
    np.testing.assert_allclose(scores_of(summed), expected, atol=5e-6)
    pairs = summed.seen_
    users, items = pairs.users[::7], pairs.items[::7]
    ids = pairs.user_ids.ids.take(users.tolist()), pairs.item_ids.ids.take(items.tolist())
    told = summed.score({"user": ids[0], "item": ids[1]})
    np.testing.assert_allclose(np.asarray(told.column("score")), expected[users, items], atol=1e-5)
    # what was trained is the same, and a sum's vectors are its last columns
    for name in ("users", "items"):
        assert torch.equal(getattr(summed.model_.scorer, name), getattr(alone.model_.scorer, name))
    rows, columns = summed.matrices()
    assert torch.equal(torch.from_numpy(rows[:, WORLD.n_items :].toarray()), alone.matrices()[0])
    assert torch.equal(columns[:, WORLD.n_items :], alone.matrices()[1])


def test_the_name_means_ease_as_it_is_by_itself():
    by_name, by_value = made(blend="ease"), made(blend=EASE(l2=500.0))
    np.testing.assert_array_equal(scores_of(by_name), scores_of(by_value))
    assert torch.equal(made(blend=None, blend_weight=1.0).matrices()[0], by_name.model_.scorer.users)


def test_lists_are_the_best_scores_without_what_is_known(fitted):
    scores = scores_of(fitted)
    scores[WORLD.users, WORLD.items] = -np.inf
    table = fitted.recommend(k=5)
    found = np.asarray(table.column("item")).reshape(-1, 5)
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1)[:, :5])


def test_nothing_is_added_with_a_weight_of_zero():
    np.testing.assert_allclose(
        scores_of(made(blend_weight=0.0)), scores_of(Recommender(**QUICK).fit(WORLD)), atol=1e-6
    )


def test_ease_learns_from_the_training_part_and_the_sum_is_judged():
    split = split_random(WORLD, 0.2, valid=0.2, seed=3)
    summed = Recommender(**QUICK, **PLUS).fit(split)
    alone = Recommender(**QUICK).fit(split)
    expected = scores_of(alone) + 0.7 * ease_of(split.train, 20, 0.2, 0.3)
    np.testing.assert_allclose(scores_of(summed), expected, atol=5e-6)
    by_hand = evaluate((torch.from_numpy(expected).float(), torch.eye(30)), split.valid, exclude=split.train)
    told = summed.facts_["metrics"]["validation ndcg@20"]
    assert told == pytest.approx(by_hand.mean("ndcg@20"), abs=1e-6)
    assert summed.result_.score == alone.result_.score  # of the epoch, which what is trained chose
    assert told != summed.result_.score


def test_similar_ones_are_those_of_what_was_trained(fitted):
    alone = Recommender(**QUICK).fit(WORLD)
    for each in (fitted, fitted.fold_in(WORLD)):
        assert each.similar_items([0, 7], k=5).equals(alone.similar_items([0, 7], k=5))
    assert fitted.similar_users([0, 7], k=5).equals(alone.similar_users([0, 7], k=5))
    popular = made(popularity=2.0, epochs=1)
    directions = distinctive(popular.model_.scorer.items, popular.popularity_)
    expected = directions @ directions[0]
    expected[0] = -1
    found = popular.similar_items([0], k=29)
    np.testing.assert_allclose(
        np.asarray(found.column("score")), expected.sort(descending=True)[0][:29], atol=1e-6
    )


# --- saving and folding in -----------------------------------------------------------------------------


@pytest.mark.parametrize("popularity", [0.0, 0.2])
def test_saved_and_loaded_gives_the_same_bits(popularity, tmp_path):
    before = made(popularity=popularity)
    before.save(tmp_path / "m")
    after = Recommender.load(tmp_path / "m")
    assert after.blend == PLUS["blend"]
    assert after.blend_weight == 0.7
    assert (after.matrices()[0] != before.matrices()[0]).nnz == 0
    assert torch.equal(after.matrices()[1], before.matrices()[1])
    assert after.matrices()[1].T.is_contiguous()  # so that products with sparse users need no copy
    assert after.recommend(k=7).equals(before.recommend(k=7))
    people = interactions_of([[0, 2, 4], [1, 3]], 30)
    assert after.fold_in(people).recommend(k=7).equals(before.fold_in(people).recommend(k=7))
    again = after.fold_in(people)
    again.save(tmp_path / "m")
    assert Recommender.load(tmp_path / "m").recommend(k=7).equals(again.recommend(k=7))


@pytest.mark.parametrize(
    "changes",
    [{}, {"popularity": 0.2}, {"sampler": "uniform", "validation": 0.0, "engine": "reference"}],
    ids=str,
)
def test_who_has_the_history_of_somebody_gets_the_same_from_ease(changes):
    fitted, n = made(**changes), WORLD.n_items
    guests = fitted.fold_in(WORLD)
    parts = [each.model_.scorer for each in (fitted, guests)]
    assert (parts[1].history != parts[0].history).nnz == 0
    by_ease = [m.matrices()[0][:, :n] @ m.matrices()[1].numpy().T[:n] for m in (fitted, guests)]
    np.testing.assert_array_equal(*by_ease)
    alone = Recommender(**{**QUICK, **changes}).fit(WORLD).fold_in(WORLD)
    assert torch.equal(parts[1].users, alone.model_.scorer.users)


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blend": "eas"}, r"blend = 'eas' is not known; choose one of 'ease'. Did you mean 'ease'"),
        ({"blend": 3}, r"blend is a int, .*; give 'ease', an object such as EASE\(l2=500\), or None"),
        ({"blend_weight": -1.0}, "blend_weight = -1.0 .* ≥ 0"),
        ({"blend_weight": "x"}, "blend_weight = 'x'"),
        ({"blend_weight": float("nan")}, "blend_weight = nan"),
        ({"encoder": "itemknn"}, r"has no effect: encoder = ItemKNN.* is not trained"),
    ],
)
def test_wrong_values_are_told_before_training(changes, message):
    with pytest.raises(InputError, match=message):
        made(**changes)


def test_what_does_not_fit_into_memory_is_told_before_it_is_made(monkeypatch):
    history, weights = EASE().solve(WORLD)
    parts = Scorer(torch.ones(40, 6), torch.ones(30, 6), history=history, weights=weights)
    monkeypatch.setattr(factor_matrices, "free_bytes", lambda device: 4 * 30 * 36 - 1)
    with pytest.raises(
        InputError, match=r"A blend with EASE over 30 items needs .* GB, .*; train without blend='ease'"
    ):
        parts.matrices()
    monkeypatch.setattr(factor_matrices, "free_bytes", lambda device: 4 * 30 * 36)
    assert parts.matrices()[1].shape == (30, 36)


@contextmanager
def changed_file(path):
    """The tensors and facts of a model file, written again after the block."""
    tensors, facts = read_tensors(path, KIND, VERSION)
    yield tensors, facts
    write_tensors(path, KIND, VERSION, tensors, facts)


OTHERS = {
    "no sum": ({"blend": None}, r"a model of MF.* does not have 'weights', and the file does"),
    "another dimension": ({"dim": 7}, r"users is torch.float32 of shape \(40, 6\), not float32 of \(40, 7\)"),
    "popularity": ({"popularity": 0.1}, r"a model of MF.* with EASE has 'term', and the file does not"),
    "EASE alone": ({"encoder": "ease", "blend": None}, r"a model of EASE.* does not have 'items', and the"),
    "an unknown sum": ({"blend": {"kind": "mf"}}, "blend = 'mf' is not known"),
    "a weight below zero": ({"blend_weight": -2.0}, "blend_weight = -2.0"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_other_parameters_than_its_parts_is_refused(name, fitted, tmp_path):
    parameters, message = OTHERS[name]
    fitted.save(tmp_path / "m")
    with changed_file(tmp_path / "m") as (_, facts):
        facts["model"]["parameters"] |= parameters
    with pytest.raises(StorageError, match=message):
        Recommender.load(tmp_path / "m")


@pytest.mark.parametrize("width", [5, 7])
@pytest.mark.parametrize("name", ["users", "items"])
def test_vectors_of_two_widths_are_refused(name, width, fitted, tmp_path):
    fitted.save(tmp_path / "m")
    with changed_file(tmp_path / "m") as (tensors, _):
        n = len(tensors[name])
        tensors[name] = torch.ones(n, width)
    with pytest.raises(StorageError, match=rf"{name} is .* of shape \({n}, {width}\), not .* \({n}, 6\)"):
        Recommender.load(tmp_path / "m")


def test_weights_of_other_items_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    with changed_file(tmp_path / "m") as (tensors, _):
        tensors["weights"] = torch.ones(30, 31)
    with pytest.raises(StorageError, match=r"weights is .* of shape \(30, 31\), not float32 of \(30, 30\)"):
        Recommender.load(tmp_path / "m")


def test_a_vector_of_zeros_is_whole(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    with changed_file(tmp_path / "m") as (tensors, _):
        tensors["users"] = torch.zeros(40, 6)
    loaded = Recommender.load(tmp_path / "m")
    assert not loaded.model_.scorer.users.any()
    rows = loaded.matrices()[0]
    assert np.diff(rows.indptr).tolist() == (WORLD.user_counts + 6).tolist()  # zeros of vectors are stored


# --- parts, rows and columns ---------------------------------------------------------------------------

N_USERS, N_ITEMS, DIM = 7, 5, 3


def parts_of(kind):
    """A scorer of random parts, and its scores of all users and items by the definition."""
    chance = np.random.default_rng(3)
    dim = DIM if kind in ("vectors", "vectors and term", "blend", "blend and term") else 0
    users, items = (chance.normal(size=(n, dim)).astype(np.float32) for n in (N_USERS, N_ITEMS))
    term = chance.normal(size=N_ITEMS).astype(np.float32) if kind.endswith("term") else None
    history = weights = None
    scores = users @ items.T + (0 if term is None else term)
    if "blend" in kind or "weights" in kind:
        x = np.where(chance.random((N_USERS, N_ITEMS)) < 0.4, chance.uniform(0.5, 2, (N_USERS, N_ITEMS)), 0)
        w = chance.normal(size=(N_ITEMS, N_ITEMS)).astype(np.float32)
        history, weights = sp.csr_array(x.astype(np.float32)), torch.from_numpy(w)
        if kind == "sparse weights":
            weights = sp.csr_array(w)
        scores = scores + x @ w.T
    made = Scorer(
        torch.from_numpy(users),
        torch.from_numpy(items),
        None if term is None else torch.from_numpy(term),
        history,
        weights,
    )
    return made, scores


KINDS = [
    "vectors", "vectors and term", "term", "dense weights", "sparse weights", "blend", "blend and term",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_rows_and_columns_are_the_scores(kind):
    scorer, scores = parts_of(kind)
    users, items = (x.toarray() if sp.issparse(x) else x.numpy() for x in scorer.matrices())
    assert users.shape == (N_USERS, scorer.width)
    assert items.shape == (N_ITEMS, scorer.width)
    np.testing.assert_allclose(users @ items.T, scores, atol=1e-5)
    some = np.array([4, 0, 4, 6])
    rows = scorer.rows(some)
    np.testing.assert_array_equal(rows.toarray() if sp.issparse(rows) else rows.numpy(), users[some])
    pairs = np.array([3, 3, 0, 6]), np.array([1, 4, 0, 2])
    np.testing.assert_allclose(scorer.scores(*pairs), scores[pairs], atol=1e-5)
    assert scorer.scores(*pairs).dtype == np.float32


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_of_known_parts_is_their_row(kind):
    scorer, _ = parts_of(kind)
    some = np.array([2, 5])
    history = None if scorer.history is None else sp.csr_array(scorer.history[some])
    found, expected = scorer.query(scorer.users[torch.from_numpy(some)], history), scorer.rows(some)
    assert type(found) is type(expected)
    difference = found != expected
    assert difference.nnz == 0 if sp.issparse(found) else not difference.any()


@pytest.mark.parametrize("kind", KINDS)
def test_which_parts_a_scorer_has(kind):
    scorer, _ = parts_of(kind)
    assert scorer.dim == (DIM if "vectors" in kind or "blend" in kind else 0)
    assert scorer.is_blend == ("blend" in kind)
    expected = (N_ITEMS if scorer.weights is not None else 0) + scorer.dim + ("term" in kind)
    assert scorer.width == expected
    if scorer.weights is None:
        assert torch.equal(scorer.trained_columns, scorer.columns)
    elif scorer.dim:
        assert torch.equal(scorer.trained_columns, scorer.columns[:, N_ITEMS:])
        assert torch.equal(scorer.weights, scorer.columns[:, :N_ITEMS])
        assert scorer.weights.data_ptr() == scorer.columns.data_ptr()  # in memory once
        assert scorer.columns.T.is_contiguous()


@pytest.mark.parametrize("kind", ["vectors", "vectors and term", "term"])
def test_some_users_and_items_of_a_scorer(kind):
    scorer, scores = parts_of(kind)
    users, items = np.array([6, 1]), np.array([0, 4, 2])
    found = scorer.take(users, items)
    rows, columns = found.matrices()
    np.testing.assert_allclose(rows @ columns.T, scores[np.ix_(users, items)], atol=1e-5)


@pytest.mark.parametrize("kind", ["dense weights", "sparse weights"])
def test_the_parts_of_a_closed_form(kind):
    scorer, _ = parts_of(kind)
    found = closed_scorer(scorer.history, scorer.weights)
    assert (found.history, found.weights, found.dim) == (scorer.history, scorer.weights, 0)


def test_the_parts_of_popularity():
    counts = torch.arange(5.0)[:, None]
    popular = closed_scorer(torch.ones(7, 1), counts)
    assert torch.equal(popular.term, counts[:, 0])
    assert (popular.matrices()[0] == 1).all()
