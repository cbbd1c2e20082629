"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

collect_ignore = ["training/sampled/compile_kernels.py"]  # a script, for a process of its own

# Without a GPU the GPU engine's kernels run in Triton's interpreter; Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public datasets: TRUEPAIR_DATA, else `shared/data` beside the checkout."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TRUEPAIR_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder; set TRUEPAIR_DATA")
    return folder


# Tensors here are tiny, and on a busy machine PyTorch's threads wait for each other for minutes.
torch.set_num_threads(1)
