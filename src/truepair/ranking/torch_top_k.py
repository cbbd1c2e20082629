"""Top-k by PyTorch in blocks of users: on CUDA, and for sparse rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes
from truepair.models.factor_matrices import Rows, n_rows
from truepair.ranking.hidden import Hidden

Floats = npt.NDArray[np.float32]
# codes of b users -> scores (b, n_items); column c is the item order[c]. The scores of the next block may
# overwrite them.
Scores = Callable[[Codes], Tensor]

_ROWS = 16  # blocks are multiples of this many rows
_BLOCK_BYTES = {"cpu": 48 << 20, "cuda": 1 << 30}  # one block of scores


def rank_in_blocks(
    users: Rows,
    items: Rows,
    columns: tuple[Codes, Codes, Codes],
    k: int,
    codes: Codes,
    hidden: Hidden,
    block: int | None = None,
) -> tuple[Codes, Floats]:
    """The k best (items, scores) of the users `codes`; columns: those of `PreparedItems`."""
    order, listed_codes, column = columns
    n, n_items = len(codes), n_rows(items)
    device = items.device if isinstance(items, Tensor) else torch.device("cpu")
    order_on_device, listed_on_device = _on_device(order, device), _on_device(listed_codes, device)
    found, found_scores = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    block = max((_block_for(n_items, device) if block is None else block) // _ROWS, 1) * _ROWS
    scores_of = _scores_of(users, items, order_on_device, min(block, -(-n // _ROWS) * _ROWS))
    for start in range(0, n, block):
        part = slice(start, start + block)
        scores = scores_of(codes[part])  # (b, n_items)
        rows, hidden_items = Hidden(hidden.starts[part], hidden.ends[part], hidden.items).pairs()
        hidden_columns = column[hidden_items]
        places = (rows * n_items + hidden_columns)[hidden_columns >= 0]
        scores.view(-1).index_fill_(0, _on_device(places, device), -torch.inf)
        values, best = best_columns(scores, k)
        listed = torch.where(values > -torch.inf, listed_on_device[best], -1)
        found[part], found_scores[part] = listed.cpu().numpy(), values.cpu().numpy()
    return found, found_scores


def _on_device(array: Codes, device: torch.device) -> Tensor:
    return torch.tensor(array, dtype=torch.int64, device=device)


def _block_for(n_items: int, device: torch.device) -> int:
    """The number of users whose scores are computed at a time."""
    room = _BLOCK_BYTES["cpu"]
    if device.type == "cuda":  # top-k needs memory for several more blocks
        room = min(_BLOCK_BYTES["cuda"], torch.cuda.mem_get_info(device)[0] // 8)
    return max(1, room // (4 * n_items))


def best_columns(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best (values, columns) of each row, by decreasing score, then increasing column.

    `torch.topk` may return any of several equal scores. One more value than requested shows in which rows a
    tie crosses the end of the list; only these rows are ranked again.
    """
    values, columns = torch.topk(scores, min(k + 1, scores.shape[1]))
    if k < values.shape[1]:
        crossing = (values[:, k - 1] == values[:, k]) & (values[:, k] > -torch.inf)
        columns = columns[:, :k]
        if crossing.any():
            columns[crossing] = _lowest_columns(scores[crossing], values[crossing, k, None], k)
    columns = columns.sort(dim=1).values
    values = scores.gather(1, columns) + 0.0  # -0.0 becomes 0.0: some sorts distinguish them
    values, places = values.sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, places)


def _lowest_columns(scores: Tensor, least: Tensor, k: int) -> Tensor:
    """All columns with scores above `least` (m, 1), and the lowest columns equal to it, k in total."""
    n_items = scores.shape[1]
    rank = -torch.arange(n_items, dtype=torch.int32, device=scores.device)
    rank = rank.expand_as(scores).masked_fill(scores < least, -n_items)  # (m, n_items)
    return rank.masked_fill_(scores > least, 1).topk(k).indices


# --- scores of a block of users, of dense and of sparse rows -------------------------------------------


def _scores_of(users: Rows, items: Rows, order: Tensor, block: int) -> Scores:
    """A function that scores up to `block` users; a user's scores do not depend on the other users."""
    if isinstance(items, sp.csr_array):
        return _sparse_items(users, items, order)
    return (
        _sparse_users(users, items, order)
        if isinstance(users, sp.csr_array)
        else _dense(users, items, order, block)
    )


def _dense(users: Tensor, items: Tensor, order: Tensor, block: int) -> Scores:
    """Products whose bits do not depend on the other rows: those of few rows use another algorithm of the
    library, whose sums round differently; hence the padding."""
    columns_t = items[order].T  # (d, n_items)
    buffer = items.new_empty(block, len(items))

    def scores(codes: Codes) -> Tensor:
        vectors = users[_on_device(codes, users.device)].to(items.device)  # (b, d)
        missing = -len(vectors) % _ROWS
        padded = F.pad(vectors, (0, 0, 0, missing)) if missing else vectors
        return torch.mm(padded, columns_t, out=buffer[: len(padded)])[: len(vectors)]

    return scores


def _sparse_users(users: sp.csr_array, items: Tensor, order: Tensor) -> Scores:
    """The sum of the weights of each user's items, on the device of the items."""
    weights = items.T.contiguous()  # (d, n_items); no copy if items are in column-major layout

    def scores(codes: Codes) -> Tensor:
        rows = users[codes]
        parts = (rows.indices.astype(np.int64), rows.indptr[:-1].astype(np.int64), rows.data)
        columns, starts, values = (torch.from_numpy(part).to(items.device) for part in parts)
        sums = F.embedding_bag(columns, weights, starts, mode="sum", per_sample_weights=values)
        return sums.index_select(1, order)

    return scores


def _sparse_items(users: Rows, items: sp.csr_array, order: Tensor) -> Scores:
    """Sparse products in main memory, made dense one block at a time."""
    weights = sp.csr_array(items[order.numpy()].T)  # (d, n_items)

    def scores(codes: Codes) -> Tensor:
        if isinstance(users, sp.csr_array):
            rows = users[codes]
        else:
            rows = sp.csr_array(users[_on_device(codes, users.device)].cpu().numpy())
        return torch.from_numpy((rows @ weights).toarray())

    return scores
