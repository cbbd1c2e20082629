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


class Climb:
    """One climb.

    run      trains points; without time for all, the first of them
    scores   of all points so far
    is_late  whether the time of the climb is used up
    wanted   "temperature", "popularity", or both
    most     runs that may be made; the first row of temperatures is always made
    """

    def __init__(
        self,
        run: Callable[[Sequence[Point]], object],
        scores: Callable[[], Mapping[Point, float]],
        is_late: Callable[[], bool],
        wanted: Collection[str],
        most: int,
    ) -> None:
        self.run, self.scores, self.is_late, self.wanted, self.most = run, scores, is_late, wanted, most
        self._made = 0

    def top(self, first: Point) -> Point:
        """The best point: a wide row of temperatures, then steps to better neighbours."""
        best = self._widest(first)
        while True:
            around = self._around(best)[: max(0, self.most - self._made)]
            if not self._try(around):
                return best
            found = self._best([best, *around])
            if self.scores()[found] <= _BETTER * self.scores()[best]:
                return best
            best = found

    def _widest(self, first: Point) -> Point:
        """The best of temperatures by factors of 2; the row grows as long as its last one is the best."""
        if "temperature" not in self.wanted:
            self._try([first])
            return first
        row = [first._replace(place=first.place + way * _WIDE) for way in (0, -1, 1)]
        self._try(row)
        while True:
            best = self._best(row)
            ends = [point.place for point in row]
            further = best.place + (_WIDE if best.place == max(ends) else -_WIDE)
            inside = min(ends) < best.place < max(ends)
            new = best._replace(place=further)
            known = inside or not _WIDE_PLACES[0] <= further <= _WIDE_PLACES[1]
            if known or self._made >= self.most or not self._try([new]):
                return best
            row.append(new)

    def _around(self, point: Point) -> list[Point]:
        """Neighbours without a score, those in popularity first."""
        found = []
        if "popularity" in self.wanted:
            steps = (_POPULARITY, -_POPULARITY)
            found += [point._replace(popularity=round(point.popularity + step, 3)) for step in steps]
        if "temperature" in self.wanted:
            found += [point._replace(place=point.place + way * _STEP) for way in self._ways(point)]
        return [each for each in found if _is_allowed(each) and each not in self.scores()]

    def _ways(self, point: Point) -> tuple[int, ...]:
        """Towards lower and higher temperatures; only to the better side where both are known from afar."""
        low, high = (self._best_at(point.place + way * _WIDE) for way in (-1, 1))
        if low is None or high is None:
            return 1, -1
        return (1,) if high >= low else (-1,)

    def _best_at(self, place: int) -> float | None:
        """The best score at a temperature, of any popularity."""
        return max((score for point, score in self.scores().items() if point.place == place), default=None)

    def _try(self, points: Sequence[Point]) -> bool:
        """Run these unless it is late; the very first ones are always run."""
        if not points or (self._made and self.is_late()):
            return False
        self.run(points)
        self._made += len(points)
        return True

    def _best(self, points: Sequence[Point]) -> Point:
        scores = self.scores()
        return max((point for point in points if point in scores), key=lambda point: scores[point])


def _is_allowed(point: Point) -> bool:
    return _PLACES[0] <= point.place <= _PLACES[1] and 0 <= point.popularity <= _MOST_POPULARITY
