"""A search whose optimum is known, and a runner of its trials."""

import math

from truepair.search.domains import Choice, Powers, Range
from truepair.search.running import run_search

SPACE = {"x": Range(1e-3, 1e-1, log=True), "encoder.dim": Powers(4, 64), "kind": Choice(["a", "b"])}


def height(p, at=16, centre=-2.0):
    """Highest, 1, at x = 10^centre, dim = at, kind b."""
    far = (math.log10(p["x"]) - centre) ** 2 + (math.log2(p["encoder.dim"]) - math.log2(at)) ** 2 / 8
    return 1 - far - (0.1 if p["kind"] == "a" else 0)


class Runner:
    """Reports a curve that rises to the height, and counts what it was asked."""

    identity, fixed = "height", {"loss": "dpl"}

    def __init__(self, epochs=5, **shape):
        self.epochs, self.shape, self.batches = epochs, shape, []

    def __call__(self, batch):
        self.batches.append([asked.parameters for asked in batch])
        for asked in batch:
            self.one(asked)

    def one(self, asked):
        top = height(asked.parameters, **self.shape)
        for epoch in range(1, self.epochs + 1):
            if asked.report(epoch, top - 1 / epoch):
                break
        asked.finish(top - 1 / epoch, epoch, 0.5, "none")


def search(folder, runner=None, space=SPACE, **options):
    options = {"trials": 12, "storage": folder / "trials.journal", "study": "s", **options}
    return run_search(space, runner or Runner(), **options)
