"""What tests of engines share."""

import importlib.util

import numba
import pytest
import torch

if importlib.util.find_spec("triton") and not torch.cuda.is_available():
    from interpreting import interpret_without_waste

    interpret_without_waste()


@pytest.fixture
def one_thread():
    """One thread, whatever a test before this one asked for."""
    numba.set_num_threads(1)
    torch.set_num_threads(1)
