"""Results of a backtest as values: a cell for each period and strategy, and a summary for each strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from truepair.errors import check_choice
from truepair.reporting.backtesting.periods import Period


@dataclass(frozen=True)
class Cell:
    """The result of one strategy in one period: the mean of the metric over users, and its 95% interval."""

    period: int
    strategy: str
    value: float
    low: float
    high: float
    users: int
    known_users: int  # with a pair before the period: the same for all strategies
    known: float | None  # their mean; None without any
    new: float | None  # the mean of new users
    trained_users: int  # with a pair that the model was trained on; the others get the most popular items
    unknown_pairs: int  # judged pairs whose item the model does not know
    train_pairs: int  # pairs that the model knows
    seconds: float  # of training


@dataclass(frozen=True)
class Summary:
    """A strategy over all periods after the first, in which all trained strategies have the same model."""

    strategy: str
    value: float  # the mean over periods
    known: float | None  # the mean of users with a pair before the period, weighted by their number
    to_retrain: float | None  # the value as a share of retraining's
    seconds: float
    time_to_retrain: float | None  # the seconds as a share of retraining's


@dataclass(frozen=True, eq=False, repr=False)
class PeriodResults:
    """Quality over time. `cells` are in the order of periods, then of strategies."""

    metric: str
    periods: tuple[Period, ...]
    cells: tuple[Cell, ...]
    facts: Mapping[str, object] = field(default_factory=dict)  # data, cuts, parameters, chosen settings

    @property
    def strategies(self) -> list[str]:
        """Their names, in order."""
        return list(dict.fromkeys(cell.strategy for cell in self.cells))

    def of(self, strategy: str) -> list[Cell]:
        """The results of a strategy, by period."""
        check_choice("strategy", strategy, self.strategies)
        return [cell for cell in self.cells if cell.strategy == strategy]

    def summary(self) -> list[Summary]:
        """One line a strategy: means over the periods after the first, and the time beside retraining's."""
        whole = {name: self.of(name)[1:] for name in self.strategies}
        value = {name: sum(cell.value for cell in cells) / len(cells) for name, cells in whole.items()}
        seconds = {name: sum(cell.seconds for cell in cells) for name, cells in whole.items()}
        return [
            Summary(
                name,
                value[name],
                _known_mean(cells),
                _share(value[name], value.get("retrain")),
                seconds[name],
                _share(seconds[name], seconds.get("retrain")),
            )
            for name, cells in whole.items()
        ]

    def summary_rows(self, missing: str) -> list[list[str]]:
        """A head, and the summary of each strategy as text; `missing` stands for what there is not."""
        rows = [["periods 2 on", self.metric, "known people", "of retrain", "seconds", "of retrain"]]
        for line in self.summary():
            known = shown(line.known, ".4f", missing)
            shares = [shown(share, ".1%", missing) for share in (line.to_retrain, line.time_to_retrain)]
            rows.append(
                [line.strategy, f"{line.value:.4f}", known, shares[0], f"{line.seconds:.1f}", shares[1]]
            )
        return rows

    def notes(self) -> list[str]:
        """How to read the numbers."""
        unknown = sum(period.new_item_pairs for period in self.periods)
        pairs = sum(period.pairs for period in self.periods)
        return [
            f"{self.metric}: means over the users of a period. New people, new items: shares of its pairs.",
            f"{unknown:,} of {pairs:,} pairs are of items that nobody had before the period: no model could "
            "recommend them, and they are not judged.",
        ]


def shown(value: float | None, form: str, missing: str) -> str:
    """A number as text, or the text for a missing one."""
    return missing if value is None else format(value, form)


def _known_mean(cells: list[Cell]) -> float | None:
    n = sum(cell.known_users for cell in cells)
    return sum(cell.known * cell.known_users for cell in cells if cell.known is not None) / n if n else None


def _share(value: float, whole: float | None) -> float | None:
    return value / whole if whole else None
