"""Similarity of items: cosines of their vectors, for lists of items that are unlike each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses

from truepair.models.factor_matrices import Rows, check_room, dense, n_rows, unit_rows


class Similarity(NamedTuple):
    """Cosines of items: products of unit vectors, or a table of all cosines."""

    matrix: npt.NDArray[np.float32]  # [n, d] unit vectors; [n, n] cosines if `is_table`
    is_table: bool


def cosines(rows: Rows, *, wide: bool) -> Similarity:
    """The similarity of items with these rows; `wide` rows (a column for each item) give a table."""
    if not wide:
        return Similarity(F.normalize(dense("items", rows)).cpu().contiguous().numpy(), False)
    n = n_rows(rows)
    device = torch.device("cpu") if isinstance(rows, sp.csr_array) else rows.device
    remedy = "limit the candidates with where= or only_items=, or diversify a trained model"
    check_room(f"The similarity of {n:,} items", 8 * n**2, device, remedy)
    unit = unit_rows(rows)
    table = (unit @ unit.T).toarray() if isinstance(unit, sp.csr_array) else (unit @ unit.T).cpu().numpy()
    return Similarity(np.ascontiguousarray(table, np.float32), True)
