"""Tensor files: what is read lies in memory as what was written did."""

import json

import safetensors.torch
import torch

from truepair.storage.tensor_file import read_tensors, write_tensors


def test_tensors_lie_where_sums_are_the_same_as_before_saving(tmp_path):
    sizes = (3, 5, 7, 64, 129)
    for facts in ({}, {"a": 1}, {"ab": 1}, {"abc": "long enough for another header"}):
        write_tensors(tmp_path / "f", "file", 1, {f"t{n}": torch.ones(n) for n in sizes}, facts)
        tensors, _ = read_tensors(tmp_path / "f", "file", 1)
        assert {tensor.data_ptr() % 64 for tensor in tensors.values()} == {0}


def test_a_file_is_one_of_safetensors(tmp_path):
    kinds = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
             torch.int16, torch.int8, torch.uint8, torch.bool]  # fmt: skip
    tensors = {str(kind): torch.arange(7).to(kind) for kind in kinds}
    tensors |= {"a number": torch.tensor(2.5), "nothing": torch.zeros(0, 3), "é": torch.ones(3, 2).T}
    write_tensors(tmp_path / "f", "file", 1, tensors, {"naïve": "é"})
    found = safetensors.torch.load_file(tmp_path / "f")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    with safetensors.safe_open(tmp_path / "f", "pt") as file:
        assert json.loads(file.metadata()["facts"]) == {"naïve": "é"}


def test_each_tensor_of_a_file_begins_at_a_multiple_of_its_size(tmp_path):
    tensors = {"a": torch.zeros(3, dtype=torch.uint8), "b": torch.zeros(5), "c": torch.zeros(1).double()}
    write_tensors(tmp_path / "f", "file", 1, tensors, {})
    content = (tmp_path / "f").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    for name, tensor in tensors.items():
        assert header[name]["data_offsets"][0] % tensor.element_size() == 0
