"""Tables and the figure of what peers_at_scale.py measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truepair.reporting.figures import standalone
from truepair_lab.reporting.drawing import Panel, Series, draw_lines

Facts = dict[str, Any]
NEARLY = 0.99  # of the best score: among such trials, the quickest is chosen
COLUMNS = ("reading", "an iteration", "NDCG@20 at its end", "after")
TITLES = {"truepair": "truepair", "implicit": "implicit's ALS", "spark": "Spark's ALS"}
FIRST, LAST = "<!-- peers: python lab/benchmarks/peers_at_scale.py --report -->", "<!-- end of peers -->"
_HIGH = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def target_of(facts: Facts) -> float:
    """NDCG@20 that the weakest contestant reaches at its end; one that was stopped counts if all were."""
    reached = [one for one in facts["runs"] if one["curve"]]
    whole = [one for one in reached if "ended" not in one]
    return min((one["curve"][-1]["ndcg"] for one in whole or reached), default=0.0)


def seconds_to(run: Facts, target: float) -> float | None:
    """Seconds of training until a contestant is at the target; None if it never is."""
    return min((point["seconds"] for point in run["curve"] if point["ndcg"] >= target), default=None)


# --- tables ----------------------------------------------------------------------------------------------


def tables(sizes: list[Facts]) -> str:
    """A table for each size."""
    return "\n\n".join(table(facts) for facts in sizes)


def table(facts: Facts) -> str:
    """A row for each contestant, and a line on the target and the bounds."""
    target = target_of(facts)
    titles = [f"{size_name(facts['pairs'])} pairs", *COLUMNS, f"to {number(target)}", "peak memory"]
    rows = [titles, ["---"] * len(titles), *(cells_of(one, target) for one in facts["runs"])]
    bounds = facts["bounds"]
    return "\n".join(
        [
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            f"{facts['users']:,} users, {facts['items']:,} items, {facts['train']:,} pairs to train on. "
            f"Popular items alone reach {number(bounds['popularity'])}, the chances by which the pairs were "
            f"drawn {number(bounds['known chances'])}.",
        ]
    )


def cells_of(run: Facts, target: float) -> list[str]:
    """The row of a contestant, with dashes if it has no point."""
    title = ", ".join([TITLES[run["name"]], description(run["settings"])])
    if "ended" in run:
        title += f"; {run['ended']}"
    memory = f"{run['peak bytes'] / 1e9:.2f} GB"
    if not run["curve"]:
        return [title, *["–"] * 5, memory]
    last, reached = run["curve"][-1], seconds_to(run, target)
    numbers = [f"{seconds(run['stages'].get('reading', 0))}", seconds(last["seconds"] / last["iterations"])]
    numbers += [number(last["ndcg"]), seconds(last["seconds"])]
    return [title, *numbers, "not reached" if reached is None else seconds(reached), memory]


def description(settings: Facts) -> str:
    """What was run, in words."""
    if "loss" not in settings:
        return f"{settings['iterations']} iterations"
    loss = {"infonce": "InfoNCE", "bpr": "BPR"}.get(settings["loss"], settings["loss"])
    sampled = settings["n_unlabelled"]
    return f"{loss} with {sampled} sampled item{'s' * (sampled > 1)}, {settings['epochs']} epochs"


def size_name(pairs: int) -> str:
    """10⁶ for a power of ten, digits for other numbers."""
    power = len(str(pairs)) - 1
    return "10" + str(power).translate(_HIGH) if pairs == 10**power else f"{pairs:,}"


def number(score: float) -> str:
    """A score below 1 without its 0."""
    return f"{score:.4f}".removeprefix("0")


def seconds(value: float) -> str:
    """Three digits are enough."""
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def trial_table(facts: Facts) -> str:
    """The trials, with the chosen one of each contestant marked."""
    lines = []
    for name in dict.fromkeys(one["name"] for one in facts["runs"]):
        those = [one for one in facts["runs"] if one["name"] == name and one["curve"]]
        best = max((one["curve"][-1]["ndcg"] for one in those), default=0.0)
        near = [one for one in those if one["curve"][-1]["ndcg"] >= NEARLY * best]
        quickest = min(near, key=lambda one: one["curve"][-1]["seconds"], default=None)
        for one in those:
            last, mark = one["curve"][-1], "chosen" if one is quickest else ""
            lines.append(
                f"| {name} | {one['settings']} | {last['ndcg']:.4f} | {last['seconds']:.1f} s | {mark} |"
            )
    return "\n".join(lines)


# --- the page --------------------------------------------------------------------------------------------


def rebuilt(page: str, sizes: list[Facts]) -> str:
    """The page with the tables between its marks made anew."""
    before, found, rest = page.partition(FIRST)
    if not found or LAST not in rest:
        raise ValueError(f"the page has no {FIRST} … {LAST}")
    return f"{before}{FIRST}\n{tables(sizes)}\n{LAST}{rest.partition(LAST)[2]}"


def draw(sizes: list[Facts], path: Path) -> None:
    """A panel for each size: NDCG@20 by seconds of training, and the target."""
    panels = []
    for facts in sizes:
        series = {}
        for one in facts["runs"]:
            if one["curve"]:
                x, y = ([point[key] for point in one["curve"]] for key in ("seconds", "ndcg"))
                series[TITLES[one["name"]]] = Series(x, y, y, y, list(TITLES).index(one["name"]))
        title, marks = f"{facts['pairs']:,} pairs", {"target": target_of(facts)}
        label = "NDCG@20" if facts is sizes[0] else ""
        panels.append(Panel(title, series, "seconds of training", label, marks=marks, log="x"))
    path.write_text(standalone(draw_lines(panels, columns=len(panels))), encoding="utf-8")
