"""The truth lab on tiny worlds: what is hidden and judged, what is measured; what is said of bad input."""

import dataclasses
import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.simulation import simulate_world
from truepair.errors import InputError
from truepair.losses import BPR
from truepair.training import fit
from truepair_lab import store
from truepair_lab.truth import cases
from truepair_lab.truth.cases import case_of, hidden_case, mask_of
from truepair_lab.truth.fitting import Effort, best_of, fit_treatment, search
from truepair_lab.truth.lines import TruthLine
from truepair_lab.truth.probes import Probe
from truepair_lab.truth.running import run_case
from truepair_lab.truth.sources import Asked, file_case
from truepair_lab.truth.treatments import EVERY, N, excluded_pairs
from truepair_lab.truth.true_label_metrics import judged_users, quality
from worlds import interactions_of

pytestmark = pytest.mark.long  # the pages of the studies and what made them

QUICK = Effort(epochs=2, patience=2, batch_size=256, dim=4, rates=(0.01,), decays=(1e-5,))


def tiny(seed=0, hide=0.5, exposure="random"):
    world = simulate_world(60, 50, tau=0.2, density=0.1, seed=seed)
    return hidden_case(world.positives, "tiny", exposure, hide, seed)


def coat_like():
    """Labels known for some pairs alone."""
    world = simulate_world(60, 50, tau=0.2, density=0.1, seed=3)
    rng = np.random.default_rng(0)
    known = (rng.random(world.truth.shape) < 0.2) & ~mask_of(world.observed)
    truth = mask_of(world.observed) | (world.truth & known)
    return case_of("some", "self", 0.0, 0, world.observed, truth, known)


# --- cases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [tiny(), tiny(exposure="popularity"), coat_like()], ids=lambda c: c.name)
def test_parts_of_a_case_are_apart(case):
    train, valid = mask_of(case.train), mask_of(case.valid)
    assert not (train & valid).any()
    assert not (case.judged & case.observed).any()
    assert not (case.spare & (case.judged | case.truth)).any()
    assert (case.judged <= case.known).all()
    assert not (case.negatives & (case.truth | case.observed)).any()


def test_tau_is_the_share_of_positives_among_unlabelled_pairs():
    case = tiny()
    unlabelled = ~mask_of(case.train)
    assert case.tau == pytest.approx(case.truth[unlabelled].mean())
    per_user = (case.truth & unlabelled).sum(1) / unlabelled.sum(1)
    np.testing.assert_allclose(case.user_tau, np.minimum(per_user, 0.9))


def test_where_few_labels_are_known_a_users_tau_leans_to_the_global_one():
    case = coat_like()
    assert not case.complete
    raw = (case.truth & case.unlabelled).sum(1) / np.maximum(case.unlabelled.sum(1), 1)
    assert np.std(case.user_tau) < np.std(raw)


def test_a_seed_draws_anew_and_the_same_seed_the_same():
    assert tiny(0).train == tiny(0).train
    assert tiny(0).train != tiny(1).train
    popular = tiny(exposure="popularity")
    counts = popular.truth.sum(0)
    assert counts[popular.train.items].mean() > counts[tiny().train.items].mean()


def test_bad_input_gets_a_clear_message():
    positives = interactions_of([[0, 1, 2, 3]] * 20, 8)
    with pytest.raises(InputError, match="τ is 0 or 1, or too little is hidden"):
        case_of("none hidden", "random", 0.5, 0, positives, mask_of(positives), None)
    with pytest.raises(InputError, match="Lower hide"):
        hidden_case(interactions_of([[0, 1], [2]], 5), "few", "random", 0.5, 0)
    with pytest.raises(InputError, match="hide"):
        Asked("simulation", hide=1.0)
    with pytest.raises(InputError, match="Did you mean 'coat'"):
        Asked("coats")
    with pytest.raises(InputError, match="exposure"):
        Asked("simulation", exposure="fair")


@pytest.mark.parametrize("asked", [{"data": "coat"}, {"data": "seen.csv", "truth": Path("labels.csv")}])
def test_where_nothing_is_hidden_how_to_hide_is_an_error(asked):
    Asked(**asked)
    with pytest.raises(InputError, match=r"hide = 0\.5 cannot be used .* Leave hide and exposure out"):
        Asked(**asked, hide=0.5)
    with pytest.raises(InputError, match="exposure = 'random' cannot be used"):
        Asked(**asked, exposure="random")


def test_data_that_need_too_much_room_are_an_error(monkeypatch, tmp_path):
    huge = interactions_of([[0]], 10)
    huge = dataclasses.replace(huge, user_ids=IdMap.range(200_000), item_ids=IdMap.range(50_000))
    with pytest.raises(InputError, match=r"200,000 users x 50,000 items with 1 seed need about 931\.3 GiB"):
        mask_of(huge)
    case = tiny()
    monkeypatch.setattr(cases, "ROOM", 60 * 50 * 110)  # of one seed, and not of three
    monkeypatch.setattr(Asked, "case", lambda self, seed: case)
    with pytest.raises(InputError, match=r"3 seeds .* Keep fewer users or items, or take fewer seeds"):
        run_case(Asked("simulation"), 3, tmp_path, lambda _: None, QUICK)


# --- files ---------------------------------------------------------------------------------------------


def write_csv(path, rows):
    path.write_text("user,item,rating\n" + "".join(f"u{u},i{i},{r}\n" for u, i, r in rows))
    return path


def two_files(folder, case, labels=None):
    """The observed pairs of a case and its labels, as files."""
    folder.mkdir(exist_ok=True)
    pairs = zip(*np.nonzero(case.observed), strict=True)
    truth = case.truth if labels is None else labels
    every = ((u, i, int(truth[u, i])) for u, i in np.ndindex(truth.shape))
    return write_csv(folder / "seen.csv", [(u, i, 1) for u, i in pairs]), write_csv(folder / "l.csv", every)


def test_a_case_from_two_files(tmp_path):
    case = tiny()
    seen, labels = two_files(tmp_path, case)
    found = file_case(seen, labels, 0)
    assert found.complete
    assert found.truth.sum() == case.truth.sum()
    (tmp_path / "bare.csv").write_text("user,item\na,b\n")
    with pytest.raises(InputError, match="no rating column"):
        file_case(seen, tmp_path / "bare.csv", 0)


def test_files_of_one_name_are_kept_apart_by_what_they_hold(tmp_path):
    """Other pairs or other labels are another case; the same files elsewhere are the same."""
    case = tiny()
    other = case.truth.copy()
    other[np.nonzero(~case.truth)[0][0], np.nonzero(~case.truth)[1][0]] = True
    made = {
        name: two_files(tmp_path / name, *what)
        for name, what in {"a": (case,), "b": (tiny(1),), "c": (case, other), "d": (case,)}.items()
    }
    names = {name: file_case(*paths, 0).name for name, paths in made.items()}
    assert names["a"].startswith("seen-")
    assert names["d"] == names["a"] == file_case(*made["a"], 1).name
    assert len(set(names.values())) == 3


def test_an_observed_pair_that_is_labelled_0_is_an_error(tmp_path):
    case = tiny()
    user, item = (int(where[0]) for where in np.nonzero(case.observed))
    wrong = case.truth.copy()
    wrong[user, item] = False
    with pytest.raises(InputError, match=rf"1 pairs of .*user 'u{user}', item 'i{item}' \(0\).* Remove"):
        file_case(*two_files(tmp_path, case, wrong), 0)


# --- what supervised models are told -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clean-draws", "supervised"])
def test_a_supervised_model_never_touches_a_judged_pair(name):
    case = tiny()
    labels = EVERY[name].labels(case)
    assert not (labels.anchors & (case.judged | mask_of(case.valid))).any()
    drawable = ~mask_of(excluded_pairs(case, labels))
    assert not (drawable & (case.truth | case.judged | case.spare)).any()
    assert (labels.anchors <= case.truth).all()


def test_anchors_are_the_given_ones_alone(monkeypatch):
    """An item that is no anchor's and never drawn does not move, but for weight decay."""
    from truepair_lab.truth import fitting

    case, treatment = tiny(), EVERY["clean-draws"]
    only = np.zeros_like(case.truth)
    only[case.train.users[:30], case.train.items[:30]] = True
    excluded = np.ones_like(only)
    excluded[:, :5] = only[:, :5]
    labelled = dataclasses.replace(treatment, labels=lambda _: fitting_labels(only, excluded))
    monkeypatch.setattr(fitting, "fit", functools.partial(fit, engine="reference"))
    settings = dataclasses.replace(QUICK.grid(tiny())[0], weight_decay=0.0, epochs=1)
    result = fit_treatment(case, labelled, settings, 4)
    start = result.job.encoder.start(case.train, 0, torch.device("cpu"))
    moved = (result.items - start.item.detach()).abs().sum(1) > 0
    touched = np.zeros(case.train.n_items, dtype=bool)
    touched[:5] = True
    touched[case.train.items[:30]] = True
    assert not moved.numpy()[~touched].any()
    assert moved.any()


def fitting_labels(anchors, excluded):
    from truepair_lab.truth.treatments import Labels

    return Labels(anchors, excluded)


def test_the_search_tries_the_whole_grid_and_takes_the_best():
    case = tiny()
    effort = dataclasses.replace(QUICK, decays=(1e-5, 1e-3))
    trials = search(case, EVERY["bpr"], effort)
    assert [trial.settings.weight_decay for trial in trials] == [1e-5, 1e-3]
    assert best_of(trials) in [trial.settings for trial in trials]


# --- measures ------------------------------------------------------------------------------------------


def perfect(case):
    """Matrices whose scores are the truth."""
    items = torch.eye(case.train.n_items)
    return torch.from_numpy(case.truth.astype(np.float32)), items


def test_a_perfect_model_has_perfect_quality_and_a_wrong_one_none():
    case = tiny()
    users, items = perfect(case)
    best, worst = quality(case, users, items), quality(case, -users, items)
    assert best["ndcg@20"] == pytest.approx(1)
    assert best["auc"] == pytest.approx(1)
    assert worst["auc"] == pytest.approx(0)
    assert quality(case, 0 * users, items)["auc"] == pytest.approx(0.5)


def test_quality_looks_at_judged_pairs_alone():
    case = tiny()
    users, items = perfect(case)
    elsewhere = torch.from_numpy((~case.judged).astype(np.float32)) * 9
    assert quality(case, users + elsewhere, items) == quality(case, users, items)


def test_users_with_nothing_to_judge_by_are_left_out():
    case = tiny()
    truth = case.truth.copy()
    truth[0] &= ~case.judged[0]
    assert 0 not in judged_users(dataclasses.replace(case, truth=truth))


def test_shares_are_those_of_an_oracle_count():
    case = tiny()
    probe = Probe(case, EVERY["bpr"])
    found = probe.shares(perfect(case))
    expected = np.mean([case.user_tau[u] for u in case.train.users[probe.anchors.numpy()]])
    assert found["share uniform"] == pytest.approx(expected, abs=0.03)
    assert found["share dns"] > found["share popularity"] > found["share uniform"]


def test_the_estimate_without_bias_is_found_so():
    """With scores that know the truth, plain P̂ is off by τ times what it says of positives; DPL is not."""
    case = tiny()
    users, items = perfect(case)
    found = Probe(case, EVERY["dpl-user"]).probability((2 * users, items))
    assert found["p"] == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-5)
    assert found["p plain bias"] < -0.05
    assert abs(found["p bias"]) < 0.02
    assert found["p spread"] > 0


@pytest.mark.parametrize("name", ["bpr", "dcl", "dpl", "dpl-hard", "dpl-half", "dpl-user", "bns"])
def test_every_loss_can_be_probed(name):
    case = coat_like()
    generator = torch.Generator().manual_seed(0)
    shapes = (case.train.n_users, 4), (case.train.n_items, 4)
    found = Probe(case, EVERY[name]).at(tuple(torch.randn(*shape, generator=generator) for shape in shapes))
    assert all(value is None or math.isfinite(value) for value in found.values())
    assert -1.1 < found["cosine"] < 1.1


def test_the_gradient_of_a_supervised_draw_is_its_own():
    """Where nothing is hidden, training and supervised gradient are one, up to the draws."""
    positives = interactions_of([list(range(u % 5, 30, 5)) for u in range(60)], 30)
    truth = mask_of(positives)
    truth[0, 1] = True  # something must be hidden, or there is nothing to judge
    case = case_of("clean", "random", 0.5, 4, positives, truth, None)
    assert case.judged[0, 1]
    users = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    items = torch.randn(30, 4, generator=torch.Generator().manual_seed(2))
    found = Probe(case, EVERY["bpr"]).gradient((users, items))
    assert found["cosine"] == pytest.approx(1, abs=0.1)
    assert found["length"] == pytest.approx(1, abs=0.15)


# --- lines ---------------------------------------------------------------------------------------------


def test_a_case_runs_once_and_its_lines_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(Asked, "case", lambda self, seed: tiny(seed))
    some = {name: EVERY[name] for name in ("bpr", "dpl", "clean-draws", "clean-draws-told")}
    said = []
    assert run_case(Asked("simulation"), 2, tmp_path, said.append, QUICK, some) == 8
    assert run_case(Asked("simulation"), 2, tmp_path, said.append, QUICK, some) == 0
    assert len(said) == 4
    found = store.read(tmp_path, TruthLine)[0]
    assert len(found) == 8
    by_key = {line.key: line for line in found}
    told = by_key["tiny", "random", 0.5, "dpl", 0]
    assert len(told.search) == 1
    assert told.probes[-1][0] == told.epoch
    assert [point[0] for point in told.curve] == [1, 2]
    assert not by_key["tiny", "random", 0.5, "clean-draws-told", 0].search
    run_case(Asked("simulation"), 3, tmp_path, said.append, QUICK, {"bpr": EVERY["bpr"]})
    assert len(store.read(tmp_path, TruthLine)[0]) == 9


def test_where_labels_are_few_nothing_is_supervised(tmp_path, monkeypatch):
    monkeypatch.setattr(Asked, "case", lambda self, seed: coat_like())
    some = {name: EVERY[name] for name in ("bpr", "supervised")}
    assert run_case(Asked("coat"), 1, tmp_path, lambda _: None, QUICK, some) == 1


def test_a_broken_line_is_left_out_named_and_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Asked, "case", lambda self, seed: coat_like())
    (tmp_path / "x.jsonl").write_text(json.dumps({"case": "x"}) + "\n")
    said = []
    assert run_case(Asked("coat"), 1, tmp_path, said.append, QUICK, {"bpr": EVERY["bpr"]}) == 1
    assert said[0].startswith("left out: x.jsonl, line 1:")


def test_references_are_bpr_with_as_many_draws():
    assert EVERY["supervised"].n == EVERY["bpr"].n == N
    assert isinstance(EVERY["supervised"].loss(tiny()), BPR)
