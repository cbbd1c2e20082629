"""What the guard of automatic retraining lets pass: its power, and what is left after many promotions.

    python lab/benchmarks/retraining_guard.py --out lab/results/retraining-guard.json   # minutes
    python lab/benchmarks/retraining_guard.py --quick                                   # seconds

The values are NDCG@20 of each user of a simulated world for four updates of one model, each with another half
of the newest pairs, scaled to the same mean. A candidate is one of them times 1 + change, the served model is
another one; users are samples with replacement. `loss_test` and `verdict` are those of the service.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

import truepair as tp
from truepair.evaluation.metrics import Floats
from truepair.serving.retraining.judging import MARGIN, MOST_USERS, loss_test, verdict

MARGINS, USERS = (0.0, 0.02, 0.05), (30, 100, 300, 1000, 3000)
CHANGES = {"10% worse": -0.1, "2% worse": -0.02, "equal": 0.0, "2% better": 0.02}
OUTCOMES = ("promoted", "refused", "waited")
STEPS = {"1% worse": (-0.01,), "equal": (0.0,), "1% worse or better": (-0.01, 0.01)}
ROUNDS = 3000
BEFORE = "unless significantly worse"
RULES = {
    BEFORE: None,
    "margin, served model": False,
    "margin, served and best model": True,
}
Rule = Callable[[Floats, list[Floats]], str]


def population(quick: bool) -> tuple[Floats, Floats]:
    """Values of four models that are equally good, (4, users), and of one that is not trained."""
    n_users, n_items, epochs = (800, 120, 3) if quick else (5000, 500, 10)
    world = tp.simulate_world(n_users, n_items, tau=0.3, density=0.1, seed=1)
    split = tp.split_random(world.observed, test=0.2, seed=0)
    late = tp.split_random(split.train, test=0.1, seed=1)
    found = []
    for seed in range(4):
        model = tp.Recommender(dim=32, epochs=epochs, auto=False).fit(late.train)
        model.update(tp.split_random(late.test, test=0.5, seed=seed).train)
        found.append(model.evaluate(split).values("ndcg@20"))
    untrained = tp.Recommender(dim=32, epochs=1, learning_rate=1e-9, auto=False, seed=5).fit(split.train)
    models = np.array(found)
    models *= models[0].mean() / models.mean(axis=1, keepdims=True)
    return models, untrained.evaluate(split).values("ndcg@20")


def with_margin(margin: float) -> Rule:
    """The rule of the service."""
    return lambda new, old: verdict([loss_test(new, one, margin) for one in old], len(new))


def unless_worse(new: Floats, old: list[Floats]) -> str:
    """The rule before: a candidate takes over unless it is worse with p < .05, two-sided."""
    difference = new - old[0]
    error = difference.std(ddof=1) / np.sqrt(len(new))
    return "refused" if difference.mean() < stdtrit(len(new) - 1, 0.025) * error else "promoted"


def power(models: Floats, untrained: Floats, samples: int, users: tuple[int, ...]) -> list[dict[str, Any]]:
    """A line for each rule, number of users and candidate: the share of each outcome."""
    rules = {BEFORE: unless_worse} | {f"margin {margin:.0%}": with_margin(margin) for margin in MARGINS}
    lines = []
    for n in users:
        found: dict[tuple[str, str], list[str]] = {}
        for seed in range(samples):
            rng = np.random.default_rng([n, seed])
            chosen = rng.integers(models.shape[1], size=n)
            new, old = models[rng.permutation(len(models))[:2]][:, chosen]
            candidates = {name: new * (1 + change) for name, change in CHANGES.items()}
            candidates["untrained"] = untrained[chosen]
            for rule, decide in rules.items():
                for name, candidate in candidates.items():
                    found.setdefault((rule, name), []).append(decide(candidate, [old]))
        for (rule, name), outcomes in found.items():
            shares = {one: outcomes.count(one) / samples for one in OUTCOMES}
            lines.append({"rule": rule, "candidate": name, "users": n, **shares})
    return lines


def chain(
    models: Floats, steps: tuple[float, ...], users: int, rule: bool | None, rounds: int, seed: int
) -> Any:
    """The served model's score after many rounds, of the first one's, and how many were promoted.

    `rule`: whether the best former model judges; None: the rule before. After waiting, the users of both
    rounds judge.
    """
    rng, promotions, waiting = np.random.default_rng([users, seed]), 0, 0
    served = best = (0, 1.0)  # the row of its values, its score
    for _ in range(rounds):
        row = rng.choice([row for row in range(len(models)) if row not in (served[0], best[0])])
        candidate = int(row), served[1] * (1 + rng.choice(steps))
        waiting = min(waiting + users, MOST_USERS)
        chosen = rng.integers(models.shape[1], size=waiting)
        new, old, top = (score * models[row, chosen] for row, score in (candidate, served, best))
        if rule is None:
            outcome = unless_worse(new, [old])
        else:
            outcome = with_margin(MARGIN)(new, [old, top] if rule else [old])
        if outcome == "promoted":
            served, promotions = candidate, promotions + 1
            best = candidate if loss_test(new, top, 0.0).p < 0.05 else best
        waiting = waiting if outcome == "waited" else 0
    return served[1], promotions


def chains(models: Floats, rounds: int, samples: int, n: int) -> list[dict[str, Any]]:
    """A line for each rule and kind of candidates."""
    lines = []
    for name, steps in STEPS.items():
        for title, rule in RULES.items():
            found = np.array([chain(models, steps, n, rule, rounds, seed) for seed in range(samples)])
            score, promotions = found.mean(axis=0)
            low = float(np.quantile(found[:, 0], 0.05))
            lines.append({"rule": title, "candidate": name, "users": n, "rounds": rounds,
                          "score": score, "low": low, "promotions": promotions})  # fmt: skip
    return lines


def percent(share: float) -> str:
    """A share as it is shown."""
    return f"{100 * share:.0f}"


def power_table(lines: list[dict[str, Any]]) -> str:
    """Promoted / refused / waiting, in percent."""
    users = sorted({line["users"] for line in lines})
    rows = ["| rule | candidate | " + " | ".join(f"{n:,} users" for n in users) + " |"]
    rows.append("|---" * (2 + len(users)) + "|")
    cells: dict[tuple[str, str], list[str]] = {}
    for line in sorted(lines, key=lambda line: line["users"]):
        shown = " / ".join(percent(line[one]) for one in OUTCOMES)
        cells.setdefault((line["rule"], line["candidate"]), []).append(shown)
    rows += [f"| {rule} | {name} | {' | '.join(row)} |" for (rule, name), row in cells.items()]
    return "\n".join(rows)


def chain_table(lines: list[dict[str, Any]]) -> str:
    """The score that is left, in percent of the first model's, and the promotions."""
    rows = ["| each candidate | rule | score left | 5% of the chains are below | promotions |"]
    rows.append("|---|---|---|---|---|")
    for line in lines:
        names = line["candidate"], line["rule"]
        numbers = f"{100 * line['score']:.1f}%", f"{100 * line['low']:.1f}%", f"{line['promotions']:.0f}"
        rows.append(f"| {' | '.join(names + numbers)} |")
    return "\n".join(rows)


def measured(quick: bool) -> dict[str, Any]:
    """All numbers."""
    models, untrained = population(quick)
    users, samples, rounds = ((30, 300), 20, 5) if quick else (USERS, 1000, 100)
    spread = (models[1] - (1 - MARGIN) * models[0]).std() / models[0].mean()
    return {
        "users": models.shape[1],
        "score": models[0].mean(),
        "untrained": untrained.mean(),
        "spread": spread,
        "samples": samples,
        "needed": {f"{m:.0%}": loss_test(models[1], models[0], m).needed for m in MARGINS},
        "power": power(models, untrained, samples, users),
        "chains": chains(models, rounds, 5 if quick else 100, 30 if quick else ROUNDS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file for the numbers")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    found = measured(options.quick)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['users']:,} users; users that margins need: {found['needed']}")
    print(power_table(found["power"]), chain_table(found["chains"]), sep="\n\n")


if __name__ == "__main__":
    main()
