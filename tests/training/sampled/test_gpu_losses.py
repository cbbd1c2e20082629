"""The losses' rows in Triton against `losses` in float64 autograd: values, gradients, what is clamped.

Without a GPU this runs in Triton's interpreter.
"""

import numpy as np
import pytest
import torch

from loss_values import FLOORED, fused_values, one_of
from truepair.losses import DCL, LOSSES, DPLHard
from truepair.models.encoders import MF
from truepair.sampling import Uniform
from truepair.training import Job, Settings
from truepair.training.sampled.plan import FUSED_LOSSES, next_power_of_two, plan_of, prior_of
from worlds import two_tastes

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
loss_row = pytest.importorskip("truepair.training.sampled.gpu.losses").loss_row

# NumPy, which the interpreter computes with, warns of branches that `where` does not take
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DATA = two_tastes(n_users=3, n_items=12, each=4)


@triton.jit
def rows_of_scores(
    scores, marked, tau, log_rest, numbers, losses, clamps, gradients,
    PAIR: tl.constexpr, ROW: tl.constexpr, RELATIVE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr, K: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One row of scores a program, as the engine reads it: what lies beyond the row is 0."""
    row, slot = tl.program_id(0), tl.arange(0, K)
    s = tl.load(scores + row * WIDTH + slot, mask=slot < WIDTH, other=0.0)
    unlabelled = tl.load(marked + slot, mask=slot < WIDTH, other=0) != 0
    loss, clamped, gradient = loss_row(
        s, slot, unlabelled, tl.load(tau + row), tl.load(log_rest + row), numbers, PAIR, ROW, RELATIVE, M, N
    )
    tl.store(losses + row, loss)
    tl.store(clamps + row, clamped)
    tl.store(gradients + row * WIDTH + slot, gradient, mask=slot < WIDTH)


def ours(loss, scores, m, n, users=None, chosen=None):
    """(loss [B], gradient [B, C], clamped [B]) of scores [B, C]; `chosen`: the slots of the N unlabelled."""
    settings = Settings(n_extra=m, n_unlabelled=n, device="cpu")
    plan = plan_of(Job(MF(dim=2), loss, Uniform(), DATA, settings))
    rows, width = scores.shape
    tau, log_rest = prior_of(loss)
    users = np.zeros(rows, int) if users is None or len(tau) == 1 else users
    marked = np.isin(np.arange(width), np.arange(1 + m, 1 + m + n) if chosen is None else chosen)
    tensors = [
        torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)
        for array in (scores, marked.astype(np.int8), tau[users], log_rest[users])
    ]
    numbers = torch.tensor(plan.run_numbers(0.0, 0.0, 0.0), device=DEVICE)
    losses = torch.full((rows,), torch.nan, device=DEVICE)
    clamps = torch.full((rows,), 7, dtype=torch.int8, device=DEVICE)
    gradients = torch.full((rows, width), torch.nan, device=DEVICE)
    rows_of_scores[(rows,)](
        *tensors, numbers, losses, clamps, gradients,
        PAIR=int(plan.pair), ROW=int(plan.row), RELATIVE=plan.relative, M=m, N=n,
        WIDTH=width, K=next_power_of_two(width),
    )  # fmt: skip
    return losses.cpu().numpy(), gradients.cpu().numpy(), clamps.cpu().numpy().astype(bool)


def theirs(loss, scores, m, users=None):
    """The same from `losses`, in float64, of the very same scores."""
    s = torch.from_numpy(scores.astype(np.float64)).requires_grad_()
    users = torch.zeros(len(s), dtype=torch.int64) if users is None else torch.from_numpy(users)
    rows = loss.rows(s[:, 0], s[:, 1 : 1 + m], s[:, 1 + m :], users)
    (gradient,) = torch.autograd.grad(rows.loss.sum(), s)
    clamped = np.zeros(len(s), bool) if rows.clamped is None else rows.clamped.numpy()
    return rows.loss.detach().numpy(), gradient.numpy(), clamped


VALUES = fused_values(FUSED_LOSSES, taus=(0.0, 0.2, 0.6))
ONE_OF_EACH = [one_of(kind) for kind in FUSED_LOSSES]
SHAPES = [(0, 1), (2, 1), (0, 6), (5, 11)]  # widths of 2, 4, 7 and 17 slots


def test_every_kind_of_loss_is_here():
    assert {type(loss) for loss in VALUES} == set(FUSED_LOSSES) <= set(LOSSES.values())


@pytest.mark.parametrize("loss", VALUES, ids=str)
def test_value_gradient_and_clamping_are_those_of_the_losses(loss):
    rng, seen = np.random.default_rng(0), set()
    users, sizes = np.arange(6) % 3, np.array([[0.1], [1.0], [5.0], [0.3], [2.0], [12.0]])
    for m, n in dict.fromkeys((m if loss.uses_extra else 0, n) for m, n in SHAPES):
        scores = (rng.normal(size=(6, 1 + m + n)) * sizes).astype(np.float32)
        value, gradient, clamped = ours(loss, scores, m, n, users)
        expected = theirs(loss, scores, m, users)
        assert clamped.tolist() == expected[2].tolist()
        # P_u − τ·P_p has fewer digits than its terms, the fewer the nearer they are
        slack = (1 + np.abs(expected[1]).max() * 5) / (1 - np.max(getattr(loss, "tau", 0.0)))
        np.testing.assert_allclose(value, expected[0], rtol=2e-6, atol=1e-6 * slack)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-5 * slack, atol=5e-7 * slack)
        seen |= set(clamped.tolist())
    assert seen == {False, True} or not loss.uses_prior or loss.tau != 0.97


@pytest.mark.parametrize("loss", VALUES, ids=str)
@pytest.mark.parametrize("height", [40.0, 1e4])
def test_extreme_scores(loss, height):
    if height == 1e4 and isinstance(loss, DPLHard) and loss.clamp == "relative" and loss.beta:
        pytest.xfail("weights e^{βs} of scores so far apart leave no σ that float32 holds")
    m, near = (2 if loss.uses_extra else 0), np.array([0.0, 0.3, -0.4])
    patterns = [  # anchor, extra, unlabelled
        (-height, [-height + 1, -height], height + near),
        (height, [height, 3.0], -height + near),
        (0.0, [0.0, 0.5], np.array([height, -height, 0.5])),
        (-height, [height, -height], np.array([height, 0.0, -height / 2])),
        (0.0, [height, height], near),
    ]
    scores = np.array([[anchor, *extra[:m], *rest] for anchor, extra, rest in patterns], np.float32)
    value, gradient, clamped = ours(loss, scores, m, 3)
    expected = theirs(loss, scores, m)
    assert clamped.tolist() == expected[2].tolist()
    # a score of 1e4 has a last place of 1e-3, so its exponential has three digits
    relative = 1e-6 * height
    np.testing.assert_allclose(value, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        gradient, expected[1], rtol=relative + 1e-5, atol=relative * np.abs(expected[1]).max() + 1e-7
    )


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=str)
def test_small_gradients_keep_their_digits(loss):
    m = 2 if loss.uses_extra else 0
    if isinstance(loss, DCL):
        loss = type(loss)(tau=0.1, min_score=-100.0)
    scores = np.array([[25.0, *[-1.0] * m, 0.0, 1.0]], np.float32)  # every derivative is about e^−25
    _, gradient, _ = ours(loss, scores, m, 2)
    np.testing.assert_allclose(gradient, theirs(loss, scores, m)[1], rtol=2e-5)


@pytest.mark.parametrize("loss", ONE_OF_EACH, ids=str)
def test_only_the_marked_slots_count(loss):
    """As when the hardest of a pool are kept: the unlabelled slots need not lie together."""
    m = 2 if loss.uses_extra else 0
    scores = np.random.default_rng(1).normal(size=(4, 1 + m + 7)).astype(np.float32)
    chosen = 1 + m + np.array([1, 2, 6])
    scores[2, 1 + m] = 1e4  # a slot that is not chosen
    value, gradient, clamped = ours(loss, scores, m, 3, chosen=chosen)
    kept = np.concatenate([np.arange(1 + m), chosen])
    expected = theirs(loss, scores[:, kept], m)
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(gradient[:, kept], expected[1], rtol=1e-4, atol=1e-6)
    assert clamped.tolist() == expected[2].tolist()
    assert (np.delete(gradient, kept, axis=1) == 0).all()


@pytest.mark.parametrize("loss", [*ONE_OF_EACH, *(kind(tau=0.0) for kind in FLOORED)], ids=str)
@pytest.mark.parametrize("base", [0.0, -80.0, 80.0])
def test_a_score_that_is_not_a_number_gives_a_loss_that_is_none(loss, base):
    m, n = (2 if loss.uses_extra else 0), 3
    width = 1 + m + n
    scores = np.tile(np.linspace(base, 0, width, dtype=np.float32), (width, 1))
    np.fill_diagonal(scores, np.nan)  # each slot in turn
    assert np.isnan(theirs(loss, scores, m)[0]).all()
    assert np.isnan(ours(loss, scores, m, n)[0]).all()
