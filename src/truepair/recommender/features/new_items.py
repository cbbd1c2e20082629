"""New items: rows for items that nobody has yet, from their features."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.tables.features import Features
from truepair.data.tables.id_table import IdTable
from truepair.errors import InputError, check_number
from truepair.models.factor_matrices import by_columns, dense
from truepair.models.feature_map import FeatureMap
from truepair.recommender.model import Model
from truepair.recommender.reindexing import reindexed
from truepair.storage.types import Table


def add_items(model: Model, source: Table, popularity: float | None) -> Model:
    """The model with the items of the table that it has no vector for; see `Recommender.add_items`."""
    if not model.spec.is_trained:
        raise InputError(f"encoder = {model.spec.encoder} has no vectors of items; use one that is trained.")
    expected = _expected_count(model, popularity)
    table = IdTable.read(source, model.seen.item_ids, "item", "items")
    rows = _new_rows(model, table)
    if model.item_map is None:
        features = Features.of_table(table, model.seen.item_ids, model.popularity > 0, "item")
        model = dataclasses.replace(model, item_map=map_of(model, features))
    assert model.item_map is not None
    matrix = model.item_map.encoding.matrix(table, rows)
    without = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if len(without):
        names = ", ".join(map(repr, table.ids.take(rows[without[:5]]).to_pylist()))
        what = f"{table.source}: {len(without):,} new items"
        raise InputError(f"{what} have no feature that was trained: {names}; remove them.")
    ids = table.ids.take(rows)
    order = IdMap.of(ids, "item")
    places = torch.from_numpy(np.argsort(order.find(ids, "item")))
    return with_items(model, order, _scored(model, model.item_map.rows(matrix)[places], expected))


class NewItems(NamedTuple):
    """The parts of the scores of new items."""

    vectors: Tensor
    term: Tensor | None
    weights: Tensor | None
    """[n, items of the model], in a blend; the weights of new items among each other are 0."""


def with_items(model: Model, ids: IdMap, parts: NewItems) -> Model:
    """The model with these items, which have no trained interaction, in the order of `ids`.

    Ids that the model knows already get the new parts.
    """
    item_ids = model.seen.item_ids.union(ids, "item")
    old, codes = item_ids.find(model.seen.item_ids, "item"), item_ids.find(ids, "item")
    more, new = reindexed(model, model.seen.user_ids, item_ids), torch.from_numpy(codes)
    more.added[codes] = True
    item_map, items = model.item_map, more.scorer.items
    scorer = dataclasses.replace(more.scorer, items=items.index_copy(0, new, parts.vectors.to(items)))
    if scorer.term is not None and parts.term is not None:
        scorer = dataclasses.replace(scorer, term=scorer.term.index_copy(0, new, parts.term.to(items)))
    if parts.weights is not None:
        assert isinstance(scorer.weights, Tensor)
        assert item_map is not None
        rows = _wider(parts.weights, old, len(item_ids)).to(items)
        scorer = dataclasses.replace(scorer, weights=by_columns(scorer.weights.index_copy(0, new, rows)))
        own = _wider(item_map.weights[:, : len(old)], old, len(item_ids))  # its first columns belong to items
        whole = torch.cat([own, item_map.weights[:, len(old) :]], dim=1)
        item_map = dataclasses.replace(item_map, weights=whole)
    return dataclasses.replace(more, scorer=scorer, item_map=item_map)


def _wider(rows: Tensor, places: Codes, n: int) -> Tensor:
    """The rows with n columns: their own at these places, and zeros."""
    return rows.new_zeros(len(rows), n).index_copy(1, torch.from_numpy(places), rows)


def map_of(model: Model, features: Features) -> FeatureMap:
    """The map from features to the rows of trained items."""
    trained, scorer = np.flatnonzero(model.popularity > 0), model.scorer
    first = model.seen.n_items if scorer.is_blend else 0  # the columns before are EASE's
    columns = dataclasses.replace(scorer, trend=None).columns  # what is popular now is no matter of features
    rows = dense("items", columns)[torch.from_numpy(trained)]
    return FeatureMap.fitted(features.take(trained), rows, slice(first, first + scorer.dim))


def _expected_count(model: Model, given: float | None) -> float:
    """How many users an item is taken to have: by default the geometric mean of trained items' 1 + count."""
    if model.scorer.term is None:
        if given is not None:
            raise InputError(f"popularity = {given} has no effect: no score has a term of it; leave it out.")
        return 0.0
    if given is not None:
        return check_number("popularity", given, 0)
    counts = model.popularity[model.popularity > 0]
    return float(np.expm1(np.log1p(counts).mean()))


def _new_rows(model: Model, table: IdTable) -> Codes:
    """The rows of the table whose items the model has no vector for."""
    codes = model.seen.item_ids.find(table.ids, "item")
    known = (codes >= 0) & model.listed[codes]
    if known.all():
        raise InputError(
            f"{table.source} has no new item: all {len(codes):,} are known; give rows of others."
        )
    return np.flatnonzero(~known)


def _scored(model: Model, rows: Tensor, expected: float) -> NewItems:
    """Predicted rows in parts, as the encoder scores them: unit length for cosines, the expected term."""
    encoder, scorer = model.spec.trained, model.scorer
    first = model.seen.n_items if scorer.is_blend else 0
    vectors = rows[:, first : first + scorer.dim]
    constant = encoder.popularity * float(np.log1p(expected))
    term = None if scorer.term is None else rows.new_full((len(rows),), constant)
    unit = F.normalize(vectors) if encoder.scoring == "cosine" else vectors
    return NewItems(unit, term, rows[:, :first] if first else None)
