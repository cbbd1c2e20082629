"""All targets by name."""

from __future__ import annotations

from fuzzing.files import FILES
from fuzzing.readers import READERS
from fuzzing.target import Target
from fuzzing.texts import TEXTS

TARGETS: dict[str, Target] = {target.name: target for target in [*READERS, *FILES, *TEXTS]}
