"""Parts of a model file that every version has: the spec of stored parameters, and sparse matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.errors import InputError
from truepair.spec import Spec
from truepair.spec.parameters import from_json


def spec_of_file(parameters: Mapping[str, Any]) -> Spec:
    """The spec of stored parameters; on a machine without CUDA, that of a GPU has the device "auto"."""
    known = from_json(parameters)
    if str(known.get("device", "")).startswith("cuda") and not torch.cuda.is_available():
        known["device"] = "auto"
    return Spec.of(known, unused="drop")


def sparse_rows(name: str, tensors: Mapping[str, Tensor], shape: tuple[int, int]) -> sp.csr_array:
    """The sparse matrix of three tensors; raise unless it is sound and of this shape."""
    starts, columns, values = (tensors[f"{name}.{part}"] for part in ("starts", "columns", "values"))
    kinds = (starts.dtype, columns.dtype, values.dtype)
    if kinds != (torch.int64, torch.int32, torch.float32):
        raise InputError(f"{name} is of {', '.join(map(str, kinds))}, not of int64, int32 and float32.")
    check_lines(name, starts, columns, values)
    counts = starts.diff()
    whole = len(starts) == shape[0] + 1 and starts[0] == 0 and starts[-1] == len(columns) == len(values)
    if not whole or bool(((counts < 0) | (starts[:-1] < 0)).any()):  # differences may wrap around
        raise InputError(f"{name}.starts does not divide {len(columns)} columns among {shape[0]} rows.")
    if bool(((columns < 0) | (columns >= shape[1])).any()):
        raise InputError(f"{name} has columns that are not among {shape[1]}.")
    if not bool((torch.diff(torch.repeat_interleave(counts) * shape[1] + columns) > 0).all()):
        raise InputError(f"{name} has a row whose columns are not distinct and rising.")
    if broken := int((~values.isfinite()).sum()):
        raise InputError(f"{broken} values of {name} are NaN or infinity.")
    return sp.csr_array((values.numpy(), columns.numpy(), starts.numpy()), shape=shape)


def check_lines(name: str, *tensors: Tensor) -> None:
    """Raise unless all of these are vectors."""
    if any(tensor.ndim != 1 for tensor in tensors):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InputError(f"{name} is of shapes {shapes}; each must have one axis.")
