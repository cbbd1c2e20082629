"""What tests of engines share."""

import numba
import pytest
import torch


@pytest.fixture
def one_thread():
    """Blocks here are tiny, and on a busy machine threads wait long for each other."""
    allowed = numba.get_num_threads()  # this starts Numba's threads, which raises the number of PyTorch's
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    numba.set_num_threads(allowed)
