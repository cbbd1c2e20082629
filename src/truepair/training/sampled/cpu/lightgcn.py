"""LightGCN in compiled code: vectors averaged over the user-item graph.

With P = (1 + Â + … + Â^K) / (K + 1), the encoded vectors are P·E. Â is symmetric, so P is, and the gradient
by E is P times the gradient by the encoded vectors: one function does both. By Horner's rule
P·X = (X + Â(X + Â(…))) / (K + 1): each hop is  X + Â·source. The weights of Â are f_i·f_j with
f = 1/√(number of neighbours): sources are scaled by f once, then neighbours are only added up, and no weight
an edge is stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.training.sampled.cpu.draws import ONE, ZERO, Floats
from truepair.training.sampled.cpu.epoch_order import inner
from truepair.training.sampled.cpu.vectors import LINE, add_product, load_line, same, store_line

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint32]


class Neighbours(NamedTuple):
    """One side of the graph, and room for a spread over it. All empty where there is no graph."""

    indptr: Offsets  # [n + 1]
    indices: Places  # [edges], rows of the other side
    factor: Floats  # [n], f
    scaled: Floats  # [n, width], f·X
    odd: Floats  # [n, width], f times what lies between the first hop and the last
    even: Floats  # [n, width]


class Part(NamedTuple):
    """Users or items in one spread."""

    start: Floats  # [n, width], X
    out: Floats  # [n, width], P·X
    active: Bytes  # [n], rows of X that are not zero
    wanted: Bytes  # [n], rows of P·X that are needed


@inner
def scale_rows(side: Neighbours, part: Part, everything: bool, thread: int, threads: int) -> None:
    """One thread's rows of f·X, or of them those that are not zero."""
    n = len(part.start)
    for row in range(thread * n // threads, (thread + 1) * n // threads):
        if everything or part.active[row]:
            for k in range(part.start.shape[1]):
                side.scaled[row, k] = side.factor[row] * part.start[row, k]


@inner
def pull_rows(
    side: Neighbours, part: Part, source: Floats, all_wanted: bool, out: Floats, share: np.float32,
    thread: int, threads: int,
) -> None:  # fmt: skip
    """One thread's rows of one hop: out[i] = c·(X[i] + f_i·Σ_j source[j]) over its neighbours j."""
    # every so many-th row, since rows that stand side by side often have alike numbers of neighbours
    for row in range(thread, len(out), threads):
        if all_wanted or part.wanted[row]:
            sum_rows(side.indices, side.indptr[row], side.indptr[row + 1], source, out, row)
            finish_row(side, part, out, share, row)


@inner
def push_rows(
    side: Neighbours, other: Neighbours, part: Part, source: Floats, active: Bytes, out: Floats,
    share: np.float32, thread: int, threads: int,
) -> None:  # fmt: skip
    """The same where few rows of the source are active: each adds itself to its neighbours.

    A thread has a range of rows with its share of the edges, and finds them in the sorted neighbours.
    """
    edges = side.indptr[-1]
    low = first_at_least(side.indptr, 0, len(out), thread * edges // threads)
    high = first_at_least(side.indptr, 0, len(out), (thread + 1) * edges // threads)
    high = len(out) if thread == threads - 1 else high
    out[low:high], one = ZERO, same(ONE)
    for j in range(len(active)):
        if active[j]:
            first = first_at_least(other.indices, other.indptr[j], other.indptr[j + 1], low)
            last = first_at_least(other.indices, first, other.indptr[j + 1], high)
            for column in range(0, out.shape[1], LINE):
                line = load_line(source, j, column)
                for e in range(first, last):
                    i = other.indices[e]
                    store_line(out, i, column, add_product(load_line(out, i, column), one, line))
    for row in range(low, high):
        finish_row(side, part, out, share, row)


@inner
def finish_row(side: Neighbours, part: Part, out: Floats, share: np.float32, row: int) -> None:
    """From Σ_j to c·(X + f·Σ_j); c is `share` at the last hop, and before it f, as the next source wants."""
    own = share if share > ZERO else side.factor[row]
    for k in range(out.shape[1]):
        out[row, k] = own * (part.start[row, k] + side.factor[row] * out[row, k])


@inner
def first_at_least(rising: npt.NDArray[np.integer], first: int, last: int, value: int) -> int:
    """The first place in [first, last) that holds `value` or more, else `last`."""
    while first < last:
        middle = (first + last) // 2
        if rising[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first


@inner
def mostly(marks: Bytes) -> bool:
    """Whether more than half of the rows are marked: then leaving out the others costs more than it saves."""
    count = 0
    for row in range(len(marks)):
        count += marks[row]
    return 2 * count > len(marks)


@inner
def sum_rows(places: Places, first: int, last: int, source: Floats, out: Floats, row: int) -> None:
    """out[row] = Σ_e source[j_e], four lines, then two, then one at a time."""
    width, column = out.shape[1], 0
    while column + 4 * LINE <= width:
        sum_four_lines(places, first, last, source, out, row, column)
        column += 4 * LINE
    if column + 2 * LINE <= width:
        sum_two_lines(places, first, last, source, out, row, column)
        column += 2 * LINE
    if column < width:
        one, a = same(ONE), same(ZERO)
        for e in range(first, last):
            a = add_product(a, one, load_line(source, places[e], column))
        store_line(out, row, column, a)


@inner
def sum_four_lines(
    places: Places, first: int, last: int, source: Floats, out: Floats, row: int, column: int
) -> None:
    """Four sums at once keep the processor busy while each of them waits for its last addition."""
    one = same(ONE)
    a = b = c = d = same(ZERO)
    for e in range(first, last):
        i = places[e]
        a = add_product(a, one, load_line(source, i, column))
        b = add_product(b, one, load_line(source, i, column + LINE))
        c = add_product(c, one, load_line(source, i, column + 2 * LINE))
        d = add_product(d, one, load_line(source, i, column + 3 * LINE))
    store_line(out, row, column, a)
    store_line(out, row, column + LINE, b)
    store_line(out, row, column + 2 * LINE, c)
    store_line(out, row, column + 3 * LINE, d)


@inner
def sum_two_lines(
    places: Places, first: int, last: int, source: Floats, out: Floats, row: int, column: int
) -> None:
    """The same of two lines, with neighbours at even and at odd places apart: again four sums."""
    one = same(ONE)
    a = b = c = d = same(ZERO)
    for e in range(first, last - 1, 2):
        i, j = places[e], places[e + 1]
        a = add_product(a, one, load_line(source, i, column))
        b = add_product(b, one, load_line(source, i, column + LINE))
        c = add_product(c, one, load_line(source, j, column))
        d = add_product(d, one, load_line(source, j, column + LINE))
    if (last - first) % 2:
        i = places[last - 1]
        a = add_product(a, one, load_line(source, i, column))
        b = add_product(b, one, load_line(source, i, column + LINE))
    store_line(out, row, column, add_product(a, one, c))
    store_line(out, row, column + LINE, add_product(b, one, d))


@inner
def spread(
    by_user: Neighbours, by_item: Neighbours, users: Part, items: Part, most_users: bool, most_items: bool,
    all_wanted: bool, hop: int, hops: int, thread: int, threads: int,
) -> None:  # fmt: skip
    """One thread's part of one hop of P·X, for users and items; hop 0 scales what the first starts from.

    `most_users` and `most_items` say whether X is dense enough to be summed without a look at what is active.
    """
    if hop == 0:
        scale_rows(by_user, users, most_users, thread, threads)
        scale_rows(by_item, items, most_items, thread, threads)
        return
    from_users, from_items = by_user.scaled, by_item.scaled
    to_users, to_items = by_user.odd, by_item.odd
    if hop % 2 == 0:
        from_users, from_items, to_users, to_items = by_user.odd, by_item.odd, by_user.even, by_item.even
    elif hop > 1:
        from_users, from_items = by_user.even, by_item.even
    share, all_rows = ZERO, True
    if hop == hops:
        share, all_rows, to_users, to_items = ONE / np.float32(hops + 1), all_wanted, users.out, items.out
    if most_items or hop > 1:
        pull_rows(by_user, users, from_items, all_rows, to_users, share, thread, threads)
    else:
        push_rows(by_user, by_item, users, from_items, items.active, to_users, share, thread, threads)
    if most_users or hop > 1:
        pull_rows(by_item, items, from_users, all_rows, to_items, share, thread, threads)
    else:
        push_rows(by_item, by_user, items, from_users, users.active, to_items, share, thread, threads)
