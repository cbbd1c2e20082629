"""Speed of ranking and of evaluation."""

from __future__ import annotations

import torch

from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.evaluation import evaluate
from truepair.ranking.prepared_items import Matrix
from truepair.ranking.selection import top_k
from truepair_lab.benchmarks.outcome import Measure, Options, Outcome, Row, Skipped, alternate, medians
from truepair_lab.benchmarks.peers import lists_of_implicit
from truepair_lab.benchmarks.truepair_side import factors, gowalla, movielens_1m, timed

K = 20
RANKING_BAR = 0.7  # of implicit's time
EVALUATION_BAR = 1.5  # times the ranking that it needs


def ranking_speed(options: Options) -> Outcome:
    """Top-20 lists for all users of Gowalla, d = 64, against implicit's `recommend`."""
    train = gowalla(options).train
    users, items = factors(train, 64, options.seed)
    return compare_lists("Gowalla d=64", users, items, train, options)


def compare_lists(data: str, users: Matrix, items: Matrix, train: Interactions, options: Options) -> Outcome:
    """Alternate our lists with implicit's, called in the way that is quickest here."""
    outcome = Outcome(settings={"k": K, "threads": torch.get_num_threads()})
    measures = {"truepair": timed(lambda: top_k(users, items, K, exclude=train))}
    try:
        name, measure = _quickest(lists_of_implicit(users, items, train, K, torch.get_num_threads()), options)
        outcome.settings["implicit"] = name
        measures["implicit"] = measure
    except Skipped as skipped:
        outcome.skipped.append(str(skipped))
    outcome.rounds = alternate(measures, options, f"{data}, top-{K} of all users, ")
    middle = medians(outcome.rounds)
    row = Row(f"{data}, top-{K} of {len(users):,} users", middle["truepair"], "s")
    if "implicit" in middle:
        row = Row(row.what, row.value, row.unit, "implicit", middle["implicit"], RANKING_BAR)
    outcome.rows.append(row)
    return outcome


def _quickest(measures: dict[str, Measure], options: Options) -> tuple[str, Measure]:
    tried = {}
    for name, measure in measures.items():
        tried[name] = measure()
        options.say(f"implicit, {name}: {tried[name]:.4g}")
    best = min(tried, key=tried.__getitem__)
    return best, measures[best]


def evaluation_speed(options: Options) -> Outcome:
    """All metrics at 5, 10 and 20 on ML-1M, d = 32, against the top-20 lists alone."""
    split = movielens_1m(options)
    users, items = factors(split.train, 32, options.seed)
    return compare_evaluation("ML-1M d=32", users, items, split, options)


def compare_evaluation(data: str, users: Matrix, items: Matrix, split: Split, options: Options) -> Outcome:
    """Alternate the whole evaluation with the ranking in it."""
    judged = split.test.user_counts.nonzero()[0]
    measures = {
        "evaluation": timed(lambda: evaluate((users, items), split)),
        "ranking": timed(lambda: top_k(users, items, K, rows=judged, exclude=split.train)),
    }
    rounds = alternate(measures, options, f"{data}, ")
    middle = medians(rounds)
    what = f"{data}, all metrics at 5, 10, 20 of {len(judged):,} users"
    peer = f"its top-{K} alone"
    row = Row(what, middle["evaluation"], "s", peer, middle["ranking"], EVALUATION_BAR)
    return Outcome([row], rounds, {"k": K, "threads": torch.get_num_threads()})
