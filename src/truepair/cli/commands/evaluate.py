"""`truepair evaluate`: metrics of a saved model on held-out interactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from truepair.cli.console import Console
from truepair.cli.options import ModelFile, SourceText, unpacked, whole_numbers
from truepair.cli.sources import Reading
from truepair.errors import InputError

if TYPE_CHECKING:
    from truepair.data.interactions import Interactions
    from truepair.evaluation import Evaluation


@unpacked
def evaluate(
    model: ModelFile,
    source: SourceText,
    *,
    k: Annotated[
        str, typer.Option("-k", "--k", help="Lengths of the lists, separated by commas.")
    ] = "5,10,20",
    metric: Annotated[
        str | None, typer.Option(help="The metric with a confidence interval. [default: that of the model]")
    ] = None,
    reading: Reading,
    console: Console,
) -> None:
    """Evaluate a model on held-out interactions.

    Pairs that the model was trained on are neither recommended nor counted.
    """
    from truepair.evaluation import evaluate as evaluate_model
    from truepair.evaluation import parse_metric
    from truepair.recommender.estimator import Recommender

    fitted = Recommender.load(model)
    metric = metric or fitted.metric
    ks = {*whole_numbers("k", k), parse_metric(metric)[1]}
    target, left_out = held_out(reading.interactions(source, not console.quiet), fitted.seen_)
    found = evaluate_model(fitted, target, exclude=fitted.seen_, ks=sorted(ks))
    facts = _facts(found, metric, left_out)
    low, high = facts["interval"]
    remarks = [f"{count:,} pairs left out: {why}" for why, count in left_out.items() if count]
    text = f"{metric} {found.mean(metric):.4f} [{low:.4f}, {high:.4f}] (95% over users)"
    console.give("\n".join([found.table(), *remarks, text]), facts)


def held_out(given: Interactions, seen: Interactions) -> tuple[Interactions, dict[str, int]]:
    """The pairs that are not in `seen`, in its codes, and how many were left out for which reason."""
    import numpy as np

    from truepair.data.interactions import Interactions

    users = seen.user_ids.find(given.user_ids, "user")[given.users]
    items = seen.item_ids.find(given.item_ids, "item")[given.items]
    known = (users >= 0) & (items >= 0)
    target = Interactions(users[known], items[known], seen.user_ids, seen.item_ids)
    trained_on = seen.has(target.users, target.items)
    left_out = {
        "the model does not know the user": int((users < 0).sum()),
        "the model does not know the item": int(((users >= 0) & (items < 0)).sum()),
        "the model was trained on them": int(np.sum(trained_on)),
    }
    if trained_on.all():
        reasons = ", ".join(f"{why}: {count:,}" for why, count in left_out.items() if count)
        raise InputError(
            f"none of the {len(given):,} pairs can be evaluated ({reasons}); give held-out pairs."
        )
    return target.take(~trained_on), left_out


def _facts(found: Evaluation, metric: str, left_out: dict[str, int]) -> dict[str, Any]:
    return {
        "users": found.n_users,
        "metric": metric,
        "mean": found.mean(metric),
        "interval": list(found.interval(metric)),
        "metrics": {**found.means, **found.catalogue},
        "left_out": left_out,
    }
