"""Scores and updates of a row's embeddings, sixteen floats at a time.

Rows are padded with zeros to whole lines of the cache, and the zeros stay zeros. An entry's items are
`items[start : start + count]`. An item that is there twice is stepped twice, one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from truepair.training.sampled.cpu.arithmetic import ONE, ZERO, Index, Ints, inlined
from truepair.training.sampled.cpu.vectors import (
    LINE,
    add_product,
    fetch_line,
    load_line,
    over_root,
    same,
    store_line,
    total,
)
from truepair.training.sampled.plan import Floats


@inlined
def dot_rows(
    table: Floats, items: Ints, start: Index, count: Index, own: Floats, row: Index, out: Floats
) -> None:
    """out[c] = ⟨table[i], own[row]⟩ with i = items[start + c]."""
    for c in range(count):
        item, products = np.int64(items[start + c]), same(ZERO)
        for column in range(0, table.shape[1], LINE):
            products = add_product(products, load_line(table, item, column), load_line(own, row, column))
        out[c] = total(products)


@inlined
def square_rows(table: Floats, items: Ints, start: Index, count: Index, out: Floats) -> None:
    """out[c] = ‖table[i]‖² with i = items[start + c]."""
    for c in range(count):
        out[c] = square_row(table, np.int64(items[start + c]))


@inlined
def square_row(table: Floats, row: Index) -> np.float32:
    """‖table[row]‖²."""
    products = same(ZERO)
    for column in range(0, table.shape[1], LINE):
        line = load_line(table, row, column)
        products = add_product(products, line, line)
    return total(products)  # type: ignore[no-any-return]


@inlined
def sgd_rows(
    table: Floats,
    items: Ints,
    start: Index,
    count: Index,
    own: Floats,
    row: Index,
    by_other: Floats,
    by_self: Floats,
    own_by_self: np.float32,
    rate: np.float32,
) -> None:
    """e −= rate · g for all rows of an entry, with i = items[start + c]:

    g of own[row] = own_by_self · own[row] + Σ_c by_other[c] · table[i]
    g of table[i] = by_self[c] · table[i] + by_other[c] · own[row]
    """
    for c in range(count):
        by_other[c] *= -rate
        by_self[c] *= -rate
    keep = same(ONE - rate * own_by_self)
    for column in range(0, table.shape[1], LINE):
        user = load_line(own, row, column)
        moved = add_product(same(ZERO), keep, user)
        for c in range(count):
            item, by = np.int64(items[start + c]), same(by_other[c])
            line = load_line(table, item, column)
            moved = add_product(moved, by, line)
            store_line(table, item, column, add_product(add_product(line, same(by_self[c]), line), by, user))
        store_line(own, row, column, moved)


@inlined
def adagrad_rows(
    table: Floats,
    squares: Floats,
    items: Ints,
    start: Index,
    count: Index,
    own: Floats,
    own_squares: Floats,
    row: Index,
    by_other: Floats,
    by_self: Floats,
    own_by_self: np.float32,
    rate: np.float32,
) -> None:
    """G += g², e −= rate · g / (√G + 10⁻¹⁰) for all rows of an entry; g as in `sgd_rows`."""
    for column in range(0, table.shape[1], LINE):
        user = load_line(own, row, column)
        gradient = add_product(same(ZERO), same(own_by_self), user)
        for c in range(count):
            item, by = np.int64(items[start + c]), same(by_other[c])
            line = load_line(table, item, column)
            gradient = add_product(gradient, by, line)
            own_part = add_product(same(ZERO), same(by_self[c]), line)
            _adagrad_line(table, squares, item, column, line, add_product(own_part, by, user), rate)
        _adagrad_line(own, own_squares, row, column, user, gradient, rate)


@inlined
def _adagrad_line(
    table: Floats, squares: Floats, row: Index, column: Index, old: Any, gradient: Any, rate: np.float32
) -> None:
    sums = add_product(load_line(squares, row, column), gradient, gradient)
    store_line(squares, row, column, sums)
    store_line(table, row, column, add_product(old, same(-rate), over_root(gradient, sums)))


@inlined
def fetch_rows(table: Floats, items: Ints, start: Index, count: Index) -> None:
    """Ask the memory for the items' rows, without waiting for them."""
    for c in range(count):
        for column in range(0, table.shape[1], LINE):
            fetch_line(table, np.int64(items[start + c]), column)
