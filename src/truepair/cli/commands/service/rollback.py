"""`truepair rollback`: return to the model that was served before the last promotion."""

from __future__ import annotations

from truepair.cli.console import Console
from truepair.cli.options import ModelFile, unpacked


@unpacked
def rollback(model: ModelFile, *, console: Console) -> None:
    """Return to the former model of a service that retrains.

    Running services follow within about a second. The model file itself is version 0.
    """
    from truepair.serving.retraining.versions import Versions

    versions = Versions(model)
    before = versions.state().current
    state = versions.roll_back()
    found = {"version": state.current, "was": before, "file": str(versions.path(state.current))}
    console.done(f"version {state.current} is served from now on, no longer version {before}", found)
