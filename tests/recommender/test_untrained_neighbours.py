"""Similar items and users: only those with a trained pair."""

import numpy as np
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.recommender.estimator import Recommender
from worlds import two_tastes

SMALL = two_tastes(n_users=12, n_items=10, each=4)
# user 0 and item 1 have no pair; the codes of all others are one or two higher
WIDER = Interactions(
    SMALL.users + 1, np.where(SMALL.items == 0, 0, SMALL.items + 1), IdMap.range(13), IdMap.range(11)
)


@pytest.mark.parametrize("options", [{"dim": 4, "epochs": 2}, {"encoder": "ease"}, {"encoder": "itemknn"}])
def test_neighbours_have_a_trained_pair(options):
    model = Recommender(**options, device="cpu").fit(WIDER)
    items = model.similar_items([0, 5], k=50)
    assert sorted(items["similar"].to_pylist()) == sorted(
        item for query in (0, 5) for item in range(11) if item not in (1, query)
    )
    assert items["rank"].to_pylist() == [*range(1, 10)] * 2
    users = model.similar_users([4], k=50)
    assert sorted(users["similar"].to_pylist()) == [user for user in range(1, 13) if user != 4]
    with pytest.raises(
        InputError, match=r"items without a trained pair: 1; ask for items of the training data"
    ):
        model.similar_items([5, 1])
    with pytest.raises(InputError, match="users without a trained pair: 0; "):
        model.similar_users([0])


def test_scores_belong_to_the_neighbours():
    model = Recommender(encoder="ease", device="cpu").fit(WIDER)
    table = model.similar_items([5], k=50)
    weights = model.model_.scorer.weights[5].numpy()
    np.testing.assert_array_equal(table["score"].to_numpy(), weights[table["similar"].to_numpy()])
