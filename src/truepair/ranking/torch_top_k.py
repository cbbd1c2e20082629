"""Top-k by PyTorch in blocks of users: on CUDA, for sparse rows, and on CPUs without Numba."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.models.factor_matrices import Rows, n_rows
from truepair.ranking.scores import ROWS, scores_of

Floats = npt.NDArray[np.float32]

_MANY_PAIRS = 1 << 27  # above this number, pairs are not copied to the device as a whole
_BLOCK_BYTES = {"cpu": 48 << 20, "cuda": 1 << 30}  # one block of scores


def rank_in_blocks(
    users: Rows,
    items: Rows,
    order: Codes,
    k: int,
    codes: Codes,
    masks: tuple[Interactions, ...],
    block: int | None = None,
) -> tuple[Codes, Floats]:
    """The k best (items, scores) of the users `codes`; columns are items in the order `order`."""
    n, n_items = len(codes), n_rows(items)
    device = items.device if isinstance(items, torch.Tensor) else torch.device("cpu")
    order_on_device = _on_device(order, device)
    column = torch.empty_like(order_on_device)
    column[order_on_device] = torch.arange(n_items, device=device)  # item -> column
    found, found_scores = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    block = max((_block_for(n_items, device) if block is None else block) // ROWS, 1) * ROWS
    scores_of_block = scores_of(users, items, order_on_device, min(block, -(-n // ROWS) * ROWS))
    for start in range(0, n, block):
        part = codes[start : start + block]
        part_on_device = torch.from_numpy(part).to(device)
        scores = scores_of_block(part, part_on_device)  # (b, n_items)
        for mask in masks:
            rows, masked_items = _pairs_of(mask, part, part_on_device)
            scores.view(-1).index_fill_(0, rows * n_items + column[masked_items], -torch.inf)
        values, best = best_columns(scores, k)
        listed = torch.where(values > -torch.inf, order_on_device[best], -1)
        found[start : start + block] = listed.cpu().numpy()
        found_scores[start : start + block] = values.cpu().numpy()
    return found, found_scores


_device_pairs: WeakKeyDictionary[Interactions, dict[torch.device, tuple[torch.Tensor, torch.Tensor]]] = (
    WeakKeyDictionary()  # validation masks the same pairs after every epoch; they are copied once
)


def _pairs_of(
    mask: Interactions, part: Codes, part_on_device: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The pairs of the users `part`: positions among these users, and items."""
    if len(mask) >= _MANY_PAIRS:
        return _pairs_from_host(mask, part, part_on_device.device)
    kept, device = _device_pairs.setdefault(mask, {}), part_on_device.device
    if device not in kept:
        kept[device] = _on_device(mask.indptr, device), _on_device(mask.items, device)
    indptr, items = kept[device]
    starts = indptr[part_on_device]
    counts = indptr[part_on_device + 1] - starts
    total = int((mask.indptr[part + 1] - mask.indptr[part]).sum())
    rows = torch.repeat_interleave(counts, output_size=total)
    among = torch.arange(total, device=device) + (starts - (counts.cumsum(0) - counts))[rows]
    return rows, items[among]


def _pairs_from_host(
    mask: Interactions, part: Codes, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, of pairs that stay where they are."""
    starts = np.asarray(mask.indptr)[part]
    counts = np.asarray(mask.indptr)[part + 1] - starts
    rows = np.repeat(np.arange(len(part)), counts)
    among = np.arange(len(rows)) + (starts - (counts.cumsum() - counts))[rows]
    return _on_device(rows, device), _on_device(np.asarray(mask.items[among]), device)


def _on_device(array: Codes, device: torch.device) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.int64, device=device)


def _block_for(n_items: int, device: torch.device) -> int:
    """The number of users whose scores are computed at a time."""
    room = _BLOCK_BYTES["cpu"]
    if device.type == "cuda":  # top-k needs memory for several more blocks
        room = min(_BLOCK_BYTES["cuda"], torch.cuda.mem_get_info(device)[0] // 8)
    return max(1, room // (4 * n_items))


def best_columns(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
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


def _lowest_columns(scores: torch.Tensor, least: torch.Tensor, k: int) -> torch.Tensor:
    """All columns with scores above `least` (m, 1), and the lowest columns equal to it, k in total."""
    n_items = scores.shape[1]
    rank = -torch.arange(n_items, dtype=torch.int32, device=scores.device)
    rank = rank.expand_as(scores).masked_fill(scores < least, -n_items)  # (m, n_items)
    return rank.masked_fill_(scores > least, 1).topk(k).indices
