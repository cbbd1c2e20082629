"""Matrices of users and items: dense tensors, or SciPy's sparse rows."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes
from truepair.errors import InputError

Rows = Tensor | sp.csr_array  # dense: on any device; sparse: float32 in main memory

_PAIRS = 1 << 16  # pairs whose rows are in memory at a time


def n_rows(matrix: Rows | npt.NDArray[np.generic]) -> int:
    """The number of rows; `len` is not defined for sparse matrices."""
    return int(matrix.shape[0])


def take_rows(matrix: Rows, codes: Codes) -> Rows:
    """These rows, in this order; the matrix itself if they are all of its rows."""
    if len(codes) == matrix.shape[0] and (np.diff(codes) == 1).all():
        return matrix
    return matrix[codes] if isinstance(matrix, sp.csr_array) else matrix[torch.from_numpy(codes)]


def placed_rows(matrix: Tensor, rows: Codes) -> Tensor:
    """A copy of these rows, in this order; zeros for -1."""
    found = matrix.new_zeros(len(rows), *matrix.shape[1:])
    known = np.flatnonzero(rows >= 0)
    found[torch.from_numpy(known)] = matrix[torch.from_numpy(rows[known])]
    return found


def unit_rows(matrix: Rows) -> Rows:
    """Rows scaled to length 1; a row of zeros does not change."""
    if not isinstance(matrix, sp.csr_array):
        return F.normalize(matrix)
    lengths = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    scale = np.divide(1, lengths, where=lengths > 0, out=np.zeros_like(lengths))
    return sp.csr_array(sp.diags_array(scale).tocsr() @ matrix)


def dot_rows(users: Rows, items: Rows, user_codes: Codes, item_codes: Codes) -> npt.NDArray[np.float32]:
    """users[u] · items[i] of each pair (u, i)."""
    if not isinstance(users, sp.csr_array):
        chosen = [
            dense("users", users)[torch.from_numpy(user_codes)],
            dense("items", items)[torch.from_numpy(item_codes)],
        ]
        return np.asarray(torch.einsum("nd,nd->n", *chosen).numpy())
    found = np.empty(len(user_codes), np.float32)
    for start in range(0, len(found), _PAIRS):
        pairs = slice(start, start + _PAIRS)
        found[pairs] = _sparse_dots(users[user_codes[pairs]], items, item_codes[pairs])
    return found


def _sparse_dots(rows: sp.csr_array, items: Rows, codes: Codes) -> npt.NDArray[np.float64]:
    if isinstance(items, sp.csr_array):
        return np.asarray(rows.multiply(items[codes]).sum(axis=1))
    places = np.repeat(
        np.arange(len(codes)), np.diff(rows.indptr)
    )  # reads only the entries that meet a nonzero
    factors = items[torch.from_numpy(codes[places]), torch.from_numpy(rows.indices.astype(np.int64))]
    return np.asarray(np.bincount(places, rows.data * factors.numpy(), len(codes)), dtype=np.float64)


def dense(what: str, matrix: Rows) -> Tensor:
    """The matrix, if it is dense; else raise an error."""
    if isinstance(matrix, sp.csr_array):
        raise InputError(
            f"{what} are sparse rows, which only closed forms and blends have; a dense matrix is needed here."
        )
    return matrix


def all_stored(matrix: Tensor) -> sp.csr_array:
    """A dense matrix as sparse rows that store every number, also 0."""
    n, d = matrix.shape
    values = matrix.detach().cpu().numpy().ravel()
    return sp.csr_array((values, np.tile(np.arange(d), n), d * np.arange(n + 1)), shape=(n, d))


def write_last_column(matrix: Rows, values: npt.NDArray[np.float32]) -> None:
    """Replace the last column in place; sparse rows store it as their last number."""
    if isinstance(matrix, sp.csr_array):
        matrix.data[matrix.indptr[1:] - 1] = values
    else:
        matrix[:, -1] = torch.from_numpy(values).to(matrix)


def by_columns(matrix: Tensor) -> Tensor:
    """The same matrix in column-major layout, so that products with sparse rows need no copy."""
    return matrix.T.contiguous().T


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a device; None where it is unknown."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    with suppress(OSError):
        if found := re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text()):
            return int(found[1]) * 1024
    known = {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", {}))
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None  # the total memory


def check_room(what: str, n_bytes: int, device: torch.device, remedy: str) -> None:
    """Raise an error if the device has fewer free bytes than this; call it before allocating."""
    free = free_bytes(device)
    if free is not None and n_bytes > free:
        raise InputError(
            f"{what} needs {n_bytes / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB are free on {device}; {remedy}."
        )
