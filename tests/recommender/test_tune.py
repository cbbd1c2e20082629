"""tune: the search for the parameters of a Recommender, from Python."""

import pytest
import torch

import truepair as tp
from truepair.data.simulation import simulate_world
from truepair.errors import InputError
from truepair.recommender.holdout import split_for_fitting
from worlds import two_tastes

pytest.importorskip("optuna")

DATA = two_tastes()
QUICK = {"sampler": "uniform", "epochs": 2, "dim": 4, "device": "cpu", "metric": "ndcg@5"}
SPACE = {"learning_rate": tp.Range(1e-3, 0.1, log=True), "n_unlabelled": tp.Powers(1, 4)}
SMALL = {"trials": 3, "extensions": 0, "space": SPACE}


def test_the_best_parameters_make_the_recommender_with_the_best_score(tmp_path):
    split = tp.split_random(DATA, test=0.2, valid=0.2)
    found = tp.tune(split, **SMALL, storage=tmp_path / "j", **QUICK)
    assert len(found.trials) == 3
    assert set(found.space) == set(SPACE)
    model = found.recommender().fit(split)
    assert (model.result_.score, model.result_.epoch) == (found.best.score, found.best.epoch)
    numbers = []
    again = tp.tune(split, **SMALL, storage=tmp_path / "j", on_trial=numbers.append, **QUICK)
    assert again.trials == found.trials
    assert numbers == []  # nothing was left to run


def test_a_share_is_held_out_of_plain_interactions_and_the_space_suits_the_loss():
    found = tp.tune(DATA, trials=1, extensions=0, loss="dpl", **QUICK, **{"encoder.scoring": "cosine"})
    assert "loss.tau" in found.space
    assert "encoder.dim" not in found.space  # dim is fixed
    assert "encoder.scoring" not in found.space
    assert found.best.parameters["validation"] == 0.1
    model = found.recommender().fit(DATA)
    assert len(model.seen_) == len(DATA)
    assert model.result_.score is None
    again = split_for_fitting(DATA, None, 0.1, 0)  # the parts of the search
    assert found.recommender().fit(again).result_.score == found.best.score


def test_the_final_fit_learns_from_everything_until_the_chosen_epoch(tmp_path):
    """On the schedule of the trial: the rates of a cosine are those of all epochs."""
    fixed = {"dim": 4, "epochs": 12, "device": "cpu", "metric": "ndcg@5", "learning_rate": 0.3}
    found = tp.tune(DATA, space={"seed": tp.Choice([0, 1, 2])}, trials=3, patience=3, **fixed)
    assert 1 <= found.best.epoch < 12
    given = {"encoder.dim": fixed.pop("dim"), **fixed}
    given |= {"loss": "infonce", "encoder": "mf", "sampler": "full", "engine": "auto"}
    chosen = {"seed": found.best.parameters["seed"], "validation": 0.0, "stop_after": found.best.epoch}
    assert found.parameters() == given | chosen  # no patience
    model = found.recommender().fit(DATA)
    assert model.facts_["data"] == DATA.hash  # of the pairs that it learnt from
    whole = tp.Recommender(**fixed, dim=4, seed=model.seed).fit(DATA).result_.history
    stopped = model.result_
    assert (len(stopped.history), stopped.epoch) == (found.best.epoch, found.best.epoch)
    assert not stopped.stopped_early
    assert [(r.loss, r.learning_rate) for r in stopped.history] == [
        (r.loss, r.learning_rate) for r in whole[: found.best.epoch]
    ]
    model.save(tmp_path / "m")
    assert tp.load(tmp_path / "m").stop_after == found.best.epoch


def test_a_stopped_run_stays_stopped_when_its_checkpoint_is_continued(tmp_path):
    options = {"dim": 4, "epochs": 6, "stop_after": 3, "validate_every": 2}
    first = tp.Recommender(**options).fit(DATA, checkpoint=tmp_path / "c")
    again = tp.Recommender(**options).fit(DATA, checkpoint=tmp_path / "c")
    assert again.result_.epoch == first.result_.epoch == 3
    assert torch.equal(again.matrices()[0], first.matrices()[0])
    with pytest.raises(InputError, match=r"stop_after = 7 is out of range.*raise epochs, or lower"):
        tp.Recommender(epochs=6, stop_after=7).fit(DATA)


def test_the_default_is_a_trial_so_the_best_is_no_worse(tmp_path):
    split = tp.split_random(DATA, test=0.2, valid=0.2)
    written = []
    found = tp.tune(split, trials=4, device="cpu", dim=4, epochs=3, metric="ndcg@5", on_best=written.append)
    default = tp.Recommender(dim=4, epochs=3, metric="ndcg@5", device="cpu", auto=False).fit(split).result_
    assert (found.default.score, found.default.epoch) == (default.score, default.epoch)
    assert found.best.score >= default.score
    assert len(found.trials) == 4
    assert written[0].best == found.default
    assert written[-1].best == found.best


def test_closed_forms_are_tuned_too():
    found = tp.tune(DATA, trials=2, extensions=0, encoder="ease", device="cpu", metric="ndcg@5")
    assert found.best.epoch is None
    assert isinstance(found.recommender().spec.closed_form, tp.EASE)


def test_what_cannot_be_tuned():
    with pytest.raises(InputError, match=r"no validation part to score trials on; make one with valid=0.1"):
        tp.tune(tp.split_random(DATA, test=0.2), **SMALL, **QUICK)
    with pytest.raises(InputError, match="stop_after has no effect here: a search chooses it"):
        tp.tune(DATA, **SMALL, **QUICK, stop_after=2)
    with pytest.raises(InputError, match="blend has no effect here"):
        tp.tune(DATA, **SMALL, **QUICK, blend="ease")
    with pytest.raises(InputError, match="validation = 0 leaves no pairs to score trials on"):
        tp.tune(DATA, **SMALL, **QUICK, validation=0)
    with pytest.raises(InputError, match=r"'dims' is not a parameter of Recommender"):
        tp.tune(DATA, **SMALL, dims=3)


def test_the_default_has_automatic_settings(tmp_path):
    world = simulate_world(150, 60, tau=0.1, density=0.3, seed=1)
    split = tp.split_random(world.observed, 0.2, valid=0.1)
    given = {"epochs": 3, "metric": "ndcg@10", "device": "cpu"}
    plain = tp.Recommender(**given).fit(split)
    chosen = plain.facts_["automatic"]["chosen"]
    storage = tmp_path / "journal"
    found = tp.tune(split, trials=1, storage=storage, **given).default
    assert found.parameters["learning_rate"] == chosen["learning_rate"]
    for name in ("temperature", "popularity", "dim"):
        assert found.parameters[f"encoder.{name}"] == chosen[name], name
    last = plain.facts_["automatic"]["trials"][-1]
    assert found.score >= last["score"] - 1e-6  # of the same run, or of a better epoch of it
    fixed = tp.tune(split, trials=1, auto=False, **given).default.parameters
    assert (fixed["encoder.temperature"], fixed["learning_rate"]) == (0.15, 0.005)
    assert [path.name for path in tmp_path.iterdir() if "settings" in path.name] == [
        "journal.infonce-mf-full.settings"
    ]
