"""Parameters behind implicit's interface that are NumPy's numbers: the model is saved and loaded."""

import numpy as np
import pytest
import scipy.sparse as sp

from truepair.adapters.implicit.bpr import BayesianPersonalizedRanking
from truepair.adapters.implicit.dpl import DebiasedPairwise
from truepair.adapters.implicit.ease import EASE

CLICKS = sp.csr_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
TRAINED = {"factors": np.int64(4), "iterations": np.int32(2), "learning_rate": np.float32(0.5)}
TRAINED |= {"use_gpu": np.bool_(False), "random_state": np.int64(3)}


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (EASE, {"regularization": np.float32(100), "user_power": np.float64(0.5)}),
        (BayesianPersonalizedRanking, TRAINED),
        (DebiasedPairwise, {**TRAINED, "tau": np.float32(0.25), "n_extra": np.int64(2)}),
        (DebiasedPairwise, {**TRAINED, "tau": np.array([0.1, 0.2, 0.3])}),
    ],
)
def test_numbers_of_numpy(kind, parameters, tmp_path):
    model = kind(**parameters)
    model.fit(CLICKS, show_progress=False)
    model.save(tmp_path / "m")
    loaded = kind.load(tmp_path / "m")
    for name, value in parameters.items():
        np.testing.assert_array_equal(getattr(loaded, name), value)
    assert np.array_equal(loaded.item_factors, model.item_factors)
