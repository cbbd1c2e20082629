"""TrainingData: the events of a store, divided into what a candidate learns and what judges it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions, Origin, without_columns
from truepair.data.log import Policy
from truepair.data.reading import read_interactions
from truepair.errors import InputError
from truepair.recommender.updating.merging import continued, merged
from truepair.serving.events.event import Kinds
from truepair.serving.id_texts import IdTexts

JUDGED = 0.2
"""The share of the new events that judges: the newest."""

Row = tuple[str, str, float]


class TrainingData(NamedTuple):
    """What is learnt, and what judges. Both have ids of the model's types."""

    learnt: Interactions | None
    """What is learnt of the events until `cut`; None: no like. Pairs of all of them, whose larger weight
    counts beside the model's; where the model's weights add up or fade, the new events, for its rule."""
    judging: Interactions | None
    """The likes of the events after it that neither model knows; None: there are none."""
    past: pa.Table
    """Events until `cut`, of the users of `judging`: what the service knew about them."""
    known: Interactions
    """The pairs of the model and `learnt`."""
    new_pairs: int
    """Likes and dislikes of `learnt` that the model does not know."""
    events: int
    new_events: int
    judged_events: int
    cut: int
    """The number of the last event that is learnt."""
    last: int
    """The number of the last event."""
    forgotten: Collection[str] = ()
    """Users of whom only events count, not what models have learnt."""


def split_events(
    seen: Interactions,
    events: pa.Table,
    kinds: Kinds,
    until: int,
    judged: int,
    forgotten: Collection[str] = (),
) -> TrainingData:
    """Divide a table of events (`EventReader.table`).

    The model knows `seen`, and could learn from events until the number `until`. Events until `judged` have
    judged before, and do not again. Users who are `forgotten` were deleted: `seen` has none of their pairs.
    """
    usable = _usable(events, seen, kinds)
    numbers = usable["number"].to_numpy()
    new = numbers[numbers > until]
    cut = _cut(new, until, judged)
    last = int(events["number"][-1].as_py()) if len(events) else max(until, judged)
    before, after = usable.filter(pa.array(numbers <= cut)), usable.filter(pa.array(numbers > cut))
    policy = seen.origin.policy
    if policy.duplicates == "sum" or policy.changes_weights:  # an event that is learnt twice counts twice
        learnt = _interactions(before.filter(pc.greater(before["number"], until)), seen, kinds)
        if learnt is not None:
            learnt = learnt.made_from(learnt.origin._replace(policy=Policy()))  # the rule is the model's
            if seen.log.time is not None:
                learnt = continued(learnt, float(np.asarray(seen.log.time).max()))
    elif (learnt := _interactions(before, seen, kinds)) is not None:
        unweighted = seen.weight is None and bool(np.all(learnt.weight == 1))
        learnt = without_columns(learnt, ("rating", "time", *(["weight"] if unweighted else [])), history=())
        learnt = learnt.made_from(Origin(Policy("strongest")))
    known = seen if learnt is None else merged(seen, learnt)
    judging = _unknown_likes(_interactions(after, seen, kinds), known)
    users = [] if judging is None else [str(one) for one in judging.user_ids.ids.to_pylist()]
    past = before.filter(pc.is_in(before["user"], value_set=pa.array(users, pa.large_string())))
    n_pairs = 0 if learnt is None else _n_unknown(learnt, seen)
    return TrainingData(
        learnt, judging, past, known, n_pairs, len(events), len(new), len(after), cut, last, forgotten
    )


def _cut(new: Codes, until: int, judged: int) -> int:
    """The number of the last event that is learnt: the newest share judges, unless it has judged before."""
    n_judged = int(np.ceil(JUDGED * len(new)))
    cut = int(new[-n_judged - 1]) if len(new) > n_judged else until
    return max(cut, judged)


def _usable(events: pa.Table, seen: Interactions, kinds: Kinds) -> pa.Table:
    """The events of kinds that count, with ids that the model can have."""
    counting = [kind for kind, number in kinds.numbers.items() if number]
    events = events.filter(pc.is_in(events["kind"], value_set=pa.array(counting, pa.large_string())))
    for what, texts in _id_texts(seen).items():
        good = [text for text in events[what].unique().to_pylist() if _is_id(texts, text)]
        events = events.filter(pc.is_in(events[what], value_set=pa.array(good, pa.large_string())))
    return events.combine_chunks()


def _id_texts(seen: Interactions) -> dict[str, IdTexts]:
    """What can be an id of the model's types."""
    none = {"user": seen.user_ids.ids[:0], "item": seen.item_ids.ids[:0]}
    return {what: IdTexts.of(IdMap.of(ids), what) for what, ids in none.items()}


def _is_id(texts: IdTexts, text: str) -> bool:
    try:
        return texts.text(text) == text
    except InputError:
        return False


def _interactions(events: pa.Table, seen: Interactions, kinds: Kinds) -> Interactions | None:
    """The likes and dislikes of events, with ids of the model's types; None if nothing is liked."""
    liked = pa.array([kind for kind, number in kinds.numbers.items() if number > 0], pa.large_string())
    last = _by_time(events).group_by(["user", "item"], use_threads=False).aggregate([("kind", "last")])
    if not pc.any(pc.is_in(last["kind_last"], value_set=liked), min_count=0).as_py():
        return None  # every item that was liked was disliked later
    columns = {name: events[name] for name in ("kind", "weight")}
    columns["time"] = events["time"].cast(pa.int64())
    for what, texts in _id_texts(seen).items():
        encoded = events[what].combine_chunks().dictionary_encode()
        columns[what] = texts.typed(encoded.dictionary.to_pylist()).take(encoded.indices)
    return read_interactions(pa.table(columns), feedback=kinds.numbers)


def _unknown_likes(found: Interactions | None, known: Interactions) -> Interactions | None:
    """The pairs of these that are neither liked nor disliked in `known`."""
    if found is None:
        return None
    keys = _keys(found, known, found.keys)
    left = found.take(~np.isin(keys, known.keys) & ~np.isin(keys, _dislikes(known)))
    return left.pairs_only() if len(left) else None


def _n_unknown(found: Interactions, known: Interactions) -> int:
    """How many likes and dislikes `known` does not have."""
    likes, dislikes = (_keys(found, known, keys) for keys in (found.keys, _dislikes(found)))
    return int((~np.isin(likes, known.keys)).sum() + (~np.isin(dislikes, _dislikes(known))).sum())


def _dislikes(pairs: Interactions) -> Codes:
    return np.empty(0, np.int64) if pairs.disliked is None else pairs.disliked


def _keys(part: Interactions, other: Interactions, keys: Codes) -> Codes:
    """Keys user·n_items + item of one set of interactions as those of another; -1 for what it lacks."""
    users = other.user_ids.find(part.user_ids, "user")[keys // part.n_items]
    items = other.item_ids.find(part.item_ids, "item")[keys % part.n_items]
    return np.where((users >= 0) & (items >= 0), users * other.n_items + items, -1)


def _by_time(events: pa.Table) -> pa.Table:
    """Events, oldest first; of the same time, in order of arrival."""
    return events.sort_by([("time", "ascending"), ("number", "ascending")])


def rows_by_user(events: pa.Table) -> dict[str, list[Row]]:
    """The events (item, kind, weight) of each user, oldest first, as a store gives them."""
    events, found = _by_time(events), dict[str, list[Row]]()
    columns = (events[name].to_pylist() for name in ("user", "item", "kind", "weight"))
    for user, item, kind, weight in zip(*columns, strict=True):
        found.setdefault(user, []).append((item, kind, weight))
    return found
