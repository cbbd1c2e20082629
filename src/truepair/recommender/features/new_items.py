"""New items: rows for items that nobody has yet, from their features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.tables.features import Features
from truepair.data.tables.id_table import IdTable
from truepair.errors import InputError, check_number
from truepair.models.encoders import Encoder
from truepair.models.factor_matrices import dense
from truepair.models.feature_map import FeatureMap
from truepair.recommender.features.extending import with_items
from truepair.recommender.known_ids import listed_items
from truepair.recommender.model_file import Model
from truepair.recommender.parts import Parameters, as_fitted, blend_of, closed_form_of, parts_of


def add_items(model: Model, parameters: Parameters, source: Any, popularity: float | None) -> Model:
    """The model with the items of the table that it has no vector for; see `Recommender.add_items`."""
    parameters = as_fitted(parameters, model.facts)
    if (closed := closed_form_of(parameters)) is not None:
        raise InputError(
            f"encoder = {closed} has no vectors that features could be mapped to; to add items, use "
            "'hybrid' or another encoder that is trained."
        )
    encoder, blended = parts_of(parameters).encoder, blend_of(parameters) is not None
    expected = _expected_count(model, encoder, popularity)
    table = IdTable.read(source, model.seen.item_ids, "item", "items")
    rows = _new_rows(model, table)
    if model.item_map is None:
        features = Features.of_table(table, model.seen.item_ids, model.popularity > 0, "item")
        model = dataclasses.replace(model, item_map=map_of(model, encoder, features, blended))
    assert model.item_map is not None
    matrix = model.item_map.encoding.matrix(table, rows)
    without = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if len(without):
        names = ", ".join(map(repr, table.ids.take(rows[without[:5]]).to_pylist()))
        raise InputError(
            f"{table.source}: {len(without):,} new items have no feature that was trained: {names}; give "
            "them a value that trained items have, or remove their rows."
        )
    vectors = _scored_as(encoder, model.item_map.rows(matrix), expected, model.seen.n_items * blended)
    ids = table.ids.take(rows)
    order = IdMap.of(ids, "item")
    place = order.find(ids, "item")
    return with_items(model, order, vectors[torch.from_numpy(np.argsort(place))], blended=blended)


def map_of(model: Model, encoder: Encoder, features: Features, blended: bool) -> FeatureMap:
    """The map from features to the rows of trained items."""
    trained = np.flatnonzero(model.popularity > 0)
    first = model.seen.n_items * blended  # the columns before are EASE's
    rows = dense("items", model.items)[torch.from_numpy(trained)]
    return FeatureMap.fitted(features.take(trained), rows, slice(first, first + encoder.dim))


def _expected_count(model: Model, encoder: Encoder, given: float | None) -> float:
    """How many users an item is taken to have: by default the geometric mean of trained items' 1 + count."""
    if not encoder.popularity:
        if given is not None:
            raise InputError(
                f"popularity = {given} has no effect: the model adds no popularity to scores; leave it out."
            )
        return 0.0
    if given is not None:
        return check_number("popularity", given, 0)
    counts = model.popularity[model.popularity > 0]
    return float(np.expm1(np.log1p(counts).mean()))


def _new_rows(model: Model, table: IdTable) -> Codes:
    """The rows of the table whose items the model has no vector for."""
    codes = model.seen.item_ids.find(table.ids, "item")
    known = (codes >= 0) & listed_items(model)[codes]
    if known.all():
        raise InputError(
            f"{table.source} has no new item: the model knows all {len(codes):,}; give rows of items that it "
            "does not know. To learn from new interactions, use update."
        )
    return np.flatnonzero(~known)


def _scored_as(encoder: Encoder, rows: Tensor, expected: float, first: int) -> Tensor:
    """Predicted rows as the encoder scores them: unit length for cosines, the addition for popularity."""
    parts, last = [rows[:, :first]], first + encoder.dim
    vectors = rows[:, first:last]
    parts.append(F.normalize(vectors) if encoder.scoring == "cosine" else vectors)
    if encoder.popularity:
        parts.append(rows.new_full((len(rows), 1), encoder.popularity * float(np.log1p(expected))))
    return torch.cat(parts, dim=1)
