"""Recipes: interactions -> Split(train, valid, test).

Validation pairs are always held out from train. The test part therefore does not depend on `valid`, and no
choice made on validation can have used it. Draws are counter-based random numbers over the canonical order
of rows: the same interactions and seed give the same split on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions, Values
from truepair.data.split import Mask, Split, counted_note
from truepair.errors import InputError, check_choice, check_number, check_whole
from truepair.randomness import random_bits, random_order, stream_key

# --- recipes ---------------------------------------------------------------------------------------


def split_random(interactions: Interactions, test: float = 0.2, valid: float = 0.0, seed: int = 0) -> Split:
    """A random share `test` of all n pairs, then a share `valid` of the *remaining* train pairs.

    Sizes are ⌊n·share + ½⌋. A user may have no pair left in train; the notes count such users.

    >>> split_random(Interactions(np.arange(10), np.arange(10), IdMap.range(10), IdMap.range(10)), valid=0.5)
    <Split random(test=0.2, valid=0.5, seed=0): 10 users x 10 items, pairs: train 4, valid 4, test 2
      note: 4 valid pairs of 4 items that train does not have
      note: 4 valid users without a pair in train (4 pairs)
      note: 2 test pairs of 2 items that train does not have
      note: 2 test users without a pair in train (2 pairs)>
    """
    test, valid, seed = check_shares(test, valid, seed)
    in_test = _draw_share(np.ones(len(interactions), dtype=bool), test, draw_key(seed, "test"))
    in_valid = _draw_share(~in_test, valid, draw_key(seed, "valid"))
    recipe = f"random(test={test}, valid={valid}, seed={seed})"
    return _split(interactions, in_test, in_valid if valid else None, recipe)


def split_random_per_user(
    interactions: Interactions, test: float = 0.2, valid: float = 0.0, seed: int = 0
) -> Split:
    """A random share `test` of every user's pairs, then a share `valid` of those that remain in train.

    Of a user's n pairs, min(⌊n·test + ½⌋, n-1) go to test; of the m that remain, min(⌊m·valid + ½⌋, m-1) go
    to validation. Every user keeps at least one pair in train. A user with few pairs may have none in test,
    since one of two pairs would be half of them; the notes count such users.
    """
    test, valid, seed = _check_test(test), _check_valid(valid), _check_seed(seed)
    n = interactions.user_counts
    n_test = _at_most_all_but_one(_share_of(n, test), n)
    n_valid = _at_most_all_but_one(_share_of(n - n_test, valid), n - n_test)
    position = _position_in_user(interactions, random_bits(draw_key(seed, "test"), len(interactions)))
    recipe = f"random_per_user(test={test}, valid={valid}, seed={seed})"
    none = int(((n > 1) & (n_test == 0)).sum())
    remarks = (*_single_pair_note(n), *counted_note(none, "user", "with too few pairs to have one in test"))
    return _split_by_position(interactions, position, n_test, n_valid if valid else None, recipe, remarks)


def split_leave_last_out(interactions: Interactions, last: int = 1, valid: int = 0, seed: int = 0) -> Split:
    """Each user's `last` latest pairs are the test part, the `valid` pairs before them the validation part.

    `last` and `valid` count pairs. Every user keeps at least the earliest pair in train; a user with few
    pairs has fewer in validation, then in test. Pairs of equal time are in a random order fixed by the seed.
    """
    last, seed = check_whole("last", last, 1), _check_seed(seed)
    valid = check_whole("valid", valid, 0, remedy="Here it is a number of pairs per user, not a share.")
    n = interactions.user_counts
    n_test = _at_most_all_but_one(np.full_like(n, last), n)
    n_valid = _at_most_all_but_one(np.full_like(n, valid), n - n_test)
    ties = random_bits(draw_key(seed, "ties"), len(interactions))
    position = _position_in_user(interactions, ties, _times(interactions, "split_leave_last_out"))
    from_the_end = (n - 1)[interactions.users] - position
    recipe = f"leave_last_out(last={last}, valid={valid}, seed={seed})"
    short = int(((n > 1) & (n_test + n_valid < last + valid)).sum())
    remarks = (
        *_single_pair_note(n),
        *counted_note(short, "user", f"with too few pairs to hold out {last + valid} and keep one in train"),
    )
    return _split_by_position(interactions, from_the_end, n_test, n_valid if valid else None, recipe, remarks)


def split_temporal(
    interactions: Interactions, test: float | None = None, valid: float = 0.0, at: float | None = None
) -> Split:
    """Train on pairs before a point in time, test on pairs at that time or later.

    Give the time as `at`, or the share `test` (0.2 if neither is given): the split is then at the time of
    the ⌊n·test + ½⌋-th latest of the n pairs. Pairs of equal time stay together in the later part, which
    may thus be larger than requested; the notes say so. `valid` is the latest share of the *remaining*
    train pairs, selected in the same way.
    """
    if at is not None and test is not None:
        raise InputError(f"test = {test!r} and at = {at!r} both say where to split; pass one of them.")
    share, valid = _check_test(0.2 if test is None else test), _check_valid(valid)
    time = clock_times(interactions, "split_temporal")
    in_test = _latest(time, np.ones(len(time), dtype=bool), share) if at is None else _since(time, at)
    in_valid = _latest(time, ~in_test, valid)
    test_remarks = _size_note("test", in_test, len(time), share) if at is None else ()
    remarks = (*test_remarks, *_size_note("valid", in_valid, int((~in_test).sum()), valid))
    recipe = f"temporal({f'test={share}' if at is None else f'at={at}'}, valid={valid})"
    return _split(interactions, in_test, in_valid if valid else None, recipe, remarks)


def k_folds(interactions: Interactions, k: int = 5, valid: float = 0.0, seed: int = 0) -> list[Split]:
    """k splits whose test parts are a random partition of all pairs; their sizes differ by at most 1.

    `valid` is a random share of each split's remaining train pairs.
    """
    n, valid, seed = len(interactions), _check_valid(valid), _check_seed(seed)
    k = check_whole("k", k, 2, max(n, 2), f"There are {n:,} pairs, and each fold needs at least one.")
    fold_of = np.empty(n, dtype=np.int64)
    fold_of[random_order(draw_key(seed, "test"), n)] = np.arange(n) % k
    return [
        _split(
            interactions,
            fold_of == fold,
            _draw_share(fold_of != fold, valid, draw_key(seed, "valid", fold)) if valid else None,
            f"k_folds(k={k}, valid={valid}, seed={seed})[{fold}]",
        )
        for fold in range(k)
    ]


def split_given(
    train: Interactions,
    test: Interactions,
    valid: Interactions | None = None,
    holdout: float = 0.0,
    seed: int = 0,
    overlap: str = "error",
) -> Split:
    """A split whose parts exist already, for example as files. The ids of the parts are merged.

    Without `valid`, a random share `holdout` of the train pairs can become the validation part. A pair in
    two parts raises an error; with `overlap="drop"` it stays in train (in test, if it is in valid and test).
    """
    holdout, seed = _check_valid(holdout, "holdout"), _check_seed(seed)
    check_choice("overlap", overlap, ("error", "drop"))
    if valid is not None and holdout:
        raise InputError(
            f"holdout = {holdout} makes a validation part, but `valid` is given too; pass one of them."
        )
    parts = _with_common_ids({"train": train, "test": test} | ({} if valid is None else {"valid": valid}))
    _check_some_users_shared(parts["train"], parts["test"])
    parts, remarks = _without_overlap(parts, overlap)
    train, test, valid = parts["train"], parts["test"], parts.get("valid")
    if holdout:
        in_valid = _draw_share(np.ones(len(train), dtype=bool), holdout, draw_key(seed, "valid"))
        train, valid = train.take(~in_valid), train.take(in_valid)
    recipe = f"given(holdout={holdout}, seed={seed})" if holdout else "given()"
    return Split(train, valid, test, recipe, remarks)


# Recipes that turn one Interactions into one Split, by the name with which `Split.recipe` begins.
SPLITS: dict[str, Callable[..., Split]] = {
    "random": split_random,
    "random_per_user": split_random_per_user,
    "leave_last_out": split_leave_last_out,
    "temporal": split_temporal,
}


def last_of_each_user(interactions: Interactions, share: float, seed: int) -> Mask:
    """The latest min(⌊n·share + ½⌋, n-1) of every user's n pairs; equal times are in a random order."""
    n = interactions.user_counts
    held_out = _at_most_all_but_one(_share_of(n, share), n)
    ties = random_bits(draw_key(seed, "ties"), len(interactions))
    position = _position_in_user(interactions, ties, _times(interactions, "hold_out = 'last'"))
    return position >= (n - held_out)[interactions.users]


# --- assignment ------------------------------------------------------------------------------------


def _split(
    whole: Interactions, in_test: Mask, in_valid: Mask | None, recipe: str, remarks: tuple[str, ...] = ()
) -> Split:
    in_train = ~in_test if in_valid is None else ~in_test & ~in_valid
    valid = None if in_valid is None else whole.take(in_valid)
    return Split(whole.take(in_train), valid, whole.take(in_test), recipe, remarks)


def _split_by_position(
    whole: Interactions,
    position: Codes,
    n_test: Codes,
    n_valid: Codes | None,
    recipe: str,
    remarks: tuple[str, ...],
) -> Split:
    """The first `n_test` positions of each user are the test part, the next `n_valid` the validation part."""
    in_test = position < n_test[whole.users]
    in_valid = None if n_valid is None else ~in_test & (position < (n_test + n_valid)[whole.users])
    return _split(whole, in_test, in_valid, recipe, remarks)


def draw_key(seed: int, draw: str, fold: int = 0) -> int:
    """The key of the random numbers of a draw."""
    # The name keeps other parts of the library with the same seed from drawing the same numbers.
    return stream_key(seed, int.from_bytes(b"split", "big"), int.from_bytes(draw.encode(), "big"), fold)


def _share_of(n: Codes, share: float) -> Codes:
    counts: Codes = np.floor(n * share + 0.5).astype(np.int64)
    return counts


def _at_most_all_but_one(wanted: Codes, n: Codes) -> Codes:
    return np.minimum(wanted, np.maximum(n - 1, 0))


def _draw_share(among: Mask, share: float, key: int) -> Mask:
    """A random `share` of the rows where `among` is True."""
    rows = np.flatnonzero(among)
    chosen = np.zeros_like(among)
    chosen[rows[random_order(key, len(rows))[: int(len(rows) * share + 0.5)]]] = True
    return chosen


def _position_in_user(whole: Interactions, ties: npt.NDArray[np.uint64], time: Values | None = None) -> Codes:
    """Each row's position 0 … n_u - 1 among its user's rows, ordered by time (if given), then by `ties`."""
    # Rows are sorted by user, so sorting by user again only permutes rows within each user's block.
    order = np.lexsort((ties, whole.users) if time is None else (ties, time, whole.users))
    position = np.empty(len(whole), dtype=np.int64)
    position[order] = np.arange(len(whole)) - whole.indptr[whole.users]
    return position


def _latest(time: Values, among: Mask, share: float) -> Mask:
    """The latest `share` of the rows where `among` is True, including all ties of the earliest time."""
    ordered = np.sort(time[among])
    wanted = int(len(ordered) * share + 0.5)
    return among & (time >= ordered[-wanted]) if wanted else np.zeros_like(among)


def _since(time: Values, at: float) -> Mask:
    span = f"; it ranges from {time.min()} to {time.max()}" if len(time) else ""
    check_number("at", at, remedy=f"Give it in the unit of the time column{span}.")
    return time >= at  # not the checked float, which cannot represent every integer of nanoseconds


def _times(interactions: Interactions, who: str) -> Values:
    if interactions.time is None:
        raise InputError(
            f"{who} needs the time of each pair, but there is no time column; read one with time=…, or pass "
            "chronological=True if the rows are in order of time."
        )
    return interactions.time


def clock_times(interactions: Interactions, who: str) -> Values:
    """The times, if they compare pairs of different users; else an error in the name of `who`."""
    time = _times(interactions, who)
    if interactions.time_kind == "order":
        raise InputError(
            f"{who} compares the times of different users, but here a time is a position in a user's own "
            "history; hold out the last pairs of each user instead, or read a time column."
        )
    return time


# --- parts with ids of their own -------------------------------------------------------------------


def _with_common_ids(parts: dict[str, Interactions]) -> dict[str, Interactions]:
    """The parts, recoded to the users and items of all of them."""
    users, items = parts["train"].user_ids, parts["train"].item_ids
    for part in parts.values():
        users, items = users.union(part.user_ids, "user"), items.union(part.item_ids, "item")
    return {name: _recode(part, users, items) for name, part in parts.items()}


def _recode(part: Interactions, user_ids: IdMap, item_ids: IdMap) -> Interactions:
    if part.user_ids is user_ids and part.item_ids is item_ids:
        return part
    users, items = user_ids.find(part.user_ids, "user"), item_ids.find(part.item_ids, "item")
    return replace(
        part,
        users=users[part.users],
        items=items[part.items],
        user_ids=user_ids,
        item_ids=item_ids,
        disliked=part.recoded_dislikes(users, items, len(item_ids)),
    )


def _without_overlap(
    parts: dict[str, Interactions], overlap: str
) -> tuple[dict[str, Interactions], tuple[str, ...]]:
    """Each part without the pairs of the parts before it, and notes on the dropped pairs."""
    kept: dict[str, Interactions] = {}
    notes: list[str] = []
    for name, part in parts.items():
        for other, other_part in kept.items():
            shared = other_part.has(part.users, part.items)
            note = counted_note(int(shared.sum()), f"{name} pair", f"also in {other}")
            if note and overlap == "error":
                raise InputError(f"{note[0]}; pass overlap='drop' to drop them from {name}.")
            notes += [f"{text}: dropped from {name}" for text in note]
            part = part.take(~shared)
        kept[name] = part
    return kept, tuple(notes)


# --- notes -----------------------------------------------------------------------------------------


def _single_pair_note(n: Codes) -> tuple[str, ...]:
    return counted_note(int((n == 1).sum()), "user", "with a single pair, which stays in train")


def _size_note(name: str, rows: Mask, n: int, share: float) -> tuple[str, ...]:
    got, wanted = int(rows.sum()), int(n * share + 0.5)
    return (
        counted_note(got, f"{name} pair", f"instead of {wanted:,}: equal times stay together")
        if got > wanted
        else ()
    )


# --- checks ----------------------------------------------------------------------------------------


def check_shares(test: float, valid: float, seed: int) -> tuple[float, float, int]:
    """The options of `split_random`, checked."""
    return _check_test(test), _check_valid(valid), _check_seed(seed)


def _check_test(share: float) -> float:
    remedy = "It is the share of all pairs that becomes the test part."
    return check_number("test", share, 0, 1, open_low=True, open_high=True, remedy=remedy)


def _check_valid(share: float, name: str = "valid") -> float:
    remedy = "It is the share of train pairs that becomes the validation part; 0 means none."
    return check_number(name, share, 0, 1, open_high=True, remedy=remedy)


def _check_seed(seed: int) -> int:
    return check_whole("seed", seed, 0, 2**63 - 1)


def _check_some_users_shared(train: Interactions, test: Interactions) -> None:
    shared = (train.user_counts > 0) & (test.user_counts > 0)
    if len(train) and len(test) and not shared.any():
        train_users, test_users = (_examples(part) for part in (train, test))
        raise InputError(
            f"no user of test ({test_users}) occurs in train ({train_users}); use the same ids in both. "
            "Check that both files were read with the same user column and the same numbering."
        )


def _examples(part: Interactions) -> str:
    users = np.unique(part.users)
    ids = part.user_ids.outside(users[:3]).to_pylist()
    return ", ".join(map(repr, ids)) + (", …" if len(users) > 3 else "")
