"""`truepair evaluate`: metrics of a saved model on held-out interactions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import ModelFile, option, option_name, unpacked, whole_numbers
from truepair.cli.sources import Reading, find_source
from truepair.data.sources.sql_urls import without_password
from truepair.errors import InputError, check_choice

if TYPE_CHECKING:
    from truepair.data.interactions import Interactions
    from truepair.evaluation import Evaluation
    from truepair.storage.types import Json


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of `evaluate` alone."""

    candidates: str | None = option(
        "Judged pairs instead of SOURCE: only these are ranked. The file has the column label (1 or 0), or "
        "ratings with --min-rating.",
        metavar="FILE",
    )
    k: str = option("Lengths of the lists, separated by commas.", "-k", "--k", default="5,10,20")
    metric: str | None = option("The metric with a confidence interval. [default: that of the model]")
    cold: str = option(
        "For users without a trained pair: {truepair.evaluation.cold.SERVING}.", default="popular"
    )


@unpacked
def evaluate(
    model: ModelFile,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]", help="Held-out pairs: a file, a folder, the URL of a database, or a dataset."
        ),
    ] = None,
    *,
    args: EvaluateOptions,
    reading: Reading,
    console: Console,
) -> None:
    """Evaluate a model on held-out interactions, or on judged pairs.

    Pairs that the model was trained on are neither recommended nor counted. Users without a trained pair get
    the most popular items, and are reported apart; with --cold separate they are left out of the means.
    """
    from truepair.evaluation import evaluate as evaluate_model
    from truepair.evaluation.cold import SERVING
    from truepair.recommender.estimator import Recommender
    from truepair.recommender.new_users import with_more_users

    check_choice("cold", args.cold, SERVING)
    if (source is None) == (args.candidates is None):
        raise InputError("give either held-out pairs (SOURCE) or judged pairs (--candidates FILE).")
    fitted = Recommender.load(model)
    metric = args.metric or fitted.metric
    how: Json = {"ks": sorted({*whole_numbers("k", args.k), _length(metric)}), "cold": args.cold}
    given = _pairs(reading, source, console) if source else judged(reading, str(args.candidates))
    fitted.model_ = with_more_users(fitted.model_, given.user_ids)
    target, left_out = held_out(given, fitted.seen_)
    if args.candidates is None:
        found = evaluate_model(fitted, target, exclude=fitted.seen_, **how)
    else:
        found = evaluate_model(fitted, candidates=target, **how)
    facts = _facts(found, metric, left_out)
    low, high = facts["interval"]
    remarks = [f"{count:,} pairs left out: {why}" for why, count in left_out.items() if count]
    text = f"{metric} {found.mean(metric):.4f} [{low:.4f}, {high:.4f}] (95% over users)"
    console.give("\n".join([found.table(), *remarks, text]), facts)


def _pairs(reading: Reading, source: str, console: Console) -> Interactions:
    """The pairs of the source; of a prepared split, its test part."""
    split = reading.prepared_split(source)
    return reading.interactions(source, not console.quiet) if split is None else split.test


def _length(metric: str) -> int:
    from truepair.evaluation import parse_metric

    return 1 if metric == "auc" else parse_metric(metric)[1]


def judged(reading: Reading, path: str) -> Interactions:
    """The pairs of a file, whose rating is the label: the column label, or whether a rating is enough."""
    import numpy as np

    for name in ("core", "max_disliked_rating"):
        if getattr(reading, name) is not None:
            raise InputError(f"{option_name(name)} has no effect on judged pairs; leave it out.")
    least = reading.min_rating
    column = reading.rating or ("label" if least is None else None)
    if find_source(path) is None and reading.duplicates is None:
        reading = replace(reading, duplicates="error")  # a pair has one judgement, as in Python
    found = replace(reading, min_rating=None, rating=column).interactions(path)
    if least is None:
        return found
    if found.rating is None:
        raise InputError(
            f"--min-rating {least:g} needs a rating column, and {without_password(path)} has none; "
            "name it: --rating."
        )
    return replace(found, rating=np.asarray(found.rating >= least, dtype=np.int64))


def held_out(given: Interactions, seen: Interactions) -> tuple[Interactions, dict[str, int]]:
    """The pairs that are not in `seen`, in its codes, and how many were left out for which reason.

    The users must be known, the items need not be.
    """
    import numpy as np

    from truepair.data.interactions import Interactions

    users = seen.user_ids.codes(given.user_ids, "user")[given.users]
    items = seen.item_ids.find(given.item_ids, "item")[given.items]
    known = items >= 0
    label = None if given.rating is None else given.rating[known]
    target = Interactions(users[known], items[known], seen.user_ids, seen.item_ids, rating=label)
    trained_on = seen.has(target.users, target.items)
    left_out = {
        "the model does not know the item": int((~known).sum()),
        "the model was trained on them": int(np.sum(trained_on)),
    }
    if trained_on.all():
        reasons = ", ".join(f"{why}: {count:,}" for why, count in left_out.items() if count)
        raise InputError(
            f"none of the {len(given):,} pairs can be evaluated ({reasons}); give held-out pairs."
        )
    return target.take(~trained_on), left_out


def _facts(found: Evaluation, metric: str, left_out: dict[str, int]) -> Json:
    return {
        "users": found.n_users,
        "cold": found.cold,
        "groups": found.groups,
        "metric": metric,
        "mean": found.mean(metric),
        "interval": list(found.interval(metric)),
        "metrics": {**found.means, **found.catalogue},
        "left_out": left_out,
    }
