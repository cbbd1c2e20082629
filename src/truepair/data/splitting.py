"""Recipes: interactions -> Split(train, valid, test).

Validation is always carved out of train, so the test part is the same whatever `valid` is, and nothing
that is chosen can have seen it. Every draw is a counter-based random number over the canonical row
order: the same interactions and seed give the same split on every machine.
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

    Sizes are ⌊n·share + ½⌋. A user may end up with nothing in train; the notes count them.

    >>> split_random(Interactions(np.arange(10), np.arange(10), IdMap.range(10), IdMap.range(10)), valid=0.5)
    <Split random(test=0.2, valid=0.5, seed=0): 10 users x 10 items, pairs: train 4, valid 4, test 2
      note: 4 valid pairs of 4 items never seen in train
      note: 4 valid users with nothing in train (4 pairs)
      note: 2 test pairs of 2 items never seen in train
      note: 2 test users with nothing in train (2 pairs)>
    """
    test, valid, seed = _check_test(test), _check_valid(valid), _check_seed(seed)
    in_test = _drawn(np.ones(len(interactions), dtype=bool), test, _key(seed, "test"))
    in_valid = _drawn(~in_test, valid, _key(seed, "valid"))
    recipe = f"random(test={test}, valid={valid}, seed={seed})"
    return _split(interactions, in_test, in_valid if valid else None, recipe)


def split_random_per_user(
    interactions: Interactions, test: float = 0.2, valid: float = 0.0, seed: int = 0
) -> Split:
    """A random share `test` of every user's pairs, then a share `valid` of those that remain in train.

    A user with n pairs gives min(⌊n·test + ½⌋, n-1) of them to test, and of the m that remain
    min(⌊m·valid + ½⌋, m-1) to validation: everyone keeps at least one in train. Nobody is forced to
    give one, as that would hold out half of the pairs of a user with two; the notes count those without.
    """
    test, valid, seed = _check_test(test), _check_valid(valid), _check_seed(seed)
    n = interactions.user_counts
    n_test = _at_most_all_but_one(_share_of(n, test), n)
    n_valid = _at_most_all_but_one(_share_of(n - n_test, valid), n - n_test)
    place = _place_in_user(interactions, random_bits(_key(seed, "test"), len(interactions)))
    recipe = f"random_per_user(test={test}, valid={valid}, seed={seed})"
    none = int(((n > 1) & (n_test == 0)).sum())
    remarks = (*_singles(n), *counted_note(none, "user", "with too few pairs to give one to test"))
    return _split_by_place(interactions, place, n_test, n_valid if valid else None, recipe, remarks)


def split_leave_last_out(interactions: Interactions, last: int = 1, valid: int = 0, seed: int = 0) -> Split:
    """Every user's `last` latest pairs are test, the `valid` ones just before them validation.

    `last` and `valid` count pairs. Everyone keeps at least the earliest pair in train, so a user with
    fewer pairs gives fewer, to test first. Equal times are put in a random order that the seed fixes.
    """
    last, seed = check_whole("last", last, 1), _check_seed(seed)
    valid = check_whole("valid", valid, 0, remedy="Here it counts a user's pairs; it is no share.")
    n = interactions.user_counts
    n_test = _at_most_all_but_one(np.full_like(n, last), n)
    n_valid = _at_most_all_but_one(np.full_like(n, valid), n - n_test)
    ties = random_bits(_key(seed, "ties"), len(interactions))
    place = _place_in_user(interactions, ties, _times(interactions, "split_leave_last_out"))
    from_the_end = (n - 1)[interactions.users] - place
    recipe = f"leave_last_out(last={last}, valid={valid}, seed={seed})"
    short = int(((n > 1) & (n_test + n_valid < last + valid)).sum())
    remarks = (
        *_singles(n),
        *counted_note(short, "user", f"with too few pairs to give {last + valid} and keep one"),
    )
    return _split_by_place(interactions, from_the_end, n_test, n_valid if valid else None, recipe, remarks)


def split_temporal(
    interactions: Interactions, test: float | None = None, valid: float = 0.0, at: float | None = None
) -> Split:
    """Train on what came before a moment, test on what came at that moment or later.

    Give the moment as `at`, or the share `test` (0.2 if neither is given): the cut is then the time of
    the ⌊n·test + ½⌋-th latest of the n pairs. Pairs of equal time stay together, on the later side of
    the cut, so a part may be larger than asked; the notes say so. `valid` is the latest share of the
    *remaining* train pairs, cut in the same way.
    """
    if at is not None and test is not None:
        raise InputError(f"test = {test!r} and at = {at!r} both say where to cut; give one of them.")
    share, valid = _check_test(0.2 if test is None else test), _check_valid(valid)
    time = _times(interactions, "split_temporal")
    in_test = _latest(time, np.ones(len(time), dtype=bool), share) if at is None else _since(time, at)
    in_valid = _latest(time, ~in_test, valid)
    test_remarks = _enlarged("test", in_test, len(time), share) if at is None else ()
    remarks = (*test_remarks, *_enlarged("valid", in_valid, int((~in_test).sum()), valid))
    recipe = f"temporal({f'test={share}' if at is None else f'at={at}'}, valid={valid})"
    return _split(interactions, in_test, in_valid if valid else None, recipe, remarks)


def k_folds(interactions: Interactions, k: int = 5, valid: float = 0.0, seed: int = 0) -> list[Split]:
    """k splits whose test parts are a random partition of all pairs, with sizes that differ by 1 at most.

    `valid` is a random share of each split's remaining train pairs.
    """
    n, valid, seed = len(interactions), _check_valid(valid), _check_seed(seed)
    k = check_whole("k", k, 2, max(n, 2), f"There are {n:,} pairs, and each fold needs one.")
    fold_of = np.empty(n, dtype=np.int64)
    fold_of[random_order(_key(seed, "test"), n)] = np.arange(n) % k
    return [
        _split(
            interactions,
            fold_of == fold,
            _drawn(fold_of != fold, valid, _key(seed, "valid", fold)) if valid else None,
            f"k_folds(k={k}, valid={valid}, seed={seed})[{fold}]",
        )
        for fold in range(k)
    ]


def split_given(
    train: Interactions,
    test: Interactions,
    valid: Interactions | None = None,
    carve: float = 0.0,
    seed: int = 0,
    overlap: str = "error",
) -> Split:
    """A split that exists already, as files often do; the parts' own ids are united.

    Without a given `valid`, a random share `carve` of the train pairs can become one. A pair that two
    parts share is an error, or with `overlap="drop"` stays in train only (in test only, if it is in
    valid and test).
    """
    carve, seed = _check_valid(carve, "carve"), _check_seed(seed)
    check_choice("overlap", overlap, ("error", "drop"))
    if valid is not None and carve:
        raise InputError(f"carve = {carve} makes a validation part, but `valid` is given; leave one out.")
    parts = _united({"train": train, "test": test} | ({} if valid is None else {"valid": valid}))
    _check_some_users_shared(parts["train"], parts["test"])
    parts, remarks = _apart(parts, overlap)
    train, test, valid = parts["train"], parts["test"], parts.get("valid")
    if carve:
        in_valid = _drawn(np.ones(len(train), dtype=bool), carve, _key(seed, "valid"))
        train, valid = train.take(~in_valid), train.take(in_valid)
    recipe = f"given(carve={carve}, seed={seed})" if carve else "given()"
    return Split(train, valid, test, recipe, remarks)


# The recipes that make one Split of one Interactions, by the name that their `Split.recipe` begins with.
SPLITS: dict[str, Callable[..., Split]] = {
    "random": split_random,
    "random_per_user": split_random_per_user,
    "leave_last_out": split_leave_last_out,
    "temporal": split_temporal,
}


# --- who goes where --------------------------------------------------------------------------------


def _split(
    whole: Interactions, in_test: Mask, in_valid: Mask | None, recipe: str, remarks: tuple[str, ...] = ()
) -> Split:
    in_train = ~in_test if in_valid is None else ~in_test & ~in_valid
    valid = None if in_valid is None else whole.take(in_valid)
    return Split(whole.take(in_train), valid, whole.take(in_test), recipe, remarks)


def _split_by_place(
    whole: Interactions,
    place: Codes,
    n_test: Codes,
    n_valid: Codes | None,
    recipe: str,
    remarks: tuple[str, ...],
) -> Split:
    """The first `n_test` places of each user are test, the next `n_valid` validation."""
    in_test = place < n_test[whole.users]
    in_valid = None if n_valid is None else ~in_test & (place < (n_test + n_valid)[whole.users])
    return _split(whole, in_test, in_valid, recipe, remarks)


def _key(seed: int, draw: str, fold: int = 0) -> int:
    # Named, so that no other part of the library with the same seed draws the same numbers.
    return stream_key(seed, int.from_bytes(b"split", "big"), int.from_bytes(draw.encode(), "big"), fold)


def _share_of(n: Codes, share: float) -> Codes:
    counts: Codes = np.floor(n * share + 0.5).astype(np.int64)
    return counts


def _at_most_all_but_one(wanted: Codes, n: Codes) -> Codes:
    return np.minimum(wanted, np.maximum(n - 1, 0))


def _drawn(among: Mask, share: float, key: int) -> Mask:
    """A random `share` of the rows where `among` holds."""
    rows = np.flatnonzero(among)
    chosen = np.zeros_like(among)
    chosen[rows[random_order(key, len(rows))[: int(len(rows) * share + 0.5)]]] = True
    return chosen


def _place_in_user(whole: Interactions, ties: npt.NDArray[np.uint64], time: Values | None = None) -> Codes:
    """Each row's place 0 … n_u - 1 among the rows of its user, by time if given, then by `ties`."""
    # Rows are sorted by user, so sorting by user again only permutes rows within each user's block.
    order = np.lexsort((ties, whole.users) if time is None else (ties, time, whole.users))
    place = np.empty(len(whole), dtype=np.int64)
    place[order] = np.arange(len(whole)) - whole.indptr[whole.users]
    return place


def _latest(time: Values, among: Mask, share: float) -> Mask:
    """The latest `share` of the rows where `among` holds, with all rows of the earliest time it takes."""
    ordered = np.sort(time[among])
    wanted = int(len(ordered) * share + 0.5)
    return among & (time >= ordered[-wanted]) if wanted else np.zeros_like(among)


def _since(time: Values, at: float) -> Mask:
    span = f"; this column's runs from {time.min()} to {time.max()}" if len(time) else ""
    check_number("at", at, remedy=f"Give it in the unit of the time column{span}.")
    return time >= at  # not the checked float: a whole number of nanoseconds does not fit in one


def _times(interactions: Interactions, who: str) -> Values:
    if interactions.time is None:
        raise InputError(f"{who} needs the time of each pair, and there is none; read a time column first.")
    return interactions.time


# --- parts that come with their own ids ------------------------------------------------------------


def _united(parts: dict[str, Interactions]) -> dict[str, Interactions]:
    """The same pairs over the users and items of all parts."""
    users, items = parts["train"].user_ids, parts["train"].item_ids
    for part in parts.values():
        users, items = users.union(part.user_ids, "user"), items.union(part.item_ids, "item")
    return {name: _recoded(part, users, items) for name, part in parts.items()}


def _recoded(part: Interactions, user_ids: IdMap, item_ids: IdMap) -> Interactions:
    users = user_ids.find(part.user_ids, "user")[part.users]
    items = item_ids.find(part.item_ids, "item")[part.items]
    return replace(part, users=users, items=items, user_ids=user_ids, item_ids=item_ids)


def _apart(parts: dict[str, Interactions], overlap: str) -> tuple[dict[str, Interactions], tuple[str, ...]]:
    """Each part without the pairs of the parts before it, and a note on what that dropped."""
    kept: dict[str, Interactions] = {}
    notes: list[str] = []
    for name, part in parts.items():
        for other, theirs in kept.items():
            shared = theirs.has(part.users, part.items)
            note = counted_note(int(shared.sum()), f"{name} pair", f"also in {other}")
            if note and overlap == "error":
                raise InputError(f"{note[0]}; give overlap='drop' to drop them from {name}.")
            notes += [f"{text}: dropped from {name}" for text in note]
            part = part.take(~shared)
        kept[name] = part
    return kept, tuple(notes)


# --- notes -----------------------------------------------------------------------------------------


def _singles(n: Codes) -> tuple[str, ...]:
    return counted_note(int((n == 1).sum()), "user", "with a single pair, kept in train")


def _enlarged(name: str, rows: Mask, n: int, share: float) -> tuple[str, ...]:
    got, wanted = int(rows.sum()), int(n * share + 0.5)
    return (
        counted_note(got, f"{name} pair", f"instead of {wanted:,}: equal times stay together")
        if got > wanted
        else ()
    )


# --- checks ----------------------------------------------------------------------------------------


def _check_test(share: float) -> float:
    remedy = "It is the share of the pairs to test on."
    return check_number("test", share, 0, 1, open_low=True, open_high=True, remedy=remedy)


def _check_valid(share: float, name: str = "valid") -> float:
    remedy = "It is the share of the train pairs to validate on, 0 for none."
    return check_number(name, share, 0, 1, open_high=True, remedy=remedy)


def _check_seed(seed: int) -> int:
    return check_whole("seed", seed, 0, 2**63 - 1)


def _check_some_users_shared(train: Interactions, test: Interactions) -> None:
    shared = (train.user_counts > 0) & (test.user_counts > 0)
    if len(train) and len(test) and not shared.any():
        ours, theirs = (_examples(part) for part in (train, test))
        raise InputError(
            f"no user of test ({theirs}) occurs in train ({ours}); use the same ids in both, "
            "e.g. check that both files were read with the same user column and the same numbering."
        )


def _examples(part: Interactions) -> str:
    users = np.unique(part.users)
    ids = part.user_ids.outside(users[:3]).to_pylist()
    return ", ".join(map(repr, ids)) + (", …" if len(users) > 3 else "")
