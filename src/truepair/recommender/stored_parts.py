"""Parts of a model file that every version has: the spec of stored parameters, checked tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.errors import InputError
from truepair.spec import Spec
from truepair.spec.parameters import from_json
from truepair.storage.types import Json

Tensors: TypeAlias = Mapping[str, Tensor]


def spec_of_file(parameters: Json) -> Spec:
    """The spec of stored parameters; on a machine without CUDA, that of a GPU has the device "auto"."""
    known = from_json(parameters)
    if str(known.get("device", "")).startswith("cuda") and not torch.cuda.is_available():
        known["device"] = "auto"
    return Spec.of(known, unused="drop")


def stored(name: str, tensors: Tensors, kind: torch.dtype, *shape: int | None) -> Tensor:
    """A tensor of a file; raise unless it is of this type and shape, and finite. None is any length."""
    found = tensors[name]
    alike = [wanted in (None, n) for wanted, n in zip(shape, found.shape, strict=False)]
    if found.dtype != kind or found.ndim != len(shape) or not all(alike):
        wanted = f"{str(kind).removeprefix('torch.')} of {str(shape).replace('None', 'any')}"
        raise InputError(f"{name} is {found.dtype} of shape {tuple(found.shape)}, not {wanted}.")
    if kind.is_floating_point and found.numel() and not torch.stack(found.aminmax()).isfinite().all():
        broken = ~found.isfinite()
        n_broken = int((broken.any(dim=1) if broken.ndim == 2 else broken).sum())
        raise InputError(f"{n_broken} rows of {name} hold NaN or infinity.")
    return found


def divided(name: str, starts: Tensor, n_values: int, n_rows: int) -> Tensor:
    """How many of the values each row has; raise unless the starts divide them."""
    counts = starts.diff()
    whole = len(starts) == n_rows + 1 and starts[0] == 0 and starts[-1] == n_values
    if not whole or bool(((counts < 0) | (starts[:-1] < 0)).any()):  # differences may wrap around
        raise InputError(f"{name} does not divide {n_values} items among {n_rows} rows.")
    return counts


def sparse_rows(name: str, tensors: Tensors, shape: tuple[int, int]) -> sp.csr_array:
    """The sparse matrix of three tensors; raise unless it is sound and of this shape."""
    starts = stored(f"{name}.starts", tensors, torch.int64, None)
    columns = stored(f"{name}.columns", tensors, torch.int32, None)
    counts = divided(f"{name}.starts", starts, len(columns), shape[0])
    values = stored(f"{name}.values", tensors, torch.float32, len(columns))
    if bool(((columns < 0) | (columns >= shape[1])).any()):
        raise InputError(f"{name} has columns that are not among {shape[1]}.")
    if not bool((torch.diff(torch.repeat_interleave(counts) * shape[1] + columns) > 0).all()):
        raise InputError(f"{name} has a row whose columns are not distinct and rising.")
    return sp.csr_array((values.numpy(), columns.numpy(), starts.numpy()), shape=shape)
