"""Weighting: kinds of feedback, counts and times of rows -> weights of pairs; which rows are dislikes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.columns import Raw, converted, timestamps
from truepair.data.durations import UNITS, total_seconds, units_per_second
from truepair.data.ids import to_arrow
from truepair.data.interactions import Step
from truepair.data.log import Floats, Mask, Policy, Values
from truepair.errors import InputError, check_number, check_type

Place = Callable[[int], str]  # a row -> its location for a reader of a message

_SPARE = 86_400.0  # seconds that a clock elsewhere may be ahead
_SMALLEST = float(np.finfo(np.float32).tiny)  # of the factor of a half-life: a weight stays above 0


class RowValues(NamedTuple):
    """What the options say about rows; None where they say nothing."""

    weight: Floats | None  # above 0, of dislikes too
    decay: Floats | None  # the factor of the half-life
    disliked: Mask | None
    ignored: Mask | None  # rows of a kind with the number 0


class Clock(NamedTuple):
    """What turns times into ages."""

    per_second: float  # units of the time column
    now: float  # seconds since 1970

    def seconds(self, times: Values) -> Floats:
        """Times in seconds since 1970."""
        return np.asarray(times.astype(np.float64) / self.per_second)

    def late(self, source: str, found: float, place: str) -> InputError:
        """The error of a time after now."""
        moment, now = moment_text(float(found) / self.per_second), moment_text(self.now)
        return InputError(
            f"{source}: time {found} at {place} ({moment}) is after now = {now}; correct it, or pass now=…."
        )


@dataclass(frozen=True)
class Weighting:
    """The options of `read_interactions` that make weights and dislikes."""

    policy: Policy = field(default=Policy())
    feedback: Mapping[str, float] | None = None
    dislikes: bool = False
    max_disliked_rating: float | None = None

    def __post_init__(self) -> None:
        check_policy(self.policy)
        if self.feedback is not None:
            _check_feedback(self.feedback)
        check_type("dislikes", self.dislikes, bool, "give True or False")
        if self.max_disliked_rating is not None:
            check_number("max_disliked_rating", self.max_disliked_rating)

    def row_values(self, columns: Mapping[str, pa.Array], raw: Raw, place: Place) -> RowValues:
        """The weights, factors and dislikes of rows without missing values; an error names the row."""
        weight = columns["weight"].to_numpy() if "weight" in columns else None
        disliked: Mask | None = None
        ignored = None
        if self.feedback is not None:
            of_kind = self._of_kinds(columns["kind"], raw, place)
            ignored, disliked = of_kind == 0, of_kind < 0
            if weight is not None:
                _check_signs(weight, raw, place, "With feedback, a kind with a number below 0 is a dislike")
            weight = np.abs(of_kind) * (1.0 if weight is None else weight)
            weight = np.where(ignored, 1.0, weight)
        elif weight is not None and self.dislikes:
            disliked, weight = weight < 0, np.abs(weight)
        if weight is not None:
            _check_signs(weight, raw, place, "With dislikes=True, a weight below 0 is a dislike")
        if self.max_disliked_rating is not None:
            low = columns["rating"].to_numpy() <= self.max_disliked_rating
            disliked = low if disliked is None else disliked | low
        decay = None
        if self.policy.half_life is not None:
            times = columns["time"].to_numpy()
            clock = clock_of(self.policy, times.max(), raw)
            if (late := clock.seconds(times) > clock.now).any():
                row = int(late.argmax())
                raise clock.late(raw.source, times[row], place(row))
            decay = decay_of(self.policy, times, clock)
        return RowValues(weight, decay, None if disliked is None or not disliked.any() else disliked, ignored)

    def _of_kinds(self, kinds: pa.Array, raw: Raw, place: Place) -> Floats:
        """The number of each row's kind."""
        assert self.feedback is not None
        encoded = kinds.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy()
        for code, name in enumerate(names):
            if name not in self.feedback:
                row = place(int((codes == code).argmax()))
                raise InputError(
                    f"{raw.source}: kind {name!r} at {row} has no number in feedback = "
                    f"{dict(self.feedback)}; add it, with 0 to leave its rows out."
                )
        numbers: Floats = np.array([float(self.feedback[name]) for name in names])[codes]
        return numbers

    def steps(self, newest: float | None, raw: Raw) -> list[Step]:
        """What was done, as notes of the report; `newest` is the newest time, if there are times."""
        notes = []
        if self.feedback is not None:
            numbers = ", ".join(f"{kind} {number:g}" for kind, number in self.feedback.items())
            notes.append(f"weight by kind: {numbers}")
        if (counts := self.policy.counts) is not None:
            at_most = f"count, at most {counts.removeprefix('cap:')}"
            notes.append(f"weight: {'1 + log(count)' if counts == 'log' else at_most}")
        if self.policy.half_life is not None and newest is not None:
            now = clock_of(self.policy, newest, raw).now
            notes.append(f"weight halved for every {self.policy.half_life} before {moment_text(now)}")
        return [Step(note, 0, note=True) for note in notes]


# --- the policy --------------------------------------------------------------------------------------


def check_policy(policy: Policy) -> None:
    """Raise if `half_life`, `now` or `counts` cannot be used."""
    counts = policy.counts
    if policy.half_life is not None:
        seconds_of(policy.half_life)
    elif policy.now is not None:
        raise InputError(f"now = {policy.now!r:.60} has no effect without half_life; leave it out.")
    if counts is None or counts == "log":
        return
    cap = re.fullmatch(r"cap:(\d{1,15}(?:\.\d{1,15})?)", counts) if isinstance(counts, str) else None
    if cap is None or not float(cap[1]):
        raise InputError(f"counts = {counts!r:.60} is not known; use 'log', or 'cap:10' (10 at most).")


def clock_of(policy: Policy, newest: float, raw: Raw) -> Clock:
    """The unit of the times, of which this is the newest, and `now`: the newest time, unless that is in the
    future, if it is not given."""
    newest = float(newest)
    per_second, given = clock_unit(newest, raw.source), given_now(policy, raw)
    if given is None:
        return Clock(per_second, min(newest / per_second, time.time() + _SPARE))
    return Clock(per_second, given / clock_unit(given, "now"))


def given_now(policy: Policy, raw: Raw) -> float | None:
    """`now` as a number, in the unit that its size tells; None if it is not given."""
    if policy.now is None:
        return None
    try:
        found = timestamps(raw, "now", [policy.now])
    except InputError:
        raise InputError(
            f"now = {policy.now!r:.60} is no time; give a date, 2024-05-31, or a number."
        ) from None
    return float(found.to_numpy()[0])


def decay_of(policy: Policy, times: Values, clock: Clock) -> Floats:
    """The factor of each time by the half-life."""
    assert policy.half_life is not None
    ages = clock.now - clock.seconds(times)
    return np.maximum(np.exp2(-ages / seconds_of(policy.half_life)), _SMALLEST)


def pair_weights(policy: Policy, total: Values, decayed: Values | None) -> Values:
    """The weight of each pair, from the sum of its rows' weights and of their decayed weights."""
    if policy.counts == "log" and total.min() < 1:
        raise InputError(f"counts = 'log' needs counts of 1 or more, not {total.min():g}; use 'cap:10'.")
    return row_strength(policy, total, decayed)


def row_strength(policy: Policy, weight: Values, decayed: Values | None) -> Values:
    """What compares the rows of a pair: the weight that the pair would have with each of them alone."""
    counted = weight
    if policy.counts is not None:
        is_log = policy.counts == "log"
        counted = 1 + np.log(weight) if is_log else np.minimum(weight, float(policy.counts[len("cap:") :]))
    return counted if decayed is None else counted * (decayed / weight)


def seconds_of(half_life: str) -> float:
    """A half-life in seconds.

    >>> seconds_of("90d"), seconds_of("1.5h")
    (7776000.0, 5400.0)
    """
    seconds = total_seconds(half_life) if isinstance(half_life, str) else None
    if seconds is None:
        raise InputError(
            f"half_life = {half_life!r:.60} is no time; give one such as '90d' (units: {', '.join(UNITS)})."
        )
    return seconds


def clock_unit(newest: float, source: str) -> float:
    """Units of times since 1970 in a second: their size says whether they are seconds, or ms, µs or ns."""
    if (per_second := units_per_second(newest)) is None:
        raise InputError(
            f"{source}: the newest time is {newest:g}; half_life needs dates or times since 1970."
        )
    return per_second


def moment_text(seconds: float) -> str:
    """A time as people write it, in UTC.

    >>> moment_text(86_400.0)
    '1970-01-02 00:00:00'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} seconds after 1970"


def kind_texts(raw: Raw, role: str, values: object) -> pa.Array:
    """Kinds as text; empty text is missing."""
    array = converted(raw, role, to_arrow(values, role), pa.large_string())
    text = pc.utf8_trim_whitespace(array)
    return pc.if_else(pc.equal(text, ""), None, text)


def _check_feedback(feedback: object) -> None:
    if not isinstance(feedback, Mapping) or not feedback:
        raise InputError(f"feedback = {feedback!r:.60} must map kinds to numbers: {{'view': 1, 'buy': 10}}.")
    for kind, number in feedback.items():
        if not isinstance(kind, str):
            raise InputError(f"feedback has the kind {kind!r:.60}; kinds are text, as in {{'view': 1}}.")
        check_number(f"feedback[{kind!r}]", number)
    if all(float(number) <= 0 for number in feedback.values()):
        raise InputError(f"feedback = {dict(feedback)} has no kind above 0, so that nothing is a like.")


def _check_signs(weight: Floats, raw: Raw, place: Place, remedy: str) -> None:
    """Raise unless all weights are above 0."""
    if not (bad := weight <= 0).any():
        return
    row, others = int(bad.argmax()), int(bad.sum()) - 1
    more = f", nor are {others:,} more" if others else ""
    raise InputError(
        f"{raw.source}: weight {weight[row]:g} at {place(row)} is not above 0{more}; remove these rows, "
        f"or read without weights: weight=False. {remedy}."
    )
