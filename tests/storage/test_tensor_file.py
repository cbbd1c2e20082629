"""Tensor files: what is read lies in memory as what was written did."""

import torch

from truepair.storage.tensor_file import read_tensors, write_tensors


def test_tensors_lie_where_sums_are_the_same_as_before_saving(tmp_path):
    sizes = (3, 5, 7, 64, 129)
    for facts in ({}, {"a": 1}, {"ab": 1}, {"abc": "long enough for another header"}):
        write_tensors(tmp_path / "f", "file", 1, {f"t{n}": torch.ones(n) for n in sizes}, facts)
        tensors, _ = read_tensors(tmp_path / "f", "file", 1)
        assert {tensor.data_ptr() % 64 for tensor in tensors.values()} == {0}
