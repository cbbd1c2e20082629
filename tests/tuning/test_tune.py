"""tune: the search for the parameters of a Recommender, from Python."""

import pytest

import truepair as tp
from truepair.errors import InputError
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
    assert found.recommender().fit(DATA).result_.score == found.best.score


def test_closed_forms_are_tuned_too():
    found = tp.tune(DATA, trials=2, extensions=0, encoder="ease", device="cpu", metric="ndcg@5")
    assert found.best.epoch is None
    assert isinstance(found.recommender().closed_form(), tp.EASE)


def test_what_cannot_be_tuned():
    with pytest.raises(InputError, match=r"no validation part to score trials on; make one with valid=0.1"):
        tp.tune(tp.split_random(DATA, test=0.2), **SMALL, **QUICK)
    with pytest.raises(InputError, match="blend has no effect here"):
        tp.tune(DATA, **SMALL, **QUICK, blend="ease")
    with pytest.raises(InputError, match="validation = 0 leaves no pairs to score trials on"):
        tp.tune(DATA, **SMALL, **QUICK, validation=0)
    with pytest.raises(InputError, match="'dims' is no parameter of Recommender"):
        tp.tune(DATA, **SMALL, dims=3)
