"""`truepair tune` as a person types it, and the parameters that it and `fit` share."""

import tomllib

import pyarrow.csv as pa_csv
import pytest
from test_cli import as_json, failed, good

from truepair.cli.commands.tune import as_toml, read_space_file
from truepair.cli.configuration import Training
from truepair.losses import DPL
from truepair.models.encoders import MF
from truepair.recommender.estimator import Recommender
from truepair.search.domains import Choice, Powers, Range, When
from worlds import two_tastes

pytest.importorskip("optuna")

SMALL = ["--sampler", "uniform", "--epochs", "2", "--metric", "ndcg@5", "--set", "encoder.dim=4"]
SMALL += ["--engine", "reference"]


@pytest.fixture
def clicks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    pa_csv.write_csv(two_tastes().to_table(), "clicks.csv")
    return "clicks.csv"


def test_tune_report_and_fit(clicks, tmp_path):
    args = [*SMALL, "--trials", "4", "--extensions", "0", "--loss", "dpl", "--storage", "t.journal"]
    found = as_json("tune", clicks, *args, "--together", "2", "--out", "r.html", "--save-config", "best.toml")
    best = found["best"]
    assert (len(found["trials"]), found["study"], found["metric"]) == (4, "dpl-mf-uniform", "ndcg@5")
    assert "encoder.dim" not in found["space"]
    assert best["parameters"]["encoder.dim"] == 4
    assert "<svg" in (tmp_path / "r.html").read_text()
    assert tomllib.loads((tmp_path / "best.toml").read_text()) == found["parameters"]
    fitted = as_json("fit", clicks, "-o", "m", "--config", "best.toml")
    assert fitted["metrics"] == {}  # nothing is held out
    assert fitted["epoch"] == fitted["epochs"] == best["epoch"]
    model = Recommender.load("m")
    assert model.spec.loss == DPL(tau=best["parameters"].get("loss.tau", "density"))
    assert model.facts_["data"] == two_tastes().hash
    again = good("tune", clicks, *args, "-q")  # all is done: it tells the same at once
    assert f"is trial {best['number']}: ndcg@5 {best['score']:.4f}" in again.stdout
    assert again.stderr == ""


def test_the_parameters_are_written_as_soon_as_a_trial_is_better(clicks, tmp_path, monkeypatch):
    """The first trial is the default; what follows it is interrupted."""
    from truepair.search.runner import TrainingRunner

    run, calls = TrainingRunner.__call__, []

    def interrupted(self, batch):
        calls.append(len(batch))
        if len(calls) > 1:
            raise KeyboardInterrupt
        run(self, batch)

    monkeypatch.setattr(TrainingRunner, "__call__", interrupted)
    args = ["tune", clicks, *SMALL, "--trials", "2", "--save-config", "best.toml"]
    assert "interrupted; truepair-tune.journal holds the finished trials" in failed(*args, code=130)
    kept = tomllib.loads((tmp_path / "best.toml").read_text())
    assert kept["validation"] == 0.0
    assert 1 <= kept["stop_after"] <= 2
    monkeypatch.setattr(TrainingRunner, "__call__", run)
    found = as_json(*args, "-q")
    assert (len(found["trials"]), found["interrupted"]) == (2, 1)
    said = good(*args, "-q").stdout
    assert "default" in said
    assert "interrupted and run again: 1 trial" in said


def test_a_space_of_ones_own_and_a_test_part(clicks, tmp_path):
    (tmp_path / "space.toml").write_text(
        'seed = [0, 1]\nencoder.scoring = ["dot", "cosine"]\n"encoder.temperature" = '
        '{low = 0.1, high = 1, log = true, when = {"encoder.scoring" = "cosine"}}\n'
        "[encoder.dim]\nlow = 2\nhigh = 8\npowers = true\n"
    )
    assert read_space_file(tmp_path / "space.toml") == {
        "seed": Choice([0, 1]),
        "encoder.scoring": Choice(["dot", "cosine"]),
        "encoder.dim": Powers(2, 8),
        "encoder.temperature": When("encoder.scoring", "cosine", Range(0.1, 1, log=True)),
    }
    args = ["--space", "space.toml", "--trials", "3", "--extensions", "0", "--loss", "bpr", "--seed", "4"]
    found = as_json("tune", clicks, *args, *SMALL, "--test", "0.2", "-q")
    assert set(found["space"]) == {"encoder.scoring", "encoder.temperature"}  # what is set is not searched
    fitted = as_json("fit", clicks, "-o", "m", "--test", "0.2", "--loss", "bpr", "--seed", "4", *SMALL)
    assert fitted["metrics"]["validation ndcg@5"] == found["trials"][0]["score"]  # the same parts


def test_plain_names_are_the_fields_of_a_space(clicks):
    plain = ["--dim", "4", "--set", "scoring=cosine", "--set", "temperature=0.2", "--tau", "0.1"]
    args = [
        "--loss",
        "dpl",
        "--trials",
        "2",
        "--extensions",
        "0",
        "--epochs",
        "1",
        "--metric",
        "ndcg@5",
        "-q",
    ]
    for sampler in ("uniform", "full"):
        found = as_json("tune", clicks, *args, "--sampler", sampler, *plain)
        fixed = {"encoder.dim": 4, "encoder.scoring": "cosine", "encoder.temperature": 0.2, "loss.tau": 0.1}
        assert not set(fixed) & set(found["space"])
        assert fixed.items() <= found["best"]["parameters"].items()
    alone = as_json("tune", clicks, *args, "--study", "x", "--sampler", "uniform", "--set", "scoring=cosine")
    assert "encoder.temperature" in alone["space"]


def test_a_model_without_training(clicks):
    found = as_json("tune", clicks, "--encoder", "ease", "--trials", "3", "--metric", "ndcg@5", "-q")
    assert "encoder.l2" in found["best"]["parameters"]
    assert found["best"]["engine"] == "closed form"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--validation", "0"], "validation = 0.0 leaves no pairs to score trials on"),
        (["--space", "no.toml"], "cannot read the settings no.toml"),
        (["--encoder", "popular"], "has no parameters"),
        (["--set", "loss.bet=2"], "a field of loss = 'bet' is not known"),
        (["--set", "dims=2"], "Did you mean 'dim'?"),
        (["--tau", "0.1"], "tau = 0.1 has no effect: loss = "),
        (["--n-unlabelled", "8"], "--n-unlabelled = 8 has no effect: sampler = 'full'"),
        (
            ["--set", "plus=ease"],
            "blend has no effect here: trials score no blend",
        ),
        (["--set", "plus_weight=0.5"], "blend_weight has no effect here: trials score"),
        (["--set", "plus=eas"], "blend = 'eas' is not known"),
        (["--space", "plus.toml"], "blend_weight has no effect here: trials score"),
        (["--storage", "no/t"], "there is no folder no"),
        (["--out", "."], "cannot write .: it is a folder"),
        (["--trials", "0"], "trials = 0 is out of range"),
        (["--together", "0"], "together = 0 is out of range"),
        (["--extensions", "-1"], "extensions = -1 is out of range"),
        (["--storage", "clicks.csv"], "is not a journal of trials"),
        (["--space", "loss.toml"], "the space contains loss, but a study has one loss"),
        (
            ["--space", "tau.toml", "--loss", "dpl"],
            "tau is searched from 0.5 to 1.5, and its middle, 1.0, is not allowed",
        ),
    ],
)
def test_failures(clicks, args, message, tmp_path):
    """All of them before data is read: there is none."""
    (tmp_path / "loss.toml").write_text('loss = ["dpl", "bpr"]\ntau = [0.1, 0.2]\n')
    (tmp_path / "tau.toml").write_text("tau = {low = 0.5, high = 1.5}\n")
    (tmp_path / "plus.toml").write_text("plus_weight = {low = 0.5, high = 1.5}\n")
    before = (tmp_path / clicks).read_bytes()
    assert message in failed("tune", "no.csv", *args, "-q")
    assert (tmp_path / clicks).read_bytes() == before


def test_a_part_that_is_given_is_not_searched(clicks, tmp_path):
    (tmp_path / "space.toml").write_text('loss = ["dpl", "bpr"]\nseed = [0, 1]\n')
    args = ["--space", "space.toml", "--trials", "1", "--extensions", "0"]
    assert set(as_json("tune", clicks, *args, *SMALL, "--loss", "bpr", "-q")["space"]) == {"seed"}
    said = failed("tune", clicks, *args, *SMALL, "-q")
    assert "Run tune for each." in said


# --- flat parameters -----------------------------------------------------------------------------------


def test_tables_and_dotted_names_in_a_config(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        'patience = "none"\nsampler = "uniform"\n[loss]\nkind = "dpl"\ntau = 0.1\n'
        '[encoder]\nscoring = "cosine"\n'
    )
    assert Training(config=config).flat()["patience"] is None
    model = Training(config=config, dim=8).recommender()
    assert (model.loss, model.encoder) == (DPL(tau=0.1), MF(dim=8, scoring="cosine"))
    config.write_text('loss = "dpl"\nsampler = "uniform"\n"loss.tau" = 0.1\n"encoder.dim" = 32\n')
    spec = Training(config=config, dim=8, set=["loss.tau=0.2"]).recommender().spec
    assert (spec.encoder, spec.loss) == (MF(8), DPL(0.2))
    other = Training(config=config, tau="0.3").recommender()
    assert other.spec.loss == DPL(tau=0.3)
    assert Training(config=config).recommender(loss="bpr").loss == "bpr"  # the fields of dpl go with it


def test_what_was_chosen_for_a_loss_goes_with_it(tmp_path):
    config = tmp_path / "best.toml"
    for sampler, expected in (("full", MF(8, "cosine", 0.15)), ("uniform", MF(8, "dot", 1.0))):
        config.write_text(
            f'loss = "infonce"\nsampler = "{sampler}"\n"loss.temperature" = 0.13\n"encoder.dim" = 8\n'
            '"encoder.scoring" = "cosine"\n"encoder.temperature" = 1.0\n'
        )
        assert Training(config=config).recommender().spec.encoder == MF(8, "cosine", 1.0)
        assert Training(config=config).recommender(loss="infonce").spec.encoder == MF(8, "cosine", 1.0)
        other = Training(config=config).recommender(loss="dpl").spec
        assert (other.encoder, other.loss) == (expected, DPL())
    again = Training(config=config, set=["encoder.scoring=cosine", "temperature=0.2"])
    assert again.recommender(loss="dpl").spec.encoder == MF(8, "cosine", 0.2)


def test_a_field_is_one_whatever_its_name(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('loss = "dpl"\ntau = 0.1\ndim = 16\n')
    model = Training(config=config, set=["loss.tau=0.2", "encoder.dim=8"]).recommender()
    assert (model.spec.encoder.dim, model.loss) == (8, DPL(tau=0.2))


def test_toml_of_parameters():
    flat = {"loss": 'a"b', "loss.tau": 1e-07, "patience": None, "epochs": 3, "x": True}
    assert tomllib.loads(as_toml(flat)) == {**flat, "patience": "none"}
