"""Model files whose ids are not in order, and the prior of people who are folded in."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import StorageError
from truepair.losses import DPL
from truepair.recommender.model_file import Model, load_model, save_model


@pytest.mark.parametrize("side", ["users", "items"])
def test_ids_that_are_not_sorted_are_refused(side, tmp_path):
    ids = {name: pa.array(["a", "b", "c"], pa.large_string()) for name in ("users", "items")}
    ids[side] = ids[side].take(pa.array([1, 0, 2]))
    pairs = Interactions(np.arange(3), np.arange(3), IdMap(ids["users"]), IdMap(ids["items"]))
    save_model(tmp_path / "model", Model(torch.ones(3, 2), torch.ones(3, 2), pairs, np.ones(3, np.int64), {}))
    with pytest.raises(StorageError, match=f"the ids of {side} are not distinct and sorted"):
        load_model(tmp_path / "model")


def test_new_people_get_the_mean_of_the_users_priors():
    assert DPL(tau=(0.1, 0.2, 0.6)).for_new_users().tau == pytest.approx(0.3)
    assert DPL(tau=0.2).for_new_users() == DPL(tau=0.2)
