"""Merging: rows sorted by user -> pairs, each once, and events, written as arrays.

The functions of `read_interactions` decide what a pair becomes of its rows, a block of users at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Step
from truepair.data.log import pair_keys, positions
from truepair.data.prepared.array_files import write_array
from truepair.data.prepared.manifest import Manifest
from truepair.data.prepared.opening import OpenedFolder
from truepair.data.preparing.publishing import Done
from truepair.data.preparing.row_files import Block, RowWriter, taken
from truepair.data.reading import ReadOptions, dislikes_note, only_dislikes_error, repeats_error
from truepair.data.rows.pairs import Repeats, codes_of, has_ties, merge, part_dislikes, repeats
from truepair.data.rows.weighting import Clock


class RowFacts(NamedTuple):
    """What must be known about rows before they are merged."""

    source: str
    total: int = 0
    """How many rows the source has."""
    has_times: bool = False
    """Whether the events are written where they say more than the pairs, and the order of ties elsewhere."""
    in_order: bool = False
    """Whether times become positions in each user's history."""
    clock: Clock | None = None
    """Of the half-life."""


def write_pairs(
    folder: Path,
    made: Manifest,
    blocks: Callable[[], Iterable[Block]],
    known: RowFacts,
    options: ReadOptions,
    advance: Callable[[int], None] = lambda done: None,
    log: bool = False,
) -> Done:
    """The arrays of all pairs, of dislikes and of the events, from blocks of whole users.

    Rows of a user are in any order if they have the column `row`, the place in the source; a log needs them
    by time, then row. Without `log` it is written from the first repeat or dislike on, which nearly always
    lies in the first block; if it does not, all blocks are read again.
    """
    merging = _Merging(made, known, options, log)
    sizes = made.users, made.items
    with RowWriter(folder, "all", sizes) as pairs, RowWriter(folder, "log", sizes, pairs=False) as events:
        for block in blocks():
            columns = merging.pairs(block)
            if merging.log:
                if pairs.rows and not events.rows:
                    pairs.close()  # the same files are written again
                    return write_pairs(folder, made, blocks, known, options, advance, log=True)
                events.write(merging.events(block))
            if columns is not None:
                pairs.write(columns)
            advance(merging.read)
        merging.check(folder, pairs.rows)
        files = [file for file in pairs.finish() if merging.places or file.file != "all/places.npy"]
        if len(disliked := np.concatenate([np.empty(0, np.int64), *merging.disliked])):
            files.append(write_array(folder, "disliked.npy", disliked))
        files += events.finish()
    removed, policy = merging.removed, options.policy
    steps = [Step(f"repeated pair ({policy} kept)", removed)] if removed else []
    steps += [dislikes_note(len(disliked))] if len(disliked) else []
    kind = "order" if known.in_order else "clock"
    return {"time_kind": kind, "history": [vars(step) for step in steps]}, files


class _Merging:
    """Makes pairs and events of blocks, and remembers what is only known when all are seen."""

    def __init__(self, made: Manifest, known: RowFacts, options: ReadOptions, log: bool) -> None:
        self.made, self.known, self.options = made, known, options
        self.read = self.removed = 0
        self.disliked: list[Codes] = []
        self.log = log or (known.has_times and made.policy.changes_weights)
        """Whether the events say more than the pairs, as far as is known."""
        self.ties = False
        self._repeats: list[Repeats] = []

    @property
    def places(self) -> bool:
        """Whether places in the source are needed: pairs of a user have equal times, and there is no log."""
        return self.ties and not self.log

    def events(self, block: Block) -> Block:
        """All rows with the columns of a log."""
        found = {name: column for name, column in block.items() if name != "row"}
        if self.known.clock is not None:
            found.setdefault("weight", np.ones(len(found["users"])))
        return self._in_order(found)

    def pairs(self, block: Block) -> Block | None:
        """Each pair once, and its columns; None if there is none."""
        extra, policy = dict(block), self.options.policy
        rows = extra.pop("row", None)
        keys = pair_keys(extra.pop("users"), extra.pop("items"), self.made.items)
        marks, n_events = extra.pop("disliked", None), len(keys)
        if self.known.clock is not None:
            weight = extra.setdefault("weight", np.ones(n_events))
            extra["decayed"] = weight * self.options.weighting.decay(extra["time"], self.known.clock)
        if marks is not None:
            liked, disliked = part_dislikes(keys, extra, marks, policy)
            self.disliked.append(disliked)
            keys, extra, rows = keys[liked], taken(extra, liked), None if rows is None else rows[liked]
        self.read += len(keys)
        if policy == "error" and rows is not None:
            by_row = np.argsort(rows)
            again = repeats(keys[by_row], rows[by_row])
            self._repeats += [] if again is None else [again]
        if self._repeats:
            return None
        if not len(keys):
            self.log |= self.known.has_times
            return None
        merged = merge(keys, extra, policy, self.options.weighting)
        self.removed += merged.removed
        users, items = codes_of(merged.keys, self.made.items)
        found: Block = {"users": users, "items": items, **merged.columns}
        self.log |= self.known.has_times and len(users) < n_events
        if self.known.has_times and not self.log and not self.options.chronological:
            assert rows is not None
            self.ties = self.ties or has_ties(users, found["time"])
            found["places"] = rows[merged.rows].astype(np.uint32 if self.known.total <= 1 << 32 else np.int64)
        return self._in_order(found)

    def _in_order(self, found: Block) -> Block:
        """The columns, perhaps with positions among each user's rows as times."""
        if not self.known.in_order:
            return found
        users = found["users"]
        return {**found, "time": positions(users - users[0], found["time"])}  # counted from the block's first

    def check(self, folder: Path, pairs: int) -> None:
        """Raise if there is no pair, or if pairs are repeated and must not be."""
        if self._repeats:
            first = min(self._repeats, key=lambda each: each.row)
            others = sum(each.others + 1 for each in self._repeats) - 1
            user_code, item_code = divmod(first.key, self.made.items)
            opened = OpenedFolder(folder, self.made)
            user, item = opened.users.ids[user_code].as_py(), opened.items.ids[item_code].as_py()
            raise repeats_error(self.known.source, first._replace(others=others), user, item)
        if not pairs:
            raise only_dislikes_error(self.known.source, sum(map(len, self.disliked)))
