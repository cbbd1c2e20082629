"""The hold-out: which pairs a recommender learns from, and which choose the epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from truepair.data.ids import pair_keys
from truepair.data.interactions import Interactions, Origin, without_columns
from truepair.data.log import Log, joined_log
from truepair.data.prepared.opening import is_prepared, open_prepared
from truepair.data.reading import read_interactions
from truepair.data.rows.options import RULES, ReadOptions
from truepair.data.rows.pairs import interactions_of
from truepair.data.split import Split, disjoint_split
from truepair.data.split_recipes import cut_log, last_counts, later_events, later_pairs, split_given
from truepair.errors import InputError, check_choice, check_number, check_whole
from truepair.spec import HOLD_OUTS
from truepair.storage.types import Array, Json, Source


def hold_out(interactions: Interactions, how: str = "auto", share: float = 0.1, seed: int = 0) -> Split:
    """A split whose validation part is about the share `share` of the pairs; its test part is empty.

    how     "random": a random share of all pairs
            "last": the latest min(⌊n·share + ½⌋, n-1) of each user's n pairs
            "time": all pairs at or after the time that leaves this share; times of all users are compared
            Both cut the log of events: a held-out pair has its first like at the cut or later, and train has
            the pairs of the events before it.
            "auto": "last" where the pairs of most users have more than one time, and users have enough pairs
            for half of the share at least; else "random"

    Pairs whose user or item would have no pair left to learn from stay in train. The seed decides the random
    share, and the order of equal times where that of the source is not known.
    """
    check_number("share", share, 0, 1, open_low=True, open_high=True)
    seed = check_whole("seed", seed, 0, 2**63 - 1)
    how = resolved(interactions, how, share)
    if how == "time" and interactions.time_kind == "order":
        raise InputError(
            "hold_out = 'time' compares times of users, and here they are positions; use hold_out='last'."
        )
    recipe = f"hold_out(how={how!r}, share={share}, seed={seed})"
    if how != "random" and interactions.time is not None and interactions.stored_log is not None:
        return _hold_out_events(interactions, interactions.stored_log, how, share, recipe)
    held_out = later_pairs(interactions, how, share, seed)
    users = np.bincount(interactions.users[~held_out], minlength=interactions.n_users)
    items = np.bincount(interactions.items[~held_out], minlength=interactions.n_items)
    held_out = held_out & (users[interactions.users] > 0) & (items[interactions.items] > 0)
    if not held_out.any():
        raise _nothing_held_out(interactions, how, share)
    nothing = interactions.take(np.zeros(len(interactions), dtype=bool))
    return disjoint_split(interactions.take(~held_out), interactions.take(held_out), nothing, recipe)


def _hold_out_events(interactions: Interactions, log: Log, how: str, share: float, recipe: str) -> Split:
    """The hold-out of a log; all events of a pair that has to stay in train are learnt from."""
    later = later_events(log, how, share)
    train, valid = (interactions_of(log.take(rows)) for rows in (~later, later))
    isolated = (train.user_counts[valid.users] == 0) | (train.item_counts[valid.items] == 0)
    later &= ~np.isin(log.keys, valid.keys[isolated])
    made = cut_log(interactions, log, np.zeros(len(log), dtype=bool), later, recipe)
    if not len(made.valid or ()):
        raise _nothing_held_out(interactions, how, share)
    return made


def _nothing_held_out(interactions: Interactions, how: str, share: float) -> InputError:
    what = f"hold_out = {how!r} with validation = {share} of {len(interactions)} pairs"
    return InputError(f"{what} is none that can be held out; use validation=0.")


def resolved(interactions: Interactions, how: str, share: float) -> str:
    """`how`, with "last" or "random" for "auto"."""
    if check_choice("hold_out", how, HOLD_OUTS) != "auto":
        return how
    if not _most_users_have_times(interactions):
        return "random"
    enough = last_counts(interactions.user_counts, share).sum() / len(interactions) >= share / 2
    return "last" if enough else "random"


def like_test(split: Split) -> str:
    """How to hold out validation pairs of the train part so that they are like the test part.

    This goes by the recipe of the split and the kind of times that train has, never by the test part itself.
    """
    recipe = split.recipe.partition("(")[0]
    if recipe in ("random", "random_per_user", "k_folds"):
        return "random"
    if split.train.time is None or (recipe == "temporal" and split.train.time_kind == "order"):
        return "auto"
    return {"leave_last_out": "last", "temporal": "time"}.get(recipe, "auto")


def cut_in_time(split: Split) -> float | None:
    """The moment at which the validation part begins, if it is where the times of all users were cut."""
    is_cut = split.recipe.startswith("temporal(") or "hold_out(how='time'" in split.recipe
    if not is_cut or split.valid is None or split.valid.time is None:
        return None
    return float(split.valid.time.min())


def with_validation(split: Split, share: float, seed: int, how: str = "auto") -> Split:
    """The split with a share of its train part as the validation part; with "auto", one like the test part.

    A random share is that of `split_given(…, holdout=share)`, without regard to isolated users and items.
    """
    if not share:
        return split
    how = resolved(split.train, like_test(split) if how == "auto" else how, share)
    if how == "random":
        part = split_given(split.train, split.test, holdout=share, seed=seed)
    else:
        part = hold_out(split.train, how, share, seed)
    recipe = f"{split.recipe}, hold_out(how={how!r}, share={share}, seed={seed})"
    return Split(part.train, part.valid, split.test, recipe, split.remarks)


def split_for_fitting(source: Source, valid: Source, share: float, seed: int, how: str = "auto") -> Split:
    """A Split as it is; else the train part and the given validation part, or a share held out."""
    everything = opened(source)
    if isinstance(everything, Split):
        if valid is not None:
            raise InputError("a Split was given, and valid too; put the validation part into the split.")
        return everything
    if valid is None and share:
        return hold_out(everything, how, share, seed)
    nothing = everything.take(np.zeros(len(everything), dtype=bool))
    if valid is None and len(everything):
        return disjoint_split(everything, None, nothing, "given()")  # nothing to compare
    return split_given(everything, nothing, None if valid is None else read_alike(valid, everything))


def opened(source: Source, options: Json | None = None) -> Interactions | Split:
    """A Split or Interactions as they are; anything else is read, with these options."""
    if not isinstance(source, Split | Interactions):
        is_plain = is_prepared(source) and not options
        return open_prepared(source) if is_plain else read_interactions(source, **(options or {}))
    for name, value in (options or {}).items():
        if name not in ReadOptions.__dataclass_fields__:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        raise InputError(f"{name} = {value!r:.60} has no effect on data already read; use read_interactions.")
    return source


def as_interactions(source: Source, options: Json | None = None) -> Interactions:
    """`source`, read with these options unless it is Interactions already."""
    return source if isinstance(source, Interactions) else read_interactions(source, **(options or {}))


def read_alike(source: Source, known: Interactions, options: Json | None = None) -> Interactions:
    """Interactions by the rules by which the known ones were read, but for these options.

    Raise if they were read already, by other rules than these.
    """
    before = known.origin.policy.reading
    rules = {**(before or {}), **(options or {})}
    if isinstance(source, Interactions) or is_prepared(source):
        found = as_interactions(source, options)
    else:
        try:
            return read_interactions(source, **rules)
        except InputError as error:
            kept = {name: value for name, value in (before or {}).items() if name not in (options or {})}
            if not kept or not _opens(source, rules):
                raise
            shown = ", ".join(f"{name}={value!r:.60}" for name, value in kept.items())
            raise InputError(
                f"{error} This is read as the data of the fit were: {shown}. To change it, give "
                f"{_undone(kept)}."
            ) from error
    own = found.origin.policy.reading
    if own is not None and before is not None:
        check_alike(own, rules)
    return found


def _opens(source: Source, rules: Mapping[str, Any]) -> bool:
    """Whether the source can be opened, so that what is wrong is in what it holds."""
    how = ("query", "format", "header", "encoding")
    try:
        ReadOptions(**{name: rules[name] for name in how if name in rules}).open(source).close()
    except InputError:
        return False
    return True


def _undone(before: Mapping[str, Any]) -> str:
    """Options that undo some of these."""
    if "feedback" in before:
        return ", ".join(f"{name}=None" for name in ("feedback", "kind") if name in before)
    name = next(iter(before))
    is_column = name not in ("missing", *RULES)
    return f"{name}=<name or position>" if is_column else f"{name}={getattr(ReadOptions, name)!r}"


def check_alike(own: Mapping[str, Any], rules: Mapping[str, Any]) -> None:
    """Raise if interactions were read without a rule of a model, or with another one."""
    for name in [name for name in RULES if name in rules and own.get(name) != rules[name]]:
        raise InputError(
            f"these interactions were read with {name} = {own.get(name)!r}, and those of the model with "
            f"{rules[name]!r}; give the path or the table, or use read_interactions(…, **model.reading_)."
        )


def joined(parts: Sequence[Interactions]) -> Interactions:
    """The pairs of all parts, which share their ids; times of one kind, if all have them. Where a part has
    weights, pairs of parts without have the weight 1."""
    first = parts[0]
    if len(parts) == 1:
        return without_columns(first, ("rating",), history=())
    users, items = (np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "items"))
    is_timed = all(part.time is not None and part.time_kind == first.time_kind for part in parts)
    time = np.concatenate([part.time for part in parts if part.time is not None]) if is_timed else None
    weights: list[Array] = [np.ones(len(part)) if part.weight is None else part.weight for part in parts]
    disliked = [part.disliked for part in parts if part.disliked is not None]
    liked = pair_keys(users, items, first.n_items)  # what another part has as a pair is no dislike
    made = Interactions(
        users, items, first.user_ids, first.item_ids, time=time, time_kind=first.time_kind,
        weight=np.concatenate(weights) if any(part.weight is not None for part in parts) else None,
        disliked=np.setdiff1d(np.concatenate(disliked), liked) if disliked else None,
    )  # fmt: skip
    logs = {id(part.origin.log): part.origin.log for part in parts}
    found = [log for log in logs.values() if log is not None and (log.time is None) == (time is None)]
    if len(found) < len(logs):
        return made.made_from(Origin(first.origin.policy))
    # parts of a cut have logs of their own, with the later events of earlier pairs; others share one
    made = made.made_from(Origin(first.origin.policy, joined_log(found)))
    return interactions_of(made.log.without(("rating",))) if len(logs) > 1 else made


def _most_users_have_times(interactions: Interactions) -> bool:
    """Whether more than half of the users with two pairs or more have pairs of different times."""
    if interactions.time is None or not len(interactions):
        return False
    starts = interactions.indptr[:-1][interactions.user_counts > 0]
    first, last = (each.reduceat(interactions.time, starts) for each in (np.minimum, np.maximum))
    return bool(2 * (first < last).sum() > (interactions.user_counts > 1).sum())
