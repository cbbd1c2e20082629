"""Gradients in chunks against autograd of the plain formulas in float64."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from truepair.losses import BCE, BPR, BSL, CCL, DPL, PSL, SL, InfoNCE
from truepair.training.sequences import losses
from truepair.training.sequences.losses import (
    Columns,
    catalogue_rows,
    row_gradients,
    sampled_rows,
    softmax_gradients,
)


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    states, items = (2 * torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (23, 17))
    targets = torch.randint(17, (23,), generator=generator)
    return states, items, targets, torch.rand(23, generator=generator, dtype=torch.float64)


def by_autograd(loss, states, items, shares):
    states, items = (x.clone().requires_grad_() for x in (states, items))
    values = loss(states, items)
    return values.detach(), *torch.autograd.grad((values * shares).sum(), (states, items))


def check(found, expected):
    for a, b in zip((found.losses, found.by_states, found.by_items), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cells", [1, 40, 10**6])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_softmax_in_chunks_is_cross_entropy(rows, cells, temperature):
    states, items, targets, shares = rows

    def plain(states, items):
        return F.cross_entropy(states @ items.T / temperature, targets, reduction="none")

    found = softmax_gradients(*rows, temperature, cells=cells)
    check(found, by_autograd(plain, states, items, shares))


def test_the_softmax_is_infonce_over_all_other_items(rows):
    rows = (rows[0] / 4, *rows[1:])  # PyTorch's softplus is rounded above 20
    states, items, targets, shares = rows
    users = torch.zeros(len(targets), dtype=torch.int64)
    loss = InfoNCE(temperature=0.5)

    def of_slice(part, some, items):
        return catalogue_rows(loss, some, items, targets[part], users[part])

    by_rows = row_gradients(states, items, shares, len(items), of_slice)
    check(softmax_gradients(*rows, 0.5), (by_rows.losses, by_rows.by_states, by_rows.by_items))


@pytest.mark.parametrize("cells", [1, 10**6])
def test_columns_are_weighted_terms_of_the_sum(rows, cells):
    states, items, targets, shares = rows
    chosen = torch.tensor([4, 0, 4, 9, 16])
    columns = Columns(chosen, torch.tensor([0.5, 0.0, 0.5, -1.0, 2.0], dtype=torch.float64))

    def plain(states, items):
        terms = (states @ items[chosen].T + columns.log_weights).exp() * (targets[:, None] != chosen)
        own = (states * items[targets]).sum(dim=1)
        return (own.exp() + terms.sum(dim=1)).log() - own

    found = softmax_gradients(*rows, columns=columns, cells=cells)
    check(found, by_autograd(plain, states, items, shares))


def test_all_items_as_columns_of_weight_one_are_the_catalogue(rows):
    columns = Columns(torch.randperm(17), torch.zeros(17, dtype=torch.float64))
    plain = softmax_gradients(*rows)
    check(softmax_gradients(*rows, columns=columns), (plain.losses, plain.by_states, plain.by_items))


def test_large_scores_overflow_nowhere(rows):
    states, items, targets, shares = rows
    found = softmax_gradients(1e4 * states, items, targets, shares)
    assert all(x.isfinite().all() for x in (found.losses, found.by_states, found.by_items))


@pytest.mark.parametrize("cells", [20, 10**6])
@pytest.mark.parametrize("loss", [SL(0.7), PSL(0.7), BPR(), BCE(), CCL()])
def test_any_loss_over_the_catalogue(rows, loss, cells, monkeypatch):
    states, items, targets, shares = rows
    monkeypatch.setattr(losses, "CELLS", cells)
    users = torch.zeros(len(targets), dtype=torch.int64)

    def of_slice(part, some, items):
        return catalogue_rows(loss, some, items, targets[part], users[part])

    def plain(states, items):
        found = []
        for state, target in zip(states, targets.tolist(), strict=True):
            scores = items @ state
            others = torch.tensor([i for i in range(17) if i != target])
            found.append(loss(scores[target][None], None, scores[others][None]))
        return torch.cat(found)

    expected = by_autograd(plain, states, items, shares)
    check(row_gradients(states, items, shares, len(items), of_slice), expected)


@pytest.mark.parametrize("cells", [20, 10**6])
@pytest.mark.parametrize("loss", [DPL(tau=0.1), BSL(), BPR()])
def test_any_loss_of_sampled_items(rows, loss, cells, monkeypatch):
    states, items, _, shares = rows
    monkeypatch.setattr(losses, "CELLS", cells)
    generator = torch.Generator().manual_seed(1)
    candidates, users = torch.randint(17, (23, 6), generator=generator), torch.zeros(23, dtype=torch.int64)

    def of_slice(part, some, items):
        return sampled_rows(loss, some, items, candidates[part], 2, users[part])

    def plain(states, items):
        scores = (states[:, None] * items[candidates]).sum(dim=2)
        return loss(scores[:, 0], scores[:, 1:3], scores[:, 3:])

    found = row_gradients(states, items, shares, 36, of_slice)
    check(found, by_autograd(plain, states, items, shares))
    assert (found.clamped is None) == (not loss.has_floor)
