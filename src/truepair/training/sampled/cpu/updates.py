"""Scores and updates of a row's embeddings, sixteen floats at a time.

Rows are padded with zeros to whole lines of the cache, and the zeros stay zeros. An entry's items are
`space.items[first : first + count]`. An item that is there twice is stepped twice, one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.training.sampled.cpu.arithmetic import ONE, ZERO, Float, Index, Ints, inlined
from truepair.training.sampled.cpu.memory import Space
from truepair.training.sampled.cpu.vectors import (
    LINE,
    Line,
    add_product,
    fetch_line,
    load_line,
    over_root,
    same,
    store_line,
    total,
)
from truepair.training.sampled.plan import Floats


class EmbeddingTables(NamedTuple):
    """Embeddings and Adagrad's sums of squared gradients (for SGD without rows), padded to whole lines."""

    users: Floats  # [n_users, columns]
    items: Floats  # [n_items, columns]
    user_sums: Floats
    item_sums: Floats
    tau: Floats  # [1] or [n_users]
    log_rest: Floats
    weights: Floats  # [anchors]; empty where all are 1


@inlined
def dot_rows(model: EmbeddingTables, space: Space, user: Index, first: Index, count: Index) -> None:
    """space.scores[c] = ⟨item, user⟩."""
    for c in range(count):
        item, products = np.int64(space.items[first + c]), same(ZERO)
        for column in range(0, model.items.shape[1], LINE):
            products = add_product(
                products, load_line(model.items, item, column), load_line(model.users, user, column)
            )
        space.scores[c] = total(products)


@inlined
def square_row(table: Floats, row: Index) -> Float:
    """‖table[row]‖²."""
    products = same(ZERO)
    for column in range(0, table.shape[1], LINE):
        line = load_line(table, row, column)
        products = add_product(products, line, line)
    return Float(total(products))


@inlined
def sgd_rows(
    model: EmbeddingTables, space: Space, user: Index, first: Index, count: Index, own: Float, rate: Float
) -> None:
    """e −= rate · g for all rows of an entry:

    g of the user = own · user + Σ_c by_other[c] · item
    g of an item  = by_self[c] · item + by_other[c] · user
    """
    for c in range(count):
        space.by_other[c] *= -rate
        space.by_self[c] *= -rate
    keep = same(ONE - rate * own)
    for column in range(0, model.items.shape[1], LINE):
        old = load_line(model.users, user, column)
        moved = add_product(same(ZERO), keep, old)
        for c in range(count):
            item, by = np.int64(space.items[first + c]), same(space.by_other[c])
            line = load_line(model.items, item, column)
            moved = add_product(moved, by, line)
            own_part = add_product(line, same(space.by_self[c]), line)
            store_line(model.items, item, column, add_product(own_part, by, old))
        store_line(model.users, user, column, moved)


@inlined
def adagrad_rows(
    model: EmbeddingTables, space: Space, user: Index, first: Index, count: Index, own: Float, rate: Float
) -> None:
    """G += g², e −= rate · g / (√G + 10⁻¹⁰) for all rows of an entry; g as in `sgd_rows`."""
    for column in range(0, model.items.shape[1], LINE):
        old = load_line(model.users, user, column)
        gradient = add_product(same(ZERO), same(own), old)
        for c in range(count):
            item, by = np.int64(space.items[first + c]), same(space.by_other[c])
            line = load_line(model.items, item, column)
            gradient = add_product(gradient, by, line)
            own_part = add_product(same(ZERO), same(space.by_self[c]), line)
            of_item = add_product(own_part, by, old)
            _adagrad_line(model.items, model.item_sums, item, column, line, of_item, rate)
        _adagrad_line(model.users, model.user_sums, user, column, old, gradient, rate)


@inlined
def _adagrad_line(
    table: Floats, squares: Floats, row: Index, column: Index, old: Line, gradient: Line, rate: Float
) -> None:
    sums = add_product(load_line(squares, row, column), gradient, gradient)
    store_line(squares, row, column, sums)
    store_line(table, row, column, add_product(old, same(-rate), over_root(gradient, sums)))


@inlined
def fetch_rows(table: Floats, rows: Ints, count: Index) -> None:
    """Ask the memory for rows of a table, without waiting for them."""
    for c in range(count):
        for column in range(0, table.shape[1], LINE):
            fetch_line(table, np.int64(rows[c]), column)
