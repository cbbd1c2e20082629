"""Dislikes in training: their weight in a row, their own draws, priors, and the engines that refuse them."""

import dataclasses

import numpy as np
import pytest
import torch

from loss_values import WeightedInfoNCE, two_of_each
from truepair.errors import InputError
from truepair.losses import BPR, BSL, DPL, InfoNCE
from truepair.models.encoders import MF
from truepair.randomness import stream_key
from truepair.sampling import DNS, Draws, Full, Popularity, Uniform
from truepair.training import Job, Settings, choose_engine, fit, fold_in
from truepair.training.checkpoints import describe_job
from truepair.training.dislikes import DislikeDraws, with_dislikes
from truepair.training.full.engine import is_recordable
from truepair.training.full.losses import has_row_form
from truepair.training.full.trainer import FullTrainer, ManyUsersTrainer
from truepair.training.reference.trainer import FullReferenceTrainer, ReferenceTrainer
from worlds import interactions_of

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = Settings(
    epochs=2,
    batch_size=5,
    n_extra=2,
    n_unlabelled=3,
    learning_rate=0.05,
    device="cpu",
    seed=3,
    dislike_weight=3,
)
COSINE = MF(dim=4, scoring="cosine", temperature=0.3)
CPU = torch.device("cpu")


def world():
    """Users with all items, with likes and dislikes of all items, with many, one and no dislikes."""
    rows = [range(9), range(1, 9), [4], [0, 8], [3, 4, 5], *([u, u + 2] for u in range(6))]
    hates = [[], [0], [0, 1, 2, 3, 5, 6, 7, 8], [1], [], *([u + 1, 8] for u in range(6))]
    data = interactions_of([list(row) for row in rows], n_items=9)
    keys = [u * 9 + i for u, row in enumerate(hates) for i in row if not data.has(u, i)]
    return dataclasses.replace(data, disliked=np.unique(keys))


DATA = world()
PLAIN = dataclasses.replace(DATA, disliked=None)


def job_of(loss=None, sampler=None, data=DATA, encoder=COSINE, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return Job(encoder, loss or InfoNCE(), sampler or Full(step=0), data, settings)


def epochs_of(trainer):
    totals = [trainer.train(epoch, 0.05, lambda steps: None) for epoch in range(2)]
    return trainer.matrices(), torch.cat([one.losses.double() for one in totals])


def assert_alike(found, expected, accuracy=1e-4):
    for mine, right in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(mine.double(), right.double(), rtol=accuracy, atol=accuracy)
    torch.testing.assert_close(found[1], expected[1], rtol=accuracy, atol=accuracy)


def differs(one, other):
    return bool((one[0][0] - other[0][0]).abs().max() > 1e-3)


# --- full catalogue ----------------------------------------------------------------------------------------

LOSSES = [
    *(loss for loss in two_of_each(0.2) if has_row_form(loss)),
    WeightedInfoNCE(),
]


@pytest.mark.parametrize("loss", LOSSES[::2] + LOSSES[-1:], ids=lambda loss: type(loss).__name__)
def test_a_disliked_item_counts_as_so_many_items(loss):
    job = job_of(loss)
    expected = epochs_of(FullReferenceTrainer(job))
    for kind in (FullTrainer, ManyUsersTrainer):
        assert_alike(epochs_of(kind(job)), expected)
    assert differs(expected, epochs_of(FullReferenceTrainer(job_of(loss, dislike_weight=1))))


def test_one_row_by_hand():
    """log(e^{s⁺} + Σ_j ω_j e^{s_j}) − s⁺, ω = 3 at the disliked items, summed over all anchors."""
    trainer = FullTrainer(job_of(batch_size=100, encoder=MF(dim=4)))
    users, items = (each.double() for each in trainer.matrices())
    scores, known = users @ items.T, torch.from_numpy(DATA.csr().toarray() > 0)
    weights = torch.where(torch.from_numpy(DATA.dislikes.csr().toarray() > 0), 3.0, 1.0).double()
    others = (scores.exp() * weights * ~known).sum(dim=1)
    pairs = [(u, i) for u, i in zip(DATA.users, DATA.items, strict=True) if u != 0]
    expected = sum(float((1 + others[u] / scores[u, i].exp()).log()) for u, i in pairs)
    assert float(trainer.train(0, 0.05, lambda steps: None).losses.sum()) == pytest.approx(expected, rel=1e-5)


def test_weight_1_is_like_any_unlabelled_item():
    for loss in (InfoNCE(), BPR()):
        one, none = (epochs_of(FullTrainer(job_of(loss, data=d, dislike_weight=1))) for d in (DATA, PLAIN))
        assert all(torch.equal(a, b) for a, b in zip(one[0], none[0], strict=True))


def test_a_heavier_dislike_scores_lower():
    disliked = torch.from_numpy(DATA.dislikes.csr().toarray() > 0)
    means = []
    for weight in (1, 10):
        result = fit(job_of(epochs=30, dislike_weight=weight))
        means.append(float((result.users @ result.items.T)[disliked].mean()))
    assert means[1] < means[0] - 0.05


def test_drawn_columns_that_are_all_drawn_equal_the_catalogue():
    whole, drawn = (epochs_of(FullTrainer(job_of(sampler=s))) for s in (Full(), Full(columns=9)))
    assert_alike(whole, drawn)
    some = [epochs_of(FullTrainer(job_of(sampler=Full(columns=5), dislike_weight=w))) for w in (1, 3)]
    assert differs(*some)


def test_dislikes_and_weights_work_together():
    data = dataclasses.replace(DATA, weight=1.0 + np.arange(len(DATA)) % 3)
    for loss in (InfoNCE(), BPR()):
        job = job_of(loss, data=data)
        assert_alike(epochs_of(FullTrainer(job)), epochs_of(FullReferenceTrainer(job)))
    sampled = epochs_of(ReferenceTrainer(job_of(BPR(), Uniform(), data)))
    assert differs(sampled, epochs_of(ReferenceTrainer(job_of(BPR(), Uniform()))))


# --- drawn items -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [Uniform(), Popularity(), DNS(pool=5)], ids=str)
@pytest.mark.parametrize("by_item", [False, True])
def test_the_last_column_of_a_user_with_dislikes_is_one_of_them(sampler, by_item):
    draws = DislikeDraws(DATA, sampler, CPU)
    matrices = (torch.randn(DATA.n_users, 2), torch.randn(9, 2))
    seen = set()
    for step in range(40):
        batch = draws.batch(draws.anchors, 2, 3, stream_key(7, step), matrices, by_item=by_item)
        known = DATA.has(batch.users[:, None], torch.cat([batch.pos[:, None], batch.extra], dim=1))
        assert known.all()  # a dislike is never an extra positive
        hated = DATA.dislikes.has(batch.users[:, None], batch.unlabelled)
        assert not hated[:, :-1].any()  # and never drawn as unlabelled
        assert not DATA.has(batch.users[:, None], batch.unlabelled).any()
        assert (hated[:, -1] == (DATA.dislikes.user_counts[batch.users] > 0)).all()
        seen |= set(
            zip(batch.users[hated[:, -1]].tolist(), batch.unlabelled[hated[:, -1], -1].tolist(), strict=True)
        )
    learning = {u for u in DATA.users.tolist() if DATA.user_counts[u] + DATA.dislikes.user_counts[u] < 9}
    wanted = {(u, i) for u, i in zip(DATA.dislikes.users.tolist(), DATA.dislikes.items.tolist(), strict=True)}
    assert seen == {(u, i) for u, i in wanted if u in learning}


def test_with_one_column_every_second_one_is_disliked():
    draws = DislikeDraws(DATA, Uniform(), CPU)
    shares = []
    for step in range(60):
        batch = draws.batch(draws.anchors, 0, 1, stream_key(7, step), None)
        can = DATA.dislikes.user_counts[batch.users] > 0
        shares.append(DATA.dislikes.has(batch.users, batch.unlabelled[:, 0])[can].mean())
    assert np.mean(shares) == pytest.approx(0.5, abs=0.06)


def test_draws_of_users_without_dislikes_are_the_plain_ones():
    plain, draws = Draws(PLAIN, Uniform(), CPU), DislikeDraws(DATA, Uniform(), CPU)
    without = np.flatnonzero((DATA.dislikes.user_counts == 0) & (DATA.user_counts < 9))
    for user in without:
        ours = draws.anchors[draws.users[draws.anchors] == user]
        theirs = plain.anchors[plain.users[plain.anchors] == user]
        assert torch.equal(
            draws.batch(ours, 2, 3, 5, None).unlabelled, plain.batch(theirs, 2, 3, 5).unlabelled
        )
    assert torch.equal(draws.popularity, plain.popularity)  # of likes alone


def test_drawn_dislikes_score_lower():
    disliked = torch.from_numpy(DATA.dislikes.csr().toarray() > 0)
    disliked[1:3] = False  # with nothing unlabelled left to draw, these have no anchors
    scores = []
    for data in (PLAIN, DATA):
        result = fit(job_of(BPR(), Uniform(), data, epochs=40), engine="reference")
        scores.append(float((result.users @ result.items.T)[disliked].mean()))
    assert scores[1] < scores[0] - 0.05


# --- priors ------------------------------------------------------------------------------------------------


def test_of_columns_that_hold_dislikes_fewer_are_positive():
    full = with_dislikes(job_of(DPL(tau=0.2))).loss
    counts, free = DATA.dislikes.user_counts, 9 - DATA.user_counts
    expected = 0.2 * (free - counts) / np.maximum(free + 2 * counts, 1)
    np.testing.assert_allclose(full.tau, expected)
    sampled = with_dislikes(job_of(DPL(tau=0.2), Uniform())).loss
    np.testing.assert_allclose(sampled.tau, np.where(counts > 0, 0.2 * 2 / 3, 0.2))
    one = with_dislikes(job_of(DPL(tau=0.2), Uniform(), n_unlabelled=1)).loss
    np.testing.assert_allclose(one.tau, np.where(counts > 0, 0.1, 0.2))
    assert with_dislikes(job_of(BPR())).loss == BPR()
    assert with_dislikes(job_of(BSL())).loss == BSL()
    assert fit(job_of(DPL(tau=0.2))).job.loss.tau == 0.2  # what was given stays what is reported


# --- engines, checkpoints, folding in ----------------------------------------------------------------------


def test_engines_without_draws_of_dislikes_name_those_that_have_them():
    job = job_of(BPR(), Uniform(), optimizer="sgd")
    with pytest.raises(InputError, match=r"no draws of dislikes; 'reference' has them.* Use reference"):
        choose_engine(job, "cpu")
    assert choose_engine(job) == "reference"
    assert choose_engine(job_of()) == "full"
    with pytest.raises(InputError, match=r"a whole number of times; it has dislike_weight=1, 2"):
        choose_engine(job_of(dislike_weight=2.5), "reference")
    assert not is_recordable(job_of(), torch.device("cuda"))
    with pytest.raises(InputError, match="the interactions dislikes; give the dislikes as negatives"):
        dataclasses.replace(job_of(), negatives=np.zeros((DATA.n_users, 9), dtype=bool))


def test_a_checkpoint_knows_the_weight_only_where_it_has_an_effect():
    assert describe_job(job_of(), None)["dislike_weight"] == 3
    for without in (job_of(data=PLAIN), job_of(sampler=Uniform())):
        assert "dislike_weight" not in describe_job(without, None)


@pytest.mark.parametrize("sampler", [Full(step=0), Uniform()], ids=str)
def test_fold_in_keeps_away_from_what_is_disliked(sampler):
    items = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    history = interactions_of([[3, 7]], 30)
    own = items @ _folded(history, items, sampler)
    hated = int(own.argsort(descending=True)[2])
    disliked = dataclasses.replace(history, disliked=np.array([hated]))
    assert (items @ _folded(disliked, items, sampler))[hated] < own[hated] - 0.1


def _folded(history, items, sampler):
    settings = dataclasses.replace(SETTINGS, dislike_weight=20)
    return fold_in(items, MF(dim=4), InfoNCE(), sampler, history, settings, np.ones(30, dtype=np.int64))[0]


@pytest.mark.parametrize("weight", [0, -1, float("nan"), True, "2", 1e9])
def test_the_weight_is_checked(weight):
    with pytest.raises(InputError, match="dislike_weight"):
        Settings(dislike_weight=weight)
