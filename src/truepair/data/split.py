"""Split: train, validation and test interactions, with notes for the reader of any result on them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from truepair.data.exchangeability import unlike_train
from truepair.data.interactions import Interactions
from truepair.errors import InputError, settle
from truepair.storage.notebook import html_table


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Disjoint train, validation and test parts over the same users and items, and the recipe that made them.

    `remarks` are the notes of the recipe; `notes` adds what the parts themselves show.
    """

    train: Interactions
    valid: Interactions | None
    test: Interactions
    recipe: str
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, part in self.parts.items():
            _check_same_ids(name, part, self.train)
        for (a, first), (b, second) in combinations(self.parts.items(), 2):
            if shared := int(second.has(first.users, first.items).sum()):
                raise InputError(
                    f"{shared:,} pairs are in {a} and in {b}; use `split_given(…, overlap='drop')`."
                )
        if not len(self.train):
            sizes = ", ".join(f"{name} has {len(part):,} pairs" for name, part in self.parts.items())
            raise InputError(f"{self.recipe} leaves no pair for train: {sizes}; hold out fewer pairs.")

    @property
    def parts(self) -> dict[str, Interactions]:
        """The parts by name: train, valid (unless it is None) and test."""
        valid = {} if self.valid is None else {"valid": self.valid}
        return {"train": self.train, **valid, "test": self.test}

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of results on this split must know: empty parts, users and items unknown to train,
        and a test part that is no random part of all pairs."""
        held_out = [(name, part) for name, part in self.parts.items() if name != "train"]
        return (
            *self.remarks,
            *(note for name, part in held_out for note in _unknown_to_train(name, part, self.train)),
            *unlike_train("test", self.train, self.test),
        )

    @cached_property
    def hash(self) -> str:
        """A checksum of the parts: equal on every machine, and independent of the recipe's name."""
        content = "\n".join([f"{name} {part.hash}" for name, part in self.parts.items()])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Split) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def _repr_html_(self) -> str:
        rows = [
            (name, int((part.user_counts > 0).sum()), int((part.item_counts > 0).sum()), len(part))
            for name, part in self.parts.items()
        ]
        return html_table(f"Split {self.recipe}", rows, ["", "users", "items", "pairs"], self.notes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in self.parts.items())
        shape = f"{self.train.n_users:,} users x {self.train.n_items:,} items"
        notes = "".join(f"\n  note: {note}" for note in self.notes)
        return f"<Split {self.recipe}: {shape}, pairs: {sizes}{notes}>"


def disjoint_split(
    train: Interactions,
    valid: Interactions | None,
    test: Interactions,
    recipe: str,
    remarks: tuple[str, ...] = (),
) -> Split:
    """The split of parts that are known to be disjoint and to share their ids; nothing is checked."""
    made = object.__new__(Split)
    settle(made, train=train, valid=valid, test=test, recipe=recipe, remarks=remarks)
    return made


def counted_note(n: int, noun: str, text: str) -> tuple[str, ...]:
    """A note that starts with its count; no note if the count is 0."""
    return (f"{counted(n, noun)} {text}",) if n else ()


def counted(n: int, noun: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{n:,} {noun}{'s' if n != 1 else ''}"


def _unknown_to_train(name: str, part: Interactions, train: Interactions) -> tuple[str, ...]:
    """Notes on the users and items of this part that train does not have."""
    if not len(part):
        return (f"{name} is empty",)
    of_new_item = train.item_counts[part.items] == 0
    of_new_user = train.user_counts[part.users] == 0
    new_items = counted(len(np.unique(part.items[of_new_item])), "item")
    new_users = len(np.unique(part.users[of_new_user]))
    pairs = counted(int(of_new_user.sum()), "pair")
    return (
        *counted_note(int(of_new_item.sum()), f"{name} pair", f"of {new_items} that train does not have"),
        *counted_note(new_users, f"{name} user", f"without a pair in train ({pairs})"),
    )


def _check_same_ids(name: str, part: Interactions, train: Interactions) -> None:
    for what in ("user", "item"):
        own, known = (getattr(each, f"{what}_ids") for each in (part, train))
        if own is not known and own != known:
            raise InputError(
                f"{name} and train differ in {what} ids ({len(own):,}, {len(known):,}); use `split_given`."
            )
