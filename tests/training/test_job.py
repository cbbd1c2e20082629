"""The job's research fields: anchors and labelled negatives, in every engine that supports them."""

import dataclasses

import numpy as np
import pytest
import torch

from loss_values import WeightedInfoNCE
from truepair.errors import InputError, StorageError
from truepair.losses import BPR, BSL, DCL, DPL, HCL, PSL, SL, DPLHard, InfoNCE
from truepair.models.encoders import MF
from truepair.sampling import Full, Uniform
from truepair.training import ENGINES, Job, Settings, choose_engine, fit
from worlds import interactions_of, two_tastes

pytestmark = pytest.mark.usefixtures("one_thread")

DATA = two_tastes()
SETTINGS = Settings(
    epochs=3, batch_size=37, n_extra=2, n_unlabelled=3, learning_rate=0.02, weight_decay=1e-4, device="cpu"
)
ANCHORS = np.random.default_rng(0).random(len(DATA)) < 0.6
TAUS = tuple(np.linspace(0, 0.4, DATA.n_users).tolist())


def labelled_negatives():
    """Some of the pairs that are no interactions; user 0 has none, user 1 a single one."""
    mask = np.random.default_rng(1).random((DATA.n_users, DATA.n_items)) < 0.4
    mask[DATA.users, DATA.items] = False
    mask[:2] = False
    mask[1, np.setdiff1d(np.arange(DATA.n_items), DATA.items_of(1))[0]] = True
    return mask


NEGATIVES = labelled_negatives()
DRAWN = Job(MF(dim=5), BPR(), Uniform(), DATA, SETTINGS, anchors=ANCHORS)
LABELLED = Job(MF(dim=5), InfoNCE(0.7), Full(step=0), DATA, SETTINGS, negatives=NEGATIVES)


def changed(job, **changes):
    return dataclasses.replace(job, **changes)


def named(value):
    return type(value).__name__


def assert_close(found, expected, accuracy):
    scores = expected.users @ expected.items.T
    assert (found.users @ found.items.T - scores).abs().max() < accuracy * scores.abs().max()
    for a, b in zip(found.history, expected.history, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=accuracy, abs=accuracy)
        assert a.clamped == b.clamped


# --- anchors -------------------------------------------------------------------------------------------


def test_all_anchors_are_the_default():
    given = fit(changed(DRAWN, anchors=np.ones(len(DATA), dtype=bool)))
    default = fit(changed(DRAWN, anchors=None))
    assert torch.equal(given.users, default.users)
    assert torch.equal(given.items, default.items)


def test_auto_takes_the_reference_for_anchors():
    assert choose_engine(changed(DRAWN, loss=DPL(tau=0.1))) == "reference"
    assert fit(changed(DRAWN, loss=DPL(tau=0.1))).users.isfinite().all()


def test_full_catalogue_anchors_are_interactions_with_the_unknown_items_as_negatives():
    """By definition the same: the pairs that are not anchors are neither compared with nor learnt from."""
    for loss in (InfoNCE(0.7), DPL(tau=TAUS), BSL()):
        anchored = Job(MF(dim=5), loss, Full(step=0), DATA, SETTINGS, anchors=ANCHORS)
        unknown = np.ones((DATA.n_users, DATA.n_items), dtype=bool)
        unknown[DATA.users, DATA.items] = False
        labelled = changed(anchored, interactions=DATA.take(ANCHORS), anchors=None, negatives=unknown)
        expected = fit(anchored, engine="reference")
        assert_close(fit(labelled, engine="reference"), expected, 1e-6)
        assert_close(fit(labelled, engine="full"), expected, 2e-5)


@pytest.mark.parametrize("engine", ["gpu", "cpu", "full"])
def test_engines_without_anchors_say_so(engine, monkeypatch):
    job = changed(DRAWN, settings=changed(SETTINGS, optimizer="sgd", weight_decay=0.0))
    if engine == "gpu":
        assert ENGINES["gpu"].lacks(changed(job, anchors=None)) is not None  # no GPU, or no SGD
        monkeypatch.setattr(
            "truepair.training.settings.Settings.torch_device", lambda _: torch.device("cuda")
        )
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        pytest.importorskip("triton")
    if engine == "full":
        job = changed(job, sampler=Full())
    assert "it has no anchors" in ENGINES[engine].lacks(job)
    if engine != "gpu":
        with pytest.raises(InputError, match=f"engine = '{engine}': it has no anchors.* Use .*reference"):
            choose_engine(job, engine)


# --- negatives -----------------------------------------------------------------------------------------

LOSSES = [
    BPR(),
    InfoNCE(temperature=0.7),
    SL(),
    BSL(temperature=0.8),
    PSL(temperature=0.5),
    PSL(surrogate="relu"),
    DCL(tau=TAUS, min_score=-3.0),
    HCL(tau=0.1, beta=0.5, min_score=-3.0),
    DPL(tau=TAUS),
    DPLHard(tau=0.1),
    WeightedInfoNCE(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_the_full_engine_equals_the_reference(loss):
    settings = changed(SETTINGS, l2_users=0.1, l2_items=0.02)
    job = changed(LABELLED, loss=loss, settings=settings)
    assert choose_engine(job) == "full"
    expected = fit(job, engine="reference")
    found = fit(job)
    assert_close(found, expected, 5e-5)
    assert found.n_saturated_users == expected.n_saturated_users == 1
    histogram = fit(changed(job, sampler=Full()), engine="full")
    assert (histogram.users @ histogram.items.T - expected.users @ expected.items.T).abs().max() < 0.05
    plain = fit(changed(job, negatives=None), engine="reference")
    assert (plain.users - expected.users).abs().max() > 0.01


def test_all_unlabelled_items_as_negatives_are_the_default():
    unknown = np.ones((DATA.n_users, DATA.n_items), dtype=bool)
    unknown[DATA.users, DATA.items] = False
    for engine in ("full", "reference"):
        given, default = (fit(changed(LABELLED, negatives=n), engine=engine) for n in (unknown, None))
        assert torch.equal(given.users, default.users)
        assert torch.equal(given.items, default.items)


def test_items_that_are_neither_anchors_nor_negatives_do_not_move():
    allowed = NEGATIVES & (np.arange(DATA.n_items) < 5)
    settings = changed(SETTINGS, weight_decay=0.0)
    for job in (
        changed(LABELLED, negatives=allowed, settings=settings),
        changed(LABELLED, negatives=allowed, settings=settings, sampler=Full(columns=20)),
    ):
        result = fit(job, engine="full")
        start = job.encoder.start(DATA, SETTINGS.seed, torch.device("cpu"))
        moved = ((result.items - start.item.detach()).abs().sum(1) > 0).numpy()
        used = allowed.any(axis=0)
        used[DATA.items[allowed.any(axis=1)[DATA.users]]] = True
        assert moved.any()
        assert not moved[~used].any()


# --- what is checked, and checkpoints ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"anchors": ANCHORS[1:]},
            r"anchors is an array of bool of the shape .*one value for each interaction",
        ),
        ({"anchors": ANCHORS.astype(int)}, "anchors is an array of int64 .*it must be bool"),
        ({"negatives": NEGATIVES}, "negatives needs the sampler Full, not Uniform.*mark the anchors"),
        ({"negatives": NEGATIVES.T, "sampler": Full()}, "one value for each user and item"),
        ({"negatives": ~NEGATIVES, "sampler": Full()}, "pairs are both interactions and negatives"),
    ],
    ids=["short", "whole numbers", "drawn", "transposed", "both"],
)
def test_bad_fields_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        changed(DRAWN, **{"anchors": None, **changes})


@pytest.mark.parametrize(
    "job",
    [changed(DRAWN, anchors=ANCHORS & False), changed(LABELLED, negatives=NEGATIVES & False)],
    ids=["anchors", "negatives"],
)
def test_without_anything_to_compare_there_is_nothing_to_learn(job):
    with pytest.raises(InputError, match="no anchor has an item to be compared with"):
        fit(job)


def test_jobs_are_equal_if_all_their_fields_are():
    assert changed(DRAWN, anchors=ANCHORS.copy()) == DRAWN
    assert hash(changed(DRAWN, anchors=ANCHORS.copy())) == hash(DRAWN)
    assert changed(DRAWN, anchors=None) != DRAWN
    assert changed(DRAWN, anchors=~ANCHORS) != DRAWN
    assert changed(DRAWN, loss=InfoNCE()) != DRAWN
    assert changed(LABELLED, negatives=None) != LABELLED
    assert DRAWN != "a job"


def test_a_users_anchors_need_something_to_be_compared_with():
    data = interactions_of([[0, 1, 2], [0], [1]], 3)
    with pytest.raises(InputError, match="no anchor has an item"):
        fit(Job(MF(dim=2), BPR(), Uniform(), data, SETTINGS, anchors=np.arange(5) < 3))


@pytest.mark.parametrize("job", [DRAWN, LABELLED], ids=["anchors", "negatives"])
def test_a_checkpoint_knows_the_fields(job, tmp_path):
    path, (name,) = (
        tmp_path / "run.ckpt",
        [n for n in ("anchors", "negatives") if getattr(job, n) is not None],
    )
    whole = fit(job)
    fit(changed(job, settings=changed(SETTINGS, epochs=1)), checkpoint=path)
    with pytest.raises(StorageError, match=f"of another run: {name} was '.*', is None"):
        fit(changed(job, **{name: None}), checkpoint=path)
    other = getattr(job, name).copy()
    other[np.nonzero(other)[0][-1]] = False
    with pytest.raises(StorageError, match=f"of another run: {name} was '"):
        fit(changed(job, **{name: other}), checkpoint=path)
    assert torch.equal(fit(job, checkpoint=path).users, whole.users)
