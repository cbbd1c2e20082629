"""LightGCN on several ranks: the graph is divided, and every vector and gradient is that of one process."""

import dataclasses

import numpy as np
import pytest
import torch

from ranks import values
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.evaluation import Validation
from truepair.losses import InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.ranking.selection import hidden_from, top_k
from truepair.ranking.sharded_top_k import sharded_top_k
from truepair.sampling import Full
from truepair.training import Job, Settings, fit
from truepair.training.distributed import engine
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.engine import check_memory, graph_bytes, size_of, started
from truepair.training.distributed.graph import ShardGraph, places
from truepair.training.distributed.processes import group_of
from truepair.training.distributed.shards import Shard
from worlds import interactions_of, two_tastes

CPU = torch.device("cpu")
SETTINGS = Settings(epochs=6, batch_size=64, learning_rate=0.05, device="cpu", seed=3)


def gappy_world():
    """13 users x 11 items: the first three users and the last four items have no pair."""
    mask = np.random.default_rng(1).random((13, 11)) < 0.4
    mask[:3], mask[:, 7:] = False, False
    return interactions_of([np.flatnonzero(row) for row in mask], 11)


DATA = gappy_world()


def job(encoder=None, data=DATA, **changes):
    encoder = LightGCN(dim=3, hops=2) if encoder is None else encoder
    return Job(encoder, InfoNCE(0.5), Full(), data, dataclasses.replace(SETTINGS, **changes))


# --- on several ranks ------------------------------------------------------------------------------------


def upstream(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def final_and_gradients(hops):
    """The final vectors of all ranks, and the gradients of ⟨upstream, final⟩ by the tables."""
    trainer = started(job(LightGCN(dim=3, hops=hops)), group_of(CPU))
    shards = trainer.user_shard, trainer.item_shard
    final = trainer.model()
    given = [shard.take(upstream((shard.n, 3), seed)) for seed, shard in enumerate(shards)]
    torch.autograd.backward(final, given)
    gradients = trainer.model.user.grad, trainer.model.item.grad
    return *trainer.whole([x.detach() for x in final]), *trainer.whole(gradients)


def dense(hops):
    """The same by autograd through the dense matrix Σ_k Âᵏ / (hops + 1), in float64."""
    n, model = DATA.n_users, MF(dim=3).start(DATA, SETTINGS.seed, CPU)
    edges = np.zeros((n + DATA.n_items, n + DATA.n_items))
    edges[DATA.users, n + DATA.items] = edges[n + DATA.items, DATA.users] = 1
    a = torch.from_numpy(edges)
    scale = a.sum(dim=1).clamp(min=1).rsqrt()
    a = scale[:, None] * a * scale
    e = torch.cat([model.user, model.item]).detach().double().requires_grad_()
    final = sum(torch.linalg.matrix_power(a, k) @ e for k in range(hops + 1)) / (hops + 1)
    final.backward(torch.cat([upstream((n, 3), 0), upstream((DATA.n_items, 3), 1)]).double())
    return final[:n].detach(), final[n:].detach(), e.grad[:n], e.grad[n:]


def steps(engine):
    """The matrices and the loss after each step: an epoch is one step."""
    found = []

    def on_epoch(state):
        found.append((*(x.clone() for x in state.matrices()), torch.tensor(state.loss)))

    fit(job(), on_epoch, engine=engine)
    return found


SPLIT = split_random(two_tastes(60, 30, 8), test=0.1, valid=0.25, seed=1)


def validated(engine, shown=None):
    """Scores, the best epoch and its matrices."""
    encoder = LightGCN(dim=5, scoring="cosine", temperature=0.2)
    validation = Validation(SPLIT.valid, SPLIT.train, "ndcg@5")

    def on_epoch(state):
        if shown is not None:
            users = np.arange(60)
            shown.append(sharded_top_k(state.shards, 5, hidden_from(users, [SPLIT.train]), users))
        return validation(state)

    settings = {"epochs": 5, "batch_size": 32, "learning_rate": 0.1}
    result = fit(job(encoder, SPLIT.train, **settings), on_epoch, engine=engine)
    return result.epoch, [record.score for record in result.history], result.users, result.items


def ranked():
    """The same, and whether lists of shards during training are those of the final vectors."""
    shown = []
    epoch, scores, users, items = validated("distributed", shown)
    return epoch, scores, users, items, shown[epoch - 1].items


def sent(encoder):
    """Bytes that a rank sends in a step."""
    group = group_of(CPU)
    trainer = started(job(encoder, epochs=1), group)
    before = group.sent
    trainer.train(0, 0.1, lambda steps: None)
    return group.sent - before


def everything():
    vectors = [final_and_gradients(hops) for hops in (1, 2, 3)]
    bytes_sent = [sent(encoder) for encoder in (MF(dim=3), LightGCN(dim=3), LightGCN(dim=3, hops=3))]
    return vectors, bytes_sent, steps("distributed"), ranked()


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.long), 4])
def of_ranks(request):
    return request.param, values(request.param, everything)


def test_final_vectors_and_gradients_are_those_of_the_dense_matrix(of_ranks):
    for hops, expected in zip((1, 2, 3), map(dense, (1, 2, 3)), strict=True):
        for vectors, *_ in of_ranks[1]:
            for a, b in zip(vectors[hops - 1], expected, strict=True):
                torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_every_step_is_that_of_one_process(of_ranks):
    for _, _, found, _ in of_ranks[1]:
        for got, want in zip(found, steps("full"), strict=True):
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_validation_and_lists_are_of_final_vectors(of_ranks):
    epoch, scores, users, items = validated("full")
    for *_, (best, of_epochs, of_users, of_items, listed) in of_ranks[1]:
        assert best == epoch
        assert of_epochs == pytest.approx(scores, abs=1e-4)
        torch.testing.assert_close(of_users @ of_items.T, users @ items.T, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(listed, top_k(of_users, of_items, 5, exclude=SPLIT.train).items)


def test_a_hop_sends_the_vectors_of_a_rank_once_and_their_gradients_once(of_ranks):
    ranks, found = of_ranks
    rows = sum(Shard(n, ranks, 0).longest for n in (DATA.n_users, DATA.n_items))
    for _, (mf, one_hop, three_hops), *_ in found:
        assert one_hop - mf == 2 * (ranks - 1) * rows * 3 * 4
        assert three_hops - mf == 3 * (one_hop - mf)


# --- parts -----------------------------------------------------------------------------------------------


def test_places_are_those_of_gathered_shards():
    for n, size in ((11, 4), (10, 3), (4, 4), (7, 1)):
        shards = [Shard(n, size, rank) for rank in range(size)]
        gathered = np.full(size * shards[0].longest, -1)
        for rank, shard in enumerate(shards):
            first = rank * shard.longest
            gathered[first : first + len(shard)] = range(shard.first, shard.last)
        np.testing.assert_array_equal(gathered[places(shards[0], np.arange(n))], np.arange(n))


def graph_of(data, ranks, rank):
    shards = Shard(data.n_users, ranks, rank), Shard(data.n_items, ranks, rank)
    return ShardGraph(data, *shards, ProcessGroup(rank, ranks), CPU)


def test_ranks_divide_the_edges():
    narrow, wide = job(LightGCN(dim=1)), job(LightGCN(dim=2))
    for ranks in (1, 2, 4):
        parts = [graph_of(DATA, ranks, rank) for rank in range(ranks)]
        edges = [part.to_users._nnz() + part.to_items._nnz() for part in parts]
        assert sum(edges) == 2 * len(DATA)
        rows = sum(Shard(n, ranks, 0).longest for n in (DATA.n_users, DATA.n_items))
        without_vectors = 2 * graph_bytes(narrow, ranks) - graph_bytes(wide, ranks)
        assert without_vectors == 12 * max(edges) + 8 * rows


# --- memory ----------------------------------------------------------------------------------------------


def test_a_graph_that_does_not_fit_is_an_error_before_training(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    large = job(LightGCN(dim=64, hops=2), interactions_of([np.arange(50)] * 2000, 3000), batch_size=20)
    needed = size_of(large).rank_bytes(2) + graph_bytes(large, 2)
    gathered, layers = 2 * 3000 * 64 * 4, 2 * 3 * 2500 * 64 * 4
    assert graph_bytes(large, 2) == 12 * (50_000 + 100_000) + 8 * 2500 + gathered + layers
    monkeypatch.setattr(engine, "free_bytes", lambda device: needed)
    check_memory(large, 2, CPU)
    monkeypatch.setattr(engine, "free_bytes", lambda device: needed - 1)
    message = r"a rank of 2 needs about 0\.01 GB \(0\.01 GB of them for the graph and its hops\), .*; 3 ranks"
    with pytest.raises(InputError, match=message):
        check_memory(large, 2, CPU)
    check_memory(dataclasses.replace(large, encoder=MF(dim=64)), 2, CPU)
    monkeypatch.setattr(engine, "free_bytes", lambda device: gathered)
    with pytest.raises(InputError, match=r"no number of ranks would fit, since each gathers .* or use MF"):
        fit(large, engine="distributed")
