"""Recipes: interactions -> Split(train, valid, test).

Validation pairs are always held out from train. The test part therefore does not depend on `valid`, and no
choice made on validation can have used it. Draws are counter-based random numbers over the canonical order
of rows: the same interactions and seed give the same split on every machine.

Recipes that compare times cut the log of events. The train part has the pairs of the events before the cut,
merged and weighted as of then. A held-out pair has its first like at the cut or later: what a user likes
again is not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np

from truepair.data.durations import moment_in
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions, Origin
from truepair.data.log import Log, Mask, Values, positions
from truepair.data.rows.pairs import interactions_of
from truepair.data.split import Split, counted_note
from truepair.errors import InputError, check_choice, check_number, check_whole
from truepair.randomness import random_bits, random_order, stream_key
from truepair.storage.types import Array

_MOST_SEED = 2**63 - 1

# --- recipes ---------------------------------------------------------------------------------------


def split_random(interactions: Interactions, test: float = 0.2, valid: float = 0.0, seed: int = 0) -> Split:
    """A random share `test` of all n pairs, then a share `valid` of the *remaining* train pairs.

    Sizes are ⌊n·share + ½⌋. A user may have no pair left in train; the notes count such users.

    >>> from truepair.data.ids import IdMap
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
    test, valid, seed = check_shares(test, valid, seed)
    n = interactions.user_counts
    n_test = last_counts(n, test)
    n_valid = last_counts(n - n_test, valid)
    position = positions(interactions.users, random_bits(draw_key(seed, "test"), len(interactions)))
    recipe = f"random_per_user(test={test}, valid={valid}, seed={seed})"
    none = int(((n > 1) & (n_test == 0)).sum())
    remarks = (*_single_pair_note(n), *counted_note(none, "user", "with too few pairs to have one in test"))
    return _split_by_position(interactions, position, n_test, n_valid if valid else None, recipe, remarks)


def split_leave_last_out(interactions: Interactions, last: int = 1, valid: int = 0, seed: int = 0) -> Split:
    """Each user's `last` latest pairs are the test part, the `valid` pairs before them the validation part.

    `last` and `valid` count pairs, of which repeated events make one, at the time of the first like. Every
    user keeps at least the earliest pair in train; a user with few pairs has fewer in validation, then in
    test. Pairs of equal time are in the order of the source; where that is not known, in a random order fixed
    by the seed. Later events of pairs in train are not judged; the notes count them.
    """
    last, seed = check_whole("last", last, 1), check_whole("seed", seed, 0, _MOST_SEED)
    valid = check_whole("valid", valid, 0, remedy="Here it is a number of pairs per user, not a share.")
    recipe = f"leave_last_out(last={last}, valid={valid}, seed={seed})"
    time, log = _times(interactions, "split_leave_last_out"), interactions.stored_log
    n = interactions.user_counts if log is None else _new_pairs(log)
    n_test = _at_most_all_but_one(last, n)
    n_valid = _at_most_all_but_one(valid, n - n_test)
    short = int(((n > 1) & (n_test + n_valid < last + valid)).sum())
    remarks = (
        *_single_pair_note(n),
        *counted_note(short, "user", f"with too few pairs to hold out {last + valid} and keep one in train"),
    )
    if log is not None:
        in_test = _last_events(log, n_test)
        in_valid = _last_events(log, n_test + n_valid) & ~in_test if valid else None
        return cut_log(interactions, log, in_test, in_valid, recipe, remarks)
    place = positions(interactions.users, _ties(interactions, seed), time)
    from_the_end = (n - 1)[interactions.users] - place
    return _split_by_position(interactions, from_the_end, n_test, n_valid if valid else None, recipe, remarks)


def split_temporal(
    interactions: Interactions,
    test: float | None = None,
    valid: float = 0.0,
    at: float | str | date | None = None,
) -> Split:
    """Train on events before a point in time, test on pairs whose first like is at that time or later.

    Give the time as `at`, a date such as "2024-06-15" (in UTC) or a number in the unit of the times, or the
    share `test` (0.2 if neither is given): the split is then at the time of the ⌊n·test + ½⌋-th latest of the
    n likes, repeats included. Events of equal time stay together in the later part, which may thus be larger
    than requested; the notes say so. `valid` is the latest share of the *remaining* likes, selected in the
    same way. A pair that is liked before a cut and again after it stays in the earlier part, as of the cut:
    the later events are not judged, and the notes count them.
    """
    if at is not None and test is not None:
        raise InputError(f"test = {test!r} and at = {at!r} both say where to split; pass one of them.")
    share, valid, _ = check_shares(0.2 if test is None else test, valid)
    time, log = clock_times(interactions, "split_temporal"), interactions.stored_log
    likes = np.ones(len(time), dtype=bool)
    if log is not None:
        time, likes = np.asarray(log.time), log.liked
    moment = moment_in("at", at, interactions)
    in_test = _latest(time, likes, share) if moment is None else _since(time, moment)
    in_valid = _latest(time, likes & ~in_test, valid) & ~in_test
    wanted = int(likes.sum()), int((likes & ~in_test).sum())
    test_remarks = _size_note("test", likes & in_test, wanted[0], share) if at is None else ()
    remarks = (*test_remarks, *_size_note("valid", likes & in_valid, wanted[1], valid))
    recipe = f"temporal({f'test={share}' if at is None else f'at={at!r}'}, valid={valid})"
    if log is not None:
        return cut_log(interactions, log, in_test, in_valid if valid else None, recipe, remarks)
    return _split(interactions, in_test, in_valid if valid else None, recipe, remarks)


def k_folds(interactions: Interactions, k: int = 5, valid: float = 0.0, seed: int = 0) -> list[Split]:
    """k splits whose test parts are a random partition of all pairs; their sizes differ by at most 1.

    `valid` is a random share of each split's remaining train pairs.
    """
    n, valid, seed = len(interactions), _check_valid(valid), check_whole("seed", seed, 0, _MOST_SEED)
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
    holdout, seed = _check_valid(holdout, "holdout"), check_whole("seed", seed, 0, _MOST_SEED)
    check_choice("overlap", overlap, ("error", "drop"))
    if valid is not None and holdout:
        raise InputError(f"holdout = {holdout} makes a validation part, and `valid` is given; pass one.")
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


def later_pairs(interactions: Interactions, how: str, share: float, seed: int) -> Mask:
    """The pairs that a hold-out takes: a "random" share; those of the latest "time", for all users;
    or ("last") the latest min(⌊n·share + ½⌋, n-1) of every user's n pairs, of which equal times are in
    the order of the source, or in a random one where that is not known."""
    if how == "random":
        return _draw_share(np.ones(len(interactions), dtype=bool), share, draw_key(seed, "test"))
    time, n = _times(interactions, f"hold_out = {how!r}"), interactions.user_counts
    if how == "time":
        return _latest(time, np.ones(len(time), dtype=bool), share)
    position = positions(interactions.users, _ties(interactions, seed), time)
    return position >= (n - last_counts(n, share))[interactions.users]


def last_counts(n: Codes, share: float) -> Codes:
    """How many of each user's n pairs are the last ones: min(⌊n·share + ½⌋, n-1)."""
    return _at_most_all_but_one(np.floor(n * share + 0.5).astype(np.int64), n)


def later_events(log: Log, how: str, share: float) -> Mask:
    """The events from a cut on: that before the last of each user's new pairs, or ("time") one for all."""
    if how == "time":
        return _latest(np.asarray(log.time), log.liked, share)
    return _last_events(log, last_counts(_new_pairs(log), share))


# --- assignment ------------------------------------------------------------------------------------


def _split(
    whole: Interactions, in_test: Mask, in_valid: Mask | None, recipe: str, remarks: tuple[str, ...] = ()
) -> Split:
    in_train = ~in_test if in_valid is None else ~in_test & ~in_valid
    valid = None if in_valid is None else whole.take(in_valid)
    return Split(whole.take(in_train), valid, whole.take(in_test), recipe, remarks)


def cut_log(
    whole: Interactions,
    log: Log,
    in_test: Mask,
    in_valid: Mask | None,
    recipe: str,
    remarks: tuple[str, ...] = (),
) -> Split:
    """The split of a log at the events of test, and before them at those of validation.

    The log of a held-out part has all events from its cut on; those of its own pairs are in its `log`.
    """
    learnt = ~in_test if in_valid is None else ~in_test & ~in_valid
    test, again = _new_part(whole, log, ~in_test, in_test)
    valid, valid_again = (None, 0) if in_valid is None else _new_part(whole, log, learnt, in_valid)
    notes = counted_note(again + valid_again, "later event", "of pairs that were liked before: not judged")
    train = interactions_of(log.take(learnt), whole.history)
    return Split(train, valid, test, recipe, (*remarks, *notes))


def _new_part(whole: Interactions, log: Log, earlier: Mask, later: Mask) -> tuple[Interactions, int]:
    """The pairs of later events without an earlier like, and the number of later likes of other pairs."""
    new = later & ~earlier[log.first_like]
    found = interactions_of(log.take(new), whole.history)
    return found.made_from(Origin(log.policy, log.take(later))), int((later & ~new & log.liked).sum())


def _new_pairs(log: Log) -> Codes:
    """The number of distinct pairs that each user likes."""
    return np.bincount(log.users[log.is_first_like], minlength=len(log.user_ids))


def _last_events(log: Log, n: Codes) -> Mask:
    """Each user's events from the first like of the n-th last new pair on."""
    firsts = np.flatnonzero(log.is_first_like)
    ends = np.cumsum(_new_pairs(log))
    starts = np.append(firsts, len(log))[np.where(n > 0, ends - n, len(firsts))]
    return np.asarray(np.arange(len(log)) >= starts[log.users])


def _ties(interactions: Interactions, seed: int) -> Array:
    """The order of pairs of equal time: that of the source, or a random one if it is not known."""
    known = interactions.origin.places
    return random_bits(draw_key(seed, "ties"), len(interactions)) if known is None else known


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


def _at_most_all_but_one(wanted: Codes | int, n: Codes) -> Codes:
    return np.minimum(wanted, np.maximum(n - 1, 0))


def _draw_share(among: Mask, share: float, key: int) -> Mask:
    """A random `share` of the rows where `among` is True."""
    rows = np.flatnonzero(among)
    chosen = np.zeros_like(among)
    chosen[rows[random_order(key, len(rows))[: int(len(rows) * share + 0.5)]]] = True
    return chosen


def _latest(time: Values, among: Mask, share: float) -> Mask:
    """The rows from the time on that begins the latest `share` of those where `among` is True."""
    ordered = np.sort(time[among])
    wanted = int(len(ordered) * share + 0.5)
    return time >= ordered[-wanted] if wanted else np.zeros_like(among)


def _since(time: Values, at: Any) -> Mask:
    span = f"; it ranges from {time.min()} to {time.max()}" if len(time) else ""
    check_number("at", at, remedy=f"Give a date, or a number in the unit of the time column{span}.")
    later: Mask = time >= at  # not the checked float, which cannot represent every integer of nanoseconds
    return later


def _times(interactions: Interactions, who: str) -> Values:
    if interactions.time is None:
        raise InputError(f"{who} needs the time of each pair; read time=…, or pass chronological=True.")
    return interactions.time


def clock_times(interactions: Interactions, who: str) -> Values:
    """The times, if they compare pairs of different users; else an error in the name of `who`."""
    time = _times(interactions, who)
    if interactions.time_kind == "order":
        raise InputError(
            f"{who} compares the times of different users, not places in histories; read a time column."
        )
    return time


# --- parts with ids of their own -------------------------------------------------------------------


def _with_common_ids(parts: dict[str, Interactions]) -> dict[str, Interactions]:
    """The parts, recoded to the users and items of all of them."""
    users, items = parts["train"].user_ids, parts["train"].item_ids
    for part in parts.values():
        users, items = users.union(part.user_ids, "user"), items.union(part.item_ids, "item")
    return {name: part.among(users, items) for name, part in parts.items()}


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
    note = counted_note(got, f"{name} pair", f"instead of {wanted:,}: equal times stay together")
    return note if got > wanted else ()


# --- checks ----------------------------------------------------------------------------------------


def check_shares(test: float, valid: float, seed: int = 0) -> tuple[float, float, int]:
    """The options of `split_random`, checked."""
    remedy = "It is the share of all pairs that becomes the test part."
    test = check_number("test", test, 0, 1, open_low=True, open_high=True, remedy=remedy)
    return test, _check_valid(valid), check_whole("seed", seed, 0, _MOST_SEED)


def _check_valid(share: float, name: str = "valid") -> float:
    remedy = "It is the share of train pairs that becomes the validation part; 0 means none."
    return check_number(name, share, 0, 1, open_high=True, remedy=remedy)


def _check_some_users_shared(train: Interactions, test: Interactions) -> None:
    shared = (train.user_counts > 0) & (test.user_counts > 0)
    if len(train) and len(test) and not shared.any():
        train_users, test_users = (_examples(part) for part in (train, test))
        raise InputError(
            f"no user of test ({test_users}) is in train ({train_users}); use the same ids in both."
        )


def _examples(part: Interactions) -> str:
    users = np.unique(part.users)
    ids = part.user_ids.outside(users[:3]).to_pylist()
    return ", ".join(map(repr, ids)) + (", …" if len(users) > 3 else "")
