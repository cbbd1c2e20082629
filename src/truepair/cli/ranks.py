"""Ranks: a command that torchrun starts in several processes prints and writes in one of them."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, NamedTuple

from truepair.cli.console import Console
from truepair.cli.options import refuse
from truepair.errors import InputError

if TYPE_CHECKING:
    from truepair.recommender.estimator import Recommender


class Ranks(NamedTuple):
    """Which of how many processes this one is, by the environment that torchrun makes."""

    rank: int = 0
    size: int = 1

    @staticmethod
    def here() -> Ranks:
        """Those of this process."""
        rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
        return Ranks(int(rank), int(size)) if rank.isdecimal() and size.isdecimal() else Ranks()

    @property
    def is_first(self) -> bool:
        """Whether this process prints the result and writes the model."""
        return self.rank == 0

    def console(self, console: Console) -> Console:
        """One that prints nothing, on all ranks but the first."""
        return console if self.is_first else dataclasses.replace(console, quiet=True, json=False)

    def prepare(self, model: Recommender, budget: str | None) -> None:
        """Several processes train with engine "distributed"; raise for what they cannot do together."""
        if self.size == 1:
            return
        if model.spec.closed_form is not None:
            raise InputError(
                f"{self.size} processes were started, and {model.spec.closed_form} is not trained; start one."
            )
        if model.engine == "auto":
            model.set_params(engine="distributed")
        if model.engine != "distributed":
            raise InputError(
                f"engine = {model.engine!r} trains in one process, and {self.size} were started; use "
                "--engine distributed, or start one."
            )
        refuse({"--budget": budget}, f"with {self.size} processes, whose clocks differ")
