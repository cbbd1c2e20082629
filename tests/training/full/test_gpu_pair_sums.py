"""Sums over pairs in Triton against those of PyTorch in float64. Without a GPU, in Triton's interpreter."""

import pytest
import torch

from blocks import KERNELS, OPTIONS, TAUS, block_of, both, defined, summed, told, world
from truepair.losses import BPR, DPL, PSL, DPLHalf, DPLHard
from truepair.training.full.pair_sums import SOFTPLUS, pair_sums

pytest.importorskip("triton")
gpu_sums = pytest.importorskip("truepair.training.full.gpu_pair_sums").gpu_sums

# NumPy, which the interpreter computes with, warns of branches that `where` does not take
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def on_device(block, kernel, beta, with_own):
    """`gpu_sums` there, and what it gives here."""
    moved = block._replace(
        **{name: x.to(DEVICE) for name, x in block._asdict().items() if torch.is_tensor(x)}
    )
    found = gpu_sums(moved, kernel, beta, with_own)
    return tuple(sums and _back(sums) for sums in found)


def _back(sums):
    return type(sums)(sums.value.cpu(), sums.slope.cpu(), lambda alpha: sums.spread(alpha.to(DEVICE)).cpu())


# Every kind of kernel with and without β and weights; a margin and another power with one of the two
@pytest.mark.parametrize(
    ("kernel", "beta", "wanted"),
    [
        *((kernel, *OPTIONS[0]) for kernel in (KERNELS[0], *KERNELS[2:4], KERNELS[5])),
        *((kernel, *OPTIONS[3]) for kernel in (*KERNELS[:3], KERNELS[4])),
    ],
    ids=str,
)
def test_sums_are_those_of_all_pairs(kernel, beta, wanted):
    """135 columns are two tiles, and a row has more anchors than a tile holds, either way."""
    block, exact = both(4.0 if beta else 0.5, wanted, n_items=135)
    assert block.longest > 128
    ours = summed(on_device, block, kernel, beta)
    for x, y in zip(ours, summed(pair_sums, exact, kernel, beta), strict=True):
        small = 1e-7 if kernel.kind == SOFTPLUS else 1e-9  # log(1 + e) has the digits of 1
        torch.testing.assert_close(x.double(), y, rtol=2e-5, atol=small)


def test_own_sums_only_where_they_are_asked_for():
    block, _ = both(1.0)
    assert on_device(block, KERNELS[0], 0.0, False)[1] is None


@pytest.mark.parametrize(
    "loss",
    [
        BPR(),
        PSL(temperature=0.4),
        *(kind(tau=TAUS) for kind in (DPL, DPLHard, DPLHalf)),
        DPL(tau=TAUS, clamp="relative", floor=0.4),
    ],
    ids=str,
)
def test_losses_and_gradients_are_those_of_the_definition(loss):
    scores, known = world(2.0, n_items=40)
    block = block_of(scores, known, torch.float32, tau=getattr(loss, "tau", 0.0))
    value, clamped, gradient = told(loss, block, known, on_device)
    expected = defined(loss, scores, known)
    torch.testing.assert_close(value.double(), expected[0], rtol=1e-5, atol=1e-5)
    assert clamped is None or clamped.tolist() == expected[1].tolist()
    torch.testing.assert_close(gradient.double(), expected[2], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("height", [60.0, 1e4])
def test_scores_of_any_size_give_finite_sums(height):
    scores, known = world(1.0)
    scores[:, ::2] += height
    scores[3:] -= height / 2
    for kernel in KERNELS:
        for part in summed(on_device, block_of(scores, known, torch.float32), kernel, 0.7):
            assert part.isfinite().all()
