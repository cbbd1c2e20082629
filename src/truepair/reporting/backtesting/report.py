"""A backtest as a figure and as a page."""

from __future__ import annotations

from collections.abc import Callable

from truepair.data.split import counted
from truepair.reporting.backtesting.cells import Cell, PeriodResults
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
    name = metric_name(found.metric)
    panels = [
        Panel(name, {way: _quality(found.of(way)) for way in found.strategies}),
        Panel(f"{name}, known people", _known_series(found)),
        Panel("Seconds of training", {way: _seconds(found.of(way)) for way in _trained(found)}),
    ]
    x = [period.number for period in found.periods]
    for title, share in _SHARES.items():
        y = [100 * share(period) for period in found.periods]
        panels.append(Panel(title, {"_": Series(x, y, y, y, _OTHER)}, xlabel="period"))
    return draw_bands(panels, columns=3)


def _quality(cells: list[Cell]) -> Series:
    low, high = [cell.low for cell in cells], [cell.high for cell in cells]
    return Series(_x(cells), [cell.value for cell in cells], low, high, _COLOURS[cells[0].strategy])


def _known_series(found: PeriodResults) -> dict[str, Series]:
    """The means of people with a pair before the period; periods without any have no point."""
    drawn = {}
    for way in found.strategies:
        cells = [cell for cell in found.of(way) if cell.known is not None]
        y = [cell.known for cell in cells if cell.known is not None]
        drawn[way] = Series(_x(cells), y, y, y, _COLOURS[way])
    return drawn


def _trained(found: PeriodResults) -> list[str]:
    return [way for way in found.strategies if way not in ("nothing", "popularity")]


def _seconds(cells: list[Cell]) -> Series:
    cells = cells[1:]  # the first period has the search for settings, and is the same for all
    y = [cell.seconds for cell in cells]
    return Series(_x(cells), y, y, y, _COLOURS[cells[0].strategy])


def _x(cells: list[Cell]) -> list[float]:
    return [cell.period for cell in cells]


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
    head = [
        "",
        "from",
        "people",
        "pairs",
        "not judged",
        "new people",
        "new items",
        "newness",
        *found.strategies,
    ]
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
    return Table(head, rows, caption)


def _summary(found: PeriodResults) -> Section:
    def percent(share: float | None) -> str:
        return "–" if share is None else f"{share:.1%}"

    rows = [
        [
            line.strategy,
            f"{line.value:.4f}",
            percent(line.to_retrain),
            "–" if line.known is None else f"{line.known:.4f}",
            f"{line.seconds:.1f}",
            percent(line.time_to_retrain),
        ]
        for line in found.summary()
    ]
    head = ["", metric_name(found.metric), "of retrain", "known people", "seconds", "of retrain"]
    caption = (
        "The mean over the periods after the first, in which all trained strategies have the same model."
    )
    about = [Text(f"{name}: {STRATEGIES[name].about}.") for name in found.strategies]
    return Section("Strategies", [Table(head, rows, caption), *about])


def _people(found: PeriodResults) -> Section:
    def mean(value: float | None) -> str:
        return "–" if value is None else f"{value:.4f}"

    rows = [
        [
            f"{cell.strategy}, period {cell.period}",
            f"{cell.value:.4f} [{cell.low:.4f}, {cell.high:.4f}]",
            f"{cell.known_users:,}",
            mean(cell.known),
            f"{cell.users - cell.known_users:,}",
            mean(cell.new),
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
