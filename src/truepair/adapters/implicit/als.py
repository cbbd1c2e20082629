"""truepair has no alternating least squares; importing it from here raises an error that says so."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    if name == "AlternatingLeastSquares":
        raise ImportError(
            "truepair has no AlternatingLeastSquares; it has bpr.BayesianPersonalizedRanking, "
            "dpl.DebiasedPairwise, infonce.FullCatalogueInfoNCE and ease.EASE, with the same methods. Keep "
            "`import implicit` for ALS."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
