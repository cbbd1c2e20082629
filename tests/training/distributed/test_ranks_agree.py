"""One, two, three and four ranks train the model of one process, to rounding, and rank alike."""

import dataclasses

import numpy as np
import pytest
import torch

from loss_values import WeightedInfoNCE, two_of_each
from ranks import values
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.evaluation import Validation
from truepair.losses import BPR, DPL, HCL, InfoNCE
from truepair.models.encoders import MF, Hybrid, LightGCN
from truepair.ranking.selection import hidden_from, top_k
from truepair.ranking.sharded_top_k import sharded_top_k
from truepair.sampling import Full, Uniform
from truepair.training import Job, Settings, StopTraining, choose_engine, fit
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.engine import started
from truepair.training.distributed.processes import group_of
from truepair.training.distributed.shards import Shard, ShardedMatrices, first_vectors
from truepair.training.full.losses import has_row_form
from worlds import interactions_of, two_tastes

CPU = torch.device("cpu")
SETTINGS = Settings(epochs=2, batch_size=12, learning_rate=0.05, device="cpu", seed=3)
DOT = MF(dim=5)
COSINE = MF(dim=5, scoring="cosine", temperature=0.2, popularity=0.1)
TWO_HOPS = LightGCN(dim=5, scoring="cosine", temperature=0.2, popularity=0.1, hops=2)


def odd_world(n_users=24, n_items=20):
    """Users with some items, and one each with all, none, one, and all but one."""
    mask = np.random.default_rng(0).random((n_users, n_items)) < 0.2
    mask[:, 0] |= ~mask.any(axis=1)
    mask[3], mask[4], mask[5], mask[6] = True, False, False, True
    mask[5, 2], mask[6, 9] = True, False
    return interactions_of([np.flatnonzero(row) for row in mask], n_items)


DATA = odd_world()
TAUS = tuple(np.linspace(0, 0.5, DATA.n_users).tolist())
LOSSES = [loss for loss in two_of_each(TAUS) if has_row_form(loss)]


def weighted(data):
    weight = 0.5 + np.arange(len(data)) % 3
    return Interactions(data.users, data.items, IdMap.range(24), IdMap.range(20), weight=weight)


SOFTMAX, FULL = InfoNCE(0.5), Full()


def job(loss=SOFTMAX, encoder=COSINE, sampler=FULL, data=DATA, **changes):
    return Job(encoder, loss, sampler, data, dataclasses.replace(SETTINGS, **changes))


WHOLE = [job(loss) for loss in LOSSES[::2]]
"""Every loss over the full catalogue."""
DRAWN = [job(loss, sampler=Full(columns=6)) for loss in LOSSES[1::2]]
"""Losses over a few columns, so that a rank may draw none."""
OTHERS = [
    job(encoder=DOT, l2_users=0.1, l2_items=0.02, weight_decay=1e-3),
    job(DPL(tau=0.1), encoder=DOT, optimizer="sgd"),
    job(BPR(), optimizer="adagrad", sampler=Full(step=0.0)),
    job(HCL(tau=0.1), data=weighted(DATA)),
    job(sampler=Full(columns=1), batch_size=24),
    job(batch_size=1, epochs=1),
]
GRAPHS = [
    job(encoder=TWO_HOPS),
    job(DPL(tau=0.1), encoder=LightGCN(dim=5), sampler=Full(columns=6)),
    job(encoder=LightGCN(dim=5, hops=3), data=weighted(DATA), l2_users=0.1, l2_items=0.02),
    job(BPR(), encoder=TWO_HOPS, optimizer="sgd"),
    job(encoder=LightGCN(dim=5, hops=0)),
]
"""LightGCN, whose vectors depend on those of other ranks."""


def trained(jobs, engine):
    found = []
    for each in jobs:
        result = fit(each, engine=engine, keep_start=each.settings.optimizer == "adam")
        losses = [(record.loss, record.clamped or 0.0) for record in result.history]
        moments = () if result.start is None else (result.start.users.second, result.start.items.first)
        found.append((result.users, result.items, *moments, torch.tensor(losses, dtype=torch.float64)))
    return found


def assert_alike(found, expected, jobs):
    for got, want, each in zip(found, expected, jobs, strict=True):
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(
                a, b, rtol=1e-3, atol=2e-4, equal_nan=True, msg=lambda m, j=each: f"{j}: {m}"
            )


def test_one_rank_repeats_engine_full_bit_by_bit():
    jobs = WHOLE + DRAWN + OTHERS + GRAPHS
    for got, want in zip(trained(jobs, "distributed"), trained(jobs, "full"), strict=True):
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("ranks", "jobs"),
    [
        (2, WHOLE + DRAWN + OTHERS + GRAPHS),
        (3, [WHOLE[0], *DRAWN[:2], job(DPL(tau=0.1)), OTHERS[0], *GRAPHS[:3]]),
        (4, [WHOLE[0], DRAWN[0], job(DPL(tau=0.1)), *GRAPHS[:2]]),
    ],
)
def test_ranks_train_the_model_of_one_process(ranks, jobs):
    found = values(ranks, trained, jobs, "distributed")
    assert_alike(found[0], trained(jobs, "full"), jobs)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(a, b, strict=True))


# --- validation and stopping -----------------------------------------------------------------------------

SPLIT = split_random(two_tastes(60, 30, 8), test=0.1, valid=0.25, seed=1)


def validated(engine):
    settings = dataclasses.replace(SETTINGS, epochs=12, batch_size=32, patience=2, learning_rate=0.1)
    result = fit(
        Job(COSINE, InfoNCE(0.3), Full(), SPLIT.train, settings),
        Validation(SPLIT.valid, SPLIT.train, "ndcg@5"),
        engine=engine,
    )
    return result.epoch, [record.score for record in result.history], result.users @ result.items.T


def stopped_by_rank_0():
    """Only rank 0 asks to stop; all stop."""
    group = group_of(CPU)

    def on_epoch(state):
        if state.epoch == 2 and group.is_first:
            raise StopTraining(0.5)
        return 0.5 + group.rank

    result = fit(job(epochs=5), on_epoch, engine="distributed")
    return len(result.history), result.score, result.epoch


def lists_of_ranks():
    """Lists of matrices with many equal scores, and of a list longer than a shard."""
    users, items, known = tied_world()
    group = group_of(CPU)
    of_users, of_items = (Shard(len(table), group.size, group.rank) for table in (users, items))
    shards = ShardedMatrices(group, of_users.take(users), of_items.take(items), of_users, of_items)
    return [
        sharded_top_k(shards, k, hidden_from(np.array(rows, int), masks), np.array(rows, int))
        for k, rows, masks in (
            (3, range(24), [known]),
            (19, range(24), []),
            (5, [7, 7, 0], [known, known]),
            (5, [], []),
        )
    ]


def tied_world():
    chance = torch.Generator().manual_seed(0)
    users, items = (torch.randint(-1, 2, (n, 2), generator=chance).float() for n in (24, 20))
    return users, items, DATA


def everything_else():
    return validated("distributed"), stopped_by_rank_0(), lists_of_ranks()


def test_validation_stopping_and_lists_are_those_of_one_process():
    epoch, scores, products = validated("full")
    users, items, known = tied_world()
    lists = [
        top_k(users, items, 3, exclude=known),
        top_k(users, items, 19),
        top_k(users, items, 5, rows=[7, 7, 0], exclude=[known, known]),
        top_k(users, items, 5, rows=np.empty(0, int)),
    ]
    for found, stopped, listed in values(3, everything_else):
        assert found[0] == epoch
        assert found[1] == pytest.approx(scores, abs=1e-4)
        torch.testing.assert_close(found[2], products, rtol=1e-3, atol=1e-3)
        assert stopped == (2, 0.5, 1)  # rank 0's score of both epochs, the first is kept
        for one, whole in zip(listed, lists, strict=True):
            np.testing.assert_array_equal(one.items, whole.items)
            np.testing.assert_array_equal(one.scores, whole.scores)


# --- parts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 15, 16, 17, (1 << 14) + 3, 2 * (1 << 14) + 16])
def test_shards_begin_with_rows_of_the_vectors_of_one_process(n):
    model = MF(dim=3).start(interactions_of([[0]] * n, n_items=7), 5, CPU)
    for size in (1, 3) if n >= 3 else (1,):
        parts = [first_vectors(Shard(n, size, rank), Shard(7, size, rank), 3, 5) for rank in range(size)]
        assert torch.equal(torch.cat([users for users, _ in parts]), model.user)
        assert torch.equal(torch.cat([items for _, items in parts]), model.item)


def test_shards_are_nearly_equal_and_know_their_owners():
    for n, size in ((20, 3), (4, 4), (10, 4)):
        shards = [Shard(n, size, rank) for rank in range(size)]
        owners = shards[0].owners(torch.arange(n)).tolist()
        assert owners == [rank for rank, shard in enumerate(shards) for _ in range(len(shard))]
        assert max(map(len, shards)) - min(map(len, shards)) <= 1
        assert max(map(len, shards)) == shards[0].longest


def test_a_group_of_one_sends_nothing():
    group = ProcessGroup()
    part = torch.arange(3.0)
    assert all(torch.equal(f(part), part) for f in (group.gather, group.reduce_scatter, group.sum, group.max))
    assert group.texts("τ") == ["τ"]
    assert group.sent == 0


def traffic():
    """The bytes of single collectives, and of an epoch of one step, apart from the agreement before it."""
    group = group_of(CPU)
    counted = []
    for act in (group.gather, group.reduce_scatter, group.sum, group.max):
        before = group.sent
        act(torch.full((6, 2), float(group.rank)))
        counted.append(group.sent - before)
    trainer = started(job(batch_size=24, epochs=1), group)
    before = group.sent
    trainer.train(0, 0.1, lambda steps: None)
    return counted, group.sent - before, group.texts(f"rank {group.rank} τ")


def test_a_step_sends_the_vectors_of_its_users_and_not_those_of_items():
    for counted, sent, texts in values(2, traffic):
        assert counted == [48, 24, 48, 48]
        assert texts == ["rank 0 τ", "rank 1 τ"]
        rows, width = 12, 6  # of the rank that has most of the 22 users, at most; d and popularity
        assert 2 * 11 * width * 4 < sent < 2 * rows * width * 4 + 8 * 22 * 4


# --- what it lacks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoder": Hybrid(dim=4)}, "no encoder Hybrid, .* it has MF and LightGCN"),
        ({"sampler": Uniform()}, "no sampler Uniform"),
        ({"loss": WeightedInfoNCE()}, "no WeightedInfoNCE, whose weights of items are not divided"),
        ({"data": two_tastes().with_disliked([0], [1])}, "no dislikes"),
    ],
)
def test_what_it_lacks_is_an_error(changed, message):
    with pytest.raises(InputError, match=message):
        choose_engine(job(**changed), "distributed")


def test_more_ranks_than_items_are_an_error(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "21")
    with pytest.raises(InputError, match="among 21 ranks, and there are only 20"):
        choose_engine(job(), "distributed")
