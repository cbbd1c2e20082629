"""Automatic settings: temperature, popularity, dimension, epochs and the blend with EASE, from the data.

Short runs on held-out pairs climb to the best temperature and weight of popularity, one full run chooses the
epoch and the blend, and the caller trains on everything. docs/automatic.md has the measurements behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from truepair.data.split import Split
from truepair.errors import InputError
from truepair.evaluation import parse_metric
from truepair.models.encoders import ENCODERS
from truepair.recommender.automatic.budget import Clock
from truepair.recommender.automatic.search import CHOSEN, Search
from truepair.recommender.automatic.user_sample import judged_by_some, some_users, split_of_users
from truepair.spec.defaults import is_full
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.recommender.holdout import hold_out, like_test
from truepair.spec.parameters import as_json
from truepair.recommender.parts import Parameters, parts_of
from truepair.training import AUTO, Job
from truepair.training.full.engine import check_state

_HELD_OUT = 0.1  # of the pairs
_LEAST_USERS, _LEAST_PAIRS = 100, 1000  # with held-out pairs, to learn from: fewer say nothing


class _TooLittleError(InputError):
    """There is too little data to judge settings by."""


@dataclass(frozen=True)
class Choice:
    """The chosen parameters, as `Recommender` takes them, and facts for the model file."""

    parameters: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def open_choices(parameters: Parameters, given: Collection[str]) -> list[str]:
    """What is chosen automatically; nothing for other losses, samplers and encoders, and after a search.

    `stop_after` is what a search sets, so that the parameters that come with it are settled.
    """
    plain = (
        parameters["auto"] and parameters["loss"] == "infonce" and is_full(parameters["sampler"])
        and isinstance(parameters["encoder"], str) and parameters["encoder"] in ENCODERS
        and parameters["scoring"] in (None, "cosine") and parameters["stop_after"] is None
    )  # fmt: skip
    return [name for name in CHOSEN if name not in given] if plain else []


def choose(
    parameters: Parameters,
    given: Collection[str],
    split: Split,
    budget: float | None = None,
    progress: bool = False,
    tables: FeatureTables = NO_TABLES,
) -> Choice:
    """Search by the validation part of the split, or by a hold-out of its train part.

    `budget` is the time in seconds for the search and the training that follows.
    """
    wanted = open_choices(parameters, given)
    if not wanted:
        return Choice()
    if parameters["engine"] in (AUTO, "full"):  # an error now, and not after the search
        encoder, loss, sampler, settings = parts_of(parameters, len(split.train), split.train.n_users)
        check_state(Job(encoder, loss, sampler, split.train, settings))
    metric = judging_metric(parameters["metric"], split.train.n_items)
    clock, own = Clock(budget), {**parameters, "auto": False, "metric": metric}
    users = some_users(split, parameters["seed"])
    try:
        part = judged_by_some(judging_parts(parameters, split_of_users(split, users)), parameters["seed"])
    except InputError as error:
        if "hold_out" in given and not isinstance(error, _TooLittleError):
            raise  # what is asked for is not replaced by something else
        if progress:
            print(f"automatic settings are skipped: {error}", file=sys.stderr)
        return Choice(facts={"automatic": {"skipped": str(error)}})
    whole, sampled = None, ""
    if users is not None:
        whole, sampled = split.train, f" of {len(users):,} of the {split.train.n_users:,} users"
    search = Search(own, wanted, part, clock, progress, tables, users, whole)
    chosen = search.result()
    facts = {
        "chosen": {name: as_json(value) for name, value in chosen.items()},
        "repeat": repeating_call(parameters, given, chosen),
        "hold out": part.recipe + sampled,
        "metric": metric,
        "trials": [trial.facts() for trial in search.trials],
        "blend": search.blend,
        "seconds": round(clock.seconds, 3),
    }
    return Choice({**chosen, "auto": False}, {"automatic": facts})


def repeating_call(parameters: Parameters, given: Collection[str], chosen: Mapping[str, Any]) -> str:
    """The call that repeats a fit without the search."""
    call = {name: parameters[name] for name in parameters if name in given} | dict(chosen) | {"auto": False}
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in call.items()}
    return f"Recommender({', '.join(f'{name}={value!r}' for name, value in plain.items())})"


def judging_metric(metric: str, n_items: int) -> str:
    """The metric that judges trials: where a list would hold all items, lists of half of them.

    >>> judging_metric("ndcg@20", 1000), judging_metric("recall@20", 12)
    ('ndcg@20', 'recall@6')
    """
    name, k = parse_metric(metric)
    return metric if k < n_items else f"{name}@{max(1, n_items // 2)}"


def judging_parts(parameters: Parameters, split: Split) -> Split:
    """Train and validation of the search; raise if there is too little to judge by.

    The validation part is the given one, or held out in the way of the test part.
    """
    how = like_test(split) if parameters["hold_out"] == "auto" else parameters["hold_out"]
    part = split if split.valid else hold_out(split.train, how, _HELD_OUT, parameters["seed"])
    assert part.valid is not None
    for n, least, what in (
        (int((part.valid.user_counts > 0).sum()), _LEAST_USERS, "users with held-out pairs"),
        (len(part.train), _LEAST_PAIRS, "pairs to learn from"),
    ):
        if n < least:
            raise _TooLittleError(f"{n:,} {what} are too few to choose settings by; it takes {least:,}.")
    return part
