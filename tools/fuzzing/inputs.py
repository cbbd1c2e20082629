"""Many inputs for one target: by atheris, by changes of bytes, or by hypothesis."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuzzing.mutations import mutated
from fuzzing.target import Target

Attempt = Callable[[bytes], None]  # runs an input; raises nothing


def has_atheris() -> bool:
    """Whether inputs can be guided by coverage."""
    return find_spec("atheris") is not None


def feed(target: Target, attempt: Attempt, count: int, seed: int, folder: Path, guided: bool = False) -> None:
    """Give `count` inputs to `attempt`. Guided by coverage, this ends the process."""
    if target.cases is not None:
        _structured(target, attempt, count, seed)
    elif guided:
        _guided(target, attempt, count, seed, folder)
    else:
        seeds, rng = target.seeds(folder), random.Random(seed)
        for _ in range(count):
            attempt(mutated(rng, rng.choice(seeds), seeds))


def _structured(target: Target, attempt: Attempt, count: int, seed: int) -> None:
    import hypothesis
    from hypothesis import HealthCheck, Phase, settings

    assert target.cases is not None

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(target.cases())
    def each(case: Any) -> None:
        attempt(json.dumps(case).encode())

    each()


def _guided(target: Target, attempt: Attempt, count: int, seed: int, folder: Path) -> None:
    import atheris

    corpus = folder / "corpus"
    corpus.mkdir()
    seeds = target.seeds(folder)
    for place, content in enumerate(seeds):
        (corpus / f"seed-{place}").write_bytes(content)

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        """Half of the changes are libFuzzer's own."""
        rng = random.Random(seed)
        changed = mutated(rng, data, seeds) if rng.random() < 0.5 else atheris.Mutate(data, max_size)
        return changed[:max_size]

    longest = 2 * max(map(len, seeds)) + 64
    limits = [f"-runs={count}", f"-seed={seed % 2**31 + 1}", f"-max_len={longest}", "-timeout=120"]
    quiet = [
        "-rss_limit_mb=0",
        "-verbosity=0",
        f"-artifact_prefix={folder}/",
        "-len_control=0",
        "-mutate_depth=1",
    ]
    atheris.Setup([sys.argv[0], *limits, *quiet, str(corpus)], attempt, custom_mutator=change)
    atheris.Fuzz()
