"""`truepair evaluate` and `compare`: metrics of a saved model; models on one split."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import truepair as tp
from truepair.cli.configuration import Training
from truepair.cli.console import Console, aligned
from truepair.cli.options import (
    ColdUsers,
    ModelFile,
    SourceText,
    TestAfter,
    TestPart,
    argument,
    option,
    refuse,
)
from truepair.cli.sources import Reading, find_source, whole_numbers
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


def evaluate(model: ModelFile, args: EvaluateOptions, reading: Reading, console: Console) -> None:
    """Evaluate a model on held-out interactions, or on judged pairs.

    SOURCE is read as the data of the fit were (feedback, columns, missing values, …), but for what is given.
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
        given = reading.read(args.source, console, fitted.seen_) if split is None else split.test
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
    facts |= {"mean": mean, "interval": [low, high], "metrics": found.to_dict()}
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
        raise InputError(f"--min-rating {least:g}: {without_password(path)} has no ratings; give --rating.")
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
        raise InputError(f"none of the {len(given):,} interactions can be judged ({reasons}); give others.")
    return target.take(~trained_on), left_out


RECENT = "popular lately"
"""The baseline of splits by time."""

_ON_PARAMETERS = (
    "losses have the given options, and else the defaults of `fit`, which were not chosen for the data; "
    "`truepair tune --loss NAME` finds a loss's own"
)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of `compare` alone."""

    losses: str = option(
        "Losses, or encoders without training, separated by commas; the first is the baseline: "
        "{truepair.losses.LOSSES}; {truepair.models.closed_forms.CLOSED}.",
        default="bpr,dpl",
    )
    seeds: int = option("Train each loss with this many seeds, and average.", default=1, min=1)
    test: TestPart = None
    test_after: TestAfter = None


def compare(
    source: SourceText, args: CompareOptions, training: Training, reading: Reading, console: Console
) -> None:
    """Compare losses, and models without training, on one split.

    Each is what `fit` makes of it with the same options: infonce has automatic settings (--no-auto: none),
    other losses have their defaults, which were not chosen for the data. `truepair tune --loss NAME` finds a
    loss's own. Each fitted model is evaluated once on the test part; without --test it is the given one, else
    a share of 0.2. A validation part, if one is held out, chooses the epoch; with the default sampler `full`
    none is held out, and the last epoch is used. --test-after splits by time, and then what is popular lately
    is compared, too.

    Example:
      truepair compare ml-100k --losses bpr,dcl,dpl --seeds 3 --min-rating 4
    """
    from truepair.data.split import counted

    models = _models(training, [name.strip() for name in args.losses.split(",")], console)
    trained = [model for model in models.values() if model.spec.closed_form is None]  # checks all parameters
    first = (trained or list(models.values()))[0]  # closed forms hold nothing out
    test = args.test or (None if args.test_after else reading.test_of(source) or "0.2")
    split = reading.split(source, test, args.test_after, first, console)
    if split.recipe.startswith("temporal"):
        models[RECENT] = tp.Recommender(encoder=tp.Popular("auto"), metric=first.metric)
    runs = {name: _run(name, model, split, args.seeds, console) for name, model in models.items()}
    merged = {name: mean_over_seeds([found for _, found in those]) for name, those in runs.items()}
    first_found = next(iter(merged.values()))
    against = {one.a: one for one in tp.compare_all(merged, first.metric, baseline=next(iter(models)))}
    rows = [_row(name, merged[name], against.get(name), first.metric) for name in models]
    users = f"{first_found.n_users:,} users, {counted(args.seeds, 'seed')} a loss"
    notes = [f"95% intervals over {users}; p by sign flips, corrected by Holm; the baseline is the first"]
    chosen = [name for name, model in models.items() if model.spec.searched]
    if chosen:
        notes.append(f"{', '.join(chosen)}: automatic settings, as in `fit`; --no-auto leaves them out")
    notes += [_ON_PARAMETERS] if len(trained) > len(chosen) else []
    if trained and args.seeds == 1:
        notes.append("one training run per loss: --seeds 3 averages over random seeds")
    if cold := len(first_found.cold_users):
        notes.append(f"{cold:,} of the users have no trained pair; they get the most popular items")
    facts = {
        name: {
            "mean": found.mean(first.metric),
            "interval": list(found.interval(first.metric)),
            "metrics": found.to_dict(),
            "groups": found.groups,
            "runs": [{**facts, "test": one.mean(first.metric)} for facts, one in runs[name]],
            "against_baseline": {**asdict(against[name]), "verdict": against[name].verdict}
            if name in against
            else None,
        }
        for name, found in merged.items()
    }
    whole = {"split": split.hash, "metric": first.metric, "seeds": args.seeds, "losses": facts}
    console.give("\n".join([aligned(rows), *notes]), {"source": without_password(source), **whole})


def _models(training: Training, names: list[str], console: Console) -> dict[str, tp.Recommender]:
    from truepair.losses import LOSSES
    from truepair.models.closed_forms import CLOSED
    from truepair.spec.defaults import USED_BY_CLOSED_FORMS

    if any(text.partition("=")[0].strip() == "loss" for text in training.set or []):
        raise InputError("--set loss=… has no effect here; name the losses with --losses.")
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"losses = {','.join(names)!r} must name two or more different losses.")
    for name in names:
        check_choice("losses", name, [*LOSSES, *CLOSED])
    flats = {name: training.flat(loss=name) for name in names if name in LOSSES}
    without_prior = [name for name in flats if not LOSSES[name].uses_prior]
    for name in without_prior if len(without_prior) < len(flats) else ():  # if no loss has one, fit raises
        for tau in [key for key in ("tau", "loss.tau") if key in flats[name]]:
            console.say(f"{name} has no prior: {tau} = {flats[name].pop(tau)} is ignored for it")
    used = USED_BY_CLOSED_FORMS if flats else None  # beside losses, not what only training uses
    for name in names:
        if name in CLOSED:
            flat = training.flat(encoder=name)
            flats[name] = {key: flat[key] for key in flat if used is None or key in used}
    return {name: tp.Recommender.of(flats[name]) for name in names}


def _run(
    name: str, model: tp.Recommender, split: tp.Split, seeds: int, console: Console
) -> list[tuple[Json, tp.Evaluation]]:
    """For each seed the facts of the training, and the evaluation."""
    from truepair.evaluation import parse_metric

    _, k = parse_metric(model.metric)
    start, found = model.seed, []
    # a closed form does not depend on a seed
    for seed in range(start, start + (seeds if model.spec.closed_form is None else 1)):
        console.say(f"{name}, seed {seed}")
        model.set_params(seed=seed).fit(split, progress=not console.quiet)
        facts = {"seed": seed, "epoch": model.result_.epoch, "validation": model.result_.score}
        facts["automatic"] = model.facts_.get("automatic")
        found.append((facts, model.evaluate(split, ks=(k,))))
    return found


def mean_over_seeds(found: list[tp.Evaluation]) -> tp.Evaluation:
    """One evaluation whose values are, user by user, the means of those given."""
    import numpy as np

    per_user = {name: np.mean([one.per_user[name] for one in found], axis=0) for name in found[0].per_user}
    over_all = {name: float(np.mean([one.catalogue[name] for one in found])) for name in found[0].catalogue}
    return replace(found[0], per_user=per_user, catalogue=over_all)


def _row(name: str, found: tp.Evaluation, one: tp.Comparison | None, metric: str) -> Json:
    low, high = found.interval(metric)
    return {
        "loss": name,
        metric: found.mean(metric),
        "interval": f"[{low:.4f}, {high:.4f}]",
        "difference": "" if one is None else f"{one.difference:+.4f} [{one.low:+.4f}, {one.high:+.4f}]",
        "p": "" if one is None else f"{one.p_corrected:.4f}",
        "verdict": "baseline" if one is None else one.verdict,
    }
