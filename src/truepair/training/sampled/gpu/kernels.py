"""The GPU engine's kernels: draw, score and differentiate, update; and the hops of LightGCN.

Users and items are rows of one matrix, users first, so an item's row is n_users + its code. Every array
has a leading dimension of runs: program_id(1) is the run. Within a step the work is that of the reference;
the random numbers, and so the draws, are the very same.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from truepair.training.sampled.gpu.in_batch import RUN_WIDTH, SCORE_SCALE, inverse_norm, merits_of, steps_over
from truepair.training.sampled.gpu.losses import loss_row
from truepair.training.sampled.plan import place_of

SWEEP = 32  # a row that nobody touches is brought up to date every so many steps; one word has as many bits
ROWS_TOGETHER = 4  # rows that one program brings up to date

_GAMMA, _TWO_GAMMAS = tl.constexpr(0x9E3779B97F4A7C15), tl.constexpr(0x3C6EF372FE94F82A)
_FIRST, _SECOND = tl.constexpr(0xBF58476D1CE4E5B9), tl.constexpr(0x94D049BB133111EB)
_BETA1, _BETA2, _EPSILON = tl.constexpr(0.9), tl.constexpr(0.999), tl.constexpr(1e-8)
_SWEEP = tl.constexpr(SWEEP)
_L2_USERS, _L2_ITEMS = tl.constexpr(place_of("l2_users")), tl.constexpr(place_of("l2_items"))
_DECAY = tl.constexpr(place_of("weight_decay"))


def overlap(early: bool) -> dict[str, bool]:
    """Options of a launch: whether the kernel may start while the one before it ends."""
    return {"PDL": True, "launch_pdl": True} if early else {"PDL": False}


# --- random numbers: `randomness`, place by place -------------------------------------------------------


@triton.jit
def _mix(x):
    x = (x ^ (x >> 30)) * _FIRST
    x = (x ^ (x >> 27)) * _SECOND
    return x ^ (x >> 31)


@triton.jit
def _child(key, part):
    """stream_key(…, part) from the key before it."""
    named = (part.to(tl.uint64) + _TWO_GAMMAS).to(tl.uint64)  # a constant below 2^63 would make it signed
    return _mix((key ^ _mix(named)) + _GAMMA)


@triton.jit
def _word(key, place):
    """The 63-bit word at `place` (from 0) of a stream."""
    return (_mix(key + (place + 1).to(tl.uint64) * _GAMMA) >> 1).to(tl.int64)


@triton.jit
def words_kernel(keys, words, n, BLOCK: tl.constexpr):
    """words[run, i] = the i-th word of the run's epoch: sorting by it gives the order of the anchors."""
    run = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + run + tl.zeros_like(place)).to(tl.uint64)
    tl.store(words + run.to(tl.int64) * n + place, _word(key, place), mask=place < n)


# --- drawing --------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["first_step", "first", "count"])
def draw_kernel(
    keys, order, anchors, pair_users, pair_items, indptr, before, passed, ends, free,
    pair_weights, entry_users, entry_rows, entry_weights, touched, step_bits,
    n_anchors, n_users, n_items, n_rows, first_step, first, count, batch, words_per_row,
    M: tl.constexpr, POOL: tl.constexpr, UNIFORM: tl.constexpr, MARK: tl.constexpr, OWN: tl.constexpr,
    WEIGHTED: tl.constexpr, ROUNDS: tl.constexpr, END_ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The data entries of one step, at places first … first + count of the epoch's order: `Draws.batch`.

    program_id(1) is the step within the table, program_id(2) the run. With MARK, touched[step, row] = 1.
    With OWN, bit `step` of the row's step_bits is set, and the entry that sets it owns the row in that
    step: its sign bit is set. With WEIGHTED, entry_weights has the weights of the anchors.
    """
    run, step = tl.program_id(2).to(tl.int64), tl.program_id(1)
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    width: tl.constexpr = 1 + M + POOL
    row, slot = entry // width, entry % width  # of the batch; of the row
    place = step.to(tl.int64) * batch + row
    valid = (row < batch) & (place < count)
    anchor = tl.load(anchors + tl.load(order + run * n_anchors + first + place, mask=valid, other=0))
    user = tl.load(pair_users + anchor)
    begin, end = tl.load(indptr + user).to(tl.int32), tl.load(indptr + user + 1).to(tl.int32)
    is_extra = (slot >= 1) & (slot <= M)
    key = _child(
        tl.load(keys + run + tl.zeros_like(row)).to(tl.uint64), tl.zeros_like(row) + first_step + step
    )
    key = _child(_mix(key + _GAMMA), tl.where(is_extra, 1, 2))  # stream_key(key, 1 or 2)
    word = _word(key, tl.where(is_extra, row * M + slot - 1, row * POOL + slot - 1 - M))

    spot = word % tl.where(is_extra, (end - begin).to(tl.int64), tl.maximum(tl.load(free + user), 1))
    if UNIFORM:
        spot = spot.to(tl.int32)
    known = tl.load(pair_items + tl.where(is_extra, begin + spot, anchor))
    over = steps_over(before, begin, end, spot, ROUNDS)
    if UNIFORM:
        unlabelled = spot + over - begin
    else:
        spot += tl.load(passed + over) - tl.load(passed + begin)
        unlabelled = steps_over(ends, tl.zeros_like(spot), tl.zeros_like(spot) + n_items, spot, END_ROUNDS)
    there = n_users + tl.where(slot <= M, known, unlabelled)

    if MARK:
        at = (run * tl.num_programs(1) + step) * n_rows
        tl.store(touched + at + there, tl.full((BLOCK,), 1, tl.int8), mask=valid)
        tl.store(touched + at + user, tl.full((BLOCK,), 1, tl.int8), mask=valid & (slot == 0))
    owner, user_owner = user < 0, user < 0
    if OWN:
        bit = tl.full((BLOCK,), 1, tl.int32) << (step % 32)
        at = (run * n_rows + there) * words_per_row + step // 32
        owner = (tl.atomic_or(step_bits + at, bit, mask=valid, sem="relaxed") & bit) == 0
        at = (run * n_rows + user) * words_per_row + step // 32
        user_owner = (tl.atomic_or(step_bits + at, bit, mask=valid & (slot == 0), sem="relaxed") & bit) == 0
    sign = -2147483648
    out = run * count + place
    tl.store(entry_rows + out * width + slot, (there + tl.where(owner, sign, 0)).to(tl.int32), mask=valid)
    tl.store(entry_users + out, (user + tl.where(user_owner, sign, 0)).to(tl.int32), mask=valid & (slot == 0))
    if WEIGHTED:
        tl.store(entry_weights + out, tl.load(pair_weights + anchor), mask=valid & (slot == 0))


# --- one step: scores, loss, gradients ------------------------------------------------------------------


@triton.jit(do_not_specialize=["place", "left", "position"])
def rows_kernel(
    weights, gradients, touches, entry_users, entry_rows, entry_weights, numbers, tau, log_rest, losses,
    clamps, scores, beaten, popularity, risk, shares,
    place, left, batch, n_places, n_rows, n_users, n_anchors, n_tau, position,
    PAIR: tl.constexpr, ROW: tl.constexpr, RELATIVE: tl.constexpr, COSINE: tl.constexpr, L2: tl.constexpr,
    RAW: tl.constexpr, M: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, K: tl.constexpr,
    RANKED: tl.constexpr, WEIGHTED: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One data entry a program: its scores, its loss, and its gradients added to those of its rows.

    `place` is the batch's first entry in the table of entries, `position` its first in the epoch, `left`
    the number of entries in the batch. RAW: the weights are the parameters themselves, so L2 goes straight
    into the gradient; otherwise the touches of each row are counted for later. RANKED: of a pool the
    least risky are kept, by what `beaten_kernel` counted. WEIGHTED: the loss, its gradients and the L2 of an
    entry are multiplied by the weight of its anchor.
    """
    run = tl.program_id(1).to(tl.int64)
    mine = tl.program_id(0)
    width: tl.constexpr = 1 + M + POOL
    slot, column = tl.arange(0, K), tl.arange(0, DP)
    out = run * n_places + place + mine
    user = tl.load(entry_users + out) & 0x7FFFFFFF
    there = tl.load(entry_rows + out * width + slot, mask=slot < width, other=0) & 0x7FFFFFFF
    numbers += run * RUN_WIDTH
    score_scale = tl.load(numbers + SCORE_SCALE)
    prior = run * n_tau + tl.where(n_tau > 1, user, 0)
    tau_here, log_rest_here = tl.load(tau + prior), tl.load(log_rest + prior)
    if PDL:
        gdc_wait()

    base = run * n_rows
    user_at = (base + user) * D + column
    item_at = (base + there[:, None]) * D + column[None, :]
    mask = (slot < width)[:, None] & (column < D)[None, :]
    u = tl.load(weights + user_at, mask=column < D, other=0.0)
    items = tl.load(weights + item_at, mask=mask, other=0.0)
    s = tl.sum(items * u[None, :], axis=1)
    if COSINE:
        u_inverse = inverse_norm(tl.sum(u * u))
        i_inverse = inverse_norm(tl.sum(items * items, axis=1))
        s = s * (score_scale * u_inverse) * i_inverse
    if PDL:
        gdc_launch_dependents()
    unlabelled = (slot > M) & (slot < width)
    if POOL > N:  # the N highest scores of the pool, of equal ones the first drawn
        merits = s
        if RANKED:
            counted = beaten + (run * shares * batch + mine) * K
            p = tl.load(popularity + there - n_users, mask=slot < width, other=0.0)
            merits = merits_of(s, slot, counted, batch * K, shares, p, risk, K)
        # through memory: the compiler may compute s anew for each side, in another order, with other bits
        kept = scores + (run * batch + mine) * K
        tl.store(kept + slot, merits)
        tl.debug_barrier()
        across, down = tl.load(kept + slot)[None, :], tl.load(kept + slot)[:, None]
        above = (across > down) | ((across == down) & (slot[None, :] < slot[:, None]))
        above = above & unlabelled[None, :]
        unlabelled = unlabelled & (tl.sum(above.to(tl.int32), axis=1) < N)
    loss, clamped, g = loss_row(
        s, slot, unlabelled, tau_here, log_rest_here, numbers, PAIR, ROW, RELATIVE, M, N
    )
    l2_users, l2_items = tl.load(numbers + _L2_USERS), tl.load(numbers + _L2_ITEMS)
    if WEIGHTED:
        of_anchor = tl.load(entry_weights + out)
        loss, g = loss * of_anchor, g * of_anchor
        l2_users, l2_items = l2_users * of_anchor, l2_items * of_anchor
    tl.store(losses + run * n_anchors + position + mine, loss)
    tl.store(clamps + run * n_anchors + position + mine, clamped)

    g = g / left
    live = (slot <= M) | unlabelled
    if COSINE:
        gs = g * s
        to_user = tl.sum(items * (g * i_inverse)[:, None], axis=0) * score_scale - tl.sum(gs) * u * u_inverse
        to_user = to_user * u_inverse
        to_items = (g * i_inverse)[:, None] * (u * (u_inverse * score_scale))[None, :]
        to_items -= items * (gs * i_inverse * i_inverse)[:, None]
    else:
        to_user = tl.sum(items * g[:, None], axis=0)
        to_items = g[:, None] * u[None, :]
    if L2:
        if RAW:
            to_user += u * (l2_users / left)
            to_items += items * (l2_items / left)
        else:
            tl.atomic_add(touches + base + user, l2_users / left, sem="relaxed")
            each = tl.zeros_like(g) + l2_items / left
            tl.atomic_add(touches + base + there, each, mask=live, sem="relaxed")
    tl.atomic_add(gradients + user_at, to_user, mask=column < D, sem="relaxed")
    tl.atomic_add(gradients + item_at, to_items, mask=mask & live[:, None], sem="relaxed")


# --- one step: Adam -------------------------------------------------------------------------------------


@triton.jit
def _adam(w, m, v, g, decay, rate, root):
    """torch.optim.Adam: rate = learning rate / (1 − β₁ᵗ), root = 1 / √(1 − β₂ᵗ)."""
    g += decay * w
    m += (g - m) * (1 - _BETA1)
    v = v * _BETA2 + g * g * (1 - _BETA2)
    return w - rate * m / (tl.sqrt(v) * root + _EPSILON), m, v


@triton.jit(do_not_specialize=["step"])
def adam_kernel(
    weights, means, squares, gradients, spread, touches, numbers, rates, step, steps, n_rows,
    D: tl.constexpr, GRAPH: tl.constexpr, L2: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Adam on every parameter; the gradient is set to 0. With GRAPH the gradient is `spread`."""
    run = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n_rows * D
    rates += (run * steps + step) * 2
    rate, root, decay = tl.load(rates), tl.load(rates + 1), tl.load(numbers + run * RUN_WIDTH + _DECAY)
    there = run * n_rows * D + at
    if PDL:
        gdc_wait()
    w = tl.load(weights + there, mask=mask)
    m, v = tl.load(means + there, mask=mask), tl.load(squares + there, mask=mask)
    g = tl.load((spread if GRAPH else gradients) + there, mask=mask)
    if PDL:
        gdc_launch_dependents()
    if GRAPH and L2:
        counted = touches + run * n_rows + at // D
        g += tl.load(counted, mask=mask) * w
    w, m, v = _adam(w, m, v, g, decay, rate, root)
    tl.store(weights + there, w, mask=mask)
    tl.store(means + there, m, mask=mask)
    tl.store(squares + there, v, mask=mask)
    tl.store(gradients + there, tl.zeros_like(w), mask=mask)


@triton.jit
def _free_steps(bits, step, mask):
    """How many steps from `step` on (up to 32) a row is not touched, by its bits."""
    low = tl.load(bits + step // 32, mask=mask, other=0).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(bits + step // 32 + 1, mask=mask, other=0).to(tl.uint32, bitcast=True).to(tl.uint64)
    coming = ((low | (high << 32)) >> (step % 32)).to(tl.uint32)
    steps = tl.where(coming == 0, 1, 0)  # no bit at all: 32
    for k in tl.static_range(5):
        none = (coming & ((1 << (16 >> k)) - 1)) == 0
        steps += tl.where(none, 16 >> k, 0)
        coming = tl.where(none, coming >> (16 >> k), coming)
    return steps


@triton.jit
def _replay(
    weights, means, squares, gradients, rates, rows, mask, has_gradient, decay, step, steps,
    D: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """So many `steps` (one number a row) from `step` on, in registers; only the first has a gradient."""
    column = tl.arange(0, DP)
    at, mask = rows[:, None] * D + column[None, :], mask[:, None] & (column < D)[None, :]
    w = tl.load(weights + at, mask=mask, other=0.0)
    m, v = tl.load(means + at, mask=mask, other=0.0), tl.load(squares + at, mask=mask, other=0.0)
    g = tl.load(gradients + at, mask=mask & has_gradient[:, None], other=0.0)
    for k in range(tl.max(steps)):
        rate, root = tl.load(rates + (step + k) * 2), tl.load(rates + (step + k) * 2 + 1)
        w_next, m_next, v_next = _adam(w, m, v, g, decay, rate, root)
        going = (k < steps)[:, None]
        w, m, v = tl.where(going, w_next, w), tl.where(going, m_next, m), tl.where(going, v_next, v)
        g = tl.zeros_like(g)
    tl.store(weights + at, w, mask=mask)
    tl.store(means + at, m, mask=mask)
    tl.store(squares + at, v, mask=mask)
    tl.store(gradients + at, g, mask=mask & has_gradient[:, None])


@triton.jit(do_not_specialize=["place", "step", "n_items_here", "n_users_here", "first_step", "last_step"])
def lazy_adam_kernel(
    weights, means, squares, gradients, entry_users, entry_rows, step_bits, numbers, rates,
    place, step, steps, n_items_here, n_users_here, n_places, n_rows, words_per_row, first_step, last_step,
    WIDTH: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Adam where it matters: rows that this step touched, and every SWEEP-th of the others.

    A row is taken through all coming steps in which nobody touches it, at once, up to its next sweep; so
    it is always up to date when it is read. `step` counts within the table of entries, `first_step` is the
    table's first step in the epoch.
    """
    run = tl.program_id(1).to(tl.int64)
    mine = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    decay = tl.load(numbers + run * RUN_WIDTH + _DECAY)
    rates += (run * steps + first_step) * 2
    n_here = n_items_here + n_users_here
    of_user, swept = (mine >= n_items_here) & (mine < n_here), mine >= n_here
    entry = tl.load(entry_rows + (run * n_places + place) * WIDTH + mine, mask=mine < n_items_here, other=0)
    user = tl.load(entry_users + run * n_places + place + mine - n_items_here, mask=of_user, other=0)
    entry = tl.where(of_user, user, entry)
    row = tl.where(swept, (mine - n_here) * _SWEEP + step % _SWEEP, entry & 0x7FFFFFFF)
    acts = (swept & (row < n_rows)) | (entry < 0)
    at = run * n_rows + row
    bits = step_bits + at * words_per_row
    touched = (tl.load(bits + step // 32, mask=acts & swept, other=0) >> (step % 32)) & 1
    acts = acts & ~(swept & (touched != 0))
    # the row's own sweeps come at steps = row (mod SWEEP)
    to_sweep = 1 + (row - step - 1 + (step // _SWEEP + 2) * _SWEEP) % _SWEEP
    many = tl.minimum(1 + _free_steps(bits, step + 1, acts), tl.minimum(to_sweep, last_step - step))
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    many = tl.where(acts, many, 0)
    _replay(weights, means, squares, gradients, rates, at, acts, ~swept, decay, step, many, D, DP)


@triton.jit(do_not_specialize=["first_step", "last_step"])
def first_replay_kernel(
    weights, means, squares, gradients, step_bits, numbers, rates, steps, n_rows, words_per_row,
    first_step, last_step, D: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Before a table's first step: every row up to its first touch or sweep."""
    run = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at, acts = run * n_rows + row, row < n_rows
    rates += (run * steps + first_step) * 2
    decay = tl.load(numbers + run * RUN_WIDTH + _DECAY)
    many = tl.minimum(_free_steps(step_bits + at * words_per_row, 0, acts), row % _SWEEP)
    many = tl.where(acts, tl.minimum(many, last_step), 0)
    _replay(weights, means, squares, gradients, rates, at, acts, row < 0, decay, 0, many, D, DP)


# --- LightGCN -------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["flags_at"])
def hop_kernel(
    source, earlier, hop, out, indptr, neighbours, values, rows, touched, n_listed, n_rows, flags_at, scale,
    step_flags, SOURCE_FLAGS: tl.constexpr, ROW_FLAGS: tl.constexpr, KEEP: tl.constexpr,
    D: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr, EDGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One hop for the listed rows, ROWS at a time: hop = Â·source, and out = (earlier + hop)·scale.

    ROW_FLAGS: only rows that this step touches. SOURCE_FLAGS: only such neighbours have anything to give.
    KEEP: the hop itself is stored, for the next one.
    """
    run = tl.program_id(1).to(tl.int64)
    mine = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    acts = mine < n_listed
    row = tl.load(rows + mine, mask=acts, other=0)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    flags = touched + (run * step_flags + flags_at) * n_rows
    if ROW_FLAGS:
        acts = acts & (tl.load(flags + row) != 0)
    end = tl.where(acts, end, begin)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    column, edge = tl.arange(0, DP), tl.arange(0, EDGES)
    total = tl.zeros((ROWS, EDGES, DP), tl.float32)
    source += run * n_rows * D
    for start in range(0, tl.max(end - begin), EDGES):
        at = (begin + start)[:, None] + edge[None, :]  # [ROWS, EDGES]
        here = at < end[:, None]
        other = tl.load(neighbours + at, mask=here, other=0)
        value = tl.load(values + at, mask=here, other=0.0)
        if SOURCE_FLAGS:
            here = here & (tl.load(flags + other, mask=here, other=0) != 0)
        mask = here[:, :, None] & (column < D)[None, None, :]
        vectors = tl.load(source + other[:, :, None] * D + column[None, None, :], mask=mask, other=0.0)
        total += vectors * value[:, :, None]
    result = tl.sum(total, axis=1)  # [ROWS, DP]
    at = (run * n_rows + row)[:, None] * D + column[None, :]
    mask = acts[:, None] & (column < D)[None, :]
    if KEEP:
        tl.store(hop + at, result, mask=mask)
    before = tl.load(earlier + at, mask=mask, other=0.0)
    tl.store(out + at, (before + result) * scale, mask=mask)
