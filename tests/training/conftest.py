"""What tests of engines share."""

import numba
import pytest
import torch


@pytest.fixture
def one_thread():
    """One thread, whatever a test before this one asked for."""
    numba.set_num_threads(1)
    torch.set_num_threads(1)
