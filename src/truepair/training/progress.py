"""A progress bar for training: loss, validation score, clamped share, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from truepair.training.result import EpochRecord


class Progress(NamedTuple):
    """What receives every step and every epoch; by default it shows nothing."""

    step: Callable[[int], None] = lambda steps: None  # gets the number of finished batches
    epoch: Callable[[EpochRecord], None] = lambda record: None


@contextmanager
def show_progress(shown: bool, epochs: int, done: int, steps: int, metric: str) -> Iterator[Progress]:
    """A bar on stderr over what is left of `epochs` of `steps` batches each, if `shown`."""
    if not shown:
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"epoch {done}/{epochs}", total=epochs * steps, completed=done * steps)
        yield Progress(
            step=lambda steps: bar.advance(task, steps),
            epoch=lambda record: bar.update(task, description=describe_epoch(record, epochs, metric)),
        )


def describe_epoch(record: EpochRecord, epochs: int, metric: str) -> str:
    """One line about an epoch."""
    facts = [f"epoch {record.epoch}/{epochs}", f"loss {record.loss:.4f}"]
    facts += [f"{metric} {record.score:.4f}"] if record.score is not None else []
    facts += [f"clamped {record.clamped:.1%}"] if record.clamped is not None else []
    return "  ".join(facts)
