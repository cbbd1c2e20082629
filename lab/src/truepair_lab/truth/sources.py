"""Sources: the names and files of the truth lab -> a TruthCase for a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truepair.data.datasets.loading import load_split
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.data.simulation import EXPOSURES, simulate_world
from truepair.errors import InputError, check_choice, check_number
from truepair_lab.truth import coat
from truepair_lab.truth.cases import TruthCase, case_of, hidden_case, mask_of
from truepair_lab.truth.complete_labels import positives_of

WORLD_POSITIVE = 0.14  # of all pairs of the simulated world


@dataclass(frozen=True)
class Asked:
    """Which case is wanted: a name of CASES, or an observed file with a file of true labels.

    `exposure` and `hide` say how positives are hidden: "random" and 0.5 if not given. Where people chose what
    is observed (files, Coat) nothing is hidden, so neither may be given.
    """

    data: str
    exposure: str | None = None
    hide: float | None = None
    truth: Path | None = None
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.truth is None:
            check_choice("data", self.data, CASES)
        if self.truth is not None or self.data in CHOSEN:
            self._check_nothing_is_hidden()
        check_number("hide", self.share, 0, 1, open_low=True, open_high=True, remedy="It is a share.")
        check_choice("exposure", self.kept, EXPOSURES)

    @property
    def kept(self) -> str:
        """Which positives stay."""
        return "random" if self.exposure is None else self.exposure

    @property
    def share(self) -> float:
        """The share of positives that is hidden."""
        return 0.5 if self.hide is None else self.hide

    def _check_nothing_is_hidden(self) -> None:
        given = {"hide": self.hide, "exposure": self.exposure}
        hidden = ", ".join(f"{name} = {value!r}" for name, value in given.items() if value is not None)
        if hidden:
            raise InputError(
                f"{hidden} cannot be used with {self.data}: its observed pairs are taken as they are, and "
                "nothing is hidden. Leave hide and exposure out, or choose data whose positives are hidden: "
                f"{', '.join(name for name in CASES if name not in CHOSEN)}."
            )

    def case(self, seed: int) -> TruthCase:
        """What is hidden, held out and judged is drawn anew for each seed."""
        if self.truth is not None:
            return file_case(Path(self.data), self.truth, seed)
        return CASES[self.data](self, seed)


def _simulation(asked: Asked, seed: int) -> TruthCase:
    """800 users x 600 items, of whose pairs 14% are positive."""
    density = (1 - asked.share) * WORLD_POSITIVE
    tau = asked.share * WORLD_POSITIVE / (1 - density)
    world = simulate_world(800, 600, tau=tau, density=density, exposure=asked.kept, seed=seed)
    return case_of("simulation", asked.kept, asked.share, seed, world.observed, world.truth.copy(), None)


def _kuairec(asked: Asked, seed: int) -> TruthCase:
    """Positive is a video watched twice its length or more."""
    positives = positives_of("kuairec", asked.data_dir)
    return hidden_case(positives, "kuairec", asked.kept, asked.share, seed)


def _jester(asked: Asked, seed: int) -> TruthCase:
    """The users who rated all 100 jokes; positive is a rating above 0."""
    positives = positives_of("jester5k", asked.data_dir)
    return hidden_case(positives, "jester5k", asked.kept, asked.share, seed)


def _coat(asked: Asked, seed: int) -> TruthCase:
    """Observed: 4 or 5 stars among what people chose to rate. Known: the ratings that chance chose."""
    split = load_split("coat", asked.data_dir)
    assert split.train.rating is not None
    assert split.test.rating is not None
    observed = split.train.take(split.train.rating >= coat.LEAST)
    truth = mask_of(observed) | mask_of(split.test.take(split.test.rating >= coat.LEAST))
    return case_of("coat", "self", 0.0, seed, observed, truth, mask_of(split.test))


CASES: dict[str, Callable[[Asked, int], TruthCase]] = {
    "simulation": _simulation,
    "kuairec": _kuairec,
    "jester5k": _jester,
    "coat": _coat,
}
CHOSEN = ("coat",)  # where people, not we, chose what is observed


def file_case(observed: Path, labels: Path, seed: int) -> TruthCase:
    """Observed pairs, and a file of true labels whose rating column says so: above 0 is positive.

    An observed pair is a positive: it needs no label, and one of 0 is an error. The case is named by the
    observed file and by what both files hold, so that files of the same name stay apart.
    """
    labelled, seen = read_interactions(labels), read_interactions(observed)
    if labelled.rating is None:
        raise InputError(f"{labels} has no rating column; give each pair a label there: 1 or 0.")
    users, items = (_both(getattr(labelled, ids), getattr(seen, ids)) for ids in ("user_ids", "item_ids"))
    labelled, seen = _coded(labelled, users, items), _coded(seen, users, items)
    _check_seen_is_positive(labelled, seen, observed, labels)
    truth = mask_of(seen) | mask_of(labelled.take(np.asarray(labelled.rating) > 0))
    known = mask_of(labelled)
    complete = bool((known | mask_of(seen)).all())
    return case_of(
        f"{observed.stem}-{_content(seen, labelled)}",
        "self",
        0.0,
        seed,
        seen,
        truth,
        None if complete else known,
    )


def _check_seen_is_positive(labelled: Interactions, seen: Interactions, observed: Path, labels: Path) -> None:
    denied = labelled.take(~(np.asarray(labelled.rating) > 0) & mask_of(seen)[labelled.users, labelled.items])
    if len(denied):
        first = denied.to_table().slice(0, 1).to_pylist()[0]
        raise InputError(
            f"{len(denied):,} pairs of {observed} have no label above 0 in {labels}, the first of them user "
            f"{first['user']!r}, item {first['item']!r} ({first['rating']:g}); what is observed counts as "
            "positive. Remove such pairs from the observed file, or label them 1."
        )


def _content(*parts: Interactions) -> str:
    """Eight hex digits of what the files hold."""
    return hashlib.blake2b("".join(part.hash for part in parts).encode(), digest_size=4).hexdigest()


def _both(a: IdMap, b: IdMap) -> IdMap:
    return IdMap.of([*dict.fromkeys([*a.ids.to_pylist(), *b.ids.to_pylist()])])


def _coded(pairs: Interactions, users: IdMap, items: IdMap) -> Interactions:
    codes = users.codes(pairs.user_ids, "user")[pairs.users], items.codes(pairs.item_ids, "item")[pairs.items]
    return Interactions(*codes, users, items, pairs.rating)
