"""Peak memory of the plain call grows by what ../docs/performance.md says, and not by more."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from memory import Size, peak_bytes

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc"
)

DIM = 128
BYTES_A_USER = 5 * 4 * DIM + 300  # the vector, Adam's two means, the result, 1 more for passing copies; ids


@pytest.mark.long
def test_a_user_more_costs_five_vectors_at_most():
    small, large = peak_bytes(*(Size(users, 3, 2 * users, DIM) for users in (40_000, 160_000)))
    assert (large - small) / 120_000 < BYTES_A_USER
