"""Automatic settings beside a checkpoint: an interrupted search goes on, and a run keeps its settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from truepair.data.split import Split
from truepair.errors import StorageError
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.search.trials import Trial
from truepair.spec import Spec
from truepair.spec.parameters import as_json, from_json
from truepair.storage.atomic import atomic_write
from truepair.storage.plain_values import read_record
from truepair.storage.types import Json

_MOST_BYTES = 1 << 20
_DAMAGED = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


def settings_file(checkpoint: str | Path) -> Path:
    """The file of the automatic settings of a run with this checkpoint."""
    return Path(checkpoint).with_name(Path(checkpoint).name + ".settings")


@dataclass(frozen=True)
class SettingsFile:
    """The file of a run; `key` is that of its data and parameters."""

    checkpoint: Path
    key: str

    @staticmethod
    def of(
        checkpoint: str | Path, spec: Spec, split: Split, limit: float | None, tables: FeatureTables
    ) -> SettingsFile:
        """The file of a run with this checkpoint, for at most so many seconds."""
        # a run may go on for more epochs
        stated = {name: as_json(value) for name, value in spec.parameters().items() if name != "epochs"}
        about: list[object] = [stated, spec.searched, split.hash, limit]
        if tables != NO_TABLES:
            about.append([None if features is None else features.digest for features in tables])
        key = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()
        return SettingsFile(Path(checkpoint), key)

    def read(self, settled: Spec) -> tuple[Spec, Json] | None:
        """The spec with what was chosen, and the facts; None without a file, or with one that is damaged.

        Settings of another run are an error if its checkpoint exists.
        """
        with suppress(*_DAMAGED):
            found = self._content()
            facts = dict(found["facts"])
            chosen = facts["automatic"].get("chosen", {})
            restored = {name: value for name, value in from_json(chosen).items() if name in chosen}
            spec = settled.varied(**restored)
            if chosen:
                facts["automatic"]["repeat"] = spec.call()
            if found["key"] == self.key:
                return spec, facts
            if isinstance(found["key"], str) and self.checkpoint.exists():
                raise StorageError(
                    f"{settings_file(self.checkpoint)} is of a run with other data or parameters. Give "
                    f"another checkpoint than {self.checkpoint}, or delete both."
                )
        return None

    def runs(self) -> tuple[dict[tuple[object, ...], Trial], tuple[int, float, int, int] | None]:
        """The short runs of an interrupted search, by point, and that of the full run that a budget began.

        Both are empty without a file, or with a damaged one.
        """
        with suppress(*_DAMAGED):
            found = self._content()
            if found["key"] == self.key:
                runs = {tuple(point): read_record(Trial, run) for point, run in found["runs"]}
                if found.get("full") is None:
                    return runs, None
                place, popularity, dim, epochs = found["full"]
                return runs, (int(place), float(popularity), int(dim), int(epochs))
        return {}, None

    def _content(self) -> Json:
        """What the file holds; raise one of _DAMAGED without a file, or with one that is damaged."""
        path = settings_file(self.checkpoint)
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is too long")
        found: Json = json.loads(path.read_bytes())
        return found

    def keep_runs(
        self, runs: Mapping[tuple[object, ...], Trial], full: tuple[object, ...] | None = None
    ) -> None:
        """Keep the short runs of a search so far, and the full one that a budget began."""
        self.write({"runs": [(point, vars(trial)) for point, trial in runs.items()], "full": full})

    def write(self, content: Json) -> None:
        """Keep the `runs` of a search so far and its `full` one, or its `facts`."""
        with atomic_write(settings_file(self.checkpoint), "the automatic settings") as file:
            file.write(json.dumps({"key": self.key, **content}).encode())

    @property
    def full_run(self) -> Path:
        """The checkpoint of the search's full run."""
        return self.checkpoint.with_name(self.checkpoint.name + ".search")
