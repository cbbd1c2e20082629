"""Agreement: ranks that would not train the same thing are refused before they begin."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from truepair.data.interactions import EXTRA, Interactions, trusted_interactions
from truepair.errors import InputError
from truepair.storage.versions import package_version
from truepair.training.distributed.collectives import ProcessGroup

_PACKAGE = Path(__file__).parents[2]
_PACKAGES = ("torch", "numpy")


def check_agreement(group: ProcessGroup, facts: Mapping[str, object]) -> None:
    """An error on all ranks if one has other facts than rank 0; it names the rank and what differs."""
    if group.size == 1:
        return
    of_ranks = [json.loads(text) for text in group.texts(json.dumps(facts, default=str))]
    for rank, found in enumerate(of_ranks):
        differing = [name for name in {**of_ranks[0], **found} if found.get(name) != of_ranks[0].get(name)]
        if differing:
            shown = "; ".join(
                f"{name} is {found.get(name)!r:.80} there and {of_ranks[0].get(name)!r:.80} on rank 0"
                for name in differing[:5]
            )
            raise InputError(
                f"rank {rank} would not train the same model as rank 0: {shown}. Start all ranks with the "
                "same command, data and installation."
            )


def check_pairs(group: ProcessGroup, data: Interactions) -> None:
    """An error if the pairs are not those of the hash that a prepared folder states: it was changed since."""
    if group.size == 1:
        return
    plain = {name: getattr(data, name) for name in (*EXTRA, "time_kind", "disliked")}
    found = trusted_interactions(data.users, data.items, data.user_ids, data.item_ids, **plain).hash
    check_agreement(group, {"pairs as read": found})
    if found != data.hash:
        raise InputError(
            f"the pairs are not those that were prepared: their hash is {found}, and the folder states "
            f"{data.hash}. It was changed since; `truepair prepare FOLDER --verify` finds where, and "
            "preparing it again mends it."
        )


def facts_of_code() -> dict[str, str | None]:
    """Versions of packages, and a checksum of truepair's own source."""
    versions = {f"version of {name}": package_version(name) for name in ("truepair", *_PACKAGES)}
    return versions | {"source of truepair": source_digest(_PACKAGE)}


@cache
def source_digest(package: Path) -> str:
    """A checksum of all Python files of a package."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()
