"""Short runs climb to the best temperature and weight of popularity, in few runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

FIRST_PLACE, FIRST_POPULARITY = 4, 0.8  # the middle of what datasets had: temperature .2
_WIDE, _STEP, _POPULARITY = 4, 2, 0.4  # steps: a factor of 2 in temperature, one of √2, one in popularity
_WIDE_PLACES, _PLACES = (-4, 12), (-8, 17)  # temperatures .05 to .8 in wide steps, .025 to 1.9 in all
_MOST_POPULARITY = 2.0
_BETTER = 1.002  # the ratio of scores of a step that is worth it


class Point(NamedTuple):
    """What a trial is about; `place` gives the temperature, .1 · 2^(place / 4), unless that is given."""

    place: int
    popularity: float
    dim: int
    epochs: int


def climb(
    first: Point,
    wanted: Collection[str],
    most: int,
    run: Callable[[Sequence[Point]], object],
    scores: Mapping[Point, float],
    is_late: Callable[[], bool] = lambda: False,
) -> Point:
    """Run points, and return the best: a wide row of temperatures, then steps to better neighbours.

    wanted   "temperature", "popularity", or both
    most     runs that may be made; the first row of temperatures is always made
    scores   of all points so far; `run` adds those of its points, as far as there is time
    is_late  whether the time of the climb is used up
    """
    row = [first]
    if "temperature" in wanted:
        row += [first._replace(place=first.place - _WIDE), first._replace(place=first.place + _WIDE)]
    run(row)
    made, best = len(row), _best(row, scores)
    # temperatures by factors of 2; the row grows as long as its last one is the best
    while "temperature" in wanted and made < most and not is_late():
        low, high = min(row).place, max(row).place
        further = best.place + (_WIDE if best.place == high else -_WIDE)
        if low < best.place < high or not _WIDE_PLACES[0] <= further <= _WIDE_PLACES[1]:
            break
        row.append(best._replace(place=further))
        run(row[-1:])
        made, best = made + 1, _best(row, scores)
    while (around := _around(best, wanted, scores)[: max(0, most - made)]) and not is_late():
        run(around)
        made += len(around)
        found = _best([best, *around], scores)
        if scores[found] <= _BETTER * scores[best]:
            break
        best = found
    return best


def _best(points: Sequence[Point], scores: Mapping[Point, float]) -> Point:
    return max([point for point in points if point in scores], key=scores.__getitem__)


def _around(point: Point, wanted: Collection[str], scores: Mapping[Point, float]) -> list[Point]:
    """Neighbours without a score, those in popularity first.

    Temperatures are lower and higher ones; only on the better side where both are known from afar.
    """
    found, steps = list[Point](), [_STEP, -_STEP]
    if "popularity" in wanted:
        for change in (_POPULARITY, -_POPULARITY):
            found.append(point._replace(popularity=round(point.popularity + change, 3)))
    if "temperature" in wanted:
        best_at = dict[int, float]()  # of any popularity
        for other, score in scores.items():
            best_at[other.place] = max(score, best_at.get(other.place, score))
        low, high = best_at.get(point.place - _WIDE), best_at.get(point.place + _WIDE)
        if low is not None and high is not None:
            steps = [_STEP if high >= low else -_STEP]
        found += [point._replace(place=point.place + step) for step in steps]
    return [
        each
        for each in found
        if _PLACES[0] <= each.place <= _PLACES[1] and 0 <= each.popularity <= _MOST_POPULARITY
        and each not in scores
    ]  # fmt: skip
