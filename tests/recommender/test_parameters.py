"""One resolver for parameters from Python, TOML, --set, trials and model files."""

import dataclasses

import pytest

import truepair as tp
from truepair.errors import InputError
from truepair.spec.defaults import PARTS_BY_DEFAULT
from truepair.spec.parameters import (
    ELSEWHERE,
    PARAMETERS,
    PARTS,
    as_json,
    by_fields,
    flatten,
    from_json,
    overlay,
    resolve,
    same_parameters,
)
from truepair.storage.versions import current_parameters, current_value
from worlds import two_tastes


def test_defaults_of_parts_are_those_of_the_recommender():
    assert {part: getattr(tp.Recommender, part) for part in PARTS} == PARTS_BY_DEFAULT


TABLES = {"loss": {"kind": "dpl", "tau": 0.2}, "encoder": {"dim": 8}, "sampler": "uniform", "epochs": 3}


def test_every_source_gives_the_same_recommender():
    python = tp.Recommender(loss=tp.DPL(tau=0.2), encoder=tp.MF(dim=8), sampler="uniform", epochs=3)
    flat = flatten(TABLES)
    assert flat == {"loss": "dpl", "loss.tau": 0.2, "encoder.dim": 8, "sampler": "uniform", "epochs": 3}
    stored = {name: as_json(value) for name, value in python.get_params().items()}
    trial = {"loss": "dpl", "tau": 0.2, "dim": 8, "sampler": "uniform", "epochs": 3}
    assert by_fields(trial) == flat
    options = overlay({"loss": "bpr", "sampler": "uniform", "epochs": 9}, {**trial, "epochs": 3})
    by_name = tp.Recommender(**trial)
    assert tp.Recommender.of(flat).get_params() == python.get_params()
    assert tp.Recommender().set_params(**from_json(stored)).get_params() == {
        **python.get_params(), "scoring": None, "temperature": None, "popularity": None,
    }  # fmt: skip
    data = two_tastes()
    for same in (tp.Recommender.of(options), tp.Recommender.of(trial), by_name):
        assert same.job(data) == python.job(data)


def test_a_changed_part_loses_its_fields_and_a_changed_loss_its_scoring():
    lower = {"loss": "infonce", "loss.temperature": 0.2, "encoder.scoring": "cosine", "encoder.dim": 8}
    assert overlay(lower, {"loss": "dpl"}) == {"encoder.dim": 8, "loss": "dpl"}
    assert overlay(lower, {"loss": "infonce"}) == lower
    assert overlay(lower, {"dim": 16}) == {
        **{k: v for k, v in lower.items() if k != "encoder.dim"},
        "dim": 16,
    }
    assert same_parameters({"dim": 1, "loss.tau": 0.1}) == {"encoder.dim", "tau"}


def test_fields_without_their_part_and_unknown_names():
    with pytest.raises(InputError, match="a field of blend is given without blend; set it to one of ease"):
        resolve({"blend.l2": 3.0})
    with pytest.raises(InputError, match=r"the part before the dot = 'los' is not known.*mean 'loss'"):
        resolve({"los.tau": 0.1})
    with pytest.raises(InputError, match=r"a field of loss = 'tua' is not known.*Did you mean 'tau'"):
        resolve({"loss": "dpl", "loss.tua": 0.1})
    with pytest.raises(InputError, match=r"'dims' is not a parameter of Recommender. Did you mean 'dim'"):
        tp.Recommender.of({"dims": 8})


# --- names of earlier versions ------------------------------------------------------------------------

OLD = {"sampler": "exact", "engine": "rows", "plus": "ease", "plus_weight": 0.5}
NEW = {"sampler": "full", "engine": "full", "blend": "ease", "blend_weight": 0.5}


def test_old_names_work_everywhere():
    assert current_parameters(OLD) == NEW
    expected = tp.Recommender(**NEW).get_params()
    assert tp.Recommender(**OLD).get_params() == expected
    assert tp.Recommender().set_params(**OLD).get_params() == expected
    assert tp.Recommender.of(OLD).get_params() == expected
    assert flatten(OLD) == overlay({}, OLD) == by_fields(OLD) == NEW
    restored = from_json(OLD)
    assert {name: restored[name] for name in NEW} == NEW
    assert current_value("sampler", "Exact") == "Full"  # of a checkpoint
    nested = {"sampler": {"kind": "exact", "columns": 9}, "plus": {"kind": "ease", "l2": 3.0}}
    made = {"sampler": tp.Full(columns=9), "blend": tp.EASE(l2=3.0)}
    assert {name: from_json(nested)[name] for name in made} == made
    assert {name: resolve(flatten(nested))[name] for name in made} == made
    assert overlay({"plus": "ease", "plus.l2": 3.0}, {"blend.l2": 4.0}) == {"blend": "ease", "blend.l2": 4.0}


def test_an_old_name_beside_the_new_one_is_an_error():
    for make in (tp.Recommender, tp.Recommender().set_params):
        with pytest.raises(InputError, match="blend is given twice; 'plus' is the same parameter"):
            make(blend="ease", plus="ease")


def test_the_signature_shows_todays_names():
    import inspect

    names = list(inspect.signature(tp.Recommender).parameters)
    assert names == [field.name for field in dataclasses.fields(tp.Recommender)]


@pytest.mark.parametrize(
    ("name", "right"),
    [("dims", "dim"), ("factors", "dim"), ("no_components", "dim"), ("random_state", "seed"),
     ("lr", "learning_rate"), ("iterations", "epochs"), ("regularization", "weight_decay")],
)  # fmt: skip
def test_names_of_other_libraries_are_errors_with_the_right_name(name, right):
    for call in (tp.Recommender, tp.Recommender().set_params):
        with pytest.raises(InputError, match=f"'{name}' is not a parameter .* Did you mean '{right}'?"):
            call(**{name: 1})


def test_names_of_other_libraries_are_no_names_here():
    for ours, theirs in ELSEWHERE.items():
        assert ours in PARAMETERS
        assert not {*theirs.split()} & {*PARAMETERS}


# --- the epoch that a search chose -----------------------------------------------------------------------

TUNED = {"loss": "dpl", "sampler": "uniform", "epochs": 40, "validation": 0.0, "stop_after": 3}


@pytest.mark.parametrize(
    ("upper", "dropped"),
    [
        ({"epochs": 50}, {"stop_after"}),
        ({"epochs": 50, "stop_after": 9}, set()),
        ({"loss": "bpr"}, {"stop_after", "validation"}),
        ({"encoder": "lightgcn"}, {"stop_after", "validation"}),  # the default is another
        ({"sampler": "full", "validation": 0.2}, {"stop_after"}),
        ({"loss": "dpl", "encoder": "mf", "learning_rate": 0.1}, set()),
    ],
    ids=["epochs", "both", "loss", "encoder", "sampler", "nothing"],
)
def test_the_epoch_of_a_search_holds_only_for_what_was_searched(upper, dropped):
    found = overlay(TUNED, upper)
    assert {name for name in TUNED if name not in found} == dropped - set(upper)
    assert {name: found[name] for name in upper} == upper


def test_a_validation_share_without_a_search_is_kept():
    lower = {"loss": "dpl", "validation": 0.0}
    assert overlay(lower, {"loss": "bpr"}) == {"loss": "bpr", "validation": 0.0}
    assert overlay({**TUNED, "validation": 0.2}, {"loss": "bpr"})["validation"] == 0.2


def test_options_of_the_command_line_override_the_epoch_of_a_search(tmp_path):
    from truepair.cli.configuration import Training

    path = tmp_path / "best.toml"
    path.write_text("epochs = 40\nvalidation = 0.0\nstop_after = 3\n")
    assert Training(config=path).recommender().stop_after == 3
    for options in ({"epochs": 50}, {"set": ["epochs=50"]}):
        model = Training(config=path, **options).recommender()
        assert (model.epochs, model.stop_after, model.validation) == (50, None, 0.0)
