"""The future as the test: the default against what is popular lately, EASE with decayed weights, and itself
without a trend.

The time of each dataset is cut at 50, 60, 70, 80 and 90% of the events; a model learns from what came before
a cut, and its lists are judged by what users with a history took before the next cut. All choices are made
before the cut: the default searches as `fit` does, popularity takes the half-life, and
EASE the regularisation, degree exponents and half-life of its weights that are best for the last part of the
time before the cut. Differences are over users, each the mean of the cuts that judge this user.

    python benchmarks/future.py --data DIR --out results/future      # DIR holds ml-100k/ and grocery/
    python benchmarks/future.py --out results/future --report docs/future.md
    python benchmarks/future.py --quick --out DIR                    # small worlds, two epochs

A case that has a line in the folder is not repeated. Other data with times: --source NAME=FILE.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import truepair as tp
from truepair.data.durations import time_length
from truepair.evaluation import Validation
from truepair.evaluation.statistics import bootstrap_interval, sign_flip_test
from truepair.recommender.estimator import with_model
from truepair.search.automatic import judging_parts
from truepair_lab.store import rounded

METRIC = "ndcg@20"
CUTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
WORLDS: dict[str, dict[str, Any]] = {
    "items fade in 2 weeks": {"drift": 0.2, "lifetime": 2.0},
    "tastes move": {"drift": 0.5, "lifetime": 8.0},
    "items fade, tastes move": {"drift": 0.4, "lifetime": 4.0},
    "nothing changes": {"drift": 0.0, "lifetime": 1000.0, "new_items": 0.0},
}
SIZE: dict[str, Any] = {"n_users": 1500, "n_items": 800, "periods": 20, "pairs": 40, "seed": 31}
EASES = [(l2, power) for l2 in (167.0, 500.0, 1500.0) for power in (0.0, 0.25)]
EASE_HALF_LIVES = (None, "8d", "32d", "128d")

Floats = npt.NDArray[np.float64]


def cases(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], tp.Interactions]]]:
    """The name and the interactions of each case."""
    for given in args.source or []:
        name, _, path = given.partition("=")
        yield name, partial(tp.read_interactions, path)
    if args.data is not None:
        yield "ml-100k", lambda: tp.load_dataset("ml-100k", args.data)
        yield "grocery", lambda: tp.read_interactions(args.data / "grocery" / "train.csv").k_core(5)
    size = {**SIZE, "n_users": 300, "n_items": 120, "periods": 10, "pairs": 40} if args.quick else SIZE
    for name, world in WORLDS.items():
        yield name, partial(tp.simulate_drift, **size, **world)


TIMELESS = "default, timeless"  # the same fit without its trend, which a search with trend="none" ends in


def contestants(args: argparse.Namespace) -> dict[str, Callable[[tp.Split], tp.Recommender]]:
    """How each is fitted to the train part of a split; but for the timeless one, which is of the first."""
    own: dict[str, Any] = {"metric": METRIC, **({"epochs": 2} if args.quick else {})}
    return {
        "default": lambda split: tp.Recommender(**own).fit(split),
        "popular lately": lambda split: tp.Recommender(encoder=tp.Popular("auto"), metric=METRIC).fit(split),
        "popular": lambda split: tp.Recommender(encoder="popular", metric=METRIC).fit(split),
        "EASE, decayed": fitted_ease,
    }


def decayed(data: tp.Interactions, half_life: str | None) -> tp.Interactions:
    """The interactions with weights that halve with every half-life before the last one."""
    if half_life is None:
        return data
    assert data.time is not None
    age = (data.time.max() - data.time) / time_length("half_life", half_life, data)
    return dataclasses.replace(data, weight=np.exp2(-age))


def fitted_ease(split: tp.Split) -> tp.Recommender:
    """EASE with the settings that are best for the last part of the time of the train part."""
    spec = tp.Recommender(metric=METRIC, hold_out="time").spec
    part = judging_parts(spec, split)
    assert part.valid is not None
    judge = Validation(part.valid, part.train, METRIC)
    device = spec.settings.torch_device()
    scores: dict[tuple[str | None, float, float], float] = {}
    for half_life in EASE_HALF_LIVES:
        train = decayed(part.train, half_life)
        for l2, power in EASES:
            scores[half_life, l2, power] = judge.score(*tp.EASE(l2, power, power).solve(train, device))
    half_life, l2, power = max(scores, key=scores.__getitem__)
    model = tp.Recommender(encoder=tp.EASE(l2, power, power), metric=METRIC).fit(
        decayed(split.train, half_life)
    )
    model.facts_["chosen"] = {"half_life": half_life, "l2": l2, "power": power}
    return model


def splits(data: tp.Interactions, shares: tuple[float, ...]) -> Iterator[tuple[float, tp.Split]]:
    """For each cut, what came before, and what came until the next one."""
    assert data.time is not None
    times = np.sort(data.time)
    moments = [times[min(int(share * len(times)), len(times) - 1)] for share in shares]
    for share, (start, end) in zip(shares, itertools.pairwise(moments), strict=False):
        until = data.take(data.time < end) if share < shares[-2] else data
        yield share, tp.split_temporal(until, at=float(start))


def run(args: argparse.Namespace) -> None:
    """Add a line for each case that has none."""
    args.out.mkdir(parents=True, exist_ok=True)
    done = {line["case"] for line in lines(args.out)}
    for name, load in cases(args):
        if name in done or args.case not in (None, name):
            continue
        data, cuts, shares = load(), [], CUTS[-3:] if args.quick else CUTS
        names = ("default", TIMELESS, *list(contestants(args))[1:])
        users = {one: np.full((len(shares) - 1, data.n_users), np.nan) for one in names}
        for at, (share, split) in enumerate(splits(data, shares)):
            known = np.flatnonzero((split.test.user_counts > 0) & (split.train.user_counts > 0))
            found: dict[str, Any] = {}
            model = tp.Recommender()
            for one in names:
                began = time.perf_counter()
                timeless = one == TIMELESS
                model = with_model(model.model_.timeless()) if timeless else contestants(args)[one](split)
                seconds = time.perf_counter() - began
                each = tp.evaluate(model, split, ks=(20,))
                values, is_known = each.values(METRIC), np.isin(each.users, known)
                own, new = values[is_known], values[~is_known]
                users[one][at, data.user_ids.codes(split.test.user_ids, "user")[known]] = own
                facts = model.facts_.get("automatic", {}).get("chosen", {})
                found[one] = {
                    "mean": own.mean(), "new users": new.mean() if len(new) else None, "seconds": seconds,
                    "chosen": model.facts_.get("chosen") or facts.get("trend", facts.get("half_life")),
                }  # fmt: skip
                print(f"{name}, cut {share:.0%}: {one} {own.mean():.4f} in {seconds:.1f} s", flush=True)
            cuts.append({"share": share, "users": len(known), "found": found})
        line = {"case": name, "data": repr(data), "cuts": cuts, "pooled": pooled(users)}
        with (args.out / "future.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(rounded(line)) + "\n")


def pooled(users: dict[str, Floats]) -> dict[str, Any]:
    """Means over cuts, and the default's differences from the others over users, in [cuts, users] values."""
    judged = ~np.isnan(users["default"]).all(axis=0)
    each = {name: np.nanmean(values[:, judged], axis=0) for name, values in users.items()}
    by_cut = {name: np.nanmean(values, axis=1) for name, values in users.items()}
    found: dict[str, Any] = {"users": int(judged.sum())}
    for name, values in each.items():
        one: dict[str, Any] = {"mean of users": values.mean(), "mean of cuts": by_cut[name].mean()}
        if name != "default":
            gain = each["default"] - values
            low, high = bootstrap_interval(gain)
            one |= {"gain": gain.mean(), "low": low, "high": high, "p": sign_flip_test(gain)}
            one["cuts won"] = int((by_cut["default"] > by_cut[name]).sum())
        found[name] = one
    return found


def lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of a folder."""
    texts = [text for path in sorted(folder.glob("*.jsonl")) for text in path.read_text().splitlines()]
    return [json.loads(text) for text in texts]


# --- the page ----------------------------------------------------------------------------------------------

HEAD = """# The future as the test

**Question.** Everybody who uses a recommender predicts the future. Is the default better there than what is
popular lately, than EASE with weights that fade, and than itself without a [trend](../../docs/time.md)?

`benchmarks/future.py` cuts the time of each dataset at 50, 60, 70, 80 and 90% of the events. A model learns
from what came before a cut; its lists are judged by the NDCG@20 of what users with a history took until the
next cut. All choices are made before the cut. The default searches as `fit` does. What is popular lately
has the half-life that is best for the last part of the time before the cut, and EASE has the best there of
24 settings: regularisation, degree exponents, and a half-life of its weights. The timeless default is the
same fit without its trend. One seed. Parts of the data had been looked at before: the rule that chooses the
trend was developed on cuts within the first 80% of MovieLens-100k and grocery, and on simulated worlds of
other seeds; earlier versions of it had been evaluated on the last fifth of MovieLens-100k, three times, and
of grocery, once.

Every number is computed from the lines of `results/future`; `benchmarks/future.py --report` writes this
page.
"""
TRIED = """## Tried, without a gain

**The term of the event's own moment in training.** A prototype of the default in plain PyTorch, whose rows
are users in one of 30 periods, had the chosen weights of recent popularity in its scores while it was
trained, so that vectors learn what the trend does not explain. NDCG@20 after the trend was chosen for the
finished vectors:

| | trained without | with | with half of the weights |
|---|---|---|---|
| MovieLens-100k, cut at 65% of its first 80% | .2083 | .1501 | .2344 |
| the same, cut at 80% | .2480 | .1421 | .1398 |

So the trend is added to finished vectors. The lines of this prototype were not kept (2026-11-19).

## Is the half-life found?

In worlds in which an item is taken in proportion to its events, which fade with a known half-life,
`Popular("auto")` found it within a factor of 2 in 9 of 10 seeds at 3 days, 9 at 10 days and 7 at 30 days,
of 30,000 events in 200 days (`benchmarks/half_life.py`, 2026-11-19). Where it misses, it is mostly too
short.

## What it costs

On two cores, the choice of the trend took .9 of the 9.2 s of the whole call on MovieLens-100k, and 1.3 of
9.7 s on the world whose items fade in 2 weeks (2026-11-19).
"""


def report(found: list[dict[str, Any]]) -> str:
    """The page, in Markdown."""
    head = ["case", "users", *(name for name in found[0]["pooled"] if name != "users")]
    means, gains, by_cut = [row(head), row(["---"] * len(head))], list[str](), list[str]()
    gains += [
        row(["case", "against", "gain of the default", "95% interval", "p", "cuts won"]),
        row(["---"] * 6),
    ]
    by_cut += [row(["case", "cut", *head[1:]]), row(["---"] * (len(head) + 1))]
    for line in found:
        pooled = line["pooled"]
        means.append(
            row([line["case"], f"{pooled['users']:,}", *(four(pooled[n]["mean of users"]) for n in head[2:])])
        )
        for name in head[3:]:
            one = pooled[name]
            interval = f"[{signed(one['low'])}, {signed(one['high'])}]"
            p = "< .001" if one["p"] < 0.001 else f"{one['p']:.3f}".lstrip("0")
            won = f"{one['cuts won']} of {len(line['cuts'])}"
            gains.append(row([line["case"], name, signed(one["gain"]), interval, p, won]))
        for cut in line["cuts"]:
            values = [four(cut["found"][name]["mean"]) for name in head[2:]]
            by_cut.append(row([line["case"], f"{cut['share']:.0%}", f"{cut['users']:,}", *values]))
    parts = [
        HEAD, "## Means\n\nUsers with a history who are judged, each the mean of the cuts that judge them.\n",
        *means, "\n## Differences\n\nOver these users; bootstrap intervals, and p of sign flips.\n",
        *gains, "\n## By cut\n", *by_cut, "", TRIED.rstrip(),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def row(cells: list[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def four(value: float) -> str:
    """Four digits."""
    return f"{value:.4f}".lstrip("0")


def signed(value: float) -> str:
    """Four digits with a sign."""
    return f"{'-' if value < 0 else '+'}{four(abs(value))}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the datasets, one folder each")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the result lines")
    parser.add_argument("--source", action="append", metavar="NAME=FILE", help="other data with times")
    parser.add_argument("--report", type=Path, help="write the page of what the folder holds; run nothing")
    parser.add_argument("--case", help="only this one")
    parser.add_argument("--quick", action="store_true", help="small worlds, two epochs")
    args = parser.parse_args()
    if args.report is None:
        run(args)
    else:
        args.report.write_text(report(lines(args.out)), encoding="utf-8")


if __name__ == "__main__":
    main()
