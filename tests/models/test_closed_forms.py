"""Encoders without training against slow, obvious formulas."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.evaluation import Validation, evaluate
from truepair.losses import BPR
from truepair.models import closed_forms, factor_matrices
from truepair.models.closed_forms import ALL_ENCODERS, CLOSED, EASE, ClosedForm, ItemKNN, Popular
from truepair.models.encoders import ENCODERS
from truepair.randomness import random_order
from truepair.recommender.fitting import solve
from truepair.sampling import Uniform
from truepair.training import Job, Settings, fit
from worlds import interactions_of, two_tastes

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data():
    """Users with nothing, one and all; items of nobody and of everybody else."""
    rng = np.random.default_rng(1)
    dense = rng.random((40, 25)) < 0.25 + 0.4 * (np.arange(25) < 5)
    dense[3], dense[4], dense[5] = False, False, True
    dense[4, 2], dense[:, 7], dense[6:, 8] = True, False, True
    users, items = np.nonzero(dense)
    return Interactions(users, items, IdMap.range(40), IdMap.range(25))


def dense_of(rows):
    return rows.numpy() if isinstance(rows, torch.Tensor) else rows.toarray()


# --- popularity ----------------------------------------------------------------------------------------


def test_popularity_counts(data):
    users, items = Popular().solve(data)
    assert torch.equal(users, torch.ones(40, 1))
    np.testing.assert_array_equal(items[:, 0], data.csr().toarray().sum(axis=0))


# --- neighbours ----------------------------------------------------------------------------------------


def slow_neighbours(x, neighbours, shrink):
    """A double loop over items, and a full sort of each row by (similarity, place in the tie order)."""
    n = x.shape[1]
    place = np.argsort(random_order(closed_forms._TIE_KEY, n))
    kept = np.zeros((n, n))
    for j in range(n):
        similar = {}
        for i in range(n):
            both = (x[:, i] * x[:, j]).sum()
            if i != j and both:
                similar[i] = both / (np.sqrt(x[:, i].sum() * x[:, j].sum()) + shrink)
        for i in sorted(similar, key=lambda i: (-similar[i], place[i]))[:neighbours]:
            kept[j, i] = similar[i]
    return kept


@pytest.mark.parametrize("neighbours", [1, 3, 24, 100])
@pytest.mark.parametrize("shrink", [0, 2.5])
@pytest.mark.parametrize("block", [1, 7, 512])
def test_neighbours_equal_a_double_loop(neighbours, shrink, block, data, monkeypatch):
    monkeypatch.setattr(closed_forms, "_BLOCK", block)
    users, items = ItemKNN(neighbours, shrink).solve(data)
    x = data.csr().toarray().astype(np.float64)
    np.testing.assert_array_equal(users.toarray(), x)
    np.testing.assert_array_equal(items.toarray(), slow_neighbours(x, neighbours, shrink).astype(np.float32))


def test_of_equally_similar_items_the_same_ones_are_kept_whatever_the_block(monkeypatch):
    together = interactions_of([list(range(30))] * 3, 30)  # all are equally similar
    found = ItemKNN(4, 0).solve(together)[1]
    assert (np.diff(found.indptr) == 4).all()
    first = random_order(closed_forms._TIE_KEY, 30)[:5]
    for item, row in enumerate(found.toarray()):
        expected = [i for i in first if i != item][:4]
        assert set(np.flatnonzero(row)) == set(expected)


# --- EASE ----------------------------------------------------------------------------------------------


def numpy_ease(x, l2):
    """B = I - P diag(1 / P_jj), written as the paper's own listing has it."""
    gram = x.T @ x
    gram[np.diag_indices(len(gram))] += l2
    p = np.linalg.inv(gram)
    b = p / (-np.diag(p))
    b[np.diag_indices(len(b))] = 0
    return b


@pytest.mark.parametrize("l2", [0.5, 10, 500])
@pytest.mark.parametrize("block", [7, 512])
def test_ease_equals_numpy(l2, block, data, monkeypatch):
    monkeypatch.setattr(closed_forms, "_BLOCK", block)
    users, items = EASE(l2).solve(data)
    x = data.csr().toarray().astype(np.float64)
    np.testing.assert_array_equal(users.toarray(), x)
    np.testing.assert_allclose(items.numpy().T, numpy_ease(x, l2), atol=2e-6)
    assert items.dtype == torch.float32
    assert items.T.is_contiguous()  # so that products with sparse users need no copy


@pytest.mark.parametrize(("user_power", "item_power"), [(0.5, 0), (0, 0.5), (0.25, 0.4)])
def test_powers_weigh_the_rows_and_columns_of_ease(user_power, item_power, data):
    x = data.csr().toarray().astype(np.float64)
    by_item = np.maximum(x.sum(axis=0), 1) ** -item_power
    weighted = np.maximum(x.sum(axis=1), 1)[:, None] ** -user_power * x * by_item
    weighted *= np.sqrt(x.sum() / (weighted**2).sum())  # the trace of the gram stays
    items = EASE(20, user_power, item_power).solve(data)[1]
    expected = by_item[:, None] * numpy_ease(weighted, 20) / by_item
    np.testing.assert_allclose(items.numpy().T, expected, atol=2e-6)


@pytest.mark.parametrize("l2", [2, 100])
def test_ease_is_the_optimum_of_the_constrained_least_squares(l2, data):
    """Off the diagonal the gradient -2 Xᵀ(X - XB) + 2·l2·B of the loss is zero; on it, B is."""
    x, b = data.csr().toarray().astype(np.float64), EASE(l2).solve(data)[1].numpy().T.astype(np.float64)
    assert not np.diag(b).any()
    gradient = -2 * x.T @ (x - x @ b) + 2 * l2 * b
    off = ~np.eye(len(b), dtype=bool)
    assert np.abs(gradient[off]).max() < 1e-4 * np.abs(x.T @ x).max()

    def loss(weights):
        return ((x - x @ weights) ** 2).sum() + l2 * (weights**2).sum()

    rng = np.random.default_rng(0)
    for _ in range(5):
        assert loss(b + 1e-2 * rng.normal(size=b.shape) * off) > loss(b)


def test_an_item_of_nobody_neither_gives_nor_gets_a_score(data):
    items = EASE().solve(data)[1]
    assert not data.item_counts[7]
    assert not items[7].any()
    assert not items[:, 7].any()
    assert not np.signbit(items.numpy()[7]).any()


def test_a_low_l2_is_solved_in_float64():
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((300, 12)) < 0.5)
    data = Interactions(users, items, IdMap.range(300), IdMap.range(12))
    expected = numpy_ease(data.csr().toarray().astype(np.float64), 1e-3)
    np.testing.assert_allclose(EASE(1e-3).solve(data)[1].numpy().T, expected, atol=1e-6)


def test_a_matrix_without_a_factor_is_tried_in_float64_and_then_told(data, monkeypatch):
    tried = []
    monkeypatch.setattr(EASE, "_solve", lambda *given: tried.append(given[-1]))
    with pytest.raises(InputError, match=r"l2 = 500 is too low: .* cannot be inverted; raise l2"):
        EASE().solve(data)
    assert tried == [torch.float32, torch.float64]
    with pytest.raises(InputError, match=r"l2 = 1e-05 is too low"):
        EASE(1e-5).solve(data)
    assert tried[2:] == [torch.float64]  # float32 would not suffice


def test_no_factor_and_no_number_are_noticed(data, monkeypatch):
    for broken in ([[1.0, 2.0], [2.0, 1.0]], [[np.inf, 0.0], [0.0, 1.0]]):
        monkeypatch.setattr(closed_forms, "_gram", lambda *_, broken=broken: torch.tensor(broken))
        weighted, scale = EASE(1e-9)._weighted_matrix(data)
        assert EASE(1e-9)._solve(weighted, scale, data.item_counts, CPU, torch.float32) is None


def test_an_l2_too_low_for_float64_is_told():
    with pytest.raises(InputError, match=r"l2 = 1e-300 is too low"):
        EASE(1e-300).solve(interactions_of([[0, 1]] * 50, 2))


def test_too_many_items_are_told_before_anything_is_allocated(data, monkeypatch):
    monkeypatch.setattr(factor_matrices, "free_bytes", lambda device: 3 * 4 * 25**2)
    EASE().solve(data)
    monkeypatch.setattr(factor_matrices, "free_bytes", lambda device: 3 * 4 * 25**2 - 1)
    with pytest.raises(
        InputError, match=r"EASE of 25 items needs .* GB, but .* free on cpu; keep fewer items"
    ):
        EASE().solve(data)
    monkeypatch.undo()
    many = Interactions(np.array([0]), np.array([0]), IdMap.range(1), IdMap.range(3_000_000))
    with pytest.raises(InputError, match=r"EASE of 3,000,000 items needs 108,000\.0 GB"):
        EASE().solve(many)


def test_free_memory_is_known_or_not_asked_for(monkeypatch):
    assert factor_matrices.free_bytes(CPU) > 1 << 20
    monkeypatch.setattr(factor_matrices.Path, "read_text", lambda self: "nothing")
    assert factor_matrices.free_bytes(CPU) > 1 << 20
    monkeypatch.delattr(factor_matrices.os, "sysconf_names")
    assert factor_matrices.free_bytes(CPU) is None
    factor_matrices.check_room("anything", 1 << 80, CPU, "no remedy")


# --- all of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", CLOSED)
def test_numbers_are_finite_and_repeat(encoder, data):
    once, again = (CLOSED[encoder]().solve(data) for _ in range(2))
    for a, b in zip(once, again, strict=True):
        assert np.isfinite(dense_of(a)).all()
        np.testing.assert_array_equal(dense_of(a), dense_of(b))


@pytest.mark.parametrize("encoder", CLOSED)
def test_evaluation_takes_their_matrices(encoder, data):
    split = split_random(data, 0.2, valid=0.1)
    users, items = CLOSED[encoder]().solve(split.train)
    found = evaluate((users, items), split, ks=(5,))
    plain = evaluate((dense_of(users), dense_of(items)), split, ks=(5,))
    assert found.means == pytest.approx(plain.means)
    validation = Validation(split.valid, split.train, "recall@5")
    solved = solve(CLOSED[encoder](), split.train, validation, CPU)
    assert solved.score == validation(solved) == validation.score(*solved.matrices())
    assert (solved.epoch, solved.history, solved.job, solved.engine) == (None, (), None, "closed form")


def test_tastes_are_told_apart():
    split = split_random(two_tastes(n_users=120, n_items=40, each=8), 0.2)
    recall = {
        name: evaluate(kind().solve(split.train), split, ks=(20,)).mean("recall@20")
        for name, kind in CLOSED.items()
    }
    assert recall["popular"] < 0.7
    assert min(recall["itemknn"], recall["ease"]) > 0.95


@pytest.mark.parametrize("encoder", CLOSED)
def test_nothing_to_learn_from(encoder):
    nothing = Interactions(np.zeros(0, int), np.zeros(0, int), IdMap.range(3), IdMap.range(2))
    with pytest.raises(InputError, match="there are no interactions to learn from"):
        CLOSED[encoder]().solve(nothing)


@pytest.mark.parametrize("encoder", CLOSED)
def test_engines_refuse_them(encoder, data):
    with pytest.raises(
        InputError, match=r"encoder is a .*, which cannot be used here; give a value such as MF"
    ):
        fit(Job(CLOSED[encoder](), BPR(), Uniform(), data, Settings()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ItemKNN(neighbours=0), "neighbours = 0 .* ≥ 1"),
        (lambda: ItemKNN(shrink=-1), "shrink = -1 .* ≥ 0"),
        (lambda: EASE(l2=0), "l2 = 0 .* > 0"),
        (lambda: EASE(l2="x"), "l2 = 'x'"),
        (lambda: EASE(user_power=-0.1), "user_power = -0.1"),
        (lambda: EASE(item_power=1.5), "item_power = 1.5"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_what_is_no_encoder_yet_cannot_be_made():
    with pytest.raises(TypeError, match="abstract class ClosedForm"):
        ClosedForm()


@pytest.mark.parametrize("encoder", CLOSED)
def test_which_rows_are_sparse(encoder, data):
    kind = CLOSED[encoder]
    users, items = kind().solve(data)
    assert (sp.issparse(users), sp.issparse(items)) == (not kind.has_term, kind.sparse_items)


def test_registry():
    assert list(ALL_ENCODERS) == [*ENCODERS, "popular", "itemknn", "ease"]


# --- rows, dense and sparse ----------------------------------------------------------------------------


def test_sparse_rows_do_what_dense_rows_do():
    rng = np.random.default_rng(0)
    users, items = (rng.normal(size=(n, 6)) * (rng.random((n, 6)) < 0.5) for n in (9, 8))
    users[2] = 0
    tensors = [torch.tensor(x, dtype=torch.float32) for x in (users, items)]
    sparse = [sp.csr_array(x.astype(np.float32)) for x in (users, items)]
    np.testing.assert_allclose(
        dense_of(factor_matrices.unit_rows(sparse[0])), factor_matrices.unit_rows(tensors[0]), rtol=1e-6
    )
    codes = rng.integers(0, 9, 50), rng.integers(0, 8, 50)
    expected = (users[codes[0]] * items[codes[1]]).sum(axis=1)
    for pair in ((tensors[0], tensors[1]), (sparse[0], tensors[1]), (sparse[0], sparse[1])):
        np.testing.assert_allclose(factor_matrices.dot_rows(*pair, *codes), expected, rtol=1e-5, atol=1e-6)
    assert factor_matrices.take_rows(tensors[0], np.arange(9)) is tensors[0]
    np.testing.assert_array_equal(
        dense_of(factor_matrices.take_rows(sparse[0], np.array([4, 4]))), users[[4, 4]].astype(np.float32)
    )
