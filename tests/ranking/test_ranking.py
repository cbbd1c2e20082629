import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.randomness import random_order
from truepair.ranking import prepared_items, selection
from truepair.ranking import torch_top_k as ranking_blocks
from truepair.ranking.prepared_items import PreparedItems, TopK
from truepair.ranking.selection import top_k

# "cpu" is the compiled way; "cpu blocks" is PyTorch's, which CUDA has too
DEVICES = [
    "cpu",
    "cpu blocks",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@pytest.fixture
def device(request, monkeypatch):
    if request.param == "cpu blocks":
        monkeypatch.setattr(PreparedItems, "strips", None)  # PyTorch ranks
    return request.param.split()[0]


on_every_device = pytest.mark.parametrize("device", DEVICES, indirect=True)


def interactions(pairs, n_users, n_items):
    users, items = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    return Interactions(users, items, IdMap.range(n_users), IdMap.range(n_items))


def random_interactions(rng, n_users, n_items, share):
    users, items = np.nonzero(rng.random((n_users, n_items)) < share)
    return Interactions(users, items, IdMap.range(n_users), IdMap.range(n_items))


def oracle(users, items, k, rows=None, exclude=()):
    """The slow, obvious way: every score, sorted by (score, place in the tie order)."""
    rows = range(len(users)) if rows is None else rows
    tie_place = np.argsort(random_order(prepared_items._TIE_KEY, len(items)))
    lists = TopK(np.full((len(rows), k), -1), np.full((len(rows), k), -np.inf, np.float32))
    for row, user in enumerate(rows):
        hidden = {int(i) for mask in exclude for i in mask.items_of(user)}
        scores = {i: float(users[user] @ items[i]) for i in range(len(items)) if i not in hidden}
        best = sorted(scores, key=lambda i: (-scores[i], tie_place[i]))[:k]
        lists.items[row, : len(best)] = best
        lists.scores[row, : len(best)] = [scores[i] for i in best]
    return lists


def assert_same(got, expected):
    np.testing.assert_array_equal(got.items, expected.items)
    np.testing.assert_array_equal(got.scores, expected.scores)


# --- the oracle ----------------------------------------------------------------------------------------


@on_every_device
@pytest.mark.parametrize("k", [1, 2, 7, 30])
@pytest.mark.parametrize("block", [1, 3, 16, 17, 100, None])
def test_ties_masks_and_blocks_equal_a_full_stable_sort(k, block, device):
    rng = np.random.default_rng(k)
    users = rng.integers(-1, 2, (17, 3)).astype(np.float32)  # scores -3 … 3: nearly everything is tied
    items = rng.integers(-1, 2, (30, 3)).astype(np.float32)
    exclude = [random_interactions(rng, 17, 30, share) for share in (0.3, 0.4)]
    on_device = [torch.tensor(matrix, device=device) for matrix in (users, items)]
    assert_same(top_k(*on_device, k, exclude=exclude, block=block), oracle(users, items, k, exclude=exclude))
    assert_same(top_k(*on_device, k, block=block), oracle(users, items, k))


@on_every_device
def test_scores_without_ties_equal_the_oracle(device):
    rng = np.random.default_rng(5)
    users, items = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(50, 4)).astype(np.float32)
    got, expected = top_k(users, items, 12), oracle(users, items, 12)
    np.testing.assert_array_equal(got.items, expected.items)
    np.testing.assert_allclose(got.scores, expected.scores, rtol=1e-5, atol=1e-6)


@on_every_device
def test_rows_may_be_any_users_in_any_order_even_twice(device):
    rng = np.random.default_rng(1)
    users, items = rng.integers(-2, 3, (8, 3)), rng.integers(-2, 3, (20, 3))
    mask = random_interactions(rng, 8, 20, 0.5)
    rows = [5, 0, 5, 7]
    got = top_k(users, items, 6, rows=rows, exclude=mask, block=2)
    assert_same(got, oracle(users, items, 6, rows, [mask]))


@on_every_device
def test_no_rows_give_empty_lists(device):
    got = top_k(np.ones((3, 2)), np.ones((4, 2)), 2, rows=[])
    assert (got.items.shape, got.items.dtype, got.scores.dtype) == ((0, 2), np.int64, np.float32)


# --- ties ----------------------------------------------------------------------------------------------


@on_every_device
def test_a_constant_scorer_lists_the_fixed_pseudo_random_order(device):
    got = top_k(np.ones((3, 1)), np.ones((1000, 1)), 20)
    np.testing.assert_array_equal(
        got.items, np.tile(random_order(prepared_items._TIE_KEY, 1000)[:20], (3, 1))
    )
    assert 300 < got.items.mean() < 700  # low codes are not favoured


@on_every_device
def test_negative_zero_ties_with_zero(device):
    items = np.array([[0.0], [-0.0]] * 50)
    got = top_k(np.array([[1.0], [-1.0]]), items, 30)
    np.testing.assert_array_equal(got.items, np.tile(random_order(prepared_items._TIE_KEY, 100)[:30], (2, 1)))
    assert not np.signbit(got.scores).any()


@on_every_device
def test_an_all_masked_tie_at_the_end_is_padding_not_a_tie(device):
    mask = interactions([(0, i) for i in range(1, 10)], 1, 10)
    got = top_k(np.ones((1, 1)), np.ones((10, 1)), 3, exclude=mask)
    assert got.items.tolist() == [[0, -1, -1]]
    assert got.scores.tolist() == [[1.0, -np.inf, -np.inf]]


@on_every_device
def test_a_user_with_every_item_masked_gets_an_empty_list(device):
    mask = interactions([(1, i) for i in range(4)], 2, 4)
    got = top_k(np.ones((2, 1)), np.arange(4.0)[:, None], 4, exclude=mask)
    assert got.items.tolist() == [[3, 2, 1, 0], [-1] * 4]
    assert got.scores[1].tolist() == [-np.inf] * 4


# --- what is accepted ----------------------------------------------------------------------------------


def test_accepts_arrays_and_tensors_of_several_types():
    users, items = np.eye(3), np.arange(12.0).reshape(4, 3)
    expected = top_k(users, items, 2)
    read_only = np.asfortranarray(items.astype(np.float32))
    read_only.flags.writeable = False
    for other in (
        read_only,
        torch.tensor(items, requires_grad=True),
        torch.tensor(items).half(),
        items.astype(int),
    ):
        assert_same(top_k(users, other, 2), expected)


# --- sparse matrices -----------------------------------------------------------------------------------


@on_every_device
@pytest.mark.parametrize("which", ["users", "items", "both"])
@pytest.mark.parametrize("block", [1, 17, None])
def test_sparse_matrices_give_the_lists_of_dense_ones(which, block, device):
    rng = np.random.default_rng(8)
    users, items = (rng.integers(-1, 2, shape) * (rng.random(shape) < 0.5) for shape in ((40, 9), (30, 9)))
    users[3], items[5] = 0, 0  # nothing in a row: a score of zero
    mask = random_interactions(rng, 40, 30, 0.4)
    sparse_users = sp.csr_array(users) if which != "items" else torch.tensor(users, device=device)
    sparse_items = sp.csr_array(items) if which != "users" else torch.tensor(items, device=device)
    got = top_k(sparse_users, sparse_items, 12, exclude=[mask, mask], block=block)
    assert_same(got, oracle(users, items, 12, exclude=[mask]))
    rows = [7, 3, 7]
    assert_same(top_k(sparse_users, sparse_items, 4, rows=rows, block=block), oracle(users, items, 4, rows))
    assert top_k(sparse_users, sparse_items, 4, rows=[]).items.shape == (0, 4)


@on_every_device
@pytest.mark.parametrize("which", ["users", "both"])
def test_a_batch_of_sparse_rows_equals_single_calls_bit_for_bit(which, device):
    rng = np.random.default_rng(3)
    users = sp.csr_array(rng.normal(size=(50, 70)) * (rng.random((50, 70)) < 0.3))
    items = rng.normal(size=(90, 70)).astype(np.float32)
    items = sp.csr_array(items) if which == "both" else torch.tensor(items, device=device)
    together = top_k(users, items, 10)
    for rows in ([0], [41], [3, 49], list(range(20, 50))):
        assert_same(top_k(users, items, 10, rows=rows), TopK(together.items[rows], together.scores[rows]))


def test_the_whole_of_sparse_users_is_never_made_dense(monkeypatch):
    monkeypatch.setitem(ranking_blocks._BLOCK_BYTES, "cpu", 4 * 10 * 40)  # room for 40 users of ten items
    shapes, bag = [], torch.nn.functional.embedding_bag
    monkeypatch.setattr(
        torch.nn.functional,
        "embedding_bag",
        lambda *args, **kwargs: shapes.append(len(args[2])) or bag(*args, **kwargs),
    )
    top_k(sp.csr_array(np.ones((70, 3))), np.ones((10, 3)), 1)
    assert shapes == [32, 32, 6]


def test_other_formats_of_sparse_matrices():
    users, items = np.eye(3), np.arange(12.0).reshape(4, 3)
    for kind in (sp.csc_array, sp.coo_array, sp.csr_matrix):
        assert_same(top_k(kind(users), items, 2), top_k(users, items, 2))


def test_leaves_its_input_alone():
    items = torch.arange(12.0).view(4, 3).requires_grad_()
    before = items.detach().clone()
    top_k(torch.eye(3), items, 2, exclude=interactions([(0, 1)], 3, 4))
    assert torch.equal(items, before)
    assert items.grad is None


@pytest.mark.parametrize("device", ["cpu blocks"], indirect=True)
def test_never_builds_all_scores_at_once(monkeypatch, device):
    monkeypatch.setitem(ranking_blocks._BLOCK_BYTES, "cpu", 4 * 10 * 40)  # room for 40 users of ten items
    shapes = []
    best = ranking_blocks.best_columns
    monkeypatch.setattr(
        ranking_blocks, "best_columns", lambda scores, k: shapes.append(scores.shape) or best(scores, k)
    )
    top_k(np.ones((70, 2)), np.ones((10, 2)), 1)
    assert [tuple(shape) for shape in shapes] == [(32, 10), (32, 10), (6, 10)]


# --- errors --------------------------------------------------------------------------------------------

NAN = np.array([[1.0, np.nan], [np.inf, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k = 0 is out of range; it must be a whole number ≥ 1"),
        ({"k": 5}, "k = 5 is larger than the catalogue of 4 items; choose k ≤ 4"),
        ({"block": 0}, "block = 0 is out of range"),
        ({"users": sp.csr_array(NAN)}, "2 of 3 rows of users contain NaN or infinity; the model diverged"),
        ({"items": sp.csr_array(np.ones((4, 3)))}, "users have 2 dimensions but items have 3"),
        ({"users": torch.ones(3, 2).to_sparse()}, "users is a sparse PyTorch tensor; give a dense tensor"),
        ({"users": NAN}, "2 of 3 rows of users contain NaN or infinity; the model diverged"),
        ({"items": NAN[:1]}, "1 of 1 rows of items contain NaN"),
        ({"items": np.full((4, 2), 1e300)}, "4 of 4 rows of items contain NaN or infinity"),
        (
            {"users": np.full((3, 2), 1e20), "items": np.full((4, 2), 1e20)},
            "beyond float32; scale the matrices",
        ),
        ({"items": np.ones((4, 3))}, "users have 2 dimensions but items have 3"),
        ({"users": np.ones(2)}, "users must be a matrix (rows x dimensions), not 1-D"),
        ({"rows": [3]}, "rows go from 3 to 3; user codes are 0 to 2"),
        ({"rows": [-1, 2]}, "rows go from -1 to 2"),
        ({"rows": [True, False, True]}, "rows must be a 1-D array of user codes, not 1-D bool"),
        ({"rows": [[1]]}, "rows must be a 1-D array of user codes, not 2-D"),
        ({"exclude": interactions([], 3, 5)}, "exclude has 3 users x 5 items, but 3 x 4 are ranked"),
        ({"exclude": [interactions([], 3, 4), interactions([], 2, 4)]}, "exclude has 2 users x 4 items"),
    ],
)
def test_errors_say_what_is_wrong(arguments, message):
    good = {"users": np.ones((3, 2)), "items": np.ones((4, 2)), "k": 2}
    with pytest.raises(InputError, match=re.escape(message)):
        top_k(**{**good, **arguments})


@pytest.mark.parametrize(("n_items", "dim"), [(37, 5), (1500, 64)])
@on_every_device
def test_a_batch_equals_single_calls_bit_for_bit(n_items, dim, device):
    rng = np.random.default_rng(3)
    users, items = (
        rng.normal(size=(90, dim)).astype(np.float32),
        rng.normal(size=(n_items, dim)).astype(np.float32),
    )
    together = top_k(users, items, 10)
    for rows in ([0], [41], [3, 89], list(range(20, 50))):
        alone = top_k(users, items, 10, rows=rows)
        np.testing.assert_array_equal(alone.items, together.items[rows])
        np.testing.assert_array_equal(alone.scores, together.scores[rows])


# --- the compiled way against PyTorch's ----------------------------------------------------------------


@pytest.mark.parametrize("n_items", [1, 31, 255, 256, 257, 1000])  # around the widths of chunks and strips
@pytest.mark.parametrize("dim", [1, 4, 7, 64])
def test_the_compiled_way_gives_the_lists_of_the_blocks(n_items, dim, monkeypatch):
    rng = np.random.default_rng(n_items + dim)
    users = rng.normal(size=(70, dim)).astype(np.float32).round(1)
    items = rng.normal(size=(n_items, dim)).astype(np.float32).round(1)  # some scores are equal
    masks = [random_interactions(rng, 70, n_items, share) for share in (0.1, 0.2, 0.7)]
    k = min(n_items, 20)
    compiled = [top_k(users, items, k, exclude=masks[:n]) for n in range(4)]
    monkeypatch.setattr(PreparedItems, "strips", None)  # PyTorch ranks
    for n, got in enumerate(compiled):
        expected = top_k(users, items, k, exclude=masks[:n])
        np.testing.assert_allclose(got.scores, expected.scores, rtol=1e-5, atol=1e-5)
        for row in np.flatnonzero((got.items != expected.items).any(axis=1)):
            near = np.flatnonzero(got.items[row] != expected.items[row])  # sums that round otherwise
            assert np.ptp(got.scores[row, near]) < 1e-5
            assert dim > 1


def test_scores_are_sums_in_the_order_of_the_dimensions():
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(5, 7)).astype(np.float32), rng.normal(size=(40, 7)).astype(np.float32)
    found = top_k(users, items, 40)
    for row, (codes, scores) in enumerate(zip(found.items, found.scores, strict=True)):
        exact = np.zeros(40)
        for at in range(7):  # a fused multiply-add rounds once: a float64 holds the product exactly
            exact = np.float32(exact + users[row, at].astype(np.float64) * items[codes, at]).astype(float)
        np.testing.assert_array_equal(scores, exact.astype(np.float32))


@pytest.mark.parametrize("k", [1, 5, 300])
def test_threads_change_nothing(k, monkeypatch):
    rng = np.random.default_rng(2)
    users, items = rng.integers(-2, 3, (300, 5)), rng.integers(-2, 3, (300, 5))
    mask = random_interactions(rng, 300, 300, 0.3)
    alone = top_k(users, items, k, exclude=mask)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert_same(top_k(users, items, k, exclude=mask, block=16), alone)


def test_has_pairs_equals_has():
    rng = np.random.default_rng(4)
    for share in (0, 0.1, 0.6, 1):
        part = random_interactions(rng, 9, 17, share)
        users, items = (x.ravel() for x in np.mgrid[:9, -1:17])
        expected = (items >= 0) & part.has(users, items)  # -1 is a place without an item
        np.testing.assert_array_equal(selection.has_pairs(part, users, items), expected)


def test_several_threads_may_ask_at_once():
    rng = np.random.default_rng(6)
    users, items = rng.integers(-2, 3, (200, 5)), rng.integers(-2, 3, (300, 5))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda rows: top_k(users, items, 5, rows=rows), [[7], [8, 9]] * 20))
    for one, expected in zip(found, [[7], [8, 9]] * 20, strict=True):
        assert_same(one, oracle(users, items, 5, expected))
