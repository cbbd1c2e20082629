"""A backtest as a figure and as a page."""

from __future__ import annotations

from collections.abc import Callable

from truepair.data.split import counted
from truepair.reporting.backtesting.cells import Cell, PeriodResults, shown
from truepair.reporting.backtesting.periods import Period
from truepair.reporting.backtesting.strategies import STRATEGIES
from truepair.reporting.figures import Panel, Series, draw_bands
from truepair.reporting.page import Figure, Page, Section, Table, Text, metric_name

_COLOURS = {name: place for place, name in enumerate(STRATEGIES)}
_OTHER = len(STRATEGIES)  # the colour of what does not belong to a strategy
_SHARES: dict[str, Callable[[Period], float]] = {
    "New items in the catalogue, %": lambda period: period.newness,
    "Pairs of new people, %": lambda period: period.new_user_share,
    "Pairs of new items, %": lambda period: period.new_item_share,
}


def figure(found: PeriodResults) -> str:
    """Quality and training time of each strategy, and what is new, by period; as SVG."""
    name, cells = metric_name(found.metric), {way: found.of(way) for way in found.strategies}
    # seconds: the first period has the search for settings, and is the same for all
    later = {way: those[1:] for way, those in cells.items() if way not in ("nothing", "popularity")}
    panels = [
        Panel(name, {way: _series(those, "value") for way, those in cells.items()}),
        Panel(f"{name}, known people", {way: _series(those, "known") for way, those in cells.items()}),
        Panel("Seconds of training", {way: _series(those, "seconds") for way, those in later.items()}),
    ]
    x = [period.number for period in found.periods]
    for title, share in _SHARES.items():
        y = [100 * share(period) for period in found.periods]
        panels.append(Panel(title, {"_": Series(x, y, y, y, _OTHER)}, xlabel="period"))
    return draw_bands(panels, columns=3)


def _series(cells: list[Cell], name: str) -> Series:
    """A strategy's value by period, where there is one; the mean of all users has a band."""
    colour = _COLOURS[cells[0].strategy]
    shown = [cell for cell in cells if getattr(cell, name) is not None]
    x, y = [cell.period for cell in shown], [getattr(cell, name) for cell in shown]
    if name != "value":
        return Series(x, y, y, y, colour)
    return Series(x, y, [cell.low for cell in shown], [cell.high for cell in shown], colour)


def conclusion(found: PeriodResults) -> str:
    """The means of the strategies over the periods after the first, in a sentence."""
    lines = found.summary()
    best = max(lines, key=lambda line: line.value)
    others = ", ".join(f"{line.strategy} {line.value:.4f}" for line in lines if line is not best)
    text = f"Over the periods after the first, {best.strategy} has the highest {metric_name(found.metric)}"
    return f"{text}, {best.value:.4f}" + (f" ({others})." if others else ".")


def backtest_page(found: PeriodResults, title: str) -> Page:
    """The report."""
    lead = (
        f"{counted(len(found.periods), 'period')}, from {found.periods[0].date} on: each model learns from "
        "what came before a period, and is judged on the period."
    )
    alt = f"{metric_name(found.metric)} of {', '.join(found.strategies)} by period, as in the table below"
    caption = (
        "Bands are 95% bootstrap intervals over people. Training time is shown from the second period on. A "
        "new person or item has no pair before the period."
    )
    quality = Section(
        "Quality over time",
        [Text(conclusion(found), strong=True), Figure(figure(found), alt, caption), _by_period(found)],
    )
    return Page(title, lead, [quality, _summary(found), _people(found), _how(found)])


def _by_period(found: PeriodResults) -> Table:
    head = ["", "from", "people", "pairs", "not judged", "new people", "new items", "newness"]
    rows = [
        [
            period.number,
            period.date,
            f"{period.users:,}",
            f"{period.pairs:,}",
            f"{period.new_item_pairs:,}",
            *(f"{share:.0%}" for share in (period.new_user_share, period.new_item_share, period.newness)),
            *(f"{cell.value:.4f}" for cell in found.cells if cell.period == period.number),
        ]
        for period in found.periods
    ]
    caption = (
        "Not judged: pairs of items that nobody had before. New people and new items are shares of the "
        "period's pairs; newness is the share of new items in the catalogue at its end."
    )
    return Table([*head, *found.strategies], rows, caption)


def _summary(found: PeriodResults) -> Section:
    head, *rows = found.summary_rows("–")
    head[:2] = ["", metric_name(found.metric)]
    caption = (
        "The mean over the periods after the first, in which all trained strategies have the same model."
    )
    about = [Text(f"{name}: {STRATEGIES[name].about}.") for name in found.strategies]
    return Section("Strategies", [Table(head, rows, caption), *about])


def _people(found: PeriodResults) -> Section:
    rows = [
        [
            f"{cell.strategy}, period {cell.period}",
            f"{cell.value:.4f} [{cell.low:.4f}, {cell.high:.4f}]",
            f"{cell.known_users:,}",
            shown(cell.known, ".4f", "–"),
            f"{cell.users - cell.known_users:,}",
            shown(cell.new, ".4f", "–"),
            f"{cell.trained_users:,}",
            f"{cell.unknown_pairs:,}",
        ]
        for way in found.strategies
        for cell in found.of(way)
    ]
    head = ["", "all people", "known", "mean", "new", "mean", "trained", "items unknown"]
    caption = (
        "Known people have a pair before the period, new people have none. Trained: people with a pair that "
        "the model was trained on; the others get the most popular items. Items unknown: judged pairs whose "
        "item the model does not know, which count as misses."
    )
    return Section("Known and new people", [Table(head, rows, caption)])


def _how(found: PeriodResults) -> Section:
    rows = [[name, str(value)] for name, value in found.facts.items()]
    return Section("How it was measured", [*map(Text, found.notes()), Table(["", ""], rows, numbers=False)])
