"""What a fitted model keeps of its training: the popularity of trained items, and the prior."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.recommender.estimator import Recommender
from truepair.recommender.fitting import _facts
from truepair.recommender.holdout import split_for_fitting
from worlds import interactions_of, two_tastes

QUICK = {"dim": 4, "epochs": 2, "device": "cpu"}


def test_an_item_of_the_validation_part_alone_is_never_recommended(tmp_path):
    data = two_tastes()
    held_out = (data.items == 5) | (np.arange(len(data)) % 7 == 0)
    nothing = data.take(np.zeros(len(data), dtype=bool))
    split = Split(data.take(~held_out), data.take(held_out), nothing, "by hand")
    Recommender(**QUICK).fit(split).save(tmp_path / "model")
    model = Recommender.load(tmp_path / "model")
    np.testing.assert_array_equal(model.popularity_, split.train.item_counts)
    known, new = model.recommend(k=30, exclude_seen=False), model.recommend([99], k=30, unknown="popular")
    assert 5 not in {*known["item"].to_pylist(), *new["item"].to_pylist()}
    assert 4 in set(known["item"].to_pylist())
    named = model.recommend(k=2, exclude_seen=False, only_items=[4, 5])
    assert set(named["item"].to_pylist()) == {4}


@pytest.mark.parametrize("seed", range(3))
def test_every_user_and_every_item_keeps_a_pair_to_learn_from(seed):
    rows = [[user, user + 20, 50] for user in range(20)] + [[51]]  # many have a single pair
    split = split_for_fitting(interactions_of(rows, 52), None, 0.5, seed)
    had = np.flatnonzero(split.train.item_counts + split.valid.item_counts)
    assert (split.train.item_counts[had] > 0).all()
    assert (split.train.user_counts > 0).all()
    assert len(split.valid) > 0


@pytest.mark.parametrize("word", ["density", "auto"])
def test_people_are_folded_in_with_the_prior_of_training(word):
    data = two_tastes()
    options = {**QUICK, "loss": "dpl", "sampler": "uniform", "validation": 0}
    by_word = Recommender(tau=word, **options).fit(data)
    by_number = Recommender(tau=by_word.model_.tau, **options).fit(data)
    assert torch.equal(by_word.model_.scorer.users, by_number.model_.scorer.users)
    guests = {"user": ["new", "new", "other"], "item": [1, 3, 8]}  # a density of their own, and too few pairs
    folded = [model.fold_in(guests).model_.scorer.users for model in (by_word, by_number)]
    assert torch.equal(*folded)


def test_the_stated_training_loss_is_that_of_the_chosen_epoch():
    split = split_random(two_tastes(), test=0.2, valid=0.2)
    model = Recommender(**QUICK).fit(split)
    first, last = (record.loss for record in model.result_.history)
    assert first != last
    for epoch, loss in ((1, first), (2, last)):
        facts = _facts(model.spec_, dataclasses.replace(model.result_, epoch=epoch), split, None)
        assert (facts["epoch"], facts["training loss"]) == (epoch, loss)


@pytest.mark.parametrize("sampler", ["full", "uniform"])
def test_the_validation_part_is_not_trained_on(sampler):
    split = split_random(two_tastes(), test=0.2, valid=0.2)
    model = Recommender(sampler=sampler, patience=None, **{**QUICK, "epochs": 1}).fit(split)
    assert model.result_.job.interactions == split.train
    alone = Recommender(sampler=sampler, validation=0, **{**QUICK, "epochs": 1}).fit(split.train)
    assert torch.equal(model.model_.scorer.users, alone.model_.scorer.users)
