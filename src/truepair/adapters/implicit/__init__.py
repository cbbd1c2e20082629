"""The interface of the library `implicit`: a program written for it runs by changing one import.

    import truepair.adapters.implicit as implicit

    model = implicit.bpr.BayesianPersonalizedRanking(factors=64)
    model.fit(user_items)
    ids, scores = model.recommend(userids, user_items[userids])

`DebiasedPairwise` has the same interface. What is not here says so: nothing is imitated by another method.
"""

from __future__ import annotations

import truepair.adapters.implicit.als as als
import truepair.adapters.implicit.bpr as bpr
import truepair.adapters.implicit.dpl as dpl
from truepair.adapters.implicit.bpr import BayesianPersonalizedRanking
from truepair.adapters.implicit.dpl import DebiasedPairwise

__all__ = ["BayesianPersonalizedRanking", "DebiasedPairwise", "als", "bpr", "dpl"]

_NOT_HERE = ("lmf", "nearest_neighbours", "approximate_als", "AlternatingLeastSquares")


def __getattr__(name: str) -> object:
    if name in _NOT_HERE:
        # an ImportError also reaches those who write `from truepair.adapters.implicit import …`
        raise ImportError(
            f"truepair has no implicit.{name}; it has bpr.BayesianPersonalizedRanking and "
            "dpl.DebiasedPairwise. Keep `import implicit` for that model."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
