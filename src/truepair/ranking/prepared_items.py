"""PreparedItems: items made ready once, for lists of some users at a time, again and again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from truepair.data.ids import Codes
from truepair.errors import InputError
from truepair.models.factor_matrices import Rows, n_rows, write_last_column
from truepair.randomness import random_order
from truepair.ranking.hidden import Hidden, read_only
from truepair.ranking.torch_top_k import rank_in_blocks
from truepair.storage.types import Array

if TYPE_CHECKING:  # it loads Numba
    from truepair.ranking.compiled_top_k import Strips

Matrix: TypeAlias = "Rows | Array"

_TIE_KEY = 0x7135  # never changes: ties are broken equally in every run, on every machine


class TopK(NamedTuple):
    """The best items of each row, best first; positions without a candidate have item -1 and score -inf."""

    items: Codes  # (n, k)
    scores: npt.NDArray[np.float32]  # (n, k)


@lru_cache(maxsize=8)
def tie_order(n_items: int) -> Codes:
    """Column -> item: of equal scores, the item in the lower column comes first, on every device."""
    return read_only(random_order(_TIE_KEY, n_items))


@dataclass(frozen=True, eq=False)
class PreparedItems:
    """The items of a catalogue: every list of best items is made here."""

    items: Rows
    order: Codes
    """Column -> row of `items`: of equal scores, the item in the lower column comes first."""
    codes: Codes | None = None
    """The code of each row, in lists and in what is hidden from them; None: the row itself."""
    n_codes: int | None = None
    """How many codes there are; None: as many as rows."""

    @staticmethod
    def of(items: Matrix, codes: Codes | None = None, n_codes: int | None = None) -> PreparedItems:
        """The items, checked."""
        _, checked = checked_matrices(torch.zeros(1, items.shape[1]), items)
        return PreparedItems(checked, tie_order(n_rows(checked)), codes, n_codes)

    @cached_property
    def listed(self) -> Codes:
        """Column -> code."""
        return self.order if self.codes is None else read_only(self.codes[self.order])

    @cached_property
    def column(self) -> Codes:
        """Code -> column; -1 for a code without a row."""
        found = np.full(len(self.order) if self.n_codes is None else self.n_codes, -1)
        found[self.listed] = np.arange(len(self.order))
        return read_only(found)

    @cached_property
    def strips(self) -> Strips | None:
        """The layout of compiled code; None where PyTorch ranks: sparse rows and CUDA."""
        if not isinstance(self.items, torch.Tensor) or self.items.device.type != "cpu":
            return None
        from truepair.ranking.compiled_top_k import Strips, in_strips  # it loads Numba

        return Strips(in_strips(dense_rows(self.items), self.order), self.listed, self.column)

    def write_last_column(self, values: npt.NDArray[np.float32]) -> None:
        """Replace the last number of each row, in place; nothing may be ranked meanwhile."""
        write_last_column(self.items, values)
        if self.strips is not None:
            last = self.strips.vectors[
                :, self.items.shape[1] - 1
            ]  # in the order of columns, and then padding
            last[:] = np.pad(values[self.order], (0, last.size - len(values))).reshape(last.shape)

    def top_k(
        self, users: Rows, k: int, hidden: Hidden, rows: Codes | None = None, block: int | None = None
    ) -> TopK:
        """The `k` best items for each row of `users`, or for these rows, without those that are hidden.

        Row r of `hidden` belongs to the r-th list. About `block` lists are made at a time.
        """
        rows = np.arange(n_rows(users)) if rows is None else rows
        if not isinstance(users, torch.Tensor) or self.strips is None:
            with torch.inference_mode():
                columns = self.order, self.listed, self.column
                return TopK(*rank_in_blocks(users, self.items, columns, k, rows, hidden, block))
        from truepair.ranking.compiled_top_k import BLOCK, rank_in_strips

        threads = torch.get_num_threads()
        return TopK(*rank_in_strips(dense_rows(users), self.strips, k, rows, hidden, block or BLOCK, threads))


def dense_rows(rows: Rows) -> npt.NDArray[np.float32]:
    """Rows of a tensor for compiled code."""
    assert isinstance(rows, torch.Tensor)
    return np.ascontiguousarray(rows.detach().float().cpu().numpy())


# --- checks --------------------------------------------------------------------------------------------


def checked_matrices(users: Matrix, items: Matrix) -> tuple[Rows, Rows]:
    """Both in float32; an error if they do not fit each other, or if a number or a score is not finite."""
    (user_rows, largest_user), (item_rows, largest_item) = _as_rows("users", users), _as_rows("items", items)
    if user_rows.shape[1] != item_rows.shape[1]:
        raise InputError(
            f"users have {user_rows.shape[1]} dimensions but items have {item_rows.shape[1]}; "
            "both matrices must come from one model."
        )
    if largest_user * largest_item * user_rows.shape[1] > torch.finfo(torch.float32).max:
        raise InputError(
            f"users up to {largest_user:.3g} and items up to {largest_item:.3g} give scores beyond float32; "
            "scale the matrices down, or train with a lower learning rate."
        )
    return user_rows, item_rows


def _as_rows(what: str, matrix: Matrix) -> tuple[Rows, float]:
    """The rows, and their largest absolute value."""
    rows: Rows
    with np.errstate(over="ignore"):  # overflow gives infinity, which is reported below
        if sp.issparse(matrix):
            rows = sp.csr_array(matrix).astype(np.float32, copy=False)
        elif isinstance(matrix, torch.Tensor):
            rows = matrix.detach().float()
        else:
            rows = torch.from_numpy(np.require(matrix, np.float32, ["C", "W"]))
    if rows.ndim != 2:
        raise InputError(f"{what} must be a matrix (rows x dimensions), not {rows.ndim}-D.")
    if isinstance(rows, torch.Tensor) and rows.layout != torch.strided:
        raise InputError(
            f"{what} is a sparse PyTorch tensor; give a dense tensor or a scipy.sparse.csr_array."
        )
    numbers = rows if isinstance(rows, torch.Tensor) else torch.from_numpy(rows.data)
    if not numbers.numel():
        return rows, 0.0
    # one pass, no copies: aminmax copies tensors that are not contiguous
    low, high = (numbers if numbers.is_contiguous() else numbers.T).aminmax()
    largest = float(torch.maximum(-low, high))
    if not math.isfinite(largest):
        raise InputError(
            f"{_n_nonfinite_rows(rows):,} of {n_rows(rows):,} rows of {what} contain NaN or infinity; "
            "the model diverged: train again with a lower learning rate."
        )
    return rows, largest


def _n_nonfinite_rows(rows: Rows) -> int:
    if isinstance(rows, torch.Tensor):
        return int((~torch.isfinite(rows)).any(dim=1).sum())
    places = np.flatnonzero(~np.isfinite(rows.data))
    return len(np.unique(np.searchsorted(rows.indptr, places, side="right")))
