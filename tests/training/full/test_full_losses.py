"""Losses in row form, and three ways to sum over pairs, against the losses on all pairs in float64."""

import dataclasses
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from blocks import KERNELS, OPTIONS, TAUS, block_of, both, defined, shares_of, summed, told, world
from loss_values import COMPARING, FLOORED, all_values
from truepair.losses import BCE, BPR, DPL, LOSSES, PSL, SL, DPLHard, Pair, Pointwise, Row
from truepair.models.encoders import MF
from truepair.sampling import Draws, Full, Uniform
from truepair.training import Job
from truepair.training.full.histogram import MOST_NODES, HistogramSums, Nodes
from truepair.training.full.losses import ROW_FORMS, has_row_form
from truepair.training.full.pair_sums import POWER, SIGMOID, Kernel, pair_sums
from truepair.training.full.scoring import sums_for
from worlds import interactions_of

CLOSE = {"rtol": 1e-10, "atol": 1e-12}
VALUES = all_values(TAUS)
PAIRWISE = [loss for loss in VALUES if loss.family.row in COMPARING or loss.family.pair is Pair.SURROGATE]
PAIRWISE = [loss for loss in PAIRWISE if has_row_form(loss)]


pytestmark = pytest.mark.usefixtures("one_thread")


# --- row forms -----------------------------------------------------------------------------------------


def test_every_loss_is_here_and_has_a_row_form():
    assert {type(loss) for loss in VALUES} == set(LOSSES.values())
    assert {kind.family.row for kind in LOSSES.values()} == set(ROW_FORMS) == set(Row)


@pytest.mark.parametrize("loss", VALUES, ids=str)
def test_row_forms_are_the_losses_on_all_pairs(loss):
    for scale in (0.3, 2.0, 6.0):
        scores, known = world(scale)
        value, clamped, gradient = told(loss, block_of(scores, known, tau=getattr(loss, "tau", 0.0)), known)
        expected = defined(loss, scores, known)
        torch.testing.assert_close(value, expected[0], **CLOSE)
        assert (clamped is None) == (expected[1] is None)
        assert clamped is None or clamped.tolist() == expected[1].tolist()
        # PyTorch's softplus is a straight line above 20, so that its gradient there is off by e^−20 = 2e-9
        steep = scale >= 6 or scale / getattr(loss, "temperature", 1.0) > 8
        torch.testing.assert_close(
            gradient,
            expected[2],
            **({"rtol": 5e-9, "atol": 1e-8 if scale < 6 else 1e-12} if steep else CLOSE),
        )


@pytest.mark.parametrize("kind", FLOORED)
def test_these_worlds_meet_the_floor_and_miss_it(kind):
    found = set()
    for loss in (loss for loss in VALUES if type(loss) is kind):
        for scale in (0.3, 2.0, 6.0):
            found |= set(defined(loss, *world(scale))[1].tolist())
    assert found == {False, True}


def test_a_surrogate_without_a_row_form_and_a_loss_of_ones_own_go_by_definition():
    class Other(BPR):
        """Somebody's own."""

        def _rows(self, pos, extra, unlabelled, users):
            found = super()._rows(pos, extra, unlabelled, users)
            return found._replace(loss=found.loss.square())

    scores, known = world()
    assert [has_row_form(loss) for loss in (BPR(), Other(), PSL(surrogate="relu"))] == [True, False, False]
    for ours, theirs in zip(
        told(Other(), block_of(scores, known), known), defined(Other(), scores, known), strict=True
    ):
        assert ours is theirs is None or torch.allclose(ours, theirs, rtol=1e-12)


def test_a_pointwise_loss_of_ones_own_has_a_row_form():
    @dataclasses.dataclass(frozen=True)
    class Squares(Pointwise):
        """(1 − s⁺)² + weight · mean s²."""

        family = BCE.family

        def positive(self, s):
            return (1 - s) ** 2, -2 * (1 - s)

        def unlabelled(self, s):
            return s**2, 2 * s

    scores, known = world()
    loss = Squares(weight=0.3)
    assert has_row_form(loss)
    found, expected = told(loss, block_of(scores, known), known), defined(loss, scores, known)
    torch.testing.assert_close(found[0], expected[0], **CLOSE)
    torch.testing.assert_close(found[2], expected[2], **CLOSE)


@pytest.mark.parametrize(
    ("loss", "sums"),
    [*((loss, pair_sums) for loss in VALUES), *((loss, HistogramSums(1 / 32)) for loss in PAIRWISE)],
    ids=lambda value: {type(pair_sums): "all pairs", HistogramSums: "histogram"}.get(type(value), str(value)),
)
def test_scores_of_any_size_give_finite_gradients(loss, sums):
    for height in (60.0, 1e4):
        scores, known = world(1.0)
        scores[:, ::2] += height
        scores[3:] -= height / 2
        block = block_of(scores, known, torch.float32, tau=getattr(loss, "tau", 0.0))
        value, _, gradient = told(loss, block, known, sums)
        assert value.isfinite().all()
        assert gradient.isfinite().all()


# --- weighted columns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [loss for loss in VALUES if has_row_form(loss)], ids=str)
def test_a_column_of_weight_two_is_two_columns(loss):
    """As if the catalogue had it twice: drawn columns stand for others."""
    scores, known = world()
    twice = torch.tensor([2, 7, 9])
    wide = torch.cat([scores, scores[:, twice]], dim=1)
    also = torch.cat([known, torch.zeros(6, 3, dtype=torch.bool)], dim=1)
    known[:, twice], also[:, twice] = False, False
    log_weights = torch.zeros(14, dtype=torch.float64)
    log_weights[twice] = math.log(2)
    tau, n = getattr(loss, "tau", 0.0), (~also).sum(dim=1).double()
    block = block_of(scores, known, tau=tau, log_weights=log_weights, n_unlabelled=n)
    ours, _, by_ours = told(loss, block, known)
    theirs, _, by_theirs = told(loss, block_of(wide, also, tau=tau), also)
    by_theirs[:, twice] += by_theirs[:, 14:]
    torch.testing.assert_close(ours, theirs, **CLOSE)
    torch.testing.assert_close(by_ours, by_theirs[:, :14], **CLOSE)


# --- sums from a histogram -----------------------------------------------------------------------------


def worst(sums, block, exact, kernel, beta=0.0):
    """The largest relative error of each of them."""
    pairs = zip(summed(sums, block, kernel, beta), summed(pair_sums, exact, kernel, beta), strict=True)
    return [largest_error(x, y) for x, y in pairs]


def largest_error(x, y):
    """Relative, where the number is not next to 0: far away φ keeps its ratio, with a kink."""
    return float(((x.double() - y).abs() / y.abs())[y.abs() > math.exp(-40)].max())


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(("beta", "wanted"), OPTIONS)
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_a_histograms_error_keeps_within_its_bound(kernel, beta, wanted, scale):
    block, exact = both(scale, wanted)
    for step in (1 / 2, 1 / 8, 1 / 32):
        h = Nodes(block, step * kernel.scale).h / kernel.scale
        bound = (1 + h**2 * math.exp(h) / 8) ** 2 - 1
        assert max(worst(HistogramSums(step), block, exact, kernel, beta)) < bound + 5e-5  # of float32


def test_the_errors_by_temperature_are_those_of_the_docs():
    """Of PSL on cosines: the width of the cells, the bound, and the errors of sums and of the gradient."""
    lines = (
        (Path(__file__).parents[3] / "docs" / "full-catalogue.md").read_text(encoding="utf-8").splitlines()
    )
    head = next(at for at, line in enumerate(lines) if line.startswith("| temperature of PSL |"))
    scores, known = world(1.0, n_items=400)
    scores = torch.tanh(0.55 * scores)
    exact, single = block_of(scores.float().double(), known), block_of(scores, known, torch.float32)
    for line in lines[head + 2 : head + 8]:
        t, *expected = (float(Fraction(cell.strip(" %"))) for cell in line.strip("|").split("|"))
        kernel = Kernel(POWER, 1 / t)
        h = Nodes(single, kernel.scale / 32).h / kernel.scale
        bound = (1 + h**2 * math.exp(h) / 8) ** 2 - 1
        sums = max(worst(HistogramSums(1 / 32), single, exact, kernel))
        found, wanted = told(PSL(t), single, known, HistogramSums(1 / 32)), told(PSL(t), exact, known)
        gradient = largest_error(found[2], wanted[2])
        assert sums < bound + 5e-5
        assert gradient < 2 * bound + 5e-5
        shown = [h, *(100 * value for value in (bound, sums, gradient))]
        assert shown == pytest.approx(expected, rel=0.1), (t, shown)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_quarter_of_the_step_is_a_sixteenth_of_the_error(kernel):
    block, exact = both(2.0)
    coarse, fine = (worst(HistogramSums(step), block, exact, kernel) for step in (1 / 2, 1 / 8))
    ratios = [a / b for a, b in zip(coarse, fine, strict=True)]
    assert 10 < min(ratios) < max(ratios) < 25, ratios


def test_a_range_too_wide_for_the_nodes_takes_wider_cells():
    scores, known = world(400.0)
    block = block_of(scores, known, torch.float32)
    exact = block_of(scores, known)
    assert block.high - block.low > MOST_NODES / 32
    value, *_ = summed(HistogramSums(1 / 32), block, Kernel(SIGMOID))
    torch.testing.assert_close(
        value.double(), summed(pair_sums, exact, Kernel(SIGMOID))[0], atol=0.05, rtol=0
    )


def test_equal_scores_are_no_trouble():
    scores, known = world(0.0)
    block = block_of(scores, known, torch.float32)
    for kernel in KERNELS:
        for ours, theirs in zip(
            summed(HistogramSums(1 / 32), block, kernel), summed(pair_sums, block, kernel), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_step_0_is_every_pair_by_itself():
    jobs = [Job(MF(dim=4), BPR(), sampler, interactions_of([[0]], 2)) for sampler in (Full(step=0), Full())]
    exact, quick = (sums_for(job, torch.device("cpu")) for job in jobs)
    assert exact is pair_sums
    assert isinstance(quick, HistogramSums)


def test_pairs_are_summed_in_pieces(monkeypatch):
    block, _ = both(2.0)
    whole = summed(pair_sums, block, Kernel(SIGMOID), 0.7)
    monkeypatch.setattr("truepair.training.full.pair_sums._AT_ONCE", 130)
    for ours, theirs in zip(summed(pair_sums, block, Kernel(SIGMOID), 0.7), whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


# --- what sampling approaches --------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [DPL(tau=0.15), DPLHard(tau=0.15, beta=0.5), BPR(), SL()], ids=str)
def test_drawn_rows_approach_the_exact_ones(loss):
    """The gradient of drawn entries of all anchors, with M = N = 20, 200 and 2000 draws."""
    scores, known = world(1.0, n_items=30)
    scores, known = scores.repeat(2, 1), known.repeat(2, 1)
    scores[6:] += torch.linspace(-1, 1, 30, dtype=torch.float64)
    draws = Draws(interactions_of([row.nonzero()[:, 0].numpy() for row in known], 30), Uniform())
    _, _, exact = told(loss, block_of(scores, known, tau=0.15), known)

    def error(n):
        batch, s = draws.batch(draws.anchors, n, n, key=7), scores.clone().requires_grad_()
        rows = batch.users[:, None]
        value = loss(s[batch.users, batch.pos], s[rows, batch.extra], s[rows, batch.unlabelled])
        (gradient,) = torch.autograd.grad((value * shares_of(known)).sum(), s)
        return float((gradient - exact).norm() / exact.norm())

    errors = [error(n) for n in (20, 200, 2000)]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.02
