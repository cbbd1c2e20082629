"""The margin of DPL: both terms have it."""

import dataclasses

import pytest
import torch

from truepair.losses import DPL, DPLHard

MARGIN = 0.8


def scores(rows=20, extra=4, unlabelled=6):
    chance = torch.Generator().manual_seed(3)
    shapes = [(rows,), (rows, extra), (rows, unlabelled)]
    return [torch.randn(*shape, generator=chance, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("loss", [DPL(tau=0.1), DPL(tau=0.2, clamp="relative"), DPLHard(tau=0.1, beta=0.7)])
def test_a_margin_is_the_anchor_lower_by_as_much_in_both_terms(loss):
    pos, extra, unlabelled = scores()
    found = dataclasses.replace(loss, margin=MARGIN).rows(pos, extra, unlabelled)
    torch.testing.assert_close(found.loss, loss(pos - MARGIN, extra, unlabelled))
    assert not found.clamped.all()


def test_the_margin_of_each_term_by_the_formula():
    pos, extra, unlabelled = scores()
    p_unlabelled, p_extra = (
        torch.sigmoid(pos[:, None] - s - MARGIN).mean(dim=1) for s in (unlabelled, extra)
    )
    expected = -((p_unlabelled - 0.1 * p_extra) / 0.9).clamp(min=0.01).log()
    torch.testing.assert_close(DPL(tau=0.1, margin=MARGIN)(pos, extra, unlabelled), expected)
