"""Automatic settings: temperature, popularity, dimension, epochs and the blend with EASE, from the data.

Short runs on held-out pairs climb to the best temperature and weight of popularity, one full run chooses the
epoch and the blend, and the caller trains on everything. docs/automatic.md has the measurements behind it.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Any

from truepair.data.split import Split
from truepair.errors import InputError
from truepair.evaluation import parse_metric
from truepair.recommender.automatic.budget import Stopwatch
from truepair.recommender.automatic.search import SettingsSearch
from truepair.recommender.automatic.user_sample import judged_by_some, some_users, split_of_users
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.recommender.holdout import hold_out, like_test
from truepair.spec import Spec
from truepair.spec.parameters import as_json
from truepair.training import AUTO
from truepair.training.full.engine import check_state

_HELD_OUT = 0.1  # of the pairs
_LEAST_USERS, _LEAST_PAIRS = 100, 1000  # with held-out pairs, to learn from: fewer say nothing


class _TooLittleError(InputError):
    """There is too little data to judge settings by."""


@dataclass(frozen=True)
class AutomaticSettings:
    """The spec with what was chosen, and facts for the model file."""

    spec: Spec
    facts: dict[str, Any] = field(default_factory=dict)


def choose(
    spec: Spec,
    split: Split,
    budget: float | None = None,
    progress: bool = False,
    tables: FeatureTables = NO_TABLES,
) -> AutomaticSettings:
    """Search by the validation part of the split, or by a hold-out of its train part.

    `budget` is the time in seconds for the search and the training that follows.
    """
    settled = dataclasses.replace(spec, searched=(), given_rate=True)
    if not spec.searched:
        return AutomaticSettings(settled)
    if spec.settings.optimizer_state != "device" and spec.engine in (AUTO, "full"):
        # an error now, and not after the search
        check_state(spec.job(split.train))
    metric, seed = judging_metric(spec.metric, split.train.n_items), spec.settings.seed
    clock, users = Stopwatch(budget), some_users(split, seed)
    try:
        part = judged_by_some(judging_parts(spec, split_of_users(split, users)), seed)
    except InputError as error:
        if spec.hold_out != "auto" and not isinstance(error, _TooLittleError):
            raise  # what is asked for is not replaced by something else
        if progress:
            print(f"automatic settings are skipped: {error}", file=sys.stderr)
        return AutomaticSettings(settled, {"automatic": {"skipped": str(error)}})
    whole, sampled = None, ""
    if users is not None:
        whole, sampled = split.train, f" of {len(users):,} of the {split.train.n_users:,} users"
    search = SettingsSearch(
        dataclasses.replace(spec, metric=metric), part, clock, progress, tables, users, whole
    )
    chosen = search.result()
    found = settled.varied(**chosen)
    facts = {
        "chosen": {name: as_json(value) for name, value in chosen.items()},
        "repeat": found.call(),
        "hold out": part.recipe + sampled,
        "metric": metric,
        "trials": [trial.facts() for trial in search.trials],
        "blend": search.blend,
        "seconds": round(clock.seconds, 3),
    }
    return AutomaticSettings(found, {"automatic": facts})


def judging_metric(metric: str, n_items: int) -> str:
    """The metric that judges trials: where a list would hold all items, lists of half of them.

    >>> judging_metric("ndcg@20", 1000), judging_metric("recall@20", 12)
    ('ndcg@20', 'recall@6')
    """
    name, k = parse_metric(metric)
    return metric if k < n_items else f"{name}@{max(1, n_items // 2)}"


def judging_parts(spec: Spec, split: Split) -> Split:
    """Train and validation of the search; raise if there is too little to judge by.

    The validation part is the given one, or held out in the way of the test part.
    """
    how = like_test(split) if spec.hold_out == "auto" else spec.hold_out
    part = split if split.valid else hold_out(split.train, how, _HELD_OUT, spec.settings.seed)
    assert part.valid is not None
    for n, least, what in (
        (int((part.valid.user_counts > 0).sum()), _LEAST_USERS, "users with held-out pairs"),
        (len(part.train), _LEAST_PAIRS, "pairs to learn from"),
    ):
        if n < least:
            raise _TooLittleError(f"{n:,} {what} are too few to choose settings by; it takes {least:,}.")
    return part
