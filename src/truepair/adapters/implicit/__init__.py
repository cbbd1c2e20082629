"""The interface of the library `implicit`: a program written for it needs one changed import.

    import truepair.adapters.implicit as implicit

    model = implicit.bpr.BayesianPersonalizedRanking(factors=64)
    model.fit(user_items)
    ids, scores = model.recommend(userids, user_items[userids])

`DebiasedPairwise` has the same interface. Models that truepair lacks raise an ImportError; they are never
replaced by another method.
"""

from __future__ import annotations

import truepair.adapters.implicit.als as als
import truepair.adapters.implicit.bpr as bpr
import truepair.adapters.implicit.dpl as dpl
from truepair.adapters.implicit.bpr import BayesianPersonalizedRanking
from truepair.adapters.implicit.dpl import DebiasedPairwise

__all__ = ["BayesianPersonalizedRanking", "DebiasedPairwise", "als", "bpr", "dpl"]

_MISSING_MODELS = ("lmf", "nearest_neighbours", "approximate_als", "AlternatingLeastSquares")


def __getattr__(name: str) -> object:
    if name in _MISSING_MODELS:
        # an ImportError is also raised by `from truepair.adapters.implicit import …`
        raise ImportError(
            f"truepair has no implicit.{name}; it has bpr.BayesianPersonalizedRanking and "
            "dpl.DebiasedPairwise. Keep `import implicit` for that model."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
