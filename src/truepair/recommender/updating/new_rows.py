"""New users and new items of an update: vectors to start from, fitted while all known vectors stay fixed.

A new user's vector is fitted against fixed items, as `fold_in` does for guests. A new item's vector is fitted
in the same way with the roles exchanged: its users are its positives, and all other users are what they are
compared with. Scores are symmetric products, so that the same code does both. The training that follows moves
all vectors together; this is only where it starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes, IdMap, pair_keys
from truepair.data.interactions import Interactions
from truepair.models.encoders import Encoder
from truepair.models.start import Side, Start
from truepair.randomness import random_order, stream_key
from truepair.training.job import Job
from truepair.training.new_users import fold_in

Mask = npt.NDArray[np.bool_]

_MOST_USERS = 20_000  # that a new item is fitted against, beside its own; more hardly change its direction


def with_new_rows(job: Job, start: Start, users: Mask, items: Mask) -> Start:
    """`start` with vectors for the rows that have none; `users` and `items` say which have one.

    New users are fitted against the items that have a vector, then new items against the users that have one
    by now, and so on until no row is left that has a pair with one that has a vector. Those that are left
    keep the rows of `start`, and so do all others. The moments of new rows are those of `start`, too.
    """
    data = job.interactions
    users_side = _Side(start.users.vectors.clone(), users.copy(), data.users)
    items_side = _Side(start.items.vectors.clone(), items.copy(), data.items)
    user_lengths, item_lengths = _lengths(users_side, items_side, job.encoder)
    turns = (users_side, items_side, user_lengths), (items_side, users_side, item_lengths)
    progress = True
    while progress:
        progress = False
        for one, other, length in turns:
            pairs = ~one.known[one.codes] & other.known[other.codes]
            if pairs.any():
                rows = np.unique(one.codes[pairs])
                found = _fitted(job, one, other, pairs, rows)
                one.vectors[torch.from_numpy(rows)] = found if length is None else found * length[rows]
                one.known[rows] = progress = True
    both = zip((start.users, start.items), (users_side, items_side), strict=True)
    new_users, new_items = (Side(side.vectors, *old[1:]) for old, side in both)
    return replace(start, users=new_users, items=new_items)


@dataclass
class _Side:
    """The users or the items: vectors, who has one, and the code of each pair."""

    vectors: Tensor  # [n, dim]
    known: Mask  # [n]
    codes: Codes  # [n_pairs]


def _lengths(users: _Side, items: _Side, encoder: Encoder) -> tuple[Tensor | None, Tensor | None]:
    """The lengths [n, 1] that fitted vectors get; None: their own.

    With cosine scores a vector's length is not seen by the loss, but a step of the optimizer turns long
    vectors less: new ones are as long as the median. With dot products a long vector of an item is in many
    lists. Fitted against users, an item does not compete with others, and would be too long: it gets the
    length that known items of its popularity have.
    """
    if encoder.scoring == "cosine":
        return _typical(users), _typical(items)
    counts = np.log1p(np.bincount(items.codes, minlength=len(items.known)))
    norms = items.vectors.norm(dim=1).numpy().astype(np.float64)
    x, y = counts[items.known], norms[items.known]
    if len(x) < 2 or x.min() == x.max():
        return None, _typical(items)
    slope, start = np.polyfit(x, y, 1)
    return None, torch.from_numpy(np.maximum(start + slope * counts, y.min())).float()[:, None]


def _typical(side: _Side) -> Tensor:
    norms = side.vectors[torch.from_numpy(side.known)].norm(dim=1)
    return torch.full((len(side.known), 1), float(norms.median()) if len(norms) else 1.0)


def _fitted(job: Job, one: _Side, other: _Side, pairs: Mask, rows: Codes) -> Tensor:
    """The vectors [rows, dim] of new rows, by their pairs with known rows of the other side.

    They have the length 1, but for those of users in dot products.
    """
    data, settings = job.interactions, job.settings
    own, theirs = one.codes[pairs], other.codes[pairs]
    is_item = one.codes is data.items
    against = _compared(other.known, theirs, settings.seed) if is_item else np.flatnonzero(other.known)
    history = Interactions(
        np.searchsorted(rows, own), np.searchsorted(against, theirs),
        IdMap.range(len(rows)), IdMap.range(len(against)),
        weight=None if data.weight is None else data.weight[pairs],
        disliked=_dislikes(data, rows, against, is_item),
    )  # fmt: skip
    fixed = other.vectors[torch.from_numpy(against)]
    fixed = F.normalize(fixed) if job.encoder.scoring == "cosine" else fixed
    encoder, popularity = job.encoder, (data.user_counts if is_item else data.item_counts)[against]
    if is_item:  # an item's popularity is a constant here: it does not turn its vector
        encoder = replace(encoder, popularity=0.0)
        settings = replace(settings, l2_users=settings.l2_items)
    elif (addition := encoder.addition(data)) is not None:
        fixed = torch.cat([fixed, addition[torch.from_numpy(against)]], dim=1)
    found = fold_in(fixed, encoder, job.loss, job.sampler, history, settings, popularity)
    vectors = found[:, : encoder.dim]
    return F.normalize(vectors) if encoder.scoring == "cosine" or is_item else vectors


def _dislikes(data: Interactions, rows: Codes, against: Codes, is_item: bool) -> Codes | None:
    """The dislikes between new rows and those that they are compared with, as keys."""
    if data.dislikes is None:
        return None
    users, items = data.dislikes.users, data.dislikes.items
    own, theirs = (items, users) if is_item else (users, items)
    both = np.isin(own, rows) & np.isin(theirs, against)
    keys = pair_keys(np.searchsorted(rows, own[both]), np.searchsorted(against, theirs[both]), len(against))
    return np.sort(keys)


def _compared(known: Mask, own: Codes, seed: int) -> Codes:
    """The users that new items are fitted against: their own, and a sample of the others."""
    if int(known.sum()) <= _MOST_USERS:
        return np.flatnonzero(known)
    chosen = np.zeros(len(known), dtype=bool)
    order = random_order(stream_key(seed, int.from_bytes(b"items", "big")), len(known))
    chosen[order[known[order]][:_MOST_USERS]] = True
    chosen[own] = True
    return np.flatnonzero(chosen)
