"""A program written for `implicit` runs on the adapter: same calls, shapes, types and errors."""

import dataclasses
import importlib
import inspect
import io

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import truepair.adapters.implicit as ours
from truepair.adapters.implicit.lists import LOWEST
from truepair.errors import InputError, StorageError
from truepair.models.closed_forms import EASE
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import load_model, save_model
from worlds import two_tastes

N_USERS, N_ITEMS = 40, 30
OURS = {
    "bpr": ours.bpr.BayesianPersonalizedRanking,
    "dpl": ours.dpl.DebiasedPairwise,
    "infonce": ours.infonce.FullCatalogueInfoNCE,
}


def clicks():
    pairs = two_tastes(N_USERS, N_ITEMS)
    return sp.csr_matrix((np.ones(len(pairs), np.float32), (pairs.users, pairs.items)), (N_USERS, N_ITEMS))


def fitted(kind="bpr", **params):
    own = {"temperature": 0.5, "iterations": 10} if kind == "infonce" else {}
    params = {"factors": 8, "iterations": 30, "learning_rate": 0.05, "random_state": 0} | own | params
    model = OURS[kind](**params)
    model.fit(clicks(), show_progress=False)
    return model


@pytest.fixture(scope="module", params=OURS)
def model(request):
    return fitted(request.param)


@pytest.fixture(scope="module")
def theirs():
    """The real thing, fitted on the same clicks."""
    try:
        bpr = importlib.import_module("implicit.bpr")
    except ImportError:
        pytest.skip("implicit is not installed")
    model = bpr.BayesianPersonalizedRanking(factors=8, iterations=5, random_state=0, num_threads=1)
    model.fit(clicks(), show_progress=False)
    return model


# --- what it learns ------------------------------------------------------------------------------------


def test_it_learns_whose_taste_is_whose(model):
    ids, scores = model.recommend(np.arange(N_USERS), clicks(), N=5)
    right = (ids % 2) == (np.arange(N_USERS) % 2)[:, None]
    assert right.mean() > 0.95
    assert (np.diff(scores, axis=1) <= 0).all()


def test_the_same_state_gives_the_same_factors():
    a, b, c = (fitted(random_state=state, iterations=2) for state in (3, 3, 4))
    assert (a.user_factors == b.user_factors).all()
    assert (a.item_factors == b.item_factors).all()
    assert (a.user_factors != c.user_factors).any()


@pytest.mark.parametrize(
    "state",
    [None, np.int64(3), np.random.default_rng(0), np.random.RandomState(0)],
    ids=lambda state: type(state).__name__,
)
def test_every_kind_of_random_state_is_taken(state):
    assert fitted(random_state=state, iterations=1).item_factors.shape == (N_ITEMS, 8)


def test_values_are_not_looked_at_and_explicit_zeros_are_nothing():
    plain, weighted = clicks(), clicks() * 7
    weighted[0, 0] = 0.0
    plain[0, 0] = 0.0
    plain.eliminate_zeros()
    models = [OURS["bpr"](factors=4, iterations=2, random_state=0) for _ in range(2)]
    for model, matrix in zip(models, (plain, weighted), strict=True):
        model.fit(matrix, show_progress=False)
    assert (models[0].item_factors == models[1].item_factors).all()


def test_other_sparse_formats_are_taken_and_the_callers_matrix_stays():
    matrix = clicks().tocoo()
    before = matrix.toarray()
    model = OURS["bpr"](factors=4, iterations=1, random_state=0)
    model.fit(matrix, show_progress=False)
    assert (matrix.toarray() == before).all()


def test_the_callback_hears_of_every_epoch():
    heard = []
    model = OURS["dpl"](factors=8, iterations=10, learning_rate=0.1, random_state=0)
    model.fit(clicks(), show_progress=False, callback=lambda *told: heard.append(told))
    assert [epoch for epoch, *_ in heard] == list(range(10))
    assert all(seconds >= 0 and skipped == 0 for _, seconds, _, skipped in heard)
    assert heard[0][2] < heard[-1][2] <= clicks().nnz


def test_a_callback_changes_nothing():
    silent = fitted(iterations=3)
    told = OURS["bpr"](factors=8, iterations=3, learning_rate=0.05, random_state=0)
    told.fit(clicks(), show_progress=False, callback=lambda *_: None)
    assert (silent.item_factors == told.item_factors).all()


def test_factors_have_the_type_asked_for():
    model = fitted(dtype=np.float64, iterations=1)
    assert model.user_factors.dtype == model.item_factors.dtype == np.float64
    assert model.recommend(0, clicks()[0])[1].dtype == np.float32


# --- recommend -----------------------------------------------------------------------------------------


def test_scores_are_dot_products_and_liked_items_are_left_out(model):
    users = np.array([3, 0, 3])
    ids, scores = model.recommend(users, clicks()[users], N=7)
    expected = np.einsum("nd,nkd->nk", model.user_factors[users], model.item_factors[ids])
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)
    for user, row in zip(users, ids, strict=True):
        assert not set(row) & set(clicks()[user].indices)


def test_a_batch_equals_single_calls(model):
    users = np.array([5, 2, 9])
    ids, scores = model.recommend(users, clicks()[users], N=6, filter_items=[1, 4])
    for at, user in enumerate(users):
        one_ids, one_scores = model.recommend(user, clicks()[user], N=6, filter_items=[1, 4])
        assert one_ids.tolist() == ids[at].tolist()
        assert one_scores.tolist() == scores[at].tolist()


def test_filters_and_choices_of_items(model):
    ids, _ = model.recommend(0, clicks()[0], N=30, filter_items=np.array([2, 4]))
    assert not {2, 4} & set(ids.tolist())
    chosen = [11, 3, 7]
    ids, _ = model.recommend(0, None, N=10, filter_already_liked_items=False, items=chosen)
    assert sorted(ids.tolist()) == sorted(chosen)


def test_places_without_a_candidate_are_marked(model):
    ids, scores = model.recommend([0, 1], clicks()[[0, 1]], N=N_ITEMS + 5)
    assert ids.shape == scores.shape == (2, N_ITEMS + 5)
    empty = ids == -1
    assert (scores[empty] == LOWEST).all()
    assert (empty.sum(axis=1) == 5 + 6).all()  # six liked items each, and five beyond the catalogue


def test_new_people_are_folded_in(model):
    strangers = clicks()[[0, 1]]
    ids, _ = model.recommend([1000, 1001], strangers, N=5, recalculate_user=True)
    assert ((ids % 2) == [[0], [1]]).mean() > 0.8
    assert model.recalculate_user(0, strangers[0]).shape == (8,)
    assert model.recalculate_user([0, 1], strangers).shape == (2, 8)


def test_a_stranger_without_a_history_gets_a_zero_vector(model):
    nobody = sp.csr_matrix((1, N_ITEMS), dtype=np.float32)
    assert (model.recalculate_user(0, nobody) == 0).all()
    everybody = sp.csr_matrix(np.ones((1, N_ITEMS)))
    assert (model.recalculate_user(0, everybody) == 0).all()


# --- similar -------------------------------------------------------------------------------------------


def test_similarity_is_the_cosine_and_begins_with_itself(model):
    for matrix, similar in (
        (model.item_factors, model.similar_items),
        (model.user_factors, model.similar_users),
    ):
        directions = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        ids, scores = similar([4, 2], N=6)
        assert ids[:, 0].tolist() == [4, 2]
        np.testing.assert_allclose(
            scores, np.einsum("nd,nkd->nk", directions[[4, 2]], directions[ids]), atol=1e-5
        )


def test_similar_takes_filters_and_choices(model):
    assert 0 not in model.similar_items(0, N=5, filter_items=[0])[0]
    assert set(model.similar_items(0, N=5, items=[3, 5])[0].tolist()) == {3, 5}
    assert 1 not in model.similar_users(0, N=5, filter_users=[1])[0]
    assert set(model.similar_users(0, N=5, users=[3, 5])[0].tolist()) == {3, 5}


# --- saving --------------------------------------------------------------------------------------------


def test_saved_and_loaded_it_gives_the_same(model, tmp_path):
    path = str(tmp_path / "model.npz")
    model.save(path)
    again = type(model).load(path)
    users = np.arange(5)
    for options in ({}, {"recalculate_user": True}):  # where new vectors are fitted: on a GPU sums vary
        for a, b in zip(
            model.recommend(users, clicks()[users], **options),
            again.recommend(users, clicks()[users], **options),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 if torch.cuda.is_available() else 0)
    assert again.factors == model.factors
    assert again.dtype == model.dtype
    assert again._fitted_loss == model._fitted_loss


def test_open_files_are_taken(model):
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    assert (type(model).load(file).item_factors == model.item_factors).all()


def test_a_model_of_another_kind_is_refused(tmp_path):
    fitted("bpr", iterations=1).save(tmp_path / "model")
    with pytest.raises(StorageError, match=r"not a saved DebiasedPairwise.*implicit\.bpr"):
        OURS["dpl"].load(tmp_path / "model")


def test_sparse_rows_are_no_factors(tmp_path):
    fitted("bpr", iterations=1).save(tmp_path / "model")
    stored = load_model(tmp_path / "model")
    rows = [sp.csr_array(np.ones((n, N_ITEMS), np.float32)) for n in (N_USERS, N_ITEMS)]
    save_model(tmp_path / "model", dataclasses.replace(stored, users=rows[0], items=rows[1]))
    with pytest.raises(StorageError, match="users are sparse rows"):
        OURS["bpr"].load(tmp_path / "model")


def test_a_foreign_file_is_refused(tmp_path):
    np.savez(tmp_path / "model.npz", item_factors=np.eye(2))
    with pytest.raises(StorageError, match=r"model\.npz"):
        OURS["bpr"].load(tmp_path / "model.npz")
    with pytest.raises(StorageError, match="there is no"):
        OURS["bpr"].load(str(tmp_path / "nothing"))


# --- what cannot be done -------------------------------------------------------------------------------


def test_mistakes_are_told(model):
    matrix = clicks()
    with pytest.raises(ValueError, match="CSR"):
        model.recommend(0, None)
    with pytest.raises(ValueError, match="1 row for every user"):
        model.recommend([0, 1], matrix)
    with pytest.raises(ValueError, match="both items and filter_items"):
        model.recommend(0, matrix[0], items=[1], filter_items=[2])
    with pytest.raises(IndexError):
        model.recommend(N_USERS, matrix[0])
    with pytest.raises(IndexError, match="0 to 29"):
        model.recommend(0, matrix[0], items=[N_ITEMS])
    with pytest.raises(InputError, match="3 columns"):
        model.recommend(0, matrix[0, :3])
    with pytest.raises(InputError, match="N = 0"):
        model.recommend(0, matrix[0], N=0)
    with pytest.raises(NotImplementedError):
        model.similar_items(0, recalculate_item=True)


def test_before_fitting_and_without_a_matrix():
    with pytest.raises(InputError, match="not fitted"):
        OURS["bpr"]().recommend(0, clicks()[0])
    with pytest.raises(InputError, match="csr_matrix"):
        OURS["bpr"]().fit(np.eye(3))
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="cuda"):
            OURS["bpr"](use_gpu=True).fit(clicks())


def test_what_is_not_here_says_what_is():
    for look in (
        lambda: ours.als.AlternatingLeastSquares,
        lambda: ours.AlternatingLeastSquares,
        lambda: ours.nearest_neighbours,
        lambda: importlib.import_module("truepair.adapters.implicit").lmf,
    ):
        with pytest.raises(ImportError, match="BayesianPersonalizedRanking"):
            look()
    with pytest.raises(AttributeError, match="nothing"):
        _ = ours.nothing
    with pytest.raises(AttributeError, match="nothing"):
        _ = ours.als.nothing


def test_importing_what_is_not_here_says_what_is():
    with pytest.raises(ImportError, match="BayesianPersonalizedRanking"):
        from truepair.adapters.implicit.als import AlternatingLeastSquares  # noqa: F401
    with pytest.raises(ImportError, match="BayesianPersonalizedRanking"):
        from truepair.adapters.implicit import nearest_neighbours  # noqa: F401


# --- the full catalogue, EASE, lists of all ------------------------------------------------------------


def test_the_full_catalogue_is_truepairs_default_model():
    matrix = clicks()
    model = ours.FullCatalogueInfoNCE(random_state=3, use_gpu=False)
    model.fit(matrix, show_progress=False)
    same = Recommender(seed=3, device="cpu").fit(two_tastes(N_USERS, N_ITEMS))
    np.testing.assert_array_equal(model.user_factors, same.users_.numpy())
    np.testing.assert_array_equal(model.item_factors, same.items_.numpy())
    popular = ours.FullCatalogueInfoNCE(factors=4, iterations=2, popularity=0.5, random_state=0)
    popular.fit(matrix, show_progress=False)
    assert popular.item_factors.shape == (N_ITEMS, 5)
    assert popular.recalculate_user(0, matrix[0]).shape == (5,)


def test_parameters_of_the_full_catalogue_are_used():
    model = ours.FullCatalogueInfoNCE(
        7, 0.03, 0.2, iterations=3, use_gpu=False, random_state=5, temperature=0.4, popularity=0.6
    )
    job = model._job(two_tastes(N_USERS, N_ITEMS))
    assert (job.encoder.dim, job.encoder.temperature, job.encoder.popularity) == (7, 0.4, 0.6)
    settings = job.settings
    assert (settings.learning_rate, settings.weight_decay, settings.epochs) == (0.03, 0.2, 3)
    assert (settings.seed, settings.device) == (5, "cpu")


def test_ease_is_truepairs_ease(tmp_path):
    matrix = clicks()
    model = ours.EASE(regularization=5.0, item_power=0.2)
    model.fit(matrix)
    same = Recommender(encoder=EASE(l2=5.0, item_power=0.2)).fit(two_tastes(N_USERS, N_ITEMS))
    ids, scores = model.recommend(np.arange(N_USERS), matrix, N=4)
    lists = same.recommend(k=4)
    assert ids.ravel().tolist() == lists["item"].to_pylist()
    np.testing.assert_allclose(scores.ravel(), lists["score"].to_numpy(), rtol=1e-5)
    one, _ = model.recommend(3, matrix[3], N=4)
    assert one.tolist() == ids[3].tolist()
    near, weights = model.similar_items([0, 1], N=3)
    expected = same.similar_items([0, 1], k=3)
    assert near.ravel().tolist() == expected["similar"].to_pylist()
    np.testing.assert_allclose(weights.ravel(), expected["score"].to_numpy(), rtol=1e-5)
    folded, _ = model.recommend(7, matrix[3], N=4, recalculate_user=True)
    assert folded.tolist() == ids[3].tolist()
    model.save(tmp_path / "m")
    again = ours.EASE.load(tmp_path / "m")
    assert (again.regularization, again.item_power) == (5.0, 0.2)
    np.testing.assert_array_equal(again.recommend(np.arange(N_USERS), matrix, N=4)[0], ids)
    with pytest.raises(StorageError, match="is not a saved BayesianPersonalizedRanking"):
        OURS["bpr"].load(tmp_path / "m")
    fitted().save(tmp_path / "bpr")
    with pytest.raises(StorageError, match="is not a saved EASE"):
        ours.EASE.load(tmp_path / "bpr")
    with pytest.raises(NotImplementedError, match="similar_users"):
        model.similar_users(0)
    with pytest.raises(InputError, match="not fitted"):
        ours.EASE().recommend(0, matrix[0])


def test_lists_of_all_users(model):
    matrix = clicks()
    expected, _ = model.recommend(np.arange(N_USERS), matrix, N=4)
    found = model.recommend_all(matrix, N=4)
    assert (found.dtype, found.shape) == (np.int32, (N_USERS, 4))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(model.recommend_all(matrix, N=4, batch_size=7), expected)
    seen = model.recommend_all(matrix, N=4, filter_already_liked_items=False, filter_items=[0])
    assert not (seen == 0).any()
    assert matrix[np.arange(N_USERS)[:, None], seen].sum() > 0
    assert model.recommend_all(matrix[:0], N=4).shape == (0, 4)
    with pytest.raises(InputError, match="CSR"):
        model.recommend_all(matrix.tocoo())


# --- the real implicit ---------------------------------------------------------------------------------

CALLS = {
    "one": lambda m, x: m.recommend(0, x[0], N=3),
    "one numpy id": lambda m, x: m.recommend(np.int64(1), x[1], N=3),
    "batch": lambda m, x: m.recommend(np.arange(4), x[:4], N=5),
    "list": lambda m, x: m.recommend([2, 1], x[[2, 1]]),
    "liked too": lambda m, x: m.recommend([2, 1], None, filter_already_liked_items=False),
    "filtered": lambda m, x: m.recommend([2, 1], x[[2, 1]], N=4, filter_items=[0, 3]),
    "items": lambda m, x: m.recommend([2, 1], x[[2, 1]], N=2, items=[0, 3, 5, 6]),
    "few items": lambda m, x: m.recommend([2, 1], x[[2, 1]], N=9, items=[0, 3, 5, 6]),
    "one, few items": lambda m, x: m.recommend(2, x[2], N=9, items=np.array([0, 3, 5, 6])),
    "more than all": lambda m, x: m.recommend([2, 1], x[[2, 1]], N=100),
    "similar item": lambda m, x: m.similar_items(3),
    "similar items": lambda m, x: m.similar_items([3, 4], N=4, filter_items=[5]),
    "similar among": lambda m, x: m.similar_items(3, N=2, items=[1, 2, 6]),
    "similar user": lambda m, x: m.similar_users(3, N=4),
    "similar users": lambda m, x: m.similar_users(np.array([3, 4]), N=2, users=[1, 2, 6]),
}


@pytest.mark.parametrize("call", CALLS)
def test_shapes_and_types_are_those_of_implicit(call, theirs):
    for a, b in zip(CALLS[call](fitted(iterations=1), clicks()), CALLS[call](theirs, clicks()), strict=True):
        assert type(a) is type(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@pytest.mark.parametrize("call", [name for name in CALLS if name not in ("few items", "one, few items")])
def test_the_same_factors_give_the_same_lists_as_implicit(call, theirs):
    model = fitted(iterations=1)
    model.user_factors, model.item_factors = theirs.user_factors, theirs.item_factors
    (our_ids, our_scores), (their_ids, their_scores) = (CALLS[call](m, clicks()) for m in (model, theirs))
    real = our_ids >= 0
    assert (our_ids[real] == their_ids[real]).all()
    np.testing.assert_allclose(our_scores[real], their_scores[real], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["fit", "recommend", "similar_items", "similar_users", "save", "load"])
def test_parameters_have_implicits_names_and_defaults(method, theirs):
    their_parameters = inspect.signature(getattr(type(theirs), method)).parameters
    our_parameters = inspect.signature(getattr(OURS["bpr"], method)).parameters
    assert {k: p.default for k, p in our_parameters.items()} == {
        k: p.default for k, p in their_parameters.items()
    }


def test_the_constructor_takes_what_implicits_does(theirs):
    factory = importlib.import_module("implicit.bpr").BayesianPersonalizedRanking
    wanted = inspect.signature(factory).parameters
    for name, kind in OURS.items():
        given = inspect.signature(kind).parameters
        assert list(given)[: len(wanted)] == list(wanted)
        if name == "infonce":  # its defaults are truepair's own
            continue
        assert all(given[name].default == p.default for name, p in wanted.items() if name != "use_gpu")


def test_mistakes_raise_the_same_kinds_of_error(theirs):
    matrix, model = clicks(), fitted(iterations=1)
    mistakes = [
        lambda m: m.recommend(0, None),
        lambda m: m.recommend(0, matrix[0].tocoo()),
        lambda m: m.recommend([0, 1], matrix),
        lambda m: m.recommend(0, matrix[0], items=[1], filter_items=[2]),
        lambda m: m.recommend(N_USERS, matrix[0]),
        lambda m: m.recommend(0, matrix[0], items=[N_ITEMS]),
        lambda m: m.similar_items(0, recalculate_item=True),
        lambda m: m.similar_users(0, users=[1], filter_users=[2]),
    ]
    for mistake in mistakes:
        with pytest.raises(Exception) as raised:  # noqa: PT011, whatever implicit raises
            mistake(theirs)
        with pytest.raises(raised.type):
            mistake(model)
