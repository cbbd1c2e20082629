"""Lists by an index: the scores, filters and ties of exact lists, and a recall that is measured."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.errors import InputError
from truepair.ranking.approximate import indexing as indexing_module
from truepair.ranking.approximate import ivf
from truepair.ranking.approximate.indexed_items import (
    HeadAndTail,
    IndexedItems,
    Level,
    unit_items,
    unit_users,
)
from truepair.ranking.approximate.indexing import IndexChoice, SampledUsers, index_items
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import PreparedItems

N, DIM = 3000, 12


@pytest.fixture(scope="module")
def world():
    """Clustered items with a column of popularity, users, and what each must not get."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, DIM))
    items = centres[rng.integers(0, 30, N)] + 0.3 * rng.normal(size=(N, DIM))
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    items = np.c_[items, 0.5 * rng.random(N) ** 8]
    users = np.c_[5 * centres[rng.integers(0, 30, 80)] / np.sqrt(DIM), np.ones(80)]
    hidden = [np.sort(rng.choice(N, size, replace=False)) for size in rng.integers(0, 40, 80)]
    rows = [torch.from_numpy(matrix.astype(np.float32)) for matrix in (users, items)]
    return rows[0], rows[1], hidden


@pytest.fixture(scope="module")
def indexed(world):
    pytest.importorskip("faiss")
    users, items, hidden = world
    exact = PreparedItems.of(items)
    found = index_items(exact, SampledUsers(users, hidden), IndexChoice("ivf", 0.95))
    assert found.kind == "ivf", found.about
    return found


def test_the_space_ranks_items_as_the_scores_do(world):
    users, items, _ = (part.numpy() if isinstance(part, torch.Tensor) else part for part in world)
    unit, queries = unit_items(items), unit_users(users)
    assert np.allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-5)
    lengths = np.linalg.norm(users, axis=1, keepdims=True) * np.linalg.norm(items, axis=1).max()
    assert np.allclose(queries @ unit.T * lengths, users @ items.T, atol=1e-4)


def test_lists_have_the_scores_and_filters_of_exact_lists(world, indexed):
    users, items, hidden = world
    exact, lists = (
        PreparedItems.of(items).top_k(users, 10, Hidden.of(hidden)),
        indexed.items.top_k(users, 10, Hidden.of(hidden)),
    )
    same = lists.items == exact.items
    assert same.mean() > 0.9
    assert (lists.scores[same] == exact.scores[same]).all()  # to the bit
    assert (lists.items >= 0).all()
    for row, codes in enumerate(hidden):
        assert not set(lists.items[row]) & set(codes.tolist())
        assert (np.diff(lists.scores[row]) <= 0).all()


def test_the_recall_is_that_of_other_people_too(world, indexed):
    users, items, hidden = world
    exact, lists = (
        PreparedItems.of(items).top_k(users, 10, Hidden.of(hidden)),
        indexed.items.top_k(users, 10, Hidden.of(hidden)),
    )
    found = np.mean([np.isin(a, b).mean() for a, b in zip(exact.items, lists.items, strict=True)])
    assert indexed.recall >= 0.95
    assert found >= 0.93


def test_only_allowed_items_are_listed_and_lists_are_complete(world, indexed):
    users, items, hidden = world
    for share in (0.5, 0.01):
        allowed = np.random.default_rng(1).random(N) < share
        never = np.flatnonzero(~allowed)
        lists = indexed.items.top_k(users[:9], 10, Hidden.of(hidden[:9]), never)
        masks = [np.union1d(codes, never) for codes in hidden[:9]]
        exact = PreparedItems.of(items).top_k(users[:9], 10, Hidden.of(masks))
        assert ((lists.items >= 0) == (exact.items >= 0)).all()
        assert allowed[lists.items[lists.items >= 0]].all()
        assert np.mean(lists.items == exact.items) > 0.85


def test_a_list_is_complete_wherever_the_exact_one_is(world, indexed):
    users, items, _ = world
    most = [np.setdiff1d(np.arange(N), np.arange(row, N, 200)) for row in range(6)]  # 15 items are left
    lists, exact = (
        some.top_k(users[:6], 20, Hidden.of(most)) for some in (indexed.items, PreparedItems.of(items))
    )
    assert (lists.items == exact.items).all()
    long = indexed.items.top_k(
        users[:3], 2800, Hidden.of([np.empty(0, np.int64)] * 3)
    )  # more than measured for
    assert (
        long.items
        == PreparedItems.of(items).top_k(users[:3], 2800, Hidden.of([np.empty(0, np.int64)] * 3)).items
    ).all()


def test_a_search_that_finds_too_little_is_computed_exactly(world, indexed):
    users, items, _ = world
    nothing = [np.empty(0, np.int64)] * 6
    hasty = dataclasses.replace(indexed.items, levels=(Level(N, 1),))  # one list of IVF has about 70 items
    lists, exact = (
        some.top_k(users[:6], 500, Hidden.of(nothing)) for some in (hasty, PreparedItems.of(items))
    )
    assert (lists.items >= 0).all()
    if indexed.kind == "ivf":
        assert (lists.items == exact.items).all()


def test_the_recall_is_checked_by_people_who_did_not_choose_the_effort(world):
    pytest.importorskip("faiss")
    users, items, hidden = world
    hard = users.clone()
    hard[1::2, :-1] = 5 * torch.randn(40, DIM, generator=torch.Generator().manual_seed(0)) / DIM**0.5
    easy, mixed = (
        index_items(PreparedItems.of(items), SampledUsers(some, hidden), IndexChoice("ivf", 0.95))
        for some in (users, hard)
    )
    assert isinstance(easy.items, IndexedItems)
    assert mixed.recall >= 0.95
    if isinstance(mixed.items, IndexedItems):
        assert mixed.items.levels[0].effort > easy.items.levels[0].effort


def test_equal_scores_are_in_the_order_of_exact_lists():
    pytest.importorskip("faiss")
    rng = np.random.default_rng(3)
    items = torch.from_numpy(np.sign(rng.normal(size=(400, 4))).astype(np.float32))  # 16 different vectors
    users, nothing = (
        torch.randn(20, 4, generator=torch.Generator().manual_seed(0)),
        [np.empty(0, np.int64)] * 20,
    )
    exact = PreparedItems.of(items)
    found = index_items(exact, SampledUsers(users, nothing), IndexChoice("ivf", 0.5))
    everything = [level._replace(effort=found.items.index.nlist) for level in found.items.levels]
    object.__setattr__(found.items, "levels", tuple(everything[-1:]))
    lists, expected = (some.top_k(users, 5, Hidden.of(nothing)) for some in (found.items, exact))
    assert (lists.scores == expected.scores).all()


def test_long_items_are_searched_exactly(world):
    _, items, _ = world
    split = HeadAndTail.of(items.numpy())
    lengths = np.linalg.norm(items.numpy(), axis=1)
    assert len(split.head) == N // 16
    assert lengths[split.head].min() >= lengths[split.tail].max()
    assert sorted([*split.head, *split.tail]) == list(range(N))
    assert not len(HeadAndTail.of(np.eye(40, dtype=np.float32)).head)


def test_lists_are_exact_where_an_index_cannot_help(world, monkeypatch):
    pytest.importorskip("faiss")
    users, items, hidden = world
    exact, people = PreparedItems.of(items), SampledUsers(users, hidden)
    assert index_items(exact, people, IndexChoice("exact")).items is exact
    assert index_items(exact, people, IndexChoice()).about == "lists are exact: 3,000 items are few enough."
    monkeypatch.setattr(indexing_module, "EXACT_UP_TO", 100)
    monkeypatch.setattr(indexing_module, "_speed_up", lambda found, people: 1.4)
    assert "1.4 x as fast" in index_items(exact, people, IndexChoice(recall=0.9)).about
    monkeypatch.setattr(indexing_module, "find_spec", lambda name: None)
    assert "pip install 'truepair[ann]'" in index_items(exact, people, IndexChoice()).about
    noise = torch.randn(N, 40, generator=torch.Generator().manual_seed(0))
    found = index_items(PreparedItems.of(noise), SampledUsers(-noise[:80], hidden), IndexChoice("ivf", 1.0))
    assert "no effort of the index ivf reaches the recall 1" in found.about
    with pytest.raises(InputError, match="index = 'annoy'"):
        index_items(exact, people, IndexChoice("annoy"))
    with pytest.raises(InputError, match="recall"):
        index_items(exact, people, IndexChoice("ivf", 1.5))


def test_an_index_is_kept_and_read_again(world, tmp_path):
    pytest.importorskip("faiss")
    users, items, hidden = world
    exact, people, said = PreparedItems.of(items), SampledUsers(users, hidden), []
    path = tmp_path / "m.index"
    first = index_items(exact, people, IndexChoice("ivf", 0.9, path, said.append))
    again = index_items(exact, people, IndexChoice("ivf", 0.9, path, said.append))
    assert said == ["building the index ivf of 3,000 items …"]
    assert again.items.levels == first.items.levels
    assert (
        again.items.top_k(users, 9, Hidden.of(hidden)).items
        == first.items.top_k(users, 9, Hidden.of(hidden)).items
    ).all()
    path.write_bytes(path.read_bytes()[:-7])  # damaged
    index_items(exact, people, IndexChoice("ivf", 0.9, path, said.append))
    assert "cannot be used, and is built again" in said[1]
    count = len(said)
    of_another = PreparedItems.of(items.flip(0))
    index_items(of_another, people, IndexChoice("ivf", 0.9, path, said.append))
    assert [text.split()[0] for text in said[count:]] == ["building"]


def test_a_hostile_file_never_reaches_faiss(world):
    pytest.importorskip("faiss")
    items = unit_items(world[1].numpy())
    made = ivf.arrays_of(ivf.build(items))
    ivf.assemble(items, made)
    changes = {
        "owner": [lambda a: a[:-1], lambda a: a + 10_000, lambda a: a - 1_000, lambda a: a.astype(np.int64)],
        "centroids": [lambda a: a * np.nan, lambda a: a[:, :-1], lambda a: a[:0]],
    }  # fmt: skip
    for name, array in made.items():
        for change in changes[name]:
            with pytest.raises(ValueError, match=r"\w"):
                ivf.assemble(items, made | {name: np.ascontiguousarray(change(array))})
    with pytest.raises(KeyError):
        ivf.assemble(items, {})


def test_a_file_that_is_none_is_built_again(tmp_path):
    path = tmp_path / "x.index"
    said = []
    assert ivf.read_index(path, np.eye(3, dtype=np.float32), said.append) is None
    path.write_bytes(b"IxFI" + b"\xff" * 200)
    assert ivf.read_index(path, np.eye(3, dtype=np.float32), said.append) is None
    assert "built again" in said[0]


def test_items_whose_last_number_has_risen_are_found(world, indexed):
    users, items, hidden = world
    moved = items.clone()
    risen = np.random.default_rng(1).choice(N, 100, replace=False)
    moved[risen, -1] += 3.0
    exact = PreparedItems.of(items.clone())
    found = dataclasses.replace(indexed.items, exact=exact).moved(moved[:, -1].numpy())
    exact.write_last_column(moved[:, -1].numpy())
    expected = PreparedItems.of(moved).top_k(users, 10, Hidden.of(hidden))
    assert exact.top_k(users, 10, Hidden.of(hidden)).items.tolist() == expected.items.tolist()
    lists = found.top_k(users, 10, Hidden.of(hidden))
    assert (lists.items == expected.items).mean() > 0.9
    assert all(len(set(row)) == 10 for row in lists.items.tolist())
    assert np.isin(expected.items, risen).mean() > 0.8
    back = found.moved(items[:, -1].numpy())
    exact.write_last_column(items[:, -1].numpy())
    again, before = (one.top_k(users, 10, Hidden.of(hidden)).items for one in (back, indexed.items))
    assert (again == before).mean() > 0.95
