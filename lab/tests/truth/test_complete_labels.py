"""Blocks in which every label is known."""

from pathlib import Path

import numpy as np

from truepair.data.datasets.loading import load
from truepair.data.reading import read_interactions
from truepair_lab.truth.cases import mask_of
from truepair_lab.truth.complete_labels import positives_of, rated_above_0


def test_users_who_rated_all():
    rated = read_interactions(([0, 0, 1, 2, 2], [0, 1, 0, 0, 1], [1.5, -0.5, -2.0, 3.0, 4.0]))
    found = rated_above_0(rated)
    assert found.user_ids.ids.to_pylist() == [0, 2]
    assert mask_of(found).tolist() == [[True, False], [True, True]]


def test_real_blocks(real_data: Path):
    kuairec = positives_of("kuairec", real_data)
    assert (kuairec.n_users, kuairec.n_items, len(kuairec)) == (1_411, 3_327, 217_175)
    jester, rated = positives_of("jester5k", real_data), load("jester5k", real_data)
    matrix = np.zeros((5_000, 100))
    matrix[rated.users, rated.items] = rated.rating
    assert (mask_of(jester) == (matrix[rated.user_counts == 100] > 0)).all()
