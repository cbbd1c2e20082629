"""A model evaluates itself on a split; nobody passes matrices."""

import dataclasses

import pytest

import truepair as tp
from truepair.data.ids import IdMap
from truepair.errors import InputError
from worlds import two_tastes

SPLIT = tp.split_random(two_tastes(), test=0.2, valid=0.1)


@pytest.mark.parametrize(
    "parameters", [{"dim": 4, "epochs": 2}, {"encoder": "ease"}, {"dim": 4, "epochs": 2, "blend": "ease"}]
)
def test_a_model_is_evaluated_by_its_matrices(parameters):
    model = tp.Recommender(**parameters, device="cpu").fit(SPLIT)
    found = model.evaluate(SPLIT, ks=(5,))
    pair = model.matrices()
    assert found.means == tp.evaluate(pair, SPLIT, ks=(5,)).means == tp.evaluate(model, SPLIT, ks=(5,)).means
    by_hand = tp.evaluate(pair, SPLIT.test, exclude=[SPLIT.train, SPLIT.valid], ks=(5,))
    assert (found.means, found.catalogue, found.target) == (by_hand.means, by_hand.catalogue, by_hand.target)
    on_valid = model.evaluate(SPLIT, on="valid", ks=(20,)).mean("ndcg@20")
    assert on_valid == model.facts_["metrics"]["validation ndcg@20"]
    if "blend" not in parameters:
        assert found.means == tp.evaluate(model.result_, SPLIT, ks=(5,)).means


def test_wrong_splits_and_models():
    with pytest.raises(InputError, match="not fitted yet"):
        tp.Recommender().evaluate(SPLIT)
    model = tp.Recommender(encoder="popular").fit(SPLIT)
    with pytest.raises(InputError, match=r"split is a Interactions, .*; make one with split_random"):
        model.evaluate(SPLIT.test)
    other = tp.split_random(two_tastes(n_users=30), test=0.2)
    with pytest.raises(InputError, match="fitted on other users or items; fit and evaluate on one split"):
        model.evaluate(other)


def renamed(part, kind):
    """The same codes with other ids: text for the users or the items."""
    ids = {kind: IdMap.of([f"{code:03}" for code in range(len(getattr(part, kind)))])}
    return dataclasses.replace(part, **ids)


@pytest.mark.parametrize("kind", ["user_ids", "item_ids"])
def test_ids_other_than_those_of_the_model(kind):
    model = tp.Recommender(encoder="popular").fit(SPLIT)
    train, test = renamed(SPLIT.train, kind), renamed(SPLIT.test, kind)
    message = (
        f"fitted on other {kind.replace('_', ' ')} than .*int64.* not .*large_string.*parts of one split"
    )
    for options in ({"exclude": train}, {"exclude": [], "train": train}):
        with pytest.raises(InputError, match=message):
            tp.evaluate(model, test, **options)
    with pytest.raises(InputError, match=message):
        tp.evaluate(model, test, train=train, candidates=test)
    assert tp.evaluate(model.matrices(), test, exclude=train).n_users  # matrices have no ids
    assert tp.evaluate(model, SPLIT.test, exclude=SPLIT.train).n_users


def test_load_is_the_saved_model(tmp_path):
    model = tp.Recommender(encoder="popular").fit(SPLIT)
    model.save(tmp_path / "m")
    assert tp.load(tmp_path / "m").evaluate(SPLIT).means == model.evaluate(SPLIT).means
