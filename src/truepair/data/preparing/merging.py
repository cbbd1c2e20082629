"""Merging: rows sorted by user -> pairs, each once, and events, written as arrays.

The functions of `read_interactions` decide what a pair becomes of its rows, a block of users at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from truepair.data.ids import Codes, pair_keys
from truepair.data.interactions import Step, dislikes_note
from truepair.data.log import first_rows, positions
from truepair.data.prepared.array_files import write_array
from truepair.data.prepared.manifest import Manifest
from truepair.data.prepared.opening import OpenedFolder
from truepair.data.preparing.row_files import Block, RowWriter, taken
from truepair.data.preparing.work import Advance, Done
from truepair.data.reading import only_dislikes_error, repeats_error
from truepair.data.rows.options import ReadOptions
from truepair.data.rows.pairs import Repeats, codes_of, merge, part_dislikes, repeats
from truepair.data.rows.weighting import Clock, decay_of
from truepair.storage.types import Json


def write_pairs(
    folder: Path,
    made: Manifest,
    blocks: Iterable[Block],
    staged: Json,
    options: ReadOptions,
    advance: Advance,
) -> Done:
    """The arrays of all pairs, of dislikes and of the events, from blocks of whole users.

    `staged` are the facts of the rows. Rows of a user are in the order of time, then of the source. The log
    is written from the first repeat or dislike on; before it, each pair is an event.
    """
    merging, sizes = _Merging(made, staged, options), (made.users, made.items)
    with RowWriter(folder, "all", sizes) as pairs, RowWriter(folder, "log", sizes, pairs=False) as events:
        for block in blocks:
            columns = merging.pairs(block)
            if merging.log:
                found = merging.events(block)
                if not events.rows and pairs.rows:
                    for earlier in pairs.so_far():
                        events.write(_as_events(earlier, found))
                events.write(found)
            if columns is not None:
                pairs.write(columns)
            advance(merging.read)
        merging.check(folder, pairs.rows)
        files = [file for file in pairs.finish() if merging.places or file.file != "all/places.npy"]
        if len(disliked := np.concatenate([np.empty(0, np.int64), *merging.disliked])):
            files.append(write_array(folder, "disliked.npy", disliked))
        files += events.finish()
    removed, policy = merging.removed, options.policy.duplicates
    steps = [Step(f"repeated pair ({policy} kept)", removed)] if removed else []
    steps += [dislikes_note(len(disliked))] if len(disliked) else []
    kind = "order" if staged["in_order"] else "clock"
    return {"time_kind": kind, "history": [vars(step) for step in steps]}, files


def _as_events(pairs: Block, like: Block) -> Block:
    """Pairs of whole users as their only events, in order, with the columns of other events."""
    order = np.empty(len(pairs["users"]), np.int64)
    order[first_rows(pairs["users"]) + pairs["places"]] = np.arange(len(order))
    nothing = {"disliked": np.zeros(len(order), bool)}
    return taken({name: {**nothing, **pairs}[name] for name in like}, order)


class _Merging:
    """Makes pairs and events of blocks, and remembers what is only known when all are seen."""

    def __init__(self, made: Manifest, staged: Json, options: ReadOptions) -> None:
        self.made, self.options, self.source = made, options, staged["source"]
        self.has_times, self.in_order = "time" in staged["columns"], staged["in_order"]
        self.clock = None if staged["clock"] is None else Clock(*staged["clock"])
        self.read = self.removed = 0
        self.disliked: list[Codes] = []
        self.log = self.has_times and made.policy.changes_weights
        """Whether the events say more than the pairs, as far as is known."""
        self.ties = False
        self._repeats: list[Repeats] = []

    @property
    def places(self) -> bool:
        """Whether places of pairs are needed: some of a user have equal times, and there is no log."""
        return self.ties and not self.log

    def events(self, block: Block) -> Block:
        """All rows with the columns of a log."""
        found = {name: column for name, column in block.items() if name != "row"}
        if self.clock is not None:
            found.setdefault("weight", np.ones(len(found["users"])))
        return self._in_order(found)

    def pairs(self, block: Block) -> Block | None:
        """Each pair once, and its columns; None if there is none."""
        extra, policy = dict(block), self.options.policy
        rows = extra.pop("row", None)
        keys = pair_keys(extra.pop("users"), extra.pop("items"), self.made.items)
        marks, n_events = extra.pop("disliked", None), len(keys)
        if self.clock is not None:
            weight = extra.setdefault("weight", np.ones(n_events))
            extra["decayed"] = weight * decay_of(policy, extra["time"], self.clock)
        if marks is not None:
            liked, disliked = part_dislikes(keys, extra, marks, policy.duplicates)
            self.disliked.append(disliked)
            keys, extra, rows = keys[liked], taken(extra, liked), None if rows is None else rows[liked]
        self.read += len(keys)
        if policy.duplicates == "error" and rows is not None:
            by_row = np.argsort(rows)
            again = repeats(keys[by_row], rows[by_row])
            self._repeats += [] if again is None else [again]
        if self._repeats:
            return None
        if not len(keys):
            self.log |= self.has_times
            return None
        merged = merge(keys, extra, policy)
        self.removed += merged.removed
        users, items = codes_of(merged.keys, self.made.items)
        found: Block = {"users": users, "items": items, **merged.columns}
        self.log |= self.has_times and len(users) < n_events
        if self.has_times and not self.log:  # each row is a pair
            assert merged.rows is not None
            same_user, same_time = (np.diff(block[name]) == 0 for name in ("users", "time"))  # in this order
            self.ties = self.ties or bool((same_user & same_time).any())
            places = merged.rows - first_rows(users)
            found["places"] = places.astype(np.uint16)
            self.log = bool(places.max() > np.iinfo(np.uint16).max)
        return self._in_order(found)

    def _in_order(self, found: Block) -> Block:
        """The columns, perhaps with positions among each user's rows as times."""
        if not self.in_order:
            return found
        return {**found, "time": positions(found["users"], found["time"])}

    def check(self, folder: Path, pairs: int) -> None:
        """Raise if there is no pair, or if pairs are repeated and must not be."""
        if self._repeats:
            first = min(self._repeats, key=lambda each: each.row)
            others = sum(each.others + 1 for each in self._repeats) - 1
            user_code, item_code = divmod(first.key, self.made.items)
            opened = OpenedFolder(folder, self.made)
            user, item = opened.users.ids[user_code].as_py(), opened.items.ids[item_code].as_py()
            raise repeats_error(self.source, first._replace(others=others), user, item)
        if not pairs:
            raise only_dislikes_error(self.source, sum(map(len, self.disliked)))
