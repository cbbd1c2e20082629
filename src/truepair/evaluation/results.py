"""Evaluation: the results for one model, by user and on average."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from truepair.data.ids import Codes
from truepair.errors import InputError, settle
from truepair.evaluation.metrics import CATALOGUE_METRICS, METRICS, Floats, parse_metric
from truepair.evaluation.statistics import bootstrap_interval
from truepair.evaluation.task import COLD, Cold
from truepair.storage.notebook import html_table
from truepair.storage.types import Array, Table


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Results of an evaluation: metrics per user, by names such as "ndcg@20", and over all lists.

    `cold_users` are the evaluated users without a trained pair. With `cold="separate"` they are not among
    `users`; with the other policies they are.
    """

    users: Codes  # (n_users,) the codes of the users that count in the means
    per_user: Mapping[str, Floats]  # name -> (n_users,) in the order of `users`
    catalogue: Mapping[str, float]  # coverage, novelty and gini at each K; empty for judged candidates
    ks: tuple[int, ...]
    n_users_without_target: int
    n_unseen_pairs: int  # target interactions whose item is not in train: no model can know them
    target: str = ""  # the checksum of the target: only evaluations on the same target can be compared
    cold: Cold = "popular"  # the policy for users without a trained pair
    cold_users: Codes = field(default_factory=lambda: np.empty(0, np.int64))
    cold_per_user: Mapping[str, Floats] = field(default_factory=dict)  # in the order of `cold_users`
    n_users_all_positive: int = 0  # left out of judged candidates: users without a negative one

    def __post_init__(self) -> None:
        settle(self, users=_read_only(self.users), cold_users=_read_only(self.cold_users))
        for name in ("per_user", "cold_per_user"):
            settle(self, **{name: {key: _read_only(values) for key, values in getattr(self, name).items()}})

    @property
    def n_users(self) -> int:
        """How many users count in the means; each has one target item or more."""
        return len(self.users)

    @cached_property
    def means(self) -> dict[str, float]:
        """The mean over users of every per-user metric."""
        return {name: float(values.mean()) for name, values in self.per_user.items()}

    @cached_property
    def groups(self) -> dict[str, dict[str, float]]:
        """Users with and without a trained pair: "users", how many they are, and the mean of every metric."""
        warm = ~np.isin(self.users, self.cold_users)
        with_history = {name: values[warm] for name, values in self.per_user.items()}
        return {
            "with history": _group(int(warm.sum()), with_history),
            "without history": _group(len(self.cold_users), self.cold_per_user),
        }

    def mean(self, name: str) -> float:
        """The mean over users of a metric; for coverage, novelty and gini, the value itself."""
        if name in self.means or name in self.catalogue:
            return self.means[name] if name in self.means else self.catalogue[name]
        raise self._not_evaluated(name, self._metrics)

    def values(self, name: str) -> Floats:
        """A metric of each user, in the order of `users`."""
        if name in self.per_user:
            return self.per_user[name]
        raise self._not_evaluated(name, METRICS)

    def _not_evaluated(self, name: str, known: Iterable[str]) -> InputError:
        parse_metric(name, known, self.ks)  # raises in most cases
        return InputError(f"metric = {name!r} was not evaluated; choose one of {', '.join(self.means)}.")

    def interval(self, name: str, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
        """The bootstrap interval over users of a metric's mean."""
        return bootstrap_interval(self.values(name), level, seed=seed)

    def to_dict(self) -> dict[str, float]:
        """The means by names such as "ndcg@20", with coverage, novelty and gini."""
        return {**self.means, **self.catalogue}

    def to_frame(self) -> Table:
        """A table of pandas with a row for each number of `to_dict`: metric, k (null for "auc"), value."""
        names = [name.partition("@") for name in self.to_dict()]
        ks = [int(k) if k else None for _, _, k in names]
        values = list(self.to_dict().values())
        return pa.table({"metric": [name for name, _, _ in names], "k": ks, "value": values}).to_pandas()

    @property
    def _metrics(self) -> list[str]:
        """Those that are measured at each K."""
        return [*METRICS, *(CATALOGUE_METRICS if self.catalogue else ())]

    def _repr_html_(self) -> str:
        rows: list[list[object]] = [
            [metric, *(self.mean(f"{metric}@{k}") for k in self.ks)] for metric in self._metrics
        ]
        rows += [["auc", self.means["auc"]]] if "auc" in self.means else []
        notes = [*self._group_lines()[-1:], self._counts()]
        found = html_table("Evaluation", rows, ["", *(f"@{k}" for k in self.ks)], notes)
        if not len(self.cold_users):
            return found
        shown = ["users", *self._group_metrics]
        groups = [[name, *(group.get(metric, "") for metric in shown)] for name, group in self.groups.items()]
        return found + html_table("Users", groups, ["", *shown])

    def table(self) -> str:
        """All means as text: a row a metric, a column a K; then the groups of users."""
        rows = ["".join([f"{'':10}", *(f"{f'@{k}':>9}" for k in self.ks)])]
        for metric in self._metrics:
            figures = (f"{self.mean(f'{metric}@{k}'):9.4f}" for k in self.ks)
            rows.append("".join([f"{metric:10}", *figures]))
        rows += [f"{'auc':10}{self.means['auc']:9.4f}"] if "auc" in self.means else []
        return "\n".join([*rows, *self._group_lines(), self._counts()])

    @property
    def _group_metrics(self) -> list[str]:
        return [f"ndcg@{self.ks[-1]}", f"recall@{self.ks[-1]}"]

    def _group_lines(self) -> list[str]:
        """A line for each group, if there are users without a trained pair."""
        if not len(self.cold_users):
            return []
        shown = self._group_metrics
        lines = [f"{'':16}{'users':>9}" + "".join(f"{name:>11}" for name in shown)]
        for name, group in self.groups.items():
            figures = "".join(f"{group[metric]:11.4f}" if group["users"] else f"{'':11}" for metric in shown)
            lines.append(f"{name:16}{group['users']:9,}{figures}")
        return [*lines, f"users without history: {COLD[self.cold]}"]

    def _counts(self) -> str:
        if self.catalogue:
            return (
                f"{self.n_users:,} users evaluated, {self.n_users_without_target:,} without a target item; "
                f"{self.n_unseen_pairs:,} target interactions of items unseen in training"
            )
        return (
            f"{self.n_users:,} users evaluated on their judged items; left out: "
            f"{self.n_users_without_target:,} without a positive item, {self.n_users_all_positive:,} with "
            "positive items only"
        )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{m}@{self.ks[-1]} {self.mean(f'{m}@{self.ks[-1]}'):.4f}" for m in ("ndcg", "recall")
        )
        return f"<Evaluation: {self.n_users:,} users, {shown}, K = {', '.join(map(str, self.ks))}>"


def _group(n: int, per_user: Mapping[str, Floats]) -> dict[str, float]:
    return {"users": n, **({name: float(values.mean()) for name, values in per_user.items()} if n else {})}


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
