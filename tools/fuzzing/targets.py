"""All targets by name."""

from __future__ import annotations

from fuzzing.databases import DATABASES
from fuzzing.files import FILES
from fuzzing.living import LIVING
from fuzzing.prepared import PREPARED
from fuzzing.readers import READERS
from fuzzing.tables import TABLES
from fuzzing.target import Target
from fuzzing.texts import TEXTS

TARGETS: dict[str, Target] = {
    target.name: target for target in [*READERS, *DATABASES, *PREPARED, *TABLES, *FILES, *LIVING, *TEXTS]
}
