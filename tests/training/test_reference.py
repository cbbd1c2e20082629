"""The reference loop: each update against formulas written out, early stopping, and what goes wrong."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError, TrainingError
from truepair.losses import BPR, BSL, DPL, LOSSES, PSL, SL, InfoNCE
from truepair.models.encoders import ENCODERS, MF, LightGCN
from truepair.randomness import stream_key
from truepair.sampling import DNS, SAMPLERS, Draws, Uniform
from truepair.training import ENGINES, Job, Settings, choose_engine, fit
from truepair.training.loop import describe_epoch
from worlds import two_tastes

fit_reference = partial(fit, engine="reference")

FAST = Settings(epochs=2, batch_size=16, n_extra=2, n_unlabelled=3, learning_rate=0.05, device="cpu")


def taste_auc(result, data):
    """The share of (unseen item of the own taste, item of the other taste) pairs in the right order."""
    scores = (result.users @ result.items.T).numpy()
    own = (np.arange(data.n_users)[:, None] + np.arange(data.n_items)) % 2 == 0
    seen = data.csr().toarray() > 0
    auc = [np.mean(s[o & ~k][:, None] > s[~o][None]) for s, o, k in zip(scores, own, seen, strict=True)]
    return float(np.mean(auc))


@pytest.fixture(scope="module")
def data():
    return two_tastes()


# --- the update, written out ---------------------------------------------------------------------------


def by_hand(encoder, loss, data, settings, m):
    """The same run with the gradient of plain float64 autograd and the optimiser's formulas in NumPy."""
    started = encoder.start(data, settings.seed, torch.device("cpu"))
    weights = [started.user.detach().double().numpy(), started.item.detach().double().numpy()]
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
    draws, t = Draws(data, Uniform()), 0
    for epoch in range(settings.epochs):
        rate = settings.learning_rate_at(epoch)
        for step, anchors in enumerate(draws.epoch(settings.seed, epoch, settings.batch_size)):
            batch = draws.batch(anchors, m, settings.n_unlabelled, stream_key(settings.seed, epoch, step))
            user, item = (torch.from_numpy(w).requires_grad_() for w in weights)
            total = 0
            for b in range(len(anchors)):
                u = user[batch.users[b]]
                pos = (u * item[batch.pos[b]]).sum()
                extra = torch.stack([(u * item[i]).sum() for i in batch.extra[b]] or [pos])[:m]
                unlabelled = torch.stack([(u * item[j]).sum() for j in batch.unlabelled[b]])
                total = total + loss(pos[None], extra[None], unlabelled[None], batch.users[b : b + 1])[0]
                touched = [batch.pos[b], *batch.extra[b], *batch.unlabelled[b]]
                total = total + settings.l2_users / 2 * (u * u).sum()
                total = total + settings.l2_items / 2 * sum((item[i] * item[i]).sum() for i in touched)
            gradients = torch.autograd.grad(total / len(anchors), [user, item])
            t += 1
            for k, g in enumerate(gradients):
                g = g.numpy() + settings.weight_decay * weights[k]
                if settings.optimizer == "sgd":
                    weights[k] = weights[k] - rate * g
                    continue
                first, second = moments[k]
                first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
                moments[k] = first, second
                step_size = (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
                weights[k] = weights[k] - rate * step_size
    return weights


@pytest.mark.parametrize("loss", [BPR(), DPL(tau=0.1), LOSSES["hcl"](tau=0.1)])
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "learning_rate": 0.5},
        {"optimizer": "sgd", "l2_users": 0.3, "l2_items": 0.1, "learning_rate": 0.5},
        {"optimizer": "adam", "weight_decay": 0.01},
        {"optimizer": "adam", "schedule": "linear", "epochs": 3},
    ],
    ids=str,
)
def test_updates_equal_the_formulas(loss, changes):
    data = two_tastes(n_users=8, n_items=16, each=4)
    settings = dataclasses.replace(FAST, batch_size=13, **changes)  # 32 anchors: an odd tail
    ours = fit_reference(Job(MF(dim=3), loss, Uniform(), data, settings))
    theirs = by_hand(MF(dim=3), loss, data, settings, 2 if loss.uses_extra else 0)
    np.testing.assert_allclose(ours.users.numpy(), theirs[0], rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(ours.items.numpy(), theirs[1], rtol=2e-3, atol=2e-4)


def test_l2_of_lightgcn_is_on_its_own_vectors_not_on_the_averaged_ones():
    data = two_tastes(n_users=8, n_items=16)
    settings = dataclasses.replace(
        FAST, epochs=1, batch_size=100, optimizer="sgd", l2_users=0.3, learning_rate=0.5
    )
    result, plain = (
        fit_reference(
            Job(LightGCN(dim=3, hops=1), BPR(), Uniform(), data, dataclasses.replace(settings, l2_users=l2))
        )
        for l2 in (0.3, 0.0)
    )
    started = LightGCN(dim=3, hops=1).start(data, settings.seed, torch.device("cpu"))
    # one step: the only difference is −rate·l2·(share of the batch)·e_u, seen through the layer mean
    change = (
        -0.5 * 0.3 * torch.from_numpy(data.user_counts / len(data)).float()[:, None] * started.user.detach()
    )
    neighbours = started.graph.spread(change, torch.zeros(16, 3))
    torch.testing.assert_close(result.users - plain.users, change / 2, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(result.items - plain.items, neighbours[1] / 2, rtol=1e-3, atol=1e-6)


def test_schedules():
    def rates(**changes):
        settings = Settings(epochs=4, learning_rate=1.0, **changes)
        return [settings.learning_rate_at(epoch) for epoch in range(4)]

    assert rates() == [1, 1, 1, 1]
    assert rates(schedule="step", decay_epoch=2, decay=0.1) == [1, 1, 0.1, 0.1]
    assert rates(schedule="linear") == [1, 0.75, 0.5, 0.25]
    assert rates(schedule="cosine") == pytest.approx(
        [1, 0.5 + 0.5 / math.sqrt(2), 0.5, 0.5 - 0.5 / math.sqrt(2)]
    )


# --- learning ------------------------------------------------------------------------------------------

LONG = dataclasses.replace(FAST, epochs=8, batch_size=100, learning_rate=0.1)


@pytest.fixture(scope="module")
def enough():
    return two_tastes(n_users=100, n_items=40, each=8)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("encoder", [name for name, kind in ENCODERS.items() if not kind.reads_order])
def test_every_loss_and_encoder_learns_the_two_tastes(engine, loss, encoder, enough):
    scoring = "cosine" if LOSSES[loss].needs_cosines else "dot"
    parts = ENCODERS[encoder](dim=4, scoring=scoring), LOSSES[loss]().with_density(enough.density)
    job = Job(*parts, Uniform(), enough, LONG)
    if lack := ENGINES[engine].lacks(job):
        pytest.skip(lack)
    result = fit(job, engine=engine)
    assert taste_auc(result, enough) > 0.9
    assert result.history[-1].loss < result.history[0].loss


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_learns_the_two_tastes(sampler, enough):
    kind, settings = SAMPLERS[sampler], dataclasses.replace(LONG, n_unlabelled=1)
    chosen = (
        kind(pool=4) if kind.needs_scores else kind()
    )  # a pool of all items would seek out hidden positives
    assert taste_auc(fit_reference(Job(MF(dim=4), BPR(), chosen, enough, settings)), enough) > 0.9


def test_cosine_learns_too(enough):
    encoder = LightGCN(dim=4, hops=2, scoring="cosine", temperature=0.2)
    assert taste_auc(fit_reference(Job(encoder, InfoNCE(), Uniform(), enough, LONG)), enough) > 0.9


def test_hard_samples_by_rank_are_dpl_with_the_dns_sampler(enough):
    result = fit_reference(Job(MF(dim=4), DPL(tau=0.3), DNS(pool=12), enough, LONG))
    assert taste_auc(result, enough) > 0.9


def test_the_same_seed_gives_the_same_bits_and_another_does_not(data):
    runs = [
        fit_reference(Job(MF(dim=4), DPL(), Uniform(), data, dataclasses.replace(FAST, seed=seed)))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(runs[0].users, runs[1].users)
    assert torch.equal(runs[0].items, runs[1].items)
    assert not torch.equal(runs[0].users, runs[2].users)


def test_density_is_the_prior_unless_told_otherwise(data):
    result = fit_reference(Job(MF(dim=4), DPL(), Uniform(), data, FAST))
    assert result.job.loss.tau == pytest.approx(data.density)


def test_one_prior_per_user_equals_one_number_where_all_agree(data):
    one = fit_reference(Job(MF(dim=4), DPL(tau=0.25), Uniform(), data, FAST))
    each = fit_reference(Job(MF(dim=4), DPL(tau=[0.25] * 40), Uniform(), data, FAST))
    torch.testing.assert_close(one.users, each.users)


def test_clamped_rows_are_counted_and_shown(data):
    counted = []

    class Watched(DPL):
        def rows(self, *args):
            rows = super().rows(*args)
            counted.extend(rows.clamped.tolist())
            return rows

    result = fit_reference(Job(MF(dim=4), Watched(tau=0.9), Uniform(), data, FAST))
    assert 0 < result.clamped < 1
    assert result.clamped == pytest.approx(np.mean(counted))
    assert f"{result.clamped:.1%} of rows clamped" in repr(result)
    assert fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, FAST)).clamped is None


# --- odd users -----------------------------------------------------------------------------------------


def odd_interactions():
    users = np.concatenate([np.zeros(10), [1], np.full(3, 2)]).astype(int)  # all items; one; some; none
    items = np.concatenate([np.arange(10), [4], [1, 5, 9]]).astype(int)
    return Interactions(users, items, IdMap.range(4), IdMap.range(10))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_users_with_all_one_or_no_items_do_no_harm(sampler):
    settings = dataclasses.replace(FAST, n_unlabelled=4)
    result = fit_reference(Job(MF(dim=4), DPL(), SAMPLERS[sampler](), odd_interactions(), settings))
    assert result.users.isfinite().all()
    assert result.n_saturated_users == 1
    assert "users with every item, left out: 1" in repr(result)


def test_nothing_unlabelled_at_all_is_an_error():
    full = Interactions(np.zeros(3, int), np.arange(3), IdMap.range(1), IdMap.range(3))
    with pytest.raises(InputError, match="every user has every item"):
        fit_reference(Job(MF(), BPR(), Uniform(), full, FAST))


# --- validation and early stopping ---------------------------------------------------------------------


def scores_of(*values):
    """An on_epoch that gives these scores in turn and keeps what it saw."""

    def on_epoch(state):
        on_epoch.seen[state.epoch] = state.matrices()[0].clone()
        return values[len(on_epoch.seen) - 1]

    on_epoch.seen = {}
    return on_epoch


def test_patience_stops_and_the_best_epoch_is_kept(data):
    on_epoch = scores_of(0.1, 0.3, 0.2, 0.3, 0.25, 0.9)
    settings = dataclasses.replace(FAST, epochs=6, patience=3)
    result = fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, settings), on_epoch)
    assert (result.epoch, result.score, len(result.history), result.stopped_early) == (2, 0.3, 5, True)
    assert torch.equal(result.users, on_epoch.seen[2])
    assert "stopped early" in repr(result)


def test_without_patience_all_epochs_run_and_the_best_is_kept(data):
    on_epoch = scores_of(0.1, 0.3, 0.2)
    settings = dataclasses.replace(FAST, epochs=3)
    result = fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, settings), on_epoch)
    assert (result.epoch, len(result.history), result.stopped_early) == (2, 3, False)


def test_validation_now_and_then_and_after_the_last_epoch(data):
    on_epoch = scores_of(0.1, 0.2, 0.15)
    settings = dataclasses.replace(FAST, epochs=5, validate_every=2)
    result = fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, settings), on_epoch)
    assert sorted(on_epoch.seen) == [2, 4, 5]
    assert [record.score for record in result.history] == [None, 0.1, None, 0.2, 0.15]


def test_patience_is_judged_only_where_something_was_measured(data):
    on_epoch = scores_of(0.1, 0.2, 0.3, 0.4)
    settings = dataclasses.replace(FAST, epochs=20, validate_every=5, patience=3)
    result = fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, settings), on_epoch)
    assert (sorted(on_epoch.seen), result.epoch, result.stopped_early) == ([5, 10, 15, 20], 20, False)


def test_what_on_epoch_saw_does_not_change_afterwards(data):
    kept = []
    fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, FAST), lambda state: kept.append(state.matrices()))
    assert not torch.equal(kept[0][0], kept[1][0])


def test_on_epoch_may_only_watch(data):
    result = fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, FAST), lambda state: None)
    assert result.epoch == 2
    assert result.score is None


def test_patience_without_a_score_is_an_error(data):
    with pytest.raises(InputError, match="patience = 3 needs on_epoch"):
        fit_reference(Job(MF(), BPR(), Uniform(), data, dataclasses.replace(FAST, patience=3)))


def test_a_score_that_is_no_number_is_an_error(data):
    with pytest.raises(TrainingError, match="validation score is nan after epoch 1"):
        fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, FAST), scores_of(float("nan")))


@pytest.mark.parametrize(
    "loss", [SL(), BSL(), *(PSL(surrogate=kind) for kind in ("tanh", "relu", "atan"))], ids=repr
)
def test_fused_engines_say_that_they_lack_a_loss_and_auto_takes_the_reference(loss, data):
    job = Job(MF(dim=4), loss, Uniform(), data, FAST)
    by_sgd = dataclasses.replace(job, settings=dataclasses.replace(FAST, optimizer="sgd"))
    with pytest.raises(
        InputError, match=f"it has no loss {type(loss).__name__}; it has InfoNCE, BPR, .*reference"
    ):
        choose_engine(by_sgd, "cpu")
    assert choose_engine(job) == "reference"
    result = fit(job)
    assert result.history[-1].loss < result.history[0].loss
    assert (result.clamped is None) == (getattr(loss, "surrogate", "tanh") == "tanh")


@pytest.mark.parametrize("kind", [MF, LightGCN])
def test_fused_engines_say_that_they_do_not_add_popularity_and_auto_takes_the_reference(kind, data):
    job = Job(kind(dim=4, popularity=0.2), BPR(), Uniform(), data, FAST)
    by_sgd = dataclasses.replace(job, settings=dataclasses.replace(FAST, optimizer="sgd"))
    if kind is MF:
        with pytest.raises(InputError, match=r"it does not add popularity to scores.*Use reference"):
            choose_engine(by_sgd, "cpu")
    assert ENGINES["gpu"].lacks(job) is not None
    assert choose_engine(job) == "reference"
    result = fit(job)
    assert result.history[-1].loss < result.history[0].loss
    assert result.users.shape[1] == result.items.shape[1] == 5


# --- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_that_diverges_stops_with_advice(loss, data):
    settings = dataclasses.replace(FAST, learning_rate=1e25, optimizer="sgd", weight_decay=0.3, epochs=50)
    with pytest.raises(
        TrainingError, match=r"(became (nan|inf)|infinite or NaN) at epoch .*Lower learning_rate"
    ):
        fit_reference(Job(MF(dim=4), LOSSES[loss](), Uniform(), data, settings))


def test_an_infinite_vector_is_noticed_before_the_loss_is(data):
    settings = dataclasses.replace(
        FAST, epochs=1, batch_size=10_000, optimizer="sgd", learning_rate=3e38, weight_decay=100.0
    )
    with pytest.raises(TrainingError, match="a vector became infinite or NaN at epoch 1, step 1 of 1"):
        fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, settings))


def test_a_loss_that_is_not_finite_stops_with_advice(data):
    settings = dataclasses.replace(FAST, learning_rate=1e25, optimizer="sgd", epochs=50)
    with pytest.raises(
        TrainingError, match=r"the loss became (nan|inf) at epoch \d+, step \d+ of 15.*Lower learning_rate"
    ):
        fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, settings))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "mf"}, r"encoder is a str, .*MF\(dim=64\)"),
        ({"encoder": MF}, r"encoder is the class MF, .*MF\(dim=64\)"),
        ({"loss": Uniform()}, r"loss is a Uniform, .*DPL\(tau=0.05\)"),
        ({"sampler": "uniform"}, r"sampler is a str, .*Uniform\(\)"),
        ({"interactions": [1]}, "interactions is a list, .*read_interactions"),
        ({"settings": {}}, "settings is a dict"),
        ({"on_epoch": 5}, "on_epoch = 5 cannot be called"),
        ({"checkpoint_every": 0}, "checkpoint_every = 0 .* ≥ 1"),
    ],
    ids=str,
)
def test_arguments_of_another_kind_are_named(changes, message, data):
    job = {"encoder": MF(dim=4), "loss": BPR(), "sampler": Uniform(), "interactions": data, "settings": FAST}
    parts = {name: value for name, value in changes.items() if name in job}
    options = {name: value for name, value in changes.items() if name not in job}
    with pytest.raises(InputError, match=message):
        fit_reference(Job(**{**job, **parts}), **options)


def test_choosing_all_of_the_pool_is_no_choice(data):
    settings = dataclasses.replace(FAST, n_unlabelled=5)
    with pytest.raises(
        InputError, match="n_unlabelled = 5 of a pool of 5 is no choice; raise pool, or lower n_unlabelled"
    ):
        fit_reference(Job(MF(dim=4), BPR(), SAMPLERS["bns"](), data, settings))


def test_numpy_numbers_are_numbers(data, tmp_path):
    settings = Settings(epochs=np.int64(1), seed=np.int64(3), learning_rate=np.float32(0.5), device="cpu")
    result = fit_reference(
        Job(MF(dim=np.int64(4)), BPR(), Uniform(), data, settings), checkpoint=tmp_path / "c"
    )
    assert result.users.shape == (40, 4)


def test_priors_for_another_number_of_users(data):
    with pytest.raises(InputError, match="tau has 2 values, one per user, but there are 40 users"):
        fit_reference(Job(MF(), DPL(tau=[0.1, 0.2]), Uniform(), data, FAST))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs = 0 .* ≥ 1"),
        ({"batch_size": -1}, "batch_size = -1"),
        ({"n_extra": -1}, r"n_extra \(M\) = -1 .* from 0 to"),
        ({"n_unlabelled": 0}, r"n_unlabelled \(N\) = 0 .* from 1 to"),
        ({"n_unlabelled": 2.5}, r"n_unlabelled \(N\) = 2.5"),
        ({"optimizer": "adm"}, "Did you mean 'adam'"),
        ({"schedule": "linar"}, "Did you mean 'linear'"),
        ({"learning_rate": 0}, "learning_rate = 0 .* > 0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"weight_decay": -1e-3}, "weight_decay = -0.001 .* ≥ 0"),
        ({"patience": 0}, "patience = 0 .* None trains all epochs"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": True}, "seed = True"),
        ({"device": "gpu"}, "device = 'gpu' is not known; use 'auto', 'cpu', 'cuda' or"),
    ],
)
def test_bad_settings_are_named_with_their_range(changes, message):
    with pytest.raises(InputError, match=message):
        Settings(**changes)


def test_cuda_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="sees no CUDA device"):
        Settings(device="cuda")


# --- progress ------------------------------------------------------------------------------------------


def test_progress_shows_loss_metric_clamped_share_and_time(data, capsys):
    on_epoch = scores_of(0.1, 0.25)
    on_epoch.metric = "ndcg@20"
    result = fit_reference(Job(MF(dim=4), DPL(tau=0.9), Uniform(), data, FAST), on_epoch, progress=True)
    line = describe_epoch(result.history[-1], 2, "ndcg@20")
    last = result.history[-1]
    assert line == f"epoch 2/2  loss {last.loss:.4f}  ndcg@20 0.2500  clamped {last.clamped:.1%}"
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "epoch 2/2" in shown.err
    assert "left" in shown.err


def test_no_progress_prints_nothing(data, capsys):
    fit_reference(Job(MF(dim=4), BPR(), Uniform(), data, FAST))
    assert capsys.readouterr() == ("", "")
