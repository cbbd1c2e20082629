"""Evaluation: the whole catalogue ranked for every user with a held-out item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy.typing as npt

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError, check_choice, check_whole
from truepair.evaluation.metrics import CATALOGUE_METRICS, METRICS, Floats, parse_metric
from truepair.evaluation.statistics import bootstrap_interval
from truepair.evaluation.task import Task
from truepair.ranking.selection import Exclude, Matrix


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Results of an evaluation: metrics per user, by names such as "ndcg@20", and over all lists."""

    users: Codes  # (n_users,) the codes of the evaluated users
    per_user: Mapping[str, Floats]  # name -> (n_users,) in the order of `users`
    catalogue: Mapping[str, float]  # coverage, novelty and gini at each K
    ks: tuple[int, ...]
    n_users_without_target: int
    n_unseen_pairs: int  # target pairs whose item nobody has in train: no model can know them
    target: str = ""  # the checksum of the target: only evaluations on the same target can be compared

    def __post_init__(self) -> None:
        object.__setattr__(self, "users", _read_only(self.users))
        read_only = {name: _read_only(values) for name, values in self.per_user.items()}
        object.__setattr__(self, "per_user", read_only)

    @property
    def n_users(self) -> int:
        """How many users were evaluated: those with one target item or more."""
        return len(self.users)

    @cached_property
    def means(self) -> dict[str, float]:
        """The mean over users of every per-user metric."""
        return {name: float(values.mean()) for name, values in self.per_user.items()}

    def mean(self, name: str) -> float:
        """The mean over users of a metric; for coverage, novelty and gini, the value itself."""
        metric, _ = parse_metric(name, [*METRICS, *CATALOGUE_METRICS], self.ks)
        return self.means[name] if metric in METRICS else self.catalogue[name]

    def values(self, name: str) -> Floats:
        """A metric of each user, in the order of `users`."""
        parse_metric(name, METRICS, self.ks)
        return self.per_user[name]

    def interval(self, name: str, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
        """The bootstrap interval over users of a metric's mean."""
        return bootstrap_interval(self.values(name), level, seed=seed)

    def table(self) -> str:
        """All means as text: a row a metric, a column a K."""
        rows = ["".join([f"{'':10}", *(f"{f'@{k}':>9}" for k in self.ks)])]
        for metric in [*METRICS, *CATALOGUE_METRICS]:
            figures = (f"{self.mean(f'{metric}@{k}'):9.4f}" for k in self.ks)
            rows.append("".join([f"{metric:10}", *figures]))
        counts = (
            f"{self.n_users:,} users evaluated, {self.n_users_without_target:,} without a target item; "
            f"{self.n_unseen_pairs:,} target pairs of items unseen in training"
        )
        return "\n".join([*rows, counts])

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{m}@{self.ks[-1]} {self.mean(f'{m}@{self.ks[-1]}'):.4f}" for m in ("ndcg", "recall")
        )
        return f"<Evaluation: {self.n_users:,} users, {shown}, K = {', '.join(map(str, self.ks))}>"


class HasMatrices(Protocol):
    """Anything with a user matrix and an item matrix: a fitted model, a fit result, a fit in progress."""

    def matrices(self) -> tuple[Matrix, Matrix]:
        """(users (n_users, d), items (n_items, d))."""


def evaluate(
    model: HasMatrices | tuple[Matrix, Matrix],
    target: Split | Interactions,
    on: Literal["valid", "test"] = "test",
    *,
    exclude: Exclude | None = None,
    ks: Sequence[int] = (5, 10, 20),
    train: Interactions | None = None,
) -> Evaluation:
    """Rank the whole catalogue for every user of the target, and measure where the target items are.

    `model` is a fitted `Recommender`, a `FitResult`, or a pair of matrices (users, items).

    The target is a part of a split, `on`; the parts before it are excluded from the lists. Or it is a set of
    interactions; then `exclude` holds what must not be recommended again, such as the train part. `train`,
    by default the first of `exclude`, says which items are known and how popular they are.
    """
    if isinstance(target, Split):
        if exclude is not None or train is not None:
            raise InputError("a split says what to exclude; leave out exclude and train.")
        split, (target, exclude, train) = target, _part_of(target, on)
        if (check := getattr(model, "check_unseen", None)) is not None:  # a Recommender knows its data
            check(split, on)
    task = Task.checked(target, () if exclude is None else exclude, train)
    ks = _checked_ks(ks)
    listed, hits = task.ranked(*matrices_of(model), ks[-1])
    popularity = task.train.item_counts
    return Evaluation(
        users=task.users,
        per_user={f"{name}@{k}": f(hits[:, :k], task.n_target) for name, f in METRICS.items() for k in ks},
        catalogue={
            f"{name}@{k}": f(listed[:, :k], popularity) for name, f in CATALOGUE_METRICS.items() for k in ks
        },
        ks=ks,
        n_users_without_target=target.n_users - len(task.users),
        n_unseen_pairs=int((popularity[target.items] == 0).sum()),
        target=target.hash,
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


@dataclass(frozen=True, eq=False, repr=False)
class Validation:
    """One number for a model in training: the mean of `metric` on `target`. Higher is better."""

    target: Interactions
    exclude: Exclude
    metric: str = "ndcg@20"

    def __post_init__(self) -> None:
        _, k = parse_metric(self.metric)
        if k > self.target.n_items:
            raise InputError(
                f"metric = {self.metric!r}, but the catalogue has {self.target.n_items} items; lower K."
            )
        _ = self._task  # its checks, now rather than after the first epoch

    @cached_property
    def _task(self) -> Task:
        return Task.checked(self.target, self.exclude, None)

    @cached_property
    def identity(self) -> str:
        """A text that states what is measured on which data."""
        known = ", ".join(part.hash for part in self._task.masks)
        return f"{self.metric} on {self.target.hash} without {known}"

    def score(self, users: Matrix, items: Matrix) -> float:
        """The mean of the metric for these two matrices."""
        name, k = parse_metric(self.metric)
        _, hits = self._task.ranked(users, items, k)
        return float(METRICS[name](hits, self._task.n_target).mean())

    def __call__(self, model: HasMatrices) -> float:
        """The score of the matrices that the model has now."""
        return self.score(*model.matrices())

    def __repr__(self) -> str:
        return f"<Validation: {self.metric} over {len(self.target):,} pairs>"


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    ks = list(ks) if isinstance(ks, Iterable) else [ks]
    if not ks:
        raise InputError("ks is empty; give one length of list or more, such as ks=(5, 10, 20).")
    return tuple(sorted({check_whole("K", k, 1) for k in ks}))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
