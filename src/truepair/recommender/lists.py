"""Lists of a fitted model: recommendations, similar items and users, scores of pairs; in the caller's ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.columns import find_columns
from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.data.sources.in_memory import memory_source
from truepair.errors import InputError, check_choice, check_number, check_whole
from truepair.evaluation.metrics import Mask
from truepair.evaluation.task import SERVING, check_cold
from truepair.models.factor_matrices import Rows, take_rows, unit_rows
from truepair.ranking.selection import top_k
from truepair.recommender.caller import as_ids, codes_of
from truepair.recommender.lister import Lister, known_users
from truepair.recommender.listing.explanation import MOST, Explanation
from truepair.recommender.listing.item_table import ItemTable
from truepair.recommender.listing.reranking import reranking_of
from truepair.recommender.model import Model
from truepair.storage.types import Ids, Source, Table


@dataclass(frozen=True)
class ListOptions:
    """What lists may hold and how they are chosen; see `Recommender.recommend`."""

    exclude_seen: bool = True
    exclude_items: Ids | Mapping[object, Ids] = None
    only_items: Ids = None
    items: Table = None
    where: object = None
    quota: Mapping[str, int] | None = None
    diversify: float = 0.0
    explain: bool | int = False
    unknown: str = "error"
    cold: str = "popular"
    at: object = None

    def __post_init__(self) -> None:
        check_number("diversify", self.diversify, 0, 1, open_high=True)
        check_choice("unknown", self.unknown, ["error", "popular", "drop"])
        check_choice("cold", self.cold, SERVING)
        if not isinstance(self.explain, bool):
            check_whole("explain", self.explain, 1, remedy="Or give True or False.")
        if self.items is not None and self.where is None and self.quota is None:
            raise InputError("items has no effect without where or quota; pass one, or leave items out.")
        if self.items is None and self.where is not None:
            raise InputError("where needs a table of the items with its columns; pass it as items.")

    @property
    def by_user(self) -> Mapping[object, Ids]:
        """Items that some users must not get."""
        return self.exclude_items if isinstance(self.exclude_items, Mapping) else {}

    @property
    def is_plain(self) -> bool:
        """Whether the lists are the best of all items."""
        no_items = self.exclude_items is None or isinstance(self.exclude_items, Mapping)
        no_filter = self.only_items is None and self.items is None  # `where` and `quota` need `items`
        return no_items and no_filter and self.quota is None and not self.diversify and self.explain is False

    def lister(self, model: Model, n_users: int = 1) -> Lister:
        """The lister of a model with these options."""
        if self.is_plain:
            return model_lister(model, n_users)
        ids, seen = model.seen.item_ids, model.seen
        allowed = np.full(seen.n_items, self.only_items is None)
        if self.only_items is not None:
            allowed[_found(ids, self.only_items, self.unknown)] = True
        if self.exclude_items is not None and not isinstance(self.exclude_items, Mapping):
            allowed[_found(ids, self.exclude_items, self.unknown)] = False
        table = None
        if self.items is not None:
            table = ItemTable.of(self.items, ids, model.listed, self.unknown)
            allowed &= table.rows >= 0 if self.where is None else table.where(self.where)
        reranking = None
        if self.quota is not None or self.diversify:
            candidates = np.flatnonzero(allowed & model.listed)
            reranking = reranking_of(model, candidates, table, self.quota, self.diversify)
        explanation = None if self.explain is False else explanation_of(model, self.explain)
        return Lister.of(model, allowed, n_users, reranking, explanation)


_KEPT = 1 << 26  # numbers of items that are kept ready beside a model


def model_lister(model: Model, n_users: int = 1) -> Lister:
    """The lister of all items of a model; that of a small model is made once."""
    kept: Lister | None = model.__dict__.get("_lister")
    if kept is not None:
        return kept
    lister = Lister.of(model, n_users=n_users)
    if model.device.type == "cpu" and model.scorer.width * model.seen.n_items <= _KEPT:
        model.__dict__["_lister"] = lister
    return lister


def recommend(model: Model, users: Ids, k: int, options: ListOptions, part: int = 8192) -> Iterator[pa.Table]:
    """Tables of user, item, score, rank, for `part` users at a time; see `Recommender.recommend`."""
    k, known = check_whole("k", k, 1), model.seen.user_ids
    ids = known.ids if users is None else as_ids(users, "user")
    codes = codes_of(known, ids, "user", options.unknown)
    is_cold = (codes >= 0) & ~model.trained[codes]
    check_cold(options.cold, is_cold)
    left_out = (codes < 0) & (options.unknown == "drop") | is_cold & (options.cold == "separate")
    if left_out.any():
        ids, codes = ids.filter(pa.array(~left_out)), codes[~left_out]
    if options.by_user:
        codes_of(known, list(options.by_user), "user", options.unknown)  # an unknown user is an error
    excluded = excluded_items(model, options.by_user, options.unknown)
    if options.at is not None:
        model = model.at(options.at)
    lister = options.lister(model, len(codes))
    for start in range(0, max(len(codes), 1), part):
        some = slice(start, start + part)
        block = known_users(
            model, ids[some], codes[some], options.exclude_seen, excluded, options.explain is not False
        )
        yield lister.table(block, k)


def _found(ids: IdMap, values: Ids, unknown: str) -> Codes:
    """The codes of the known items among `values`."""
    codes = codes_of(ids, values, "item", unknown)
    return codes[codes >= 0]


def excluded_items(model: Model, items: Mapping[object, Ids], unknown: str) -> dict[object, Codes]:
    """Id of a user -> the codes of the items of this user in the mapping."""
    if not items:
        return {}
    users = as_ids(list(items), "user")
    lists = [some if type(some) is list else as_ids(some, "item").to_pylist() for some in items.values()]
    found = codes_of(model.seen.item_ids, list(chain.from_iterable(lists)), "item", unknown)  # all at once
    parts = np.split(found, np.cumsum([len(some) for some in lists])[:-1])
    return {user: part[part >= 0] for user, part in zip(users.to_pylist(), parts, strict=True)}


def explanation_of(model: Model, explain: bool | int) -> Explanation:
    """What names the items that contribute to recommendations, at most `explain` of them."""
    scorer, most = model.scorer, MOST if explain is True else int(explain)
    has_vectors = scorer.weights is None and scorer.dim
    directions = distinctive(scorer.items, model.popularity) if has_vectors else None
    return Explanation(scorer, directions, model.popularity > 0, model.seen.item_ids, most)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Similar items and users of a model; what they need of it is computed once."""

    model: Model

    @cached_property
    def _directions(self) -> Tensor:
        return distinctive(self.model.scorer.items, self.model.popularity)

    def items(self, items: Ids, k: int, among: Mask | None = None) -> pa.Table:
        """A table of item, similar, score, rank; `among`: the items that are listed, by default all.

        With weights alone, the similarity of j to i is the weight of i for j: how much i adds to its score.
        """
        self._check_differences("items")
        scorer, ids = self.model.scorer, self.model.seen.item_ids
        among = self.model.listed if among is None else among
        codes = _trained_codes("item", ids, items, among)
        rows = self._directions if scorer.dim else scorer.weights
        assert rows is not None
        directions = rows if scorer.dim else sp.csr_array(sp.eye_array(len(ids), dtype=np.float32))
        return _similar("item", take_rows(rows, codes), directions, ids, codes, among, k)

    def users(self, users: Ids, k: int) -> pa.Table:
        """A table of user, similar, score, rank: by cosines of vectors, without any of histories."""
        self._check_differences("users")
        scorer, ids, trained = self.model.scorer, self.model.seen.user_ids, self.model.trained
        codes = _trained_codes("user", ids, users, trained)
        rows = scorer.users if scorer.dim else scorer.history
        assert rows is not None
        directions = unit_rows(rows)
        return _similar("user", take_rows(directions, codes), directions, ids, codes, trained, k)

    def _check_differences(self, what: str) -> None:
        if self.model.scorer.is_popularity:
            raise InputError(f"encoder 'popular' has no similarities of {what}; use 'itemknn' or 'mf'.")


def _trained_codes(what: str, ids: IdMap, values: Ids, trained: Mask) -> Codes:
    """The codes of these ids; one without a trained pair raises an error."""
    codes = ids.codes(as_ids(values, what), what)
    if not trained[codes].all():
        names = ids.outside(np.unique(codes[~trained[codes]])).to_pylist()
        shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise InputError(f"{what}s without a trained pair: {shown}; ask for {what}s of the training data.")
    return codes


def distinctive(vectors: Tensor, popularity: Codes) -> Tensor:
    """Unit vectors of the items, without what popular items have in common.

    The mean of the unit vectors and their first principal direction, both weighted by popularity, are
    removed: otherwise the most popular items are the neighbours of every popular one.
    """
    unit = F.normalize(vectors.double())
    if unit.shape[1] < 3:  # nothing would be left
        return unit.float()
    weights = torch.from_numpy(popularity / popularity.sum())[:, None]
    centred = unit - (weights * unit).sum(dim=0)
    main = torch.linalg.eigh((weights * centred).T @ centred).eigenvectors[:, -1:]
    return F.normalize(centred - centred @ main @ main.T).float()


def _similar(
    what: str, queries: Rows, matrix: Rows, ids: IdMap, codes: Codes, trained: Mask, k: int
) -> pa.Table:
    """The table of the `k` best among those with a trained pair; queries[i] is of codes[i]."""
    among, place = np.flatnonzero(trained), np.cumsum(trained) - 1
    k, rows = min(check_whole("k", k, 1), len(among) - 1), np.arange(len(codes))
    if k == 0:  # there is no other
        k, rows = 1, rows[:0]
    n = len(codes)
    itself = Interactions(np.arange(n), place[codes], IdMap.range(n), IdMap.range(len(among)))
    best = top_k(queries, take_rows(matrix, among), k, rows=rows, exclude=itself)
    of, similar = ids.outside(np.repeat(codes[rows], k)), ids.outside(among[best.items.ravel()])
    rank = np.tile(np.arange(1, k + 1), len(rows))
    return pa.table({what: of, "similar": similar, "score": best.scores.ravel(), "rank": rank})


def vectors(model: Model, of: str) -> pa.Table:
    """A table of id and vector, whose products are the scores: listed items, or trained users."""
    scorer, is_item = model.scorer, check_choice("of", of, ["items", "users"]) == "items"
    if scorer.weights is not None or scorer.is_popularity:
        raise InputError("a closed form or a blend has no vectors that give its scores; set blend='none'.")
    codes = np.flatnonzero(model.listed if is_item else model.trained)
    rows = take_rows(scorer.columns if is_item else scorer.rows(), codes)
    assert isinstance(rows, Tensor)
    ids = model.seen.item_ids if is_item else model.seen.user_ids
    vector = pa.FixedSizeListArray.from_arrays(pa.array(rows.cpu().numpy().ravel()), rows.shape[1])
    return pa.table({"item" if is_item else "user": ids.outside(codes), "vector": vector})


def score_pairs(model: Model, pairs: Source) -> pa.Table:
    """A table of user, item, score, in the order of the pairs."""
    raw = memory_source(pairs.to_table() if isinstance(pairs, Interactions) else pairs)
    at = find_columns(raw, {"rating": False, "weight": False, "time": False})
    users, items = raw.read([at["user"], at["item"]])
    user_codes = model.seen.user_ids.codes(users, "user")
    item_codes = model.seen.item_ids.codes(items, "item")
    if len(user_codes) != len(item_codes):
        raise InputError(f"{len(user_codes)} users but {len(item_codes)} items; a pair needs both.")
    scores = model.scorer.scores(user_codes, item_codes)
    is_cold = ~model.trained[user_codes]  # as in `recommend`
    scores[is_cold] = (model.appeal / model.appeal.sum())[item_codes[is_cold]]
    ids = model.seen.user_ids.outside(user_codes), model.seen.item_ids.outside(item_codes)
    return pa.table([*ids, scores], names=["user", "item", "score"])
