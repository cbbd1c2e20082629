"""CatalogueSearch: users by the beginning of their id, items by that or by words of their title."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import Codes

Mask = npt.NDArray[np.bool_]


class CatalogueSearch:
    """Ids and titles by code; a question looks through all of them: 11 to 33 ms for 100,000.

    Weights are how many interactions each has. What is found is in the order of the ids, or the heaviest
    first.
    """

    def __init__(
        self,
        ids: Sequence[str],
        weights: Codes,
        titles: Sequence[str | None] = (),
        heaviest_first: bool = False,
    ) -> None:
        self._ids = pa.array([text.casefold() for text in ids], pa.large_string())
        self._words: pa.Array | None = None
        if any(titles):
            self._words = pa.array([" " + plain(title or "") for title in titles], pa.large_string())
        self._weights, self._heaviest_first = weights, heaviest_first

    def find(self, query: str, limit: int) -> Codes:
        """The codes of the best matches, the id itself first.

        An item matches if its id begins with the query, or if each word of the query begins a word of the
        title; where no title matches so, if each is a part of the title.
        """
        if not query.strip():
            return self._without_query(limit)
        text = query.strip().casefold()
        found = _mask(pc.starts_with(self._ids, text))
        words = plain(query).split()
        if self._words is not None and words:
            begins = self._having([f" {word}" for word in words])
            found = found | (begins if begins.any() else self._having(words))
        codes = np.flatnonzero(found)
        if self._heaviest_first:
            codes = codes[np.argsort(-self._weights[codes], kind="stable")]
        exact = np.flatnonzero(_mask(pc.equal(self._ids, text)))
        return np.concatenate([exact, codes[~np.isin(codes, exact)]])[:limit]

    def _without_query(self, limit: int) -> Codes:
        """The heaviest; or some that have interactions and are spread over all ids."""
        if self._heaviest_first:
            return np.argsort(-self._weights, kind="stable")[:limit]
        able = np.flatnonzero(self._weights)
        return able[np.linspace(0, len(able) - 1, min(limit, len(able))).astype(np.int64)]

    def _having(self, parts: Sequence[str]) -> Mask:
        masks = [_mask(pc.match_substring(self._words, part)) for part in parts]
        return np.asarray(np.logical_and.reduce(masks))


def plain(text: str) -> str:
    """Lower case without accents, and a space for all that is no letter and no digit.

    >>> plain("Amélie (2001)")
    'amelie  2001 '
    """
    text = text.casefold()
    if not text.isascii():
        letters = unicodedata.normalize("NFKD", text)
        text = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return re.sub(r"[\W_]", " ", text)


def _mask(found: pa.Array) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)
