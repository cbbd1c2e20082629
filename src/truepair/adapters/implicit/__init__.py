"""The interface of the library `implicit`: a program written for it needs one changed import.

    import truepair.adapters.implicit as implicit

    model = implicit.bpr.BayesianPersonalizedRanking(factors=64)
    model.fit(user_items)
    ids, scores = model.recommend(userids, user_items[userids])

`DebiasedPairwise`, `FullCatalogueInfoNCE` (the default model of truepair) and `EASE` have the same interface.
Models that truepair lacks raise an ImportError; they are never
replaced by another method.
"""

from __future__ import annotations

import truepair.adapters.implicit.als as als
import truepair.adapters.implicit.bpr as bpr
import truepair.adapters.implicit.dpl as dpl
import truepair.adapters.implicit.ease as ease
import truepair.adapters.implicit.infonce as infonce
from truepair.adapters.implicit.bpr import BayesianPersonalizedRanking
from truepair.adapters.implicit.dpl import DebiasedPairwise
from truepair.adapters.implicit.ease import EASE
from truepair.adapters.implicit.infonce import FullCatalogueInfoNCE

__all__ = [
    "EASE",
    "BayesianPersonalizedRanking",
    "DebiasedPairwise",
    "FullCatalogueInfoNCE",
    "als",
    "bpr",
    "dpl",
    "ease",
    "infonce",
]

_MISSING_MODELS = ("lmf", "nearest_neighbours", "approximate_als", "AlternatingLeastSquares")


def __getattr__(name: str) -> object:
    if name in _MISSING_MODELS:
        # an ImportError is also raised by `from truepair.adapters.implicit import …`
        raise ImportError(
            f"truepair has no implicit.{name}; it has bpr.BayesianPersonalizedRanking, "
            "dpl.DebiasedPairwise, infonce.FullCatalogueInfoNCE and ease.EASE. Keep `import implicit` for "
            "that model."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
