"""In-batch BNS on the GPU: how many items of a sample of the batch each candidate beats, and its risk.

The sample consists of the first candidates of all rows of the batch. One kernel before the rows' own counts:
a program compares several rows with a share of the sample, a tile at a time, by a matrix product of the rows'
users with the tile's items. The rows' kernel adds up what the shares counted and makes risks of it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from truepair.training.sampled.plan import RUN_NUMBERS, place_of

RUN_WIDTH, SCORE_SCALE = tl.constexpr(len(RUN_NUMBERS)), tl.constexpr(place_of("score_scale"))
ROWS = 16  # of the batch that a program takes: the least that a matrix product can have
SAMPLE = 64  # items of the sample in a tile
_PROGRAMS = 1024  # enough to keep a GPU busy


def shares_of(batch: int, runs: int) -> int:
    """Among how many programs the sample is divided for a row."""
    blocks, tiles = triton.cdiv(batch, ROWS) * runs, triton.cdiv(batch, SAMPLE)
    return max(1, min(tiles, _PROGRAMS // blocks))


@triton.jit
def steps_over(values, begin, end, target, ROUNDS: tl.constexpr):
    """How far `target` reaches in values[begin:end], which rise: the first place whose value is larger."""
    for _ in range(ROUNDS):
        middle = (begin + end) // 2
        open_ = begin < end
        right = open_ & (tl.load(values + middle, mask=open_, other=0) <= target)
        begin = tl.where(right, middle + 1, begin)
        end = tl.where(open_ & ~right, middle, end)
    return begin


@triton.jit
def inverse_norm(square):
    """1 / max(‖e‖, ε), from ‖e‖²."""
    return 1.0 / tl.maximum(tl.sqrt(square), 1e-12)


@triton.jit
def _scores(
    weights, users, there, score_scale,
    ALL: tl.constexpr, COSINE: tl.constexpr, D: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Scores of rows `users` [R] with rows `there` of the weights, PART dimensions at a time.

    A row's own one [R], or with ALL each of them [R, T].
    """
    s = tl.zeros((users.shape[0], there.shape[0]) if ALL else users.shape, tl.float32)
    u_square, i_square = tl.zeros(users.shape, tl.float32), tl.zeros(there.shape, tl.float32)
    for first in range(0, D, PART):
        column = first + tl.arange(0, PART)
        mask = (column < D)[None, :]
        u = tl.load(weights + users[:, None] * D + column[None, :], mask=mask, other=0.0)
        i = tl.load(weights + there[:, None] * D + column[None, :], mask=mask, other=0.0)
        s += tl.dot(u, tl.trans(i), input_precision="ieee") if ALL else tl.sum(u * i, axis=1)
        if COSINE:
            u_square += tl.sum(u * u, axis=1)
            i_square += tl.sum(i * i, axis=1)
    if COSINE:
        of_users, of_items = score_scale * inverse_norm(u_square), inverse_norm(i_square)
        s = s * of_users[:, None] * of_items[None, :] if ALL else s * of_users * of_items
    return s


@triton.jit
def _is_known(pair_items, begin, end, item, ROUNDS: tl.constexpr):
    """Whether item [T] is among pair_items[begin:end] of each user [R], which rise: [R, T]."""
    none = tl.zeros((begin.shape[0], item.shape[0]), tl.int32)
    over = steps_over(pair_items, begin[:, None] + none, end[:, None] + none, item[None, :], ROUNDS)
    before = tl.load(pair_items + over - 1, mask=over > begin[:, None], other=-1)
    return before == item[None, :]


@triton.jit(do_not_specialize=["place", "left"])
def beaten_kernel(
    weights, entry_users, entry_rows, numbers, indptr, pair_items, beaten,
    place, left, batch, n_places, n_rows, n_users,
    COSINE: tl.constexpr, M: tl.constexpr, POOL: tl.constexpr, K: tl.constexpr, D: tl.constexpr,
    PART: tl.constexpr, ROWS: tl.constexpr, SAMPLE: tl.constexpr, ROUNDS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """beaten[run, share, row, slot]: how many items of a share of the sample score no more than the slot's.

    Slot 0 gets how many items of the sample are unlabelled, since known ones do not count. `place` is the
    batch's first entry in the table of entries, `left` how many there are. program_id(1) is the share, (2)
    the run.
    """
    run, share, shares = tl.program_id(2).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    mine, slot = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, K)
    width: tl.constexpr = 1 + M + POOL
    here, base = mine < left, run * n_rows
    entries = entry_rows + (run * n_places + place) * width
    user = tl.load(entry_users + run * n_places + place + mine, mask=here, other=0) & 0x7FFFFFFF
    begin, end = tl.load(indptr + user).to(tl.int32), tl.load(indptr + user + 1).to(tl.int32)
    in_row = here[:, None] & (slot < width)[None, :]
    drawn = tl.load(entries + mine[:, None] * width + slot[None, :], mask=in_row, other=0) & 0x7FFFFFFF
    score_scale = tl.load(numbers + run * RUN_WIDTH + SCORE_SCALE)
    if PDL:
        gdc_wait()

    s = tl.zeros((ROWS, K), tl.float32)
    for c in range(1 + M, width):
        there = tl.load(entries + mine * width + c, mask=here, other=0) & 0x7FFFFFFF
        one = _scores(weights, base + user, base + there, score_scale, False, COSINE, D, PART)
        s = tl.where(slot[None, :] == c, one[:, None], s)

    count = tl.zeros((ROWS, K), tl.int32)
    for first in range(share * SAMPLE, left, shares * SAMPLE):
        member = first + tl.arange(0, SAMPLE)
        valid = (member < left)[None, :]
        there = tl.load(entries + member * width + 1 + M, mask=member < left, other=0) & 0x7FFFFFFF
        below = _scores(weights, base + user, base + there, score_scale, True, COSINE, D, PART)
        counts = valid & ~_is_known(pair_items, begin, end, there - n_users, ROUNDS)
        below = tl.where(counts, below, float("inf"))
        count += tl.where(slot[None, :] == 0, tl.sum(counts.to(tl.int32), axis=1)[:, None], 0)
        for c in range(1 + M, width):
            this = slot[None, :] == c
            score = tl.sum(tl.where(this, s, 0.0), axis=1)[:, None]
            item = tl.sum(tl.where(this, drawn, 0), axis=1)[:, None]
            # an item counts itself, whatever the last bits of the two ways to score it say
            hits = valid & ((below <= score) | (there[None, :] == item))
            count += tl.where(this, tl.sum(hits.to(tl.int32), axis=1)[:, None], 0)
    if PDL:
        gdc_launch_dependents()
    out = beaten + ((run * shares + share) * batch + mine)[:, None] * K + slot[None, :]
    tl.store(out, count, mask=here[:, None])


@triton.jit
def merits_of(s, slot, beaten, share_stride, shares, p, risk, K: tl.constexpr):
    """−info·(1 − risk·unbias) of a row's slots, from their scores s [K]: `BNS.choose`; risk is 1 + λ.

    `beaten` is the row's place in the first share's counts, p [K] the popularity of the slots' items.
    """
    count, unlabelled = tl.zeros((K,), tl.float32), tl.zeros((K,), tl.float32)
    for share in range(shares):
        count += tl.load(beaten + share * share_stride + slot).to(tl.float32)
        unlabelled += tl.load(beaten + share * share_stride + tl.zeros_like(slot)).to(tl.float32)
    f = tl.div_rn(count, unlabelled)  # rounded as IEEE says: 1 where all are beaten
    negative, positive = (1 - f) * (1 - p), f * p
    evidence = negative + positive
    unbias = tl.where(evidence > 0, negative / evidence, 0.5)
    info = tl.sigmoid(s - tl.sum(tl.where(slot == 0, s, 0.0)))
    return -info * (1 - risk * unbias)
