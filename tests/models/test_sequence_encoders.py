"""Sequence encoders against slow definitions in float64, in value and gradient; no state knows the future."""

import math

import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.log import Histories
from truepair.errors import InputError
from truepair.models.encoders import Recurrence, SASRec, StartedSequence, ordered_histories
from truepair.models.sequence_networks import PaddedHistories, RecurrentNetwork

ENCODERS = {"sasrec": SASRec(dim=8, heads=2), "recurrence": Recurrence(dim=8)}
every_encoder = pytest.mark.parametrize("name", ENCODERS)


def started(name, n_items=11, seed=3, **changes):
    generator = torch.Generator().manual_seed(seed)
    encoder = type(ENCODERS[name])(**{**vars(ENCODERS[name]), **changes})
    model = StartedSequence(encoder, torch.randn(n_items, encoder.dim, generator=generator), seed=seed)
    return model.double().eval()


def histories_of(*rows):
    items = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return PaddedHistories.of(Histories(np.cumsum([0, *map(len, rows)]), items), torch.device("cpu"))


# --- definitions ------------------------------------------------------------------------------------------


def norm(x, layer):
    centred = x - x.mean()
    return centred / (centred.square().mean() + layer.eps).sqrt() * layer.weight + layer.bias


def mlp(x, layer):
    gate, value = (layer.into.weight @ x).chunk(2)
    return layer.out.weight @ (gate * torch.sigmoid(gate) * value)


def attention(xs, layer):
    """The last output: softmax over all events of q·k/√d, both turned by 10000^(-k/half) · place."""
    heads, dim = layer.heads, len(xs[0])
    size = dim // heads
    parts = [(layer.into.weight @ x).reshape(3, heads, size) for x in xs]

    def turned(vector, place):
        half = size // 2
        found = []
        for k in range(half):
            angle = place * 10_000.0 ** (-k / half)
            found.append(vector[k] * math.cos(angle) - vector[k + half] * math.sin(angle))
        for k in range(half):
            angle = place * 10_000.0 ** (-k / half)
            found.append(vector[k] * math.sin(angle) + vector[k + half] * math.cos(angle))
        return torch.stack(found)

    outputs, last = [], len(xs) - 1
    for head in range(heads):
        query = turned(parts[last][0, head], last)
        scores = torch.stack([query @ turned(p[1, head], t) / math.sqrt(size) for t, p in enumerate(parts)])
        shares = scores.softmax(dim=0)
        outputs.append(sum(share * p[2, head] for share, p in zip(shares, parts, strict=True)))
    return layer.out.weight @ torch.cat(outputs)


def recurrences(xs, layer):
    rates = torch.sigmoid(layer.rates)
    states = [torch.zeros_like(xs[0]) for _ in rates]
    for x in xs:
        states = [a * h + (1 - a * a).sqrt() * x for a, h in zip(rates, states, strict=True)]
    return layer.out.weight @ torch.cat(states)


def slow_states(model, items):
    """The state after each event, from the events until then, one by one."""
    network, dim = model.network, model.encoder.dim
    xs = [model.vectors()[item] * math.sqrt(dim) for item in items]
    for block, layer in zip(network.blocks, network.norms, strict=False):
        normed = [norm(x, layer) for x in xs]
        kinds = {"CausalAttention": attention, "Recurrences": recurrences}
        kind = kinds.get(type(block).__name__, lambda seen, block: mlp(seen[-1], block))
        xs = [x + kind(normed[: t + 1], block) for t, x in enumerate(xs)]
    return torch.stack([norm(x, network.norms[-1]) for x in xs])


@every_encoder
@pytest.mark.parametrize("scoring", ["dot", "cosine"])
def test_states_equal_the_definition_in_value_and_gradient(name, scoring):
    model, items = started(name, scoring=scoring), torch.tensor([3, 1, 4, 1, 5, 9, 2])
    fast, slow = model.states(items[None], model.vectors())[0], slow_states(model, items)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    weights = torch.randn(fast.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad((weights * x.sin()).sum(), parameters) for x in (fast, slow))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11)


@every_encoder
def test_a_state_depends_on_its_own_event_and_earlier_ones(name):
    model, items = started(name), torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    before = model.states(items, model.vectors())
    for place in range(7):
        changed = items.clone()
        changed[0, place] = 7
        after = model.states(changed, model.vectors())
        assert torch.equal(after[:, :place], before[:, :place])
        assert not torch.isclose(after[:, place:], before[:, place:]).all(dim=-1).any()


@every_encoder
def test_states_of_a_beginning_are_those_of_the_whole(name):
    model, items = started(name), torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    whole = model.states(items, model.vectors())
    for n in range(1, 8):
        torch.testing.assert_close(model.states(items[:, :n], model.vectors()), whole[:, :n])


def test_one_event_at_a_time_is_all_at_once():
    model, items = started("recurrence", layers=3), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    whole, state = model.states(items, model.vectors()), None
    assert isinstance(model.network, RecurrentNetwork)
    for t in range(5):
        x = model.vectors()[items[:, t]] * math.sqrt(8)
        found, state = model.network.step(x, state)
        torch.testing.assert_close(found, whole[:, t], rtol=1e-10, atol=1e-12)
    assert state.shape == (3, 2, 6, 8)


# --- rows of users ----------------------------------------------------------------------------------------


@every_encoder
def test_rows_are_the_last_states_of_the_last_events(name):
    model = started(name, length=4)
    rows = [3, 1, 4, 1, 5, 9], [], [2], [6, 5, 3]
    found = model.rows(histories_of(*rows))
    for row, items in zip(found, rows, strict=True):
        expected = torch.zeros(8, dtype=torch.float64)
        if items:
            expected = model.states(torch.tensor([items[-4:]]), model.vectors())[0, -1]
        torch.testing.assert_close(row, expected)


@every_encoder
def test_rows_do_not_depend_on_who_else_is_there(name, monkeypatch):
    model = started(name)
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 11, n) for n in rng.integers(0, 30, 40)]
    together = model.rows(histories_of(*rows))
    monkeypatch.setattr("truepair.models.encoders._PLACES", 40)
    torch.testing.assert_close(model.rows(histories_of(*rows)), together)


@every_encoder
def test_rows_leave_the_model_in_training(name):
    model = started(name).train()
    model.rows(histories_of([1, 2]))
    assert model.training


def test_padded_histories():
    histories = histories_of([5, 6, 7], [8], [])
    places, known = histories.last(torch.tensor([1, 0]), 2)
    assert histories.items[places].tolist() == [[8, 5], [6, 7]]
    assert known.tolist() == [[True, False], [True, True]]
    assert histories.counts(2).tolist() == [2, 1, 0]


# --- parameters -------------------------------------------------------------------------------------------


def ordered(rows, time_kind="order"):
    users = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    time = np.concatenate([np.arange(len(row)) for row in rows])
    ids = IdMap.range(len(rows)), IdMap.range(max(map(max, rows)) + 1)
    return Interactions(users, np.concatenate(rows), *ids, time=time, time_kind=time_kind)


@every_encoder
def test_popularity_is_a_column(name):
    data = ordered([[2, 0, 1], [1, 2]])
    plain, popular = (
        type(ENCODERS[name])(dim=8, popularity=p).start(data, 0, torch.device("cpu")) for p in (0.0, 0.5)
    )
    (users, items), (more_users, more_items) = plain(), popular()
    added = 0.5 * np.log1p(data.item_counts)
    torch.testing.assert_close(more_users @ more_items.T, users @ items.T + torch.tensor(added).float())


def test_dropout_follows_the_data():
    sparse, dense = ordered([[0, 1, 2], [2, 1]]), ordered([[0, 1], [1, 0]] * 60)
    found = [SASRec(dim=4).start(data, 0, torch.device("cpu")).network.dropout.p for data in (sparse, dense)]
    assert found == [0.5, 0.2]
    assert SASRec(dim=4, dropout=0.1).start(dense, 0, torch.device("cpu")).network.dropout.p == 0.1


@every_encoder
def test_the_seed_decides_and_leaves_the_generator_alone(name):
    data = ordered([[0, 1, 2], [2, 1]])
    before = torch.get_rng_state()
    one, two, other = (ENCODERS[name].start(data, seed, torch.device("cpu")) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.item, other.item)
    assert not torch.equal(one.network.blocks[-1].state_dict().popitem()[1],
                           other.network.blocks[-1].state_dict().popitem()[1])  # fmt: skip


def test_histories_need_an_order():
    timeless = Interactions(np.array([0, 0, 1]), np.array([0, 1, 0]), IdMap.range(2), IdMap.range(2))
    with pytest.raises(InputError, match=r"the order of the events is not known.*chronological=True"):
        ordered_histories(timeless)
    single = Interactions(np.array([0, 1]), np.array([0, 1]), IdMap.range(2), IdMap.range(2))
    assert ordered_histories(single).items.tolist() == [0, 1]  # one event has an order


def test_equal_times_are_in_the_order_of_the_source():
    from truepair import read_interactions

    data = read_interactions({"user": [1, 1, 1, 1], "item": [7, 5, 6, 5], "time": [3, 3, 3, 3]})
    assert data.item_ids.outside(ordered_histories(data).items).to_pylist() == [7, 5, 6, 5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SASRec(dim=6, heads=2), r"dim = 6 of SASRec\(heads=2\) is no multiple of 4"),
        (lambda: SASRec(heads=0), "heads = 0 .* ≥ 1"),
        (lambda: SASRec(layers=0), "layers = 0"),
        (lambda: Recurrence(length=5000), "length = 5000 .* 4096"),
        (lambda: Recurrence(length=0), "length = 0"),
        (lambda: Recurrence(dropout=1.0), "dropout = 1"),
        (lambda: Recurrence(positions=0), "positions = 0 .* ≥ 1"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InputError, match=message):
        make()
