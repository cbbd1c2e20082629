"""Backtests: what a recommender would have been worth, period by period."""

from truepair.backtesting.results import Backtest
from truepair.backtesting.running import backtest
from truepair.backtesting.strategies import STRATEGIES

__all__ = ["STRATEGIES", "Backtest", "backtest"]
