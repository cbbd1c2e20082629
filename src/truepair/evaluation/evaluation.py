"""Evaluation: the whole catalogue, or judged candidates, ranked for every user with a held-out item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError, check_choice, check_whole
from truepair.evaluation.judged import Judged
from truepair.evaluation.metrics import CATALOGUE_METRICS, METRICS, Floats, Hits
from truepair.evaluation.results import Evaluation
from truepair.evaluation.task import Cold, HasMatrices, Task
from truepair.ranking.prepared_items import Matrix
from truepair.ranking.selection import Exclude, checked_k
from truepair.storage.types import Json, Table


def evaluate(
    model: HasMatrices | tuple[Matrix, Matrix],
    target: Split | Interactions | None = None,
    on: Literal["valid", "test"] = "test",
    *,
    exclude: Exclude | None = None,
    ks: Sequence[int] = (5, 10, 20),
    train: Interactions | None = None,
    cold: Cold = "popular",
    candidates: Table = None,
) -> Evaluation:
    """Rank the whole catalogue for every user of the target, and measure where the target items are.

    `model` is a fitted `Recommender`, a `FitResult`, or a pair of matrices (users, items).

    The target is a part of a split, `on`; the parts before it are excluded from the lists. Or it is a set of
    interactions; then `exclude` holds what must not be recommended again, such as the train part. `train`,
    by default the first of `exclude`, says which items are known and how popular they are.

    `cold` is the policy for users without a trained pair, about whom the model knows nothing. With "popular"
    they get the most popular items of the train part, as in `recommend`, and count in the means. With
    "separate" they are left out of the means. With "error" they are an error. With "model" the matrices rank
    for them too, which makes sense only if these know them from elsewhere. `Evaluation.groups` has the number
    and the means of users with and without history in every case.

    `candidates` are judged pairs: only these are ranked, as in tests where users rated random items. Give
    all of them, positive and negative, as `Interactions` beside a target of the positive ones. Or give a
    table with user, item and label (1 or 0) and no target; then the items must be known to the model, and
    `train` is by default what a `Recommender` knows. Users without a positive or without a negative candidate
    are left out. There is no mask, and "auc" is measured too.
    """
    if isinstance(target, Split):
        if exclude is not None or train is not None:
            raise InputError("a split says what to exclude; leave out exclude and train.")
        split, (target, exclude, train) = target, _part_of(target, on)
        if (check := getattr(model, "check_unseen", None)) is not None:  # a Recommender knows its data
            model = check(split, on)
        exclude = exclude if candidates is None else None
    ks = _checked_ks(ks)
    if candidates is not None:
        if exclude is not None:
            raise InputError("with candidates, nothing else is ranked; leave out exclude.")
        return _of_judged(Judged(candidates, target, train, cold, model), model, ks)
    if target is None:
        raise InputError("there is no target; give a Split, a part such as split.test, or candidates.")
    task = Task(target, exclude, train, cold, model)
    ranker = task.ranker(*matrices_of(model))
    listed, hits = task.listed(ranker, checked_k(ks[-1], target.n_items))
    kept, popularity = ~task.is_cold | (cold != "separate"), task.train.item_counts
    named = ((f"{name}@{k}", f, k) for name, f in CATALOGUE_METRICS.items() for k in ks)
    catalogue = {name: f(listed[kept, :k], popularity) for name, f, k in named}
    facts: Json = {"n_users_without_target": target.n_users - len(task.users), "target": target.hash}
    return _evaluation(task, hits, ks, target.items, catalogue=catalogue, **facts)


def _of_judged(judged: Judged, model: HasMatrices | tuple[Matrix, Matrix], ks: tuple[int, ...]) -> Evaluation:
    hits, auc = judged.ranked(*matrices_of(model), ks[-1])
    pairs, positive = judged.candidates, judged.candidates.take(judged.positive)
    without = (pairs.user_counts > 0) & (judged.n_positive == 0)
    all_positive = (judged.n_positive > 0) & (judged.n_positive == pairs.user_counts)
    facts = {"n_users_without_target": int(without.sum()), "n_users_all_positive": int(all_positive.sum())}
    digest = f"{positive.hash} among {pairs.hash}"
    return _evaluation(judged, hits, ks, positive.items, {"auc": auc}, catalogue={}, target=digest, **facts)


def _evaluation(
    task: Task | Judged,
    hits: Hits,
    ks: tuple[int, ...],
    target_items: Codes,
    more: Mapping[str, Floats] = MappingProxyType({}),
    **facts: Any,
) -> Evaluation:
    """The evaluation of these hits: users who count, and those without a trained pair."""
    names = ((f"{name}@{k}", f, k) for name, f in METRICS.items() for k in ks)
    per_user = {name: f(hits[:, :k], task.n_target) for name, f, k in names} | dict(more)
    kept = ~task.is_cold | (task.cold != "separate")
    return Evaluation(
        task.users[kept],
        {name: values[kept] for name, values in per_user.items()},
        ks=ks,
        n_unseen_pairs=int((task.train.item_counts[target_items] == 0).sum()),
        cold=task.cold,
        cold_users=task.users[task.is_cold],
        cold_per_user={name: values[task.is_cold] for name, values in per_user.items()},
        **facts,
    )


def _part_of(split: Split, on: str) -> tuple[Interactions, list[Interactions], Interactions]:
    """The target, what is excluded, and the train part."""
    parts = {"valid": split.valid, "test": split.test}
    target = parts[check_choice("on", on, parts)]
    if target is None:
        raise InputError(f"on = {on!r}, but the split has no such part; make a split that has one.")
    earlier = [split.train] + ([split.valid] if on == "test" and split.valid is not None else [])
    return target, earlier, split.train


def matrices_of(model: HasMatrices | tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    """(users, items) of anything that `evaluate` takes."""
    pair = model if isinstance(model, tuple | list) else getattr(model, "matrices", lambda: None)()
    if pair is None or len(pair) != 2:
        given = f"a tuple of {len(pair)}" if pair is not None else f"a {type(model).__name__}"
        raise InputError(
            f"model is {given}, which cannot be evaluated; give a fitted Recommender, or (users, items)."
        )
    users, items = pair
    return users, items


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    ks = list(ks) if isinstance(ks, Iterable) else [ks]
    if not ks:
        raise InputError("ks is empty; give one length of list or more, such as ks=(5, 10, 20).")
    return tuple(sorted({check_whole("K", k, 1) for k in ks}))
