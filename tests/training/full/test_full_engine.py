"""Full-catalogue training: engine "full" against the reference, drawn columns, resuming, the product."""

import dataclasses

import numba
import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from typer.testing import CliRunner

from loss_values import WeightedInfoNCE, two_of_each
from truepair.cli.main import app
from truepair.errors import InputError, TrainingError
from truepair.losses import BPR, DPL, HCL, PSL, DPLHard, InfoNCE
from truepair.losses import LOSSES as REGISTRY
from truepair.models.encoders import MF, LightGCN
from truepair.randomness import stream_key
from truepair.recommender.estimator import Recommender
from truepair.sampling import Full, Uniform
from truepair.training import Job, Settings, choose_engine, fit
from truepair.training.full.losses import ROW_FORMS, has_row_form, row_losses
from truepair.training.full.pair_sums import pair_sums
from truepair.training.full.scoring import Blocks, column_chances, sums_for
from worlds import interactions_of, two_tastes

CPU = torch.device("cpu")
SETTINGS = Settings(epochs=4, batch_size=7, learning_rate=0.05, device="cpu", seed=3)
DOT, COSINE = MF(dim=6), MF(dim=6, scoring="cosine", temperature=0.2)
GRAPH = LightGCN(dim=6, hops=2, scoring="cosine", temperature=0.2)


pytestmark = pytest.mark.usefixtures("one_thread")


def odd_world(n_users=24, n_items=20):
    """Users with some items, and one each with all, none, one, and all but one."""
    mask = np.random.default_rng(0).random((n_users, n_items)) < 0.2
    mask[:, 0] |= ~mask.any(axis=1)
    mask[3], mask[4], mask[5], mask[6] = True, False, False, True
    mask[5, 2], mask[6, 9] = True, False
    return interactions_of([np.flatnonzero(row) for row in mask], n_items)


DATA = odd_world()
TAUS = tuple(np.linspace(0, 0.5, DATA.n_users).tolist())
LOSSES = [
    *two_of_each(TAUS),
    WeightedInfoNCE(),
]


def named(value):
    """A name that is not as long as a prior per user."""
    return type(value).__name__


def trained(loss, encoder=DOT, sampler=None, data=DATA, engine="full", **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return fit(Job(encoder, loss, sampler or Full(), data, settings), engine=engine)


def assert_close(ours, theirs, accuracy):
    """Scores, losses and clamped shares, relative to the largest score."""
    scores = theirs.users @ theirs.items.T
    assert (ours.users @ ours.items.T - scores).abs().max() < accuracy * scores.abs().max()
    for a, b in zip(ours.history, theirs.history, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=accuracy, abs=accuracy)
    assert (ours.clamped is None) == (theirs.clamped is None)


def assert_same_bits(ours, theirs):
    assert torch.equal(ours.users, theirs.users)
    assert torch.equal(ours.items, theirs.items)
    assert [record.loss for record in ours.history] == [record.loss for record in theirs.history]


# --- against the reference -----------------------------------------------------------------------------


def test_every_row_form_is_trained_here():
    assert {loss.family.row for loss in LOSSES} == set(ROW_FORMS)
    assert {type(loss) for loss in LOSSES} == {*REGISTRY.values(), WeightedInfoNCE}


@pytest.mark.parametrize(
    ("loss", "encoder"),
    [
        *((loss, DOT) for loss in LOSSES),
        *((loss, encoder) for loss in LOSSES[1::2] for encoder in (COSINE, GRAPH)),
    ],
    ids=named,
)
def test_training_equals_the_reference(loss, encoder):
    reference = trained(loss, encoder, engine="reference", epochs=2)
    direct, histogram = (trained(loss, encoder, Full(step=step), epochs=2) for step in (0, 1 / 32))
    assert (direct.engine, histogram.engine) == ("full", "full")
    assert_close(direct, reference, 2e-5)
    assert direct.clamped == reference.clamped
    assert_close(histogram, reference, 5e-3)


POPULAR = [dataclasses.replace(encoder, popularity=0.4) for encoder in (DOT, COSINE, GRAPH)]


@pytest.mark.parametrize("encoder", POPULAR, ids=["dot", "cosine", "graph"])
@pytest.mark.parametrize("loss", [InfoNCE(temperature=0.7), DPL(tau=TAUS), LOSSES[-1]], ids=named)
def test_popularity_is_trained_with_as_in_the_reference(loss, encoder):
    changes = {"weight_decay": 1e-3, "l2_users": 0.1, "l2_items": 0.02, "epochs": 2}
    reference = trained(loss, encoder, engine="reference", **changes)
    for step, accuracy in ((0, 5e-5), (1 / 32, 5e-3)):
        assert_close(trained(loss, encoder, Full(step=step), **changes), reference, accuracy)
    drawn = trained(loss, encoder, Full(step=0, columns=DATA.n_items), **changes)
    assert_same_bits(drawn, trained(loss, encoder, Full(step=0), **changes))
    without = trained(loss, dataclasses.replace(encoder, popularity=0.0), Full(step=0), **changes)
    assert (without.users - reference.users[:, :-1]).abs().max() > 0.01  # it is no afterthought
    assert torch.equal(reference.users[:, -1], torch.ones(DATA.n_users))
    added = 0.4 * np.log1p(DATA.item_counts)
    np.testing.assert_allclose(reference.items[:, -1], added, rtol=1e-6)


@pytest.mark.parametrize("encoder", [DOT, GRAPH], ids=["dot", "graph"])
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "learning_rate": 2.0},
        {"optimizer": "adagrad", "schedule": "linear"},
        {"weight_decay": 1e-2},
        {"l2_users": 0.1, "l2_items": 0.02, "schedule": "cosine"},
        {"optimizer": "sgd", "weight_decay": 1e-2, "l2_users": 0.1},
        {"batch_size": 1, "epochs": 1},
        {"batch_size": 1000},
    ],
    ids=str,
)
def test_every_setting_means_what_it_means_in_the_reference(encoder, changes):
    loss = DPL(tau=TAUS)
    reference = trained(loss, encoder, engine="reference", **changes)
    assert_close(trained(loss, encoder, Full(step=0), **changes), reference, 5e-5)


def test_those_with_all_items_and_none_are_left_out():
    seen = trained(DPL(tau=0.1), l2_users=0.1)
    start = DOT.start(DATA, SETTINGS.seed, CPU)()[0]
    moved = (seen.users != start).any(dim=1)
    assert moved.tolist() == [user not in (3, 4) for user in range(DATA.n_users)]
    blocks = Blocks(Job(MF(dim=4), BPR(), Full(), DATA), CPU)
    assert blocks.n_saturated_users == 1
    assert blocks.n_anchors == len(DATA) - DATA.n_items


def test_auto_takes_this_engine_and_others_say_that_they_lack_it():
    job = Job(DOT, BPR(), Full(), DATA, SETTINGS)
    assert choose_engine(job) == "full"
    with pytest.raises(InputError, match=r"engine = 'cpu': .*Full.*Use full or reference"):
        choose_engine(job, "cpu")
    with pytest.raises(InputError, match=r"has no sampler Uniform; it has Full"):
        choose_engine(dataclasses.replace(job, sampler=Uniform()), "full")
    drawn = dataclasses.replace(job, sampler=Full(columns=5))
    with pytest.raises(InputError, match="whole catalogue, and cannot draw columns"):
        choose_engine(drawn, "reference")
    with pytest.raises(
        InputError, match=r"draws columns .* only for losses with a row form .*InfoNCE, .*BPR"
    ):
        choose_engine(dataclasses.replace(drawn, loss=PSL(surrogate="atan")), "full")


@pytest.mark.parametrize("bad", [{"columns": 0}, {"alpha": -1.0}, {"step": 2.0}, {"step": -0.1}], ids=str)
def test_descriptions_that_make_no_sense(bad):
    with pytest.raises(InputError, match=f"{next(iter(bad))} = "):
        Full(**bad)


@pytest.mark.parametrize("loss", [DPL(tau=0.1), HCL(tau=0.1)], ids=str)
@pytest.mark.parametrize("encoder", [DOT, GRAPH], ids=["dot", "graph"])
def test_the_same_bits_on_one_and_two_threads(loss, encoder):
    def run(n):
        numba.set_num_threads(min(n, numba.config.NUMBA_NUM_THREADS))
        torch.set_num_threads(n)
        return trained(loss, encoder, data=two_tastes(90, 500, each=20), batch_size=64, epochs=2)

    try:
        one, two = run(1), run(2)
    finally:
        torch.set_num_threads(1)
    assert_same_bits(one, two)


@pytest.mark.parametrize("encoder", [DOT, GRAPH, POPULAR[2]], ids=["dot", "graph", "popular graph"])
@pytest.mark.parametrize("sampler", [Full(), Full(columns=8, alpha=0.5)], ids=str)
def test_stopping_and_going_on_changes_nothing(encoder, sampler, tmp_path):
    def run(epochs, path=None):
        settings = dataclasses.replace(SETTINGS, epochs=epochs)
        return fit(Job(encoder, DPL(tau=0.1), sampler, DATA, settings), engine="full", checkpoint=path)

    run(2, tmp_path / "run.ckpt")
    assert_same_bits(run(4, tmp_path / "run.ckpt"), run(4))


# --- drawn columns -------------------------------------------------------------------------------------


def gradients(loss, sampler, keys, data=DATA, sums=pair_sums):
    """By the users' vectors [keys, B, d] and by the items' [keys, n_items, d], and who was idle [keys, B]."""
    blocks, chance = Blocks(Job(MF(dim=4), loss, sampler, data), CPU), torch.Generator().manual_seed(1)
    ours, theirs = (torch.randn(n, 4, generator=chance).double() for n in (data.n_users, data.n_items))
    by_ours, by_theirs, idle = [], [], []
    for key in keys:
        chosen = blocks.select(blocks.users, key)
        needed = torch.arange(data.n_items) if chosen.needed is None else chosen.needed
        held = blocks.scored(chosen, ours[blocks.users], theirs[needed])
        share = torch.full_like(held.block.pos, 1 / len(held.items))
        found = held.gradients(row_losses(loss, held.block, share, sums))
        by_ours.append(found[0])
        by_theirs.append(torch.zeros_like(theirs).index_copy_(0, needed, found[1]))
        idle.append(
            torch.zeros(len(blocks.users), dtype=torch.bool) if held.block.idle is None else held.block.idle
        )
    return torch.stack(by_ours), torch.stack(by_theirs), torch.stack(idle)


@pytest.mark.parametrize("encoder", [POPULAR[0], POPULAR[2]], ids=["dot", "graph"])
def test_a_step_with_drawn_columns_and_popularity_is_that_of_the_formula(encoder):
    """One block of all users: what was drawn, scored and descended by hand, with autograd."""
    sampler, settings = Full(columns=12, alpha=0.5, step=0), dataclasses.replace(SETTINGS, epochs=1)
    settings = dataclasses.replace(settings, optimizer="sgd", batch_size=DATA.n_users, learning_rate=1.0)
    data = two_tastes(n_users=12, n_items=20, each=3)
    found = fit(Job(encoder, InfoNCE(temperature=0.7), sampler, data, settings), engine="full")
    assert encoder.popularity > 0
    blocks, model = Blocks(Job(MF(dim=4), BPR(), sampler, data), CPU), encoder.start(data, settings.seed, CPU)
    key = stream_key(settings.seed, 0, 0)
    columns, log_weights = blocks.select(blocks.users, key)[4:6]
    users, items = model()
    scores = (users @ items.T).double() / 0.7
    has = torch.from_numpy(data.csr().toarray()).bool()
    logits = (scores[:, columns] + log_weights).masked_fill(has[:, columns], -np.inf)
    rest = torch.logsumexp(logits, dim=1)
    assert rest.isfinite().all()  # nobody is idle
    total = blocks.n_items - torch.tensor(data.user_counts)
    # of so many unlabelled items, the weighted mean stands for all
    weights = log_weights.expand(12, -1).masked_fill(has[:, columns], -np.inf).double()
    rest = rest - torch.logsumexp(weights, dim=1) + total.log()
    pairs = torch.tensor(data.users), torch.tensor(data.items)
    F.softplus(rest[pairs[0]] - scores[pairs]).mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= parameter.grad
    for ours, theirs in zip((found.users, found.items), model(), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [20, 21, 10_000])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_as_many_columns_as_items_are_all_of_them(columns, alpha):
    loss = DPL(tau=TAUS)
    assert_same_bits(trained(loss, sampler=Full(columns=columns, alpha=alpha)), trained(loss))


def test_large_catalogues_are_drawn_from_unless_told_otherwise():
    assert [Full().columns_of(n) for n in (100, 1 << 17, (1 << 17) + 1)] == [None, None, 1 << 14]
    assert [Full(columns=50).columns_of(n) for n in (50, 51, 10**7)] == [None, 50, 50]


def test_chances_are_in_proportion_and_expect_as_many_as_asked_for():
    weights = torch.tensor([100.0, 50.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=torch.float64)
    chances = column_chances(weights, 5)
    assert chances.sum().item() == pytest.approx(5)
    assert chances[:2].tolist() == [1.0, 1.0]
    torch.testing.assert_close(chances[2:] / weights[2:], torch.full((6,), 3 / 21, dtype=torch.float64))
    assert column_chances(torch.ones(4), 4).tolist() == [1.0] * 4


def test_columns_come_by_their_chances_with_the_inverse_for_weight():
    blocks = Blocks(Job(MF(dim=4), BPR(), Full(columns=6, alpha=1.0), DATA), CPU)
    seen = torch.zeros(DATA.n_items, dtype=torch.float64)
    for key in range(2000):
        columns, log_weights = blocks.select(blocks.users, key)[4:6]
        seen[columns] += 1 / 2000
        torch.testing.assert_close(log_weights.double(), -blocks.chances[columns].log(), rtol=1e-5, atol=1e-6)
    spread = (blocks.chances * (1 - blocks.chances) / 2000).sqrt()
    assert ((seen - blocks.chances).abs() < 4.5 * spread + 1e-12).all()


@pytest.mark.parametrize(("columns", "alpha", "bias"), [(8, 0.0, 0.0), (16, 1.0, 0.02)])
def test_the_mean_gradient_over_many_draws_is_the_exact_one(columns, alpha, bias):
    """Of users who are not idle. A weighted mean over unequal weights has a bias of order 1 / columns."""
    loss = BPR()
    exact = gradients(loss, Full(), [0])[0][0]
    found, _, idle = gradients(loss, Full(columns=columns, alpha=alpha), range(800))
    for user, (gradient, away) in enumerate(zip(exact, idle.T, strict=True)):
        drawn = found[~away, user]
        error, spread = drawn.mean(dim=0) - gradient, drawn.std(dim=0) / len(drawn) ** 0.5
        assert (error.abs() < 4.5 * spread + bias * gradient.norm() + 1e-9).all(), user


def test_the_mean_gradient_of_items_is_the_exact_one_where_nobody_is_idle():
    data = two_tastes(n_users=12, n_items=30, each=4)
    exact = gradients(BPR(), Full(), [0], data)[1][0]
    _, found, idle = gradients(BPR(), Full(columns=15, alpha=0), range(800), data)
    assert not idle.any()
    spread = found.std(dim=0) / 800**0.5
    assert ((found.mean(dim=0) - exact).abs() < 4.5 * spread).all()


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if has_row_form(loss)], ids=named)
def test_who_has_all_that_was_drawn_is_idle(loss):
    assert DATA.user_counts[6] == DATA.n_items - 1
    row = 4  # of user 6: users 3 and 4 have no anchors
    by_ours, by_theirs, idle = gradients(loss, Full(columns=3), range(20))
    assert idle[:, row].any()
    assert not idle.all(dim=1).any()
    assert (by_ours[idle] == 0).all()
    assert (by_ours[~idle].abs().sum(dim=1) > 0).any()
    assert by_ours.isfinite().all()
    assert by_theirs.isfinite().all()


def test_every_score_of_a_block_lies_in_its_range():
    data = interactions_of([range(8), [8], [9]], 10)
    blocks = Blocks(Job(MF(dim=4), DPL(tau=0.1), Full(columns=2, alpha=0), data), torch.device("cpu"))
    ours, theirs = torch.full((3, 2), 10.0), torch.linspace(1, 1.1, 20).view(10, 2)
    chosen = [blocks.select(blocks.users, key) for key in range(20)]
    some = [blocks.scored(each, ours, theirs[each.needed]) for each in chosen]
    assert any(held.block.idle.any() for held in some)
    for held in some:
        scores = held.block.scores[held.block.scores > -torch.inf]
        assert held.block.low <= float(scores.min()) <= float(scores.max()) <= held.block.high


@pytest.mark.parametrize("loss", [BPR(), DPL(tau=0.1), InfoNCE()], ids=str)
def test_a_run_that_diverges_stops_with_advice(loss):
    settings = Settings(epochs=5, batch_size=5, optimizer="sgd", learning_rate=1e5, device="cpu")
    with pytest.raises(TrainingError, match="Lower learning_rate"):
        fit(Job(MF(dim=4), loss, Full(), two_tastes(), settings), engine="full")


def test_a_prior_near_1_is_not_rounded_to_1():
    loss, settings = DPL(tau=1 - 1e-9), Settings(epochs=1, batch_size=5, device="cpu")
    theirs, ours = (
        fit(Job(MF(dim=4), loss, Full(step=0), two_tastes(), settings), engine=engine)
        for engine in ("reference", "full")
    )
    assert np.isclose(ours.history[-1].loss, theirs.history[-1].loss)


@pytest.mark.parametrize("step", [0, 1 / 32])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("loss", [BPR(), InfoNCE(), HCL(tau=0.1), DPL(tau=0.1), PSL()], ids=str)
def test_one_column_is_enough_to_train(loss, alpha, step):
    found = trained(loss, sampler=Full(columns=1, alpha=alpha, step=step))
    assert found.users.isfinite().all()
    assert all(np.isfinite(record.loss) for record in found.history)


def test_drawn_columns_learn_the_two_tastes():
    data = two_tastes()
    found = trained(DPL(tau=0.05), sampler=Full(columns=10), data=data, epochs=40)
    scores = found.users @ found.items.T
    alike = torch.arange(data.n_users)[:, None] % 2 == torch.arange(data.n_items) % 2
    assert scores[alike].mean() > scores[~alike].mean() + 1


def test_histograms_and_pairs_agree_on_drawn_columns():
    sampler = Full(columns=9, alpha=1.0)
    exact = trained(DPLHard(tau=0.1), sampler=dataclasses.replace(sampler, step=0))
    assert_close(trained(DPLHard(tau=0.1), sampler=sampler), exact, 5e-3)
    assert sums_for(Job(MF(dim=4), BPR(), sampler, DATA), CPU) is not pair_sums


# --- the product ---------------------------------------------------------------------------------------

QUICK = {"dim": 4, "epochs": 12, "validation": 0, "sampler": "full", "learning_rate": 0.05, "device": "cpu"}


@pytest.mark.parametrize("sampler", ["full", Full(columns=25, alpha=0.5)], ids=str)
@pytest.mark.parametrize("loss", ["bpr", "dpl", "infonce"])
def test_fit_recommend_fold_in_save_and_load(loss, sampler, tmp_path):
    data = two_tastes(n_users=100, n_items=40, each=8)
    model = Recommender(**{**QUICK, "loss": loss, "sampler": sampler}).fit(data)
    assert model.facts_["engine"] == "full"
    lists = model.recommend(k=5).to_pandas()
    assert (lists.user % 2 == lists.item % 2).mean() > 0.9
    model.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.get_params()["sampler"] == sampler
    pd.testing.assert_frame_equal(loaded.recommend(k=5).to_pandas(), lists)
    rows = [(f"guest {g}", i) for g in range(4) for i in range(g % 2, 16, 2)]
    guests = loaded.fold_in(pd.DataFrame(rows, columns=["user", "item"])).recommend(k=8)
    assert (guests.item % 2 == guests.user.str[-1].astype(int) % 2).mean() > 0.9


def test_folding_in_does_not_depend_on_who_comes_along():
    data = two_tastes(n_users=60)
    model = Recommender(**QUICK).fit(data)
    table = data.to_table().to_pandas()
    alone, together = (model.fold_in(table[table.user.isin(who)]) for who in ([4], [1, 4, 9]))
    pd.testing.assert_frame_equal(alone.recommend([4], k=9), together.recommend([4], k=9), rtol=1e-3)


def test_one_prior_per_user_is_folded_in_by_its_mean():
    data = two_tastes(n_users=30)
    model = Recommender(loss="dpl", **QUICK, tau=tuple(np.linspace(0, 0.2, 30))).fit(data)
    with pytest.raises(InputError, match="tau = one for each user has no effect: loss = 'sl' has no prior"):
        Recommender(loss="sl", tau=tuple(np.linspace(0, 0.2, 30))).fit(data)
    assert len(model.fold_in(data).recommend(k=2)) == 60


def test_a_batch_is_8_to_128_users_unless_told_otherwise():
    def batch_size(n_pairs, n_users=0, **parameters):
        return Recommender(**parameters).spec.settings_for(n_pairs, n_users).batch_size

    sizes = {(72_000, 943): 72, (720_000, 6040): 128, (729_000, 29_858): 335, (79_000, 14_279): 892}
    assert {data: batch_size(*data) for data in sizes} == sizes
    assert batch_size(1_670_000, 1_000_000) == 2048
    assert batch_size(1_670_000, 1_000_000, batch_size=32) == 32

    assert [batch_size(n, sampler="full") for n in (10, 50_000, 10**6)] == [8, 50, 128]
    assert batch_size(10**6, sampler=Full(columns=5)) == 128
    assert batch_size(10**6, sampler="full", batch_size=32) == 32
    assert batch_size(10**6, sampler="uniform") == 1024


def test_the_command_line(tmp_path):
    two_tastes().to_table().to_pandas().to_csv(tmp_path / "clicks.csv", index=False)
    words = ["fit", tmp_path / "clicks.csv", "-o", tmp_path / "m", "--sampler", "full", "--dim", "4"]
    more = ["--epochs", "3", "--metric", "ndcg@5", "--set", "sampler.columns=20", "--quiet"]
    result = CliRunner().invoke(app, [str(word) for word in [*words, *more]])
    assert result.exit_code == 0, result.output
    loaded = Recommender.load(tmp_path / "m")
    assert loaded.get_params()["sampler"] == Full(columns=20)
    assert loaded.facts_["engine"] == "full"
