"""Backtests: what a recommender would have been worth, period by period."""

from truepair.reporting.backtesting.results import Backtest
from truepair.reporting.backtesting.running import backtest
from truepair.reporting.backtesting.strategies import STRATEGIES

__all__ = ["STRATEGIES", "Backtest", "backtest"]
