"""A loss whose unlabelled items have weights of their own: what the hooks of `Loss` do."""

import dataclasses
from dataclasses import dataclass, field

import pytest
import torch

from loss_values import WeightedInfoNCE
from truepair.errors import InputError
from truepair.losses import LOSSES, InfoNCE, register_loss
from truepair.models.encoders import MF
from truepair.prior import prepare
from truepair.recommender.estimator import Recommender
from truepair.sampling import DNS, Full, Popularity, Uniform
from truepair.training import Job, Settings, choose_engine, fit, fold_in
from truepair.training.full.scoring import Blocks
from worlds import two_tastes

pytestmark = pytest.mark.usefixtures("one_thread")

DATA = two_tastes(n_users=30, n_items=24, each=5)
LOSS, PLAIN, CPU = WeightedInfoNCE(0.6), InfoNCE(0.6), torch.device("cpu")
SETTINGS = Settings(epochs=3, batch_size=7, learning_rate=0.05, seed=2, patience=None, device="cpu")


def job_of(loss, sampler=None):
    return Job(MF(dim=4), loss, sampler or Full(), DATA, SETTINGS)


def test_weights_have_an_effect():
    ours, plain = (fit(job_of(loss)) for loss in (LOSS, PLAIN))
    assert (ours.users - plain.users).abs().max() > 1e-2


def test_drawn_columns_weigh_both_ways():
    sampler = Full(columns=10)
    blocks, plain = (Blocks(Job(MF(dim=4), loss, sampler, DATA), CPU) for loss in (LOSS, PLAIN))
    ours, theirs = torch.randn(DATA.n_users, 4), torch.randn(DATA.n_items, 4)
    for key in range(5):
        users = blocks.users[key : key + 6]
        chosen = blocks.select(users, key)
        found = blocks.scored(chosen, ours[users], theirs[chosen.needed]).block
        bare = plain.scored(plain.select(users, key), ours[users], theirs[chosen.needed]).block
        own = LOSS.item_weights((DATA.n_users, DATA.n_items), CPU)(users, chosen.columns)
        torch.testing.assert_close(found.log_weights, bare.log_weights + own)
    assert torch.equal(fit(job_of(LOSS, Full(columns=1000))).users, fit(job_of(LOSS)).users)


@pytest.mark.parametrize("sampler", [Uniform(), Popularity(), DNS(pool=8)], ids=str)
def test_a_sampler_that_draws_is_refused(sampler):
    message = f"the sampler {type(sampler).__name__} draws a few; use sampler='full', or the loss 'infonce'"
    with pytest.raises(InputError, match=message):
        fit(job_of(LOSS, sampler))
    with pytest.raises(InputError, match=message):
        prepare(job_of(LOSS, sampler))


def test_new_users_are_folded_in_by_the_loss_for_them():
    items = torch.randn(DATA.n_items, 4)
    found = [
        fold_in(items, MF(dim=4), loss, Full(), DATA, SETTINGS, DATA.item_counts) for loss in (LOSS, PLAIN)
    ]
    assert torch.equal(*found)


class Derived(WeightedInfoNCE):
    """Without a family of its own."""


def test_without_a_row_form_the_reference_trains_it():
    assert choose_engine(job_of(LOSS)) == "full"
    assert choose_engine(job_of(Derived(0.6))) == "reference"
    with pytest.raises(InputError, match="weighs items only in losses with a row form"):
        fit(job_of(Derived(0.6)), engine="full")


@dataclass(frozen=True)
class ByPopularity(WeightedInfoNCE):
    """Weights that come from the data."""

    family = WeightedInfoNCE.family
    counts: tuple[int, ...] | None = field(default=None, repr=False)

    def prepared(self, job, engine, progress):
        counts = tuple(job.interactions.item_counts.tolist())
        return dataclasses.replace(self, counts=counts), {"most popular": max(counts)}

    def item_weights(self, shape, device):
        table = torch.tensor(self.counts, dtype=torch.float32, device=device).add(1).log().neg()
        return lambda users, columns: (table if columns is None else table[columns]).repeat(len(users), 1)


def test_a_recommender_prepares_the_loss_and_keeps_the_facts(tmp_path):
    known = dict(LOSSES)
    try:
        register_loss("by-popularity", ByPopularity)
        model = Recommender(loss="by-popularity", dim=4, epochs=2, device="cpu").fit(DATA)
        trained_on = model.result_.job.interactions
        assert model.result_.job.loss.counts == tuple(trained_on.item_counts.tolist())
        model.save(tmp_path / "model.truepair")
        loaded = Recommender.load(tmp_path / "model.truepair")
        assert loaded.facts_["most popular"] == trained_on.item_counts.max()
        assert loaded.recommend(k=3).equals(model.recommend(k=3))
    finally:
        LOSSES.clear()
        LOSSES.update(known)
