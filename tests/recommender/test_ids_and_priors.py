"""Model files whose ids are not in order, and the prior of people who are folded in."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import StorageError
from truepair.losses import DPL
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import load_model, save_model


@pytest.mark.parametrize("side", ["users", "items"])
def test_ids_that_are_not_sorted_are_refused(side, tmp_path):
    ids = {name: pa.array(["a", "b", "c"], pa.large_string()) for name in ("users", "items")}
    ids[side] = ids[side].take(pa.array([1, 0, 2]))
    pairs = Interactions(np.arange(3), np.arange(3), IdMap(ids["users"]), IdMap(ids["items"]))
    model = Recommender(dim=2, epochs=1, auto=False).fit({"user": ["a", "b", "c"], "item": ["a", "b", "c"]})
    save_model(tmp_path / "model", dataclasses.replace(model.model_, seen=pairs))
    with pytest.raises(StorageError, match=f"the ids of {side}: the ids are not distinct and sorted"):
        load_model(tmp_path / "model")


def test_new_people_get_the_mean_of_the_users_priors():
    assert DPL(tau=(0.1, 0.2, 0.6)).for_new_users().tau == pytest.approx(0.3)
    assert DPL(tau=0.2).for_new_users() == DPL(tau=0.2)
