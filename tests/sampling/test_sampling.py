"""Draws: the right items, in the right proportions, and the same ones every time."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from truepair.errors import InputError
from truepair.randomness import random_bits, random_order, random_words, stream_key
from truepair.sampling import BNS, DNS, SAMPLERS, Draws, Popularity, Uniform, pair_scores
from worlds import interactions_of


def random_interactions(n_users=30, n_items=50, share=0.3, seed=0):
    rng = np.random.default_rng(seed)
    liking = share * np.linspace(0.2, 2.0, n_items)
    rows = [np.flatnonzero(rng.random(n_items) < liking * rng.random() * 2) for _ in range(n_users)]
    return interactions_of([r if len(r) else [0] for r in rows], n_items)


def random_matrices(n_users, n_items, d=6, seed=1):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n_users, d, generator=g), torch.randn(n_items, d, generator=g)


ODD_ROWS = [
    [3],  # one interaction
    list(range(12)),  # every item
    list(range(11)),  # all but the last
    list(range(1, 12)),  # all but the first
    [0, 11],  # the two ends
    [2, 3, 4, 8],
]
ODD = interactions_of(ODD_ROWS, 12)


# --- random numbers ------------------------------------------------------------------------------------


def test_words_are_the_published_splitmix64_sequence():
    # seed 0 of SplitMix64 (Steele, Lea & Flood 2014), as every implementation prints it
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [int(x) for x in random_bits(0, 4)] == expected


def test_numpy_and_torch_give_the_same_words():
    for key in (0, 1, stream_key(5, 3), 2**64 - 1):
        words = random_words(key, (7, 11), torch.device("cpu"))
        assert words.shape == (7, 11)
        np.testing.assert_array_equal(
            words.flatten().numpy().astype(np.uint64), random_bits(key, 77) >> np.uint64(1)
        )


def test_order_is_a_permutation_and_depends_on_every_part_of_the_key():
    orders = [
        random_order(stream_key(*path), 100).tolist() for path in [(0,), (1,), (0, 0), (0, 1), (0, 1, 0)]
    ]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({tuple(order) for order in orders}) == len(orders)


# --- support -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("n", [1, 4])
def test_never_a_known_positive_and_extra_always_one(name, n):
    data = random_interactions()
    draws, known = Draws(data, SAMPLERS[name]()), data.csr().toarray() > 0
    matrices = random_matrices(data.n_users, data.n_items)
    for step in range(5):
        batch = draws.batch(draws.anchors, 3, n, stream_key(0, 0, step), matrices)
        assert batch.unlabelled.shape == (len(draws.anchors), n)
        assert known[batch.users, batch.pos].all()
        assert known[batch.users[:, None], batch.extra].all()
        assert not known[batch.users[:, None], batch.unlabelled].any()


def unlabelled_items(draws, users, n, key):
    """`n` items that each user has no interaction with, by weight, with replacement. [B, N]"""
    return draws._unlabelled_at(users, random_words(key, (len(users), n), draws.device))


@pytest.mark.parametrize("sampler", [Uniform(), Popularity(0.5), Popularity(3.0)])
def test_every_unlabelled_item_of_odd_users_is_reached(sampler):
    draws = Draws(ODD, sampler)
    for user, row in enumerate(ODD_ROWS):
        if len(row) == 12:
            continue
        drawn = unlabelled_items(draws, torch.tensor([user]), 20_000, key=user)
        assert set(drawn.flatten().tolist()) == set(range(12)) - set(row)


def test_a_user_with_every_item_has_no_anchors_and_does_not_hang():
    draws = Draws(ODD, Uniform())
    assert draws.n_saturated_users == 1
    assert 1 not in ODD.users[draws.anchors]
    assert len(draws.anchors) == len(ODD) - 12


def test_membership():
    draws, known = Draws(ODD, Uniform()), ODD.csr().toarray() > 0
    users, items = torch.arange(6)[:, None], torch.arange(12)[None, :]
    np.testing.assert_array_equal(draws.known(users, items).numpy(), known)


def test_nothing_to_draw_from_is_an_error():
    with pytest.raises(InputError, match="no interactions"):
        Draws(ODD.take(np.zeros(len(ODD), dtype=bool)), Uniform())


# --- distribution --------------------------------------------------------------------------------------


def chi_square_p(drawn, expected):
    counts = np.bincount(drawn, minlength=len(expected))
    assert counts[expected == 0].sum() == 0
    live = expected > 0
    return stats.chisquare(counts[live], expected[live] / expected.sum() * len(drawn)).pvalue


@pytest.mark.parametrize("alpha", [None, 0.0, 0.5, 1.0, 2.5])
def test_unlabelled_items_follow_popularity_to_the_alpha(alpha):
    data = random_interactions(n_users=200, n_items=40)
    draws = Draws(data, Uniform() if alpha is None else Popularity(alpha))
    weights = np.maximum(data.item_counts, 1.0) ** (alpha or 0.0)
    for user in range(4):
        expected = weights.copy()
        expected[data.items_of(user)] = 0
        drawn = unlabelled_items(draws, torch.full((300,), user), 100, key=7 + user).flatten().numpy()
        assert chi_square_p(drawn, expected) > 1e-3


def test_a_wrong_distribution_would_be_noticed():
    data = random_interactions(n_users=200, n_items=40)
    drawn = unlabelled_items(Draws(data, Uniform()), torch.zeros(300, dtype=torch.int64), 100, key=7)
    expected = np.maximum(data.item_counts, 1.0) ** 0.5
    expected[data.items_of(0)] = 0
    assert chi_square_p(drawn.flatten().numpy(), expected) < 1e-6


def test_extra_positives_are_uniform_over_the_users_items():
    draws = Draws(ODD, Uniform())
    anchor = draws.indptr[5].repeat(300)
    drawn = draws.batch(anchor, 100, 1, key=3).extra.flatten().numpy()
    expected = np.zeros(12)
    expected[ODD_ROWS[5]] = 1
    assert chi_square_p(drawn, expected) > 1e-3


def test_interactions_that_are_no_anchors_are_never_drawn():
    data = random_interactions()
    chosen = np.random.default_rng(1).random(len(data)) < 0.5
    draws, every = Draws(data, Uniform(), anchors=chosen), Draws(data, Uniform())
    kept = set(zip(data.users[chosen], data.items[chosen], strict=True))
    free = data.user_counts[data.users] < data.n_items
    assert draws.anchors.tolist() == np.flatnonzero(chosen & free).tolist()
    batch = draws.batch(draws.anchors, 6, 7, key=2)
    pairs = zip(batch.users.repeat_interleave(6).tolist(), batch.extra.flatten().tolist(), strict=True)
    assert set(pairs) <= kept
    assert not draws.known(batch.users[:, None], batch.unlabelled).any()
    assert torch.equal(batch.unlabelled, every.batch(draws.anchors, 6, 7, key=2).unlabelled)
    same = Draws(data, Uniform(), anchors=np.ones(len(data), dtype=bool)).batch(every.anchors, 3, 2, key=1)
    for one, other in zip(same, every.batch(every.anchors, 3, 2, key=1), strict=True):
        assert torch.equal(one, other)


def test_rows_of_a_batch_are_independent():
    """The same user twice in a batch: pairs of draws fill the square uniformly."""
    drawn = unlabelled_items(Draws(ODD, Uniform()), torch.full((20_000,), 4), 2, key=9).numpy()
    places = {item: k for k, item in enumerate(range(1, 11))}
    table = np.zeros((10, 10))
    np.add.at(table, ([places[i] for i in drawn[:, 0]], [places[i] for i in drawn[:, 1]]), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3
    assert stats.chisquare(table.flatten()).pvalue > 1e-3


def test_huge_catalogue_and_many_users_stay_exact():
    """Weights are scaled so that the keys fit in 64 bits."""
    data = interactions_of([[0, 2_999_999], [5]], 3_000_000)
    drawn = unlabelled_items(Draws(data, Popularity(1.0)), torch.zeros(1000, dtype=torch.int64), 10, key=1)
    assert drawn.min() > 0
    assert drawn.max() < 2_999_999


# --- epochs --------------------------------------------------------------------------------------------


def test_an_epoch_visits_every_anchor_once_with_an_odd_tail():
    draws = Draws(random_interactions(), Uniform())
    pieces = list(draws.epoch(seed=0, epoch=3, batch_size=64))
    assert [len(p) for p in pieces[:-1]] == [64] * (len(pieces) - 1)
    assert 0 < len(pieces[-1]) <= 64
    assert sorted(torch.cat(pieces).tolist()) == draws.anchors.tolist()


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_are_a_function_of_seed_epoch_and_step(name):
    data = random_interactions()
    matrices = random_matrices(data.n_users, data.n_items)

    def draw(seed, epoch, step):
        draws = Draws(data, SAMPLERS[name]())
        anchors = list(draws.epoch(seed, epoch, 32))[step]
        return draws.batch(anchors, 2, 3, stream_key(seed, epoch, step), matrices)

    again = zip(draw(0, 1, 2), draw(0, 1, 2), strict=True)
    assert all(torch.equal(a, b) for a, b in again)
    for other in [(1, 1, 2), (0, 2, 2), (0, 1, 3)]:
        assert not torch.equal(draw(0, 1, 2).unlabelled, draw(*other).unlabelled)


# --- choice by score -----------------------------------------------------------------------------------


def candidates_of(draws, sampler, n, key):
    """The pool the sampler chose from: the uniform draw under the same key."""
    uniform = Draws.__new__(Draws)
    uniform.__dict__.update(draws.__dict__, sampler=Uniform())
    return uniform.batch(draws.anchors, 0, sampler.pool, key)


def test_dns_takes_the_highest_scores_of_its_pool():
    data, sampler = random_interactions(), DNS(pool=9)
    draws, matrices = Draws(data, sampler), random_matrices(30, 50)
    pool = candidates_of(draws, sampler, 4, key=11)
    chosen = draws.batch(draws.anchors, 0, 4, 11, matrices).unlabelled
    scores = pair_scores(matrices, pool.users, pool.unlabelled)
    top = pool.unlabelled.gather(1, scores.topk(4, dim=1).indices)
    assert torch.equal(chosen.sort(1).values, top.sort(1).values)


def plain_bns(data, matrices, u, i, candidates, rivals, lam):
    """The rule of the notes, one number at a time."""
    user, items = matrices[0][u].double(), matrices[1].double()
    score = {j: float(user @ items[j]) for j in {*range(data.n_items)}}
    known = set(data.items_of(u).tolist())
    total = int(data.item_counts.sum())
    unlabelled = [j for j in rivals if j not in known]
    risks = []
    for item in candidates:
        info = 1 - 1 / (1 + math.exp(-(score[i] - score[item])))
        f = sum(score[j] <= score[item] for j in unlabelled) / len(unlabelled)
        p = int(data.item_counts[item]) / total
        top, bottom = (1 - f) * (1 - p), 1 - f - p + 2 * f * p
        unbias = top / bottom if abs(bottom) > 1e-15 else 0.5
        risks.append(info * (1 - (1 + lam) * unbias))
    return risks


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_bns_equals_its_rule_in_plain_python(in_batch, n):
    data, sampler = random_interactions(n_users=12, n_items=30), BNS(pool=5, weight=5.0, in_batch=in_batch)
    draws, matrices = Draws(data, sampler), random_matrices(12, 30)
    pool = candidates_of(draws, sampler, n, key=2)
    chosen = draws.batch(draws.anchors, 0, n, 2, matrices).unlabelled
    rivals = pool.unlabelled[:, 0].tolist() if in_batch else list(range(30))
    for b in range(len(draws.anchors)):
        candidates = pool.unlabelled[b].tolist()
        risks = plain_bns(data, matrices, int(pool.users[b]), int(pool.pos[b]), candidates, rivals, 5.0)
        got = sorted(risks[candidates.index(j)] for j in chosen[b].tolist())
        assert got == pytest.approx(sorted(risks)[:n], abs=1e-5)


def test_bns_on_an_item_nobody_has_that_scores_highest_is_no_nan():
    """Item 3 scores highest (F = 1) and nobody has it (p = 0): unbias is 0/0, and counts as one half."""
    data = interactions_of([[0], [1]], 4)
    matrices = torch.ones(2, 1), torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    draws = Draws(data, BNS(pool=200))  # every unlabelled item is among the candidates
    chosen = draws.batch(draws.anchors, 0, 1, 5, matrices).unlabelled.flatten().tolist()
    for user, item in zip((0, 1), chosen, strict=True):
        candidates = [j for j in range(4) if j != user]
        risks = plain_bns(data, matrices, user, user, candidates, list(range(4)), 5.0)
        assert item == candidates[int(np.argmin(risks))]


def test_choice_by_score_without_scores_is_an_error():
    draws = Draws(random_interactions(), DNS())
    with pytest.raises(InputError, match=r"DNS\(pool=32\) chooses by score; pass matrices"):
        draws.batch(draws.anchors, 0, 1, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DNS(pool=0), "pool = 0 .* from 2 to 2000000"),
        (lambda: BNS(weight=-1), "weight = -1 .* ≥ 0"),
        (lambda: Popularity(alpha=float("nan")), "alpha = nan"),
        (lambda: DNS(pool=3).candidates(4), "n_unlabelled = 4 of a pool of 3 is no choice; raise pool"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_an_item_never_seen_counts_as_seen_once():
    data = interactions_of([[0], [0], [0, 1]], 4)  # popularity 3, 1, 0, 0
    drawn = unlabelled_items(Draws(data, Popularity(1.0)), torch.zeros(300, dtype=torch.int64), 100, key=4)
    assert chi_square_p(drawn.flatten().numpy(), np.array([0.0, 1.0, 1.0, 1.0])) > 1e-3


@pytest.mark.parametrize("alpha", [50.0, 400.0, 1e6])
def test_extreme_popularity_still_draws_from_the_catalogue(alpha):
    data = random_interactions(n_users=200, n_items=40)
    drawn = unlabelled_items(Draws(data, Popularity(alpha)), torch.arange(200), 50, key=4)
    known = data.csr().toarray() > 0
    assert drawn.max() < 40
    assert not known[torch.arange(200)[:, None], drawn].any()


def test_the_order_and_every_draw_depend_on_seed_epoch_and_step():
    draws = Draws(random_interactions(), Uniform())
    orders = {
        tuple(torch.cat(list(draws.epoch(seed, epoch, 64))).tolist()) for seed in (0, 1) for epoch in (0, 1)
    }
    assert len(orders) == 4
    batches = [
        draws.batch(draws.anchors, 9, 9, stream_key(*path))
        for path in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    ]
    for column in ("extra", "unlabelled"):
        assert len({tuple(getattr(batch, column).flatten().tolist()) for batch in batches}) == 4


def test_extra_and_unlabelled_are_drawn_independently():
    """A user with 2 known and 2 unlabelled items: all four combinations are equally likely."""
    draws = Draws(interactions_of([[0, 1]], 4), Uniform())
    batch = draws.batch(draws.anchors.repeat(20_000), 1, 1, key=3)
    table = np.zeros((2, 2))
    np.add.at(table, (batch.extra[:, 0].numpy(), batch.unlabelled[:, 0].numpy() - 2), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_known_mask_is_membership_of_the_whole_catalogue():
    users = torch.tensor([5, 0, 1, 5])
    np.testing.assert_array_equal(
        Draws(ODD, Uniform()).known_mask(users).numpy(), ODD.csr().toarray()[users.numpy()] > 0
    )
