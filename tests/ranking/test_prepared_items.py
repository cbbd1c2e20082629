"""Items that are made ready once give the lists of `top_k`."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.ranking import selection
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import PreparedItems


def matrices(n_users, n_items, dim, seed):
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(-3, 4, (n, dim)).astype(np.float32)) for n in (n_users, n_items)]


@pytest.mark.parametrize("kind", ["compiled", "in blocks", "sparse users", "sparse items"])
@pytest.mark.parametrize(("n_users", "n_items", "k"), [(1, 3, 3), (5, 300, 7), (70, 40, 40)])
def test_lists_are_those_of_top_k(n_users, n_items, k, kind, monkeypatch):
    users, items = matrices(n_users, n_items, 3, n_users)
    if kind == "in blocks":
        monkeypatch.setattr(PreparedItems, "strips", None)
    if kind == "sparse users":
        users = sp.csr_array(users.numpy())
    if kind == "sparse items":
        items = sp.csr_array(items.numpy())
    rng = np.random.default_rng(1)
    hidden = [
        np.sort(rng.choice(n_items, rng.integers(0, n_items // 2 + 1), replace=False)) for _ in range(n_users)
    ]
    owners = np.repeat(np.arange(n_users), [len(some) for some in hidden])
    ids = IdMap.range(n_users), IdMap.range(n_items)
    mask = Interactions(owners, np.concatenate(hidden), *ids)
    expected = selection.top_k(users, items, k, exclude=mask)
    halves = [Hidden.of([some[start::2] for some in hidden]) for start in (0, 1)]
    for masks in (
        Hidden.of(hidden),
        Hidden.pairs_of(mask, np.arange(n_users)),
        Hidden.joined(halves, n_users),
    ):
        found = PreparedItems.of(items).top_k(users, k, masks)
        assert np.array_equal(found.items, expected.items)
        assert np.array_equal(found.scores, expected.scores)


def test_hidden_items_of_rows():
    rows = [np.array([4, 1]), np.empty(0, np.int64), np.array([2])]
    hidden = Hidden.of(rows)
    owners, items = hidden.pairs()
    assert (owners.tolist(), items.tolist()) == ([0, 0, 2], [4, 1, 2])
    some = hidden.take(np.array([2, 0]))  # rows in another order
    assert [part.tolist() for part in some.pairs()] == [[0, 1, 1], [2, 4, 1]]
    assert [part.tolist() for part in some.with_all(np.array([9])).pairs()] == [
        [0, 0, 1, 1, 1],
        [2, 9, 4, 1, 9],
    ]
    places = np.array([0, -1, 1, -1, 2])
    assert [part.tolist() for part in some.recoded(places).pairs()] == [[0, 1], [1, 2]]
    own = Interactions(np.array([0, 0, 2]), np.array([1, 3, 0]), IdMap.range(3), IdMap.range(4))
    assert [part.tolist() for part in Hidden.pairs_of(own, np.array([2, -1, 0])).pairs()] == [
        [0, 2, 2],
        [0, 1, 3],
    ]
    assert len(Hidden.of([]).starts) == len(Hidden.joined([], 0).ends) == 0
    assert Hidden.joined([], 2).pairs()[0].tolist() == []


@pytest.mark.parametrize("compiled", [True, False])
def test_lists_of_some_items_have_their_codes_and_hide_by_them(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(PreparedItems, "strips", None)
    random = np.random.default_rng(2)
    codes = np.array([1, 2, 5, 6, 9])
    users, items = (torch.from_numpy(random.normal(size=(n, 4)).astype(np.float32)) for n in (3, 5))
    masks = Hidden.of([np.array([0, 5, 11]), np.array([], np.int64), np.array([1, 2, 3, 5, 6])])
    found = PreparedItems.of(items, codes, 12).top_k(users, 5, masks)
    rows = PreparedItems.of(items).top_k(users, 5, Hidden.of([np.array([2]), *[np.array([], np.int64)] * 2]))
    assert found.items[:2].tolist() == np.where(rows.items < 0, -1, codes[rows.items])[:2].tolist()
    assert found.items[2].tolist() == [9, -1, -1, -1, -1]
    assert found.scores[:2].tolist() == rows.scores[:2].tolist()
