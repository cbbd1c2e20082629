"""`truepair evaluate`: metrics of a saved model on held-out interactions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import truepair as tp
from truepair.cli.console import Console
from truepair.cli.options import ColdUsers, ModelFile, argument, option, refuse, unpacked, whole_numbers
from truepair.cli.sources import Reading, find_source
from truepair.data.sources.sql_urls import without_password
from truepair.errors import InputError, check_choice
from truepair.storage.types import Json


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Argument and options of `evaluate` alone."""

    source: str | None = argument("Held-out interactions: a file, folder, database or dataset.", "[SOURCE]")
    candidates: str | None = option(
        "Judged pairs instead of SOURCE: only these are ranked. The file has the column label (1 or 0), or "
        "ratings with --min-rating.",
        metavar="FILE",
    )
    k: str = option("Lengths of the lists, separated by commas.", "-k", "--k", default="5,10,20")
    metric: str | None = option("The metric with a confidence interval. [default: that of the model]")
    cold: ColdUsers = "popular"


@unpacked
def evaluate(model: ModelFile, args: EvaluateOptions, reading: Reading, console: Console) -> None:
    """Evaluate a model on held-out interactions, or on judged pairs.

    Interactions that the model was trained on are neither recommended nor counted. Users without a trained
    pair get the most popular items, and are reported apart; --cold separate leaves them out of the means.

    Example:
      truepair evaluate model.truepair next_week.csv -k 5,10,20
    """
    from truepair.evaluation import parse_metric
    from truepair.evaluation.task import SERVING
    from truepair.recommender.reindexing import with_more_users

    check_choice("cold", args.cold, SERVING)
    if (args.source is None) == (args.candidates is None):
        raise InputError("give either held-out interactions (SOURCE) or judged pairs (--candidates FILE).")
    fitted = tp.Recommender.load(model)
    metric = args.metric or fitted.metric
    lengths = {*whole_numbers("k", args.k), 1 if metric == "auc" else parse_metric(metric)[1]}
    how: Json = {"ks": sorted(lengths), "cold": args.cold}
    if args.source is None:
        given = judged(reading, str(args.candidates))
    else:
        split = reading.prepared_split(args.source)
        given = reading.interactions(args.source, not console.quiet) if split is None else split.test
    fitted.model_ = with_more_users(fitted.model_, given.user_ids)
    target, left_out = held_out(given, fitted.seen_)
    if args.candidates is None:
        found = tp.evaluate(fitted, target, exclude=fitted.seen_, **how)
    else:
        found = tp.evaluate(fitted, candidates=target, **how)
    mean, (low, high) = found.mean(metric), found.interval(metric)
    remarks = [f"{count:,} interactions left out: {why}" for why, count in left_out.items() if count]
    text = f"{metric} {mean:.4f} [{low:.4f}, {high:.4f}] (95% over users)"
    facts: Json = {"users": found.n_users, "cold": found.cold, "groups": found.groups, "metric": metric}
    facts |= {"mean": mean, "interval": [low, high], "metrics": {**found.means, **found.catalogue}}
    console.give("\n".join([found.table(), *remarks, text]), {**facts, "left_out": left_out})


def judged(reading: Reading, path: str) -> tp.Interactions:
    """The pairs of a file, whose rating is the label: the column label, or whether a rating is enough."""
    import numpy as np

    refuse({"--core": reading.core, "--max-disliked-rating": reading.max_disliked_rating}, "on judged pairs")
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


def held_out(given: tp.Interactions, seen: tp.Interactions) -> tuple[tp.Interactions, dict[str, int]]:
    """The pairs that are not in `seen`, in its codes, and how many were left out for which reason.

    The users must be known, the items need not be.
    """
    import numpy as np

    users = seen.user_ids.codes(given.user_ids, "user")[given.users]
    items = seen.item_ids.find(given.item_ids, "item")[given.items]
    known = items >= 0
    label = None if given.rating is None else given.rating[known]
    target = tp.Interactions(users[known], items[known], seen.user_ids, seen.item_ids, rating=label)
    trained_on = seen.has(target.users, target.items)
    left_out = {
        "the model does not know the item": int((~known).sum()),
        "the model was trained on them": int(np.sum(trained_on)),
    }
    if trained_on.all():
        reasons = ", ".join(f"{why}: {count:,}" for why, count in left_out.items() if count)
        raise InputError(
            f"none of the {len(given):,} interactions can be evaluated ({reasons}); give held-out ones."
        )
    return target.take(~trained_on), left_out
