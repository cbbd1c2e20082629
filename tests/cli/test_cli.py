"""The command line: every command as a person types it, what it gives, and how it fails."""

import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import types
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

import truepair
from truepair.cli.main import app
from truepair.data.datasets.registry import DATASETS
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.losses import LOSSES
from truepair.models.closed_forms import ALL_ENCODERS, CLOSED
from truepair.recommender.estimator import Recommender
from truepair.sampling import SAMPLERS
from truepair.storage.versions import package_version
from truepair.training.checkpoints import load_checkpoint
from worlds import two_tastes

SMALL = ["--dim", "4", "--epochs", "3", "--metric", "ndcg@5", "--validation", "0.1"]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def good(*args):
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result


def as_json(*args):
    """What a command gives as JSON; nothing else may be on stdout."""
    return json.loads(good(*args, "--json").stdout)


def failed(*args, code=1):
    """What a failing command says: an error and no traceback, and nothing on stdout."""
    result = run(*args)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture(autouse=True)
def no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRUEPAIR_DATA", raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """clicks.csv and a model of it that was trained without a test part."""
    folder = tmp_path_factory.mktemp("cli")
    pa_csv.write_csv(two_tastes().to_table(), folder / "clicks.csv")
    good("fit", folder / "clicks.csv", "-o", folder / "model.truepair", "--test", "0.2", "-q", *SMALL)
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture
def clicks(folder):
    return folder / "clicks.csv"


@pytest.fixture
def model(folder):
    return folder / "model.truepair"


def same_model(a, b):
    a, b = Recommender.load(a), Recommender.load(b)
    equal = all(torch.equal(*two) for two in zip(a.matrices(), b.matrices(), strict=True))
    return equal and a.seen_ == b.seen_


# --- help ----------------------------------------------------------------------------------------------

ROOT = get_command(app)
COMMANDS = {(name,): command for name, command in ROOT.commands.items()}
COMMANDS |= {("data", name): command for name, command in ROOT.commands["data"].commands.items()}


def test_the_commands_are_those_of_the_docs():
    names = ["add-items", "backtest", "compare", "data", "demo", "doctor", "evaluate", "export", "fit"]
    names += [
        "import",
        "plan",
        "prepare",
        "prior",
        "recommend",
        "rollback",
        "serve",
        "similar",
        "tune",
        "update",
    ]
    assert sorted(ROOT.commands) == names
    assert sorted(ROOT.commands["data"].commands) == ["fetch", "info", "list"]


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help_shows_an_example(words):
    shown = good(*words, "--help").stdout
    assert f"Example:\n    truepair {' '.join(words[:-1])}".rstrip() in shown
    assert "{" not in shown.partition("\n")[2]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_has_help(words):
    assert [p.name for p in COMMANDS[words].params if not (p.help or getattr(p, "hidden", False))] == []


@pytest.mark.parametrize("words", [words for words in COMMANDS if words != ("data",)], ids=" ".join)
def test_every_command_can_be_quiet_and_speak_json(words):
    assert {"quiet", "json"} <= {parameter.name for parameter in COMMANDS[words].params}


def test_examples_have_only_options_that_exist():
    for words, command in COMMANDS.items():
        given = [word for word in shlex.split(command.epilog) if word.startswith("-")]
        assert set(given) <= {option for p in command.params for option in p.opts}, words


@pytest.mark.parametrize("group", ["", "data"])
def test_no_summary_of_a_command_is_cut(group):
    shown = good(*group.split(), "--help").stdout
    assert "..." not in shown.partition("Commands:")[2]


def test_choices_and_defaults_come_from_the_library():
    shown = " ".join(good("fit", "--help").stdout.split()).replace("- ", "-")  # lines may end at a hyphen
    for registry in (LOSSES, ALL_ENCODERS, SAMPLERS):
        assert ", ".join(registry) in shown
    assert f"[default: {Recommender.loss}]" in shown
    assert "The length of the vectors. [default: 128; 64 with other samplers]" in shown
    assert f"[default: {Recommender.n_unlabelled}]" in shown
    assert "`none`: never. [default: none; 10 with other samplers]" in shown
    assert "`tune` scores trials by it. [default: 0.0; 0.1 with other samplers]" in shown


def test_version():
    assert good("--version").stdout == f"truepair {truepair.__version__}\n"


def test_version_without_an_installation(monkeypatch):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert good("--version").stdout == f"truepair {truepair.__version__}\n"
    assert (package_version("truepair"), package_version("numpy")) == (truepair.__version__, None)


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "truepair", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"truepair {truepair.__version__}\n")


# --- fit -----------------------------------------------------------------------------------------------


def test_fit_tells_what_was_read_and_learnt(clicks, tmp_path):
    result = good("fit", clicks, "-o", tmp_path / "m", *SMALL)
    assert "<Interactions: 40 users x 30 items, 240 pairs" in result.stderr
    assert "validation ndcg@5" in result.stdout
    assert f"saved to {tmp_path / 'm'}" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_fit_equals_the_library(clicks, tmp_path):
    good("fit", clicks, "-o", tmp_path / "m", "-q", *SMALL, "--loss", "bpr", "--seed", "3")
    same = Recommender(loss="bpr", dim=4, epochs=3, metric="ndcg@5", validation=0.1, seed=3).fit(clicks)
    same.save(tmp_path / "same")
    assert same_model(tmp_path / "m", tmp_path / "same")


def test_fit_quietly_says_nothing(clicks, tmp_path):
    result = good("fit", clicks, "-o", tmp_path / "m", "--quiet", *SMALL)
    assert result.output == ""


def test_fit_as_json(clicks, tmp_path):
    found = as_json("fit", clicks, "-o", tmp_path / "m", "--test", "0.2", *SMALL)
    assert (found["users"], found["items"], found["pairs"], found["epochs"]) == (40, 30, 192, 3)
    assert found["test"]["metric"] == "ndcg@5"
    low, high = found["test"]["interval"]
    assert low <= found["test"]["metrics"]["ndcg@5"] <= high
    assert set(found["metrics"]) == {"validation ndcg@5", "test ndcg@5"}
    assert Recommender.load(tmp_path / "m").facts_["metrics"] == found["metrics"]


def test_settings_from_toml_options_and_set(clicks, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('loss = "bpr"\ndim = 8\nepochs = 2\nmetric = "ndcg@5"\nseed = 5\n')
    args = ["--config", config, "--dim", "6", "--set", "epochs=1", "--set", "learning-rate=0.5"]
    found = as_json("fit", clicks, "-o", tmp_path / "m", *args, "--patience", "none")["parameters"]
    names = ("loss", "dim", "epochs", "seed", "learning_rate", "patience")
    assert [found[name] for name in names] == ["bpr", 6, 1, 5, 0.5, None]


def test_tau_is_a_number_or_density(clicks, tmp_path):
    for given, expected in (("0.05", 0.05), ("density", "density")):
        found = as_json("fit", clicks, "-o", tmp_path / "m", *SMALL, "--loss", "dpl", "--tau", given)
        assert found["parameters"]["tau"] == expected


def test_columns_by_name_and_position_and_filters(tmp_path):
    source = tmp_path / "odd.txt"
    rows = [f"{item};{user};{1 + (user + item) % 5}" for user in range(12) for item in range(9)]
    source.write_text("\n".join(["what;who;liked", *rows]))
    args = ["--user", "who", "--item", "0", "--rating", "liked", "--min-rating", "3", "--core", "2,1"]
    found = as_json("fit", source, "-o", tmp_path / "m", *args, *SMALL)
    assert (found["users"], found["items"], found["pairs"]) == (12, 9, 65)
    assert Recommender.load(tmp_path / "m").seen_.rating is None
    every = failed("fit", source, "-o", tmp_path / "m", *args[:4], "--rating", "-", "--dim", "4")
    assert "108 pairs" in every
    assert "every user has every item, or none, so there is nothing to compare" in every


def test_a_dataset_by_name(tmp_path, real_data):
    args = ["--data-dir", real_data, *SMALL, "--min-rating", "4", "--core", "5"]
    found = as_json("fit", "coat", "-o", tmp_path / "m", *args, "-q")
    assert found["users"] < 290
    given = as_json("fit", "coat", "-o", tmp_path / "m", "--test", "given", "-q", *args[:-4])
    assert given["pairs"] == 290 * 24


@pytest.mark.parametrize("encoder", CLOSED)
def test_fit_without_training(encoder, clicks, tmp_path):
    found = as_json(
        "fit", clicks, "-o", tmp_path / "m", "--encoder", encoder, "--test", "0.2", "--metric", "ndcg@5"
    )
    assert (found["users"], found["pairs"], found["epoch"], found["epochs"]) == (40, 192, None, 0)
    assert set(found["metrics"]) == {"test ndcg@5"}
    shown = good("fit", clicks, "-o", tmp_path / "m", "--encoder", encoder).stdout
    assert re.search(rf"<FitResult: .*{CLOSED[encoder].__name__}\(", shown)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert len(as_json("recommend", tmp_path / "m", "-k", "2")) == 80
    assert "--checkpoint" in failed(
        "fit", clicks, "-o", tmp_path / "m", "--encoder", encoder, "--checkpoint", "c"
    )


@pytest.mark.parametrize("name", ["blend", "plus"])
def test_a_blend_with_ease_is_fitted_and_served(name, clicks, tmp_path):
    args = ["fit", clicks, "-o", tmp_path / "m", *SMALL]
    parts = [
        f"{name}=ease",
        f"{name}.l2=30",
        f"{name}.item_power=0.2",
        f"{name}_weight=0.5",
        "popularity=0.1",
    ]
    found = as_json(*args, *(word for part in parts for word in ("--set", part)))["parameters"]
    assert found["blend"] == {"kind": "ease", "l2": 30.0, "user_power": 0.0, "item_power": 0.2}
    assert (found["blend_weight"], found["popularity"]) == (0.5, 0.1)
    assert len(as_json("recommend", tmp_path / "m", "-k", "2")) == 80
    assert "a field of blend is given without blend; set it to one of ease" in failed(
        *args, "--set", f"{name}.l2=30"
    )


def test_fields_of_an_encoder_a_loss_and_a_sampler(clicks, tmp_path):
    args = ["fit", clicks, "-o", tmp_path / "m", *SMALL]
    ease = ["fit", clicks, "-o", tmp_path / "m", "--encoder", "ease", "--metric", "ndcg@5"]
    found = as_json(*ease, "--set", "encoder.l2=30")["parameters"]
    assert found["encoder"] == {"kind": "ease", "l2": 30.0, "user_power": 0.0, "item_power": 0.0}
    more = ["--set", "encoder.hops=2", "--set", "loss.floor=0.1", "--tau", "0.2", "--set", "sampler.pool=9"]
    found = as_json(*args, "--loss", "dpl", "--encoder", "lightgcn", "--sampler", "dns", *more)["parameters"]
    assert (found["encoder"]["hops"], found["encoder"]["dim"]) == (2, 4)
    assert (found["loss"]["floor"], found["loss"]["tau"]) == (0.1, 0.2)
    assert found["sampler"]["pool"] == 9
    assert "a field of encoder = 'l2' is not known" in failed(*args, "--set", "encoder.l2=3")
    assert "the part before the dot = 'lose' is not known" in failed(*args, "--set", "lose.tau=0.1")
    assert "l2 = 0 is out of range" in failed(*ease, "--set", "encoder.l2=0")


_FIT = ["fit", "clicks.csv", "-o", "m"]
FIT_FAILURES = {
    "tau beside a field": (
        [*_FIT, "--set", "loss.temperature=2", "--set", "tau=0.1"],
        "tau = 0.1 has no effect: loss = InfoNCE(temperature=2.0) has no prior; losses with a "
        "prior: dcl, hcl",
    ),
    "tau without training": ([*_FIT, "--encoder", "ease", "--tau", "0.1"], "is not trained; leave it out"),
    "a loss without training": (
        [*_FIT, "--encoder", "ease", "--loss", "dpl", "--epochs", "3"],
        "loss = dpl has no effect: encoder = ",
    ),
    "one field twice": (
        [*_FIT, "--set", "encoder.dim=4", "--set", "dim=8"],
        "dim = 8 has no effect: encoder",
    ),
    "no draws": ([*_FIT, "--n-unlabelled", "8"], "--n-unlabelled = 8 has no effect: sampler = 'full'"),
    "nothing held out": (
        [*_FIT, "--patience", "3"],
        "patience = 3 has no effect: there is no validation part",
    ),
    "no validation": (
        [*_FIT, "--patience", "3", "--validation", "0"],
        "patience = 3 has no effect: there is no validation part; leave it out, or set --validation 0.1",
    ),
    "unknown dataset": (["fit", "ml-100", "-o", "m"], "Did you mean 'ml-100k'?"),
    "no such file": (["fit", "click.csv", "-o", "m"], "click.csv does not exist. Did you mean 'clicks.csv'?"),
    "unknown column": (["fit", "clicks.csv", "-o", "m", "--user", "usr"], "Did you mean 'user'?"),
    "no rating": (["fit", "clicks.csv", "-o", "m", "--min-rating", "3"], "needs a rating column"),
    "unknown loss": (["fit", "clicks.csv", "-o", "m", "--loss", "bprr"], "Did you mean 'bpr'?"),
    "unknown key": (["fit", "clicks.csv", "-o", "m", "--set", "dims=3"], "Did you mean 'dim'?"),
    "no value": (["fit", "clicks.csv", "-o", "m", "--set", "dim"], "not of the form key=value"),
    "loss a number": (["fit", "clicks.csv", "-o", "m", "--set", "loss=3"], "loss = 3 is not known"),
    "a list": (["fit", "clicks.csv", "-o", "m", "--set", "tau=[0.1]"], "cannot be set on the command line"),
    "tau of nothing": (["fit", "clicks.csv", "-o", "m", "--tau", "none"], "tau = None cannot be set"),
    "dim of 0": (["fit", "clicks.csv", "-o", "m", "--dim", "0"], "dim = 0 is out of range"),
    "no config": (["fit", "clicks.csv", "-o", "m", "--config", "run.toml"], "cannot read the settings"),
    "bad config": (
        ["fit", "clicks.csv", "-o", "m", "--config", "clicks.csv"],
        "cannot read the settings clicks.csv as TOML: ",
    ),
    "bad test": (["fit", "clicks.csv", "-o", "m", "--test", "half"], "neither a share such as 0.2"),
    "test of all": (["fit", "clicks.csv", "-o", "m", "--test", "1"], "test = 1.0 is out of range"),
    "no given split": (
        ["fit", "clicks.csv", "-o", "m", "--test", "given"],
        "has no test part; use --test 0.2",
    ),
    "bad core": (["fit", "clicks.csv", "-o", "m", "--core", "two"], "not a list of whole numbers"),
    "column of a dataset": (
        ["fit", "ml-100k", "-o", "m", "--user", "0"],
        "--user 0 has no effect on 'ml-100k', which is the name of a dataset",
    ),
    "no folder": (["fit", "clicks.csv", "-o", "no/m"], "there is no folder no; make it first"),
    "a folder": (["fit", "clicks.csv", "-o", "."], "cannot write .: it is a folder"),
    "a named pipe": (["fit", "clicks.csv", "-o", "pipe"], "cannot write pipe: it is not a regular file"),
    "no permission": (["fit", "clicks.csv", "-o", "/proc/m"], "cannot write /proc/m"),
    "one file for both": (["fit", "clicks.csv", "-o", "m", "--checkpoint", "m"], "use two different files"),
    "foreign checkpoint": (
        ["fit", "clicks.csv", "-o", "m", "--checkpoint", "clicks.csv"],
        "clicks.csv cannot be read as a truepair checkpoint",
    ),
}


@pytest.mark.parametrize("what", FIT_FAILURES)
def test_fit_fails_clearly(what, folder, monkeypatch):
    monkeypatch.chdir(folder)
    args, message = FIT_FAILURES[what]
    assert message in failed(*args)
    assert not Path("m").exists()
    assert Path("clicks.csv").exists()


def test_wrong_usage_exits_with_2(clicks):
    assert "Missing option" in failed("fit", clicks, code=2)
    assert "Did you mean 'fit'?" in failed("fot", code=2)
    assert "No such option" in failed("fit", clicks, "-o", "m", "--dimension", "3", code=2)


def test_the_help_of_fit_begins_with_ten_options():
    _, *parts = re.split(r"^(\w[\w ]+):\n", good("fit", "--help").stdout, flags=re.MULTILINE)
    found = {
        n: re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
        for n, text in zip(parts[::2], parts[1::2], strict=True)
    }
    assert list(found)[:5] == ["Arguments", "Options", "Training", "Output", "Reading data"]
    assert len(found["Options"]) == 11  # with --help
    assert {"--output", "--loss", "--test-after", "--min-rating"} <= set(found["Options"])
    assert "--learning-rate" in found["Training"]
    assert "--json" in found["Output"]
    assert "--chronological" in found["Reading data"]


# --- Ctrl-C --------------------------------------------------------------------------------------------

# a shell that starts the tests in the background would have its children ignore SIGINT
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from truepair.cli.main import main
main()
"""


@pytest.mark.long
def test_ctrl_c_leaves_a_checkpoint_that_goes_on_bit_for_bit(clicks, tmp_path):
    output, kept = tmp_path / "m", tmp_path / "m.checkpoint"
    args = ["fit", str(clicks), "-o", str(output), "--quiet", "--dim", "4", "--metric", "ndcg@5"]
    args += ["--device", "cpu", "--set", "schedule=constant", "--epochs"]  # a GPU does not repeat every bit
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *args, "1000000"], stderr=subprocess.PIPE)
    while not kept.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert said.decode().splitlines() == [
        f"interrupted; {kept} holds the finished epochs. To continue:",
        f"  truepair {shlex.join([*args, '1000000'])}",
    ]
    assert not output.exists()

    epochs = len(load_checkpoint(kept)[1]["history"]) + 2
    good(*args, epochs)
    assert not kept.exists()
    whole = [tmp_path / "whole" if arg == str(output) else arg for arg in args]
    good(*whole, epochs)
    assert same_model(output, tmp_path / "whole")


def test_going_on_is_told(clicks, tmp_path, monkeypatch):
    args = ["fit", clicks, "-o", tmp_path / "m", *SMALL]

    def full_disk(self, path, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Recommender, "save", full_disk)
        assert "No space left on device" in failed(*args)
    assert f"continuing from {tmp_path / 'm.checkpoint'}" in good(*args).stderr


def interrupted(*args, **kwargs):
    raise KeyboardInterrupt


def test_ctrl_c_before_the_first_checkpoint(clicks, tmp_path, monkeypatch):
    monkeypatch.setattr(Recommender, "fit", interrupted)
    assert "nothing is kept" in failed("fit", clicks, "-o", tmp_path / "m", code=130)


def test_ctrl_c_elsewhere(model, tmp_path, monkeypatch):
    monkeypatch.setattr(Recommender, "recommend_in_parts", interrupted)
    assert failed("recommend", model, "-o", tmp_path / "l.csv", code=130) == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


# --- evaluate ------------------------------------------------------------------------------------------


def test_evaluate_finds_what_fit_found_on_its_test_part(model, clicks):
    found = as_json("evaluate", model, clicks, "-k", "3,5")
    facts = Recommender.load(model).facts_["metrics"]
    assert found["metric"] == "ndcg@5"
    assert found["mean"] == facts["test ndcg@5"] == found["metrics"]["ndcg@5"]
    assert found["interval"][0] <= found["mean"] <= found["interval"][1]
    assert {"recall@3", "coverage@5"} <= set(found["metrics"])
    assert found["left_out"]["the model was trained on them"] == 192


def test_evaluate_tells_people(model, tmp_path):
    (tmp_path / "more.csv").write_text("user,item\n0,1\n0,999\n777,1\n")
    args = ["evaluate", model, tmp_path / "more.csv", "--metric", "recall@2"]
    shown = good(*args).stdout
    assert "1 interactions left out: the model does not know the item" in shown
    assert "recall@2 0.0000 [0.0000, 0.0000]" in shown
    assert "2 users evaluated" in shown
    lines = {tuple(line.split()[:3]) for line in shown.splitlines()}
    assert {("with", "history", "1"), ("without", "history", "1")} <= lines  # user 777 is new
    assert "users without history: they get the most popular items, and count in the mean" in shown
    apart = as_json(*args, "--cold", "separate")
    assert (apart["users"], apart["cold"], apart["groups"]["without history"]["users"]) == (1, "separate", 1)
    assert "1 of 2 users have no trained pair" in failed(*args, "--cold", "error")
    assert "choose one of 'popular', 'separate', 'error'" in failed(*args, "--cold", "model")


def test_evaluate_judged_candidates(model, tmp_path):
    fitted = Recommender.load(model)
    pairs = [(user, item) for user in range(6) for item in range(12)]
    unseen = [(u, i) for u, i in pairs if not fitted.seen_.has(u, i)]
    rows = [(u, i, (u + i) % 2) for u, i in unseen]
    text = "\n".join(f"{u},{i},{label}" for u, i, label in rows)
    (tmp_path / "judged.csv").write_text(f"user,item,label\n{text}\n")
    found = as_json("evaluate", model, "--candidates", tmp_path / "judged.csv", "-k", "2", "--metric", "auc")
    table = pa.table(dict(zip(("user", "item", "label"), map(list, zip(*rows, strict=True)), strict=True)))
    expected = fitted.evaluate(candidates=table, ks=(1, 2))
    assert found["metrics"] == expected.means
    assert found["mean"] == expected.mean("auc")
    stars = "\n".join(f"{u},{i},{3 + label}" for u, i, label in rows)
    seen = "".join(f"{u},{fitted.seen_.items_of(u)[0]},5\n" for u in range(2))
    (tmp_path / "stars.csv").write_text(f"user,item,rating\n{stars}\n{seen}0,999,5\n777,1,5\n777,2,3\n")
    args = ["evaluate", model, "--candidates", tmp_path / "stars.csv", "-k", "2", "--min-rating", "4"]
    found = as_json(*args)
    assert found["left_out"] == {"the model does not know the item": 1, "the model was trained on them": 2}
    means = {
        name: value for name, value in found["groups"]["with history"].items() if not name.endswith("@5")
    }
    expected = fitted.evaluate(candidates=table, ks=(2,))
    assert means == {"users": expected.n_users, **expected.means}
    assert found["groups"]["without history"]["users"] == 1
    assert "auc" in good(*args).stdout
    assert "either held-out interactions" in failed("evaluate", model)
    assert "either held-out interactions" in failed(*args, tmp_path / "stars.csv")
    assert "no such column" in failed(*args[:-2])
    assert "--core 2 has no effect on judged pairs" in failed(*args, "--core", "2")


def test_contradictory_judgements_are_an_error(model, tmp_path):
    fitted, path = Recommender.load(model), tmp_path / "judged.csv"
    unseen = [item for item in range(12) if not fitted.seen_.has(0, item)][:2]
    path.write_text(f"user,item,label\n0,{unseen[0]},1\n0,{unseen[1]},0\n0,{unseen[0]},0\n")
    said = failed("evaluate", model, "--candidates", path)
    assert f"user 0 and item {unseen[0]} occur in 2 rows" in said
    assert "pass --duplicates one of 'last'" in said
    good("evaluate", model, "--candidates", path, "--duplicates", "first")


def test_advice_is_given_as_options(model, tmp_path):
    unknown = failed("recommend", model, "--users", "0,777")
    assert "--unknown popular gives unknown users" in unknown
    assert "--unknown drop leaves them out" in unknown
    (tmp_path / "new.csv").write_text("user,item\n0,1\n777,1\n777,2\n")
    shown = failed("evaluate", model, tmp_path / "new.csv", "--cold", "error")
    assert "use --cold popular to give them the most popular items, or --cold separate to leave" in shown
    assert "='" not in unknown + shown


def test_evaluate_fails_clearly(model, clicks, tmp_path):
    seen = Recommender.load(model).seen_.to_table()
    pa_csv.write_csv(seen, tmp_path / "seen.csv")
    assert "none of the 192 interactions can be judged" in failed("evaluate", model, tmp_path / "seen.csv")
    (tmp_path / "names.csv").write_text("user,item\nann,tea\n")
    assert "of type large_string" in failed("evaluate", model, tmp_path / "names.csv")
    assert "K = 0 is out of range" in failed("evaluate", model, clicks, "-k", "0")
    assert "not a list of whole numbers" in failed("evaluate", model, clicks, "-k", "five")
    assert "Did you mean 'ndcg'?" in failed("evaluate", model, clicks, "--metric", "ndgc@5")


# --- recommend -----------------------------------------------------------------------------------------

READERS = {
    "parquet": pq.read_table,
    "csv": pa_csv.read_csv,
    "jsonl": lambda path: pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()]),
}


@pytest.mark.parametrize("format", READERS)
def test_recommend_writes_what_the_library_gives(format, model, tmp_path, monkeypatch):
    monkeypatch.setattr("truepair.cli.commands.recommend._PART", 7)  # several parts, the last a short one
    output = tmp_path / f"lists.{format}"
    result = good("recommend", model, "-k", "3", "-o", output)
    assert result.stdout == f"120 rows saved to {output}\n"
    assert "40 users" in result.stderr
    expected = Recommender.load(model).recommend(k=3)
    found = READERS[format](output)
    for name in ("user", "item", "rank"):
        assert found.column(name).to_pylist() == expected.column(name).to_pylist()
    scores = expected.column("score").to_pylist()
    assert found.column("score").to_pylist() == pytest.approx(scores, rel=1e-6)
    assert list(tmp_path.iterdir()) == [output]


def test_the_format_can_be_told(model, tmp_path):
    found = as_json("recommend", model, "-k", "1", "-o", tmp_path / "lists.txt", "--format", "jsonl")
    assert found == {"output": str(tmp_path / "lists.txt"), "format": "jsonl", "rows": 40}
    assert len((tmp_path / "lists.txt").read_text().splitlines()) == 40


def test_recommend_to_the_screen(model, tmp_path):
    expected = Recommender.load(model).recommend([3, 1], k=2).to_pylist()
    assert as_json("recommend", model, "--users", "3,1", "-k", "2") == expected
    (tmp_path / "people").write_text("3\n\n1\n")
    assert as_json("recommend", model, "--users-file", tmp_path / "people", "-k", "2") == expected
    lines = good("recommend", model, "--users", "3,1", "-k", "2").stdout.splitlines()
    assert lines[0].split() == ["user", "item", "score", "rank"]
    assert len(lines) == 5
    streamed = good("recommend", model, "--users", "3,1", "-k", "2", "--format", "jsonl").stdout
    assert [json.loads(line) for line in streamed.splitlines()] == expected


def test_users_from_stdin(model):
    args = ["recommend", str(model), "--users-file", "-", "-k", "1", "--json"]
    assert [row["user"] for row in json.loads(CliRunner().invoke(app, args, input="5\n2\n").stdout)] == [5, 2]


def test_recommend_only_some_items(model, tmp_path):
    (tmp_path / "items").write_text("4\n6\n8\n")
    some = {row["item"] for row in as_json("recommend", model, "--only-items", tmp_path / "items")}
    assert some <= {4, 6, 8}
    args = ["--only-items", "4,6,8", "--exclude-items", "6", "--include-seen", "-k", "5", "--users", "0"]
    assert sorted(row["item"] for row in as_json("recommend", model, *args)) == [4, 8]


def test_unknown_users(model):
    assert "unknown user: 999" in failed("recommend", model, "--users", "1,999")
    rows = as_json("recommend", model, "--users", "1,999", "-k", "1", "--unknown", "popular")
    assert [row["user"] for row in rows] == [1, 999]
    rows = as_json("recommend", model, "--users", "1,999", "-k", "1", "--unknown", "drop")
    assert [row["user"] for row in rows] == [1]
    only = ["--only-items", "3,5,999", "--include-seen"]
    assert "--unknown drop ignores" in failed("recommend", model, *only)
    assert {row["item"] for row in as_json("recommend", model, *only, "--unknown", "drop")} == {3, 5}
    assert "int64, such as 0" in failed("recommend", model, "--users", "1,ann")


def test_users_without_a_trained_pair(tmp_path):
    split = Split(two_tastes(), None, two_tastes().take([]), "given")
    wide = [Interactions(p.users, p.items, IdMap.range(42), p.item_ids) for p in (split.train, split.test)]
    model = Recommender(encoder="popular").fit(Split(wide[0], None, wide[1], "two more"))
    model.save(tmp_path / "m")
    result = good("recommend", tmp_path / "m", "-k", "1", "-o", tmp_path / "l.csv")
    assert "2 users have no trained pair: they get the most popular items" in result.stderr
    assert len((tmp_path / "l.csv").read_text().splitlines()) == 43
    rows = as_json("recommend", tmp_path / "m", "-k", "1", "--cold", "separate")
    assert [row["user"] for row in rows] == list(range(40))
    assert "2 of 42 users have no trained pair" in failed("recommend", tmp_path / "m", "--cold", "error")


def test_fit_and_compare_show_users_without_history(tmp_path):
    rows = "".join(f"{u},{i}\n" for u in range(12) for i in range(u % 3, u % 3 + (1 if u < 6 else 6)))
    (tmp_path / "c.csv").write_text("user,item\n" + rows)
    args = [tmp_path / "c.csv", "--test", "0.5", "--dim", "2", "--epochs", "1", "--metric", "ndcg@3"]
    shown = good("fit", *args, "-o", tmp_path / "m").output
    group = as_json("fit", *args, "-o", tmp_path / "m")["test"]["groups"]["without history"]
    assert group["users"] > 1
    assert f"without history: {group['users']} users, {group['ndcg@3']:.4f}" in shown
    compared = good("compare", *args, "--losses", "bpr,infonce").stdout
    assert f"{group['users']} of the users have no trained pair" in compared


@pytest.mark.parametrize("kind", ["text", "uuid", "bytes"])
def test_ids_of_every_type(kind, tmp_path):
    makers = {
        "text": lambda n: f"u{n}",
        "uuid": lambda n: uuid.UUID(int=n),
        "bytes": lambda n: f"u{n}".encode(),
    }
    types_ = {"text": pa.string(), "uuid": pa.uuid(), "bytes": pa.binary()}
    people = [makers[kind](n) for n in range(6) for _ in range(3)]
    raw = [person.bytes if kind == "uuid" else person for person in people]
    items = [(n + step) % 7 for n in range(6) for step in range(3)]
    table = pa.table({"user": pa.array(raw, types_[kind]), "item": items})
    Recommender(dim=2, epochs=1, validation=0).fit(table).save(tmp_path / "m")
    shown = people[3].decode() if kind == "bytes" else str(people[3])
    for output in ("l.csv", "l.jsonl", "l.parquet"):
        good("recommend", tmp_path / "m", "--users", shown, "-k", "2", "-o", tmp_path / output)
    assert [row["user"] for row in as_json("recommend", tmp_path / "m", "--users", shown, "-k", "2")] == [
        shown
    ] * 2
    assert shown in (tmp_path / "l.csv").read_text()
    assert len(as_json("similar", tmp_path / "m", shown, "--users", "-k", "2")) == 2
    if kind == "uuid":
        assert "unknown user: 'ann'" in failed("recommend", tmp_path / "m", "--users", f"{shown},ann")


RECOMMEND_FAILURES = {
    "k of 0": (["-k", "0"], "k = 0 is out of range"),
    "both users": (["--users", "1", "--users-file", "f"], "give one of them"),
    "no users": (["--users", " , "], "names no user"),
    "no users file": (["--users-file", "nowhere"], "cannot read user ids from nowhere"),
    "unknown item": (["--only-items", "999"], "unknown item: 999"),
    "no item left": (["--only-items", "3", "--exclude-items", "3"], "no item is left"),
    "bad unknown": (["--unknown", "ignore"], "choose one of 'error', 'popular'"),
    "bad suffix": (["-o", "lists.xlsx"], "lists.xlsx is none of .parquet"),
    "bad format": (["-o", "lists", "--format", "excel"], "format = 'excel' is not known"),
    "parquet to the screen": (["--format", "parquet"], "give a file"),
    "no folder": (["-o", "no/lists.csv"], "there is no folder no"),
    "no permission": (["-o", "/proc/lists.csv"], "cannot write /proc/lists.csv"),
}


@pytest.mark.parametrize("what", RECOMMEND_FAILURES)
def test_recommend_fails_clearly(what, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args, message = RECOMMEND_FAILURES[what]
    assert message in failed("recommend", model, *args)


def test_a_failure_leaves_the_old_output(model, tmp_path, monkeypatch):
    monkeypatch.setattr("truepair.cli.commands.recommend._PART", 7)
    parts = Recommender.recommend_in_parts

    def full_disk(self, *args, **options):
        yield next(parts(self, *args, **options))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recommender, "recommend_in_parts", full_disk)
    for format in READERS:
        output = tmp_path / f"lists.{format}"
        output.write_text("old")
        assert f"cannot write {output}: No space left on device" in failed(
            "recommend", model, "-o", output, "-q"
        )
        assert output.read_text() == "old"
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".jsonl", ".parquet"]


@pytest.mark.parametrize(
    "words", [["evaluate", "MODEL", "c.csv"], ["recommend", "MODEL"], ["similar", "MODEL", "3"]]
)
def test_broken_models(words, model, tmp_path):
    broken = tmp_path / "broken.truepair"
    args = [broken if word == "MODEL" else word for word in words]
    assert f"there is no truepair model at {broken}" in failed(*args)
    broken.write_bytes(model.read_bytes()[:-9])
    assert "It is damaged" in failed(*args)
    broken.write_text("user,item\n1,2\n")
    assert "cannot be read as a truepair model" in failed(*args)


# --- similar -------------------------------------------------------------------------------------------


def test_similar(model):
    fitted = Recommender.load(model)
    assert as_json("similar", model, "3", "4", "-k", "2") == fitted.similar_items([3, 4], k=2).to_pylist()
    assert as_json("similar", model, "3", "-k", "2", "--users") == fitted.similar_users([3], k=2).to_pylist()
    assert good("similar", model, "3", "-k", "1").stdout.splitlines()[0].split()[:2] == ["item", "similar"]


def test_similar_gives_arrow_whatever_the_model_came_from(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"user": ["a", "a", "b", "b"], "item": ["x", "y", "y", "z"]})
    Recommender(dim=2, epochs=1, validation=0).fit(frame).save(tmp_path / "m")
    assert len(as_json("similar", tmp_path / "m", "x", "-k", "2")) == 2
    assert len(as_json("recommend", tmp_path / "m", "--users", "a")) == 1


def test_similar_fails_clearly(model):
    assert "k = 0 is out of range" in failed("similar", model, "3", "-k", "0")
    assert "unknown item: 999" in failed("similar", model, "999")
    assert "Missing argument" in failed("similar", model, code=2)


# --- reading -------------------------------------------------------------------------------------------


@pytest.fixture
def yahoo(tmp_path):
    """Files such as those of Yahoo! R3, with ratings from 1 to 5 of twelve people and eight songs."""
    (tmp_path / "yahoo-r3").mkdir()
    ratings = [(user, song, 1 + (user + song) % 5) for user in range(1, 13) for song in range(1, 9)]
    for part, rows in (("train", ratings[::2]), ("test", ratings[1::2])):
        text = "".join(f"{user}\t{song}\t{stars}\n" for user, song, stars in rows)
        (tmp_path / "yahoo-r3" / f"ydata-ymusic-rating-study-v1_0-{part}.txt").write_text(text)
    return ["--data-dir", tmp_path, "--test", "given", "--metric", "ndcg@5", "--encoder", "popular"]


def test_the_given_split_of_a_dataset_with_ratings(yahoo, tmp_path):
    args = ["fit", "yahoo-r3", "-o", tmp_path / "m", *yahoo]
    whole, liked = as_json(*args, "-q"), as_json(*args, "--min-rating", "4", "-q")
    assert (whole["pairs"], whole["test"]["users"]) == (48, 12)
    assert 0 < liked["pairs"] < 48
    assert (liked["users"], liked["items"]) == (whole["users"], whole["items"])
    note = "note: every rating from 1 to 5 counts as a like (in the test part too); --min-rating drops low"
    assert note in good(*args).stderr
    assert "from 4 to 5 counts" in good(*args, "--min-rating", "4").stderr
    said = failed(*args, "--core", "2", "-q")
    assert "--core 2 has no effect on the published split; leave it out, or use a share, --test 0.2" in said


def test_ratings_that_count_as_likes_are_said(tmp_path):
    pytest.importorskip("optuna")
    rated = tmp_path / "ratings.csv"
    rows = [f"{user},{item},{0.5 + (user * item) % 10 / 2}" for user in range(8) for item in range(user, 12)]
    rated.write_text("user,item,rating\n" + "\n".join(rows))
    args = ["fit", rated, "-o", tmp_path / "m", "--encoder", "popular"]
    said = good(*args).stderr
    assert "note: every rating from 0.5 to 5 counts as a like; --min-rating drops low ones" in said
    assert "note" not in good(*args, "--min-rating", "5").stderr
    assert "note" not in good(*args, "--rating", "-").stderr
    assert "note: every rating from 0.5 to 5 counts" in run("prior", rated, "--resamples", "0").stderr
    held_out = run("tune", rated, "--encoder", "ease", "--trials", "1", "--storage", tmp_path / "j").stderr
    assert "counts as a like; --min" in held_out  # there is no test part


def test_weights_are_used_and_can_be_left_out(tmp_path):
    plays = tmp_path / "plays.csv"
    rows = [f"{user},{item},{1 + item}" for user in range(8) for item in range(user, 12)]
    plays.write_text("user,item,plays\n" + "\n".join(rows))
    args = ["fit", plays, "-o", tmp_path / "m", "--encoder", "popular"]
    assert "weight: count, at most 5" in good(*args, "--counts", "cap:5").stderr
    assert Recommender.load(tmp_path / "m").facts_["weights"]["highest"] == 5
    assert good(*args, "--weight", "-").exit_code == 0
    assert "weights" not in Recommender.load(tmp_path / "m").facts_


def test_kinds_half_lives_and_dislikes_as_options(tmp_path):
    log, model = tmp_path / "log.csv", tmp_path / "m"
    rows = [
        f"{u},{i},{'hide' if i == u + 3 else 'view' if i % 2 else 'buy'},2024-05-{1 + i:02}"
        for u in range(8)
        for i in range(u, 12)
    ]
    log.write_text("user,item,event,time\n" + "\n".join(rows))
    args = ["fit", log, "-o", model, "--encoder", "popular"]
    said = good(
        *args, "--feedback", "view=1,buy=10,hide=-1", "--half-life", "2d", "--now", "2024-05-20"
    ).stderr
    assert "weight by kind: view 1, buy 10, hide -1" in said
    assert "weight halved for every 2d before 2024-05-20 00:00:00" in said
    fitted = Recommender.load(model)
    assert fitted.facts_["reading"][:2] == [
        "weight by kind: view 1, buy 10, hide -1",
        "weight halved for every 2d before 2024-05-20 00:00:00",
    ]
    assert fitted.facts_["dislikes"] == len(fitted.seen_.disliked) == 8
    assert "'view' is not KIND=NUMBER" in failed(*args, "--feedback", "view")
    assert "'=1' is not KIND=NUMBER" in failed(*args, "--feedback", "=1")
    assert "kind 'buy' at line 2 has no number" in failed(*args, "--feedback", "view=1,hide=-1")
    assert "is after now = 2024-05-02" in failed(*args, "--half-life", "2d", "--now", "2024-05-02")
    rated = tmp_path / "rated.csv"
    rated.write_text(
        "user,item,rating\n" + "\n".join(f"{u},{i},{1 + (u + i) % 5}" for u in range(8) for i in range(10))
    )
    args[1] = rated
    good(*args, "--max-disliked-rating", "2", "--min-rating", "4")
    assert len(Recommender.load(model).seen_.disliked) == 32


def test_a_catalogue_of_items(clicks, tmp_path):
    listed = tmp_path / "items.txt"
    listed.write_text("".join(f"{item}\n" for item in range(40)))
    args = ["fit", clicks, "-o", tmp_path / "m", "--encoder", "popular"]
    assert as_json(*args, "-q")["items"] == 30
    assert as_json(*args, "-q", "--items", listed)["items"] == 40
    listed.write_text("1\n2\n")
    assert "the catalogue of 2 items lacks 28 of the interactions" in failed(*args, "-q", "--items", listed)
    assert "use one of them" in failed(*args, "-q", "--items", listed, "--core", "2")
    assert "cannot read the items in no.txt" in failed(*args, "-q", "--items", "no.txt")
    assert "has no effect on 'ml-100k', which is the name of a dataset" in failed(
        "fit", "ml-100k", "-o", "m", "--items", listed
    )


# --- compare -------------------------------------------------------------------------------------------


def test_compare(clicks):
    found = as_json("compare", clicks, "--losses", "bpr,dpl,infonce", "--seeds", "2", "-q", *SMALL)
    assert list(found["losses"]) == ["bpr", "dpl", "infonce"]
    assert found["losses"]["bpr"]["against_baseline"] is None
    for loss in ("dpl", "infonce"):
        one = found["losses"][loss]
        against = one["against_baseline"]
        assert (against["a"], against["b"]) == (loss, "bpr")
        assert against["difference"] == pytest.approx(one["mean"] - found["losses"]["bpr"]["mean"])
        assert against["p_corrected"] >= against["p_value"]
        assert against["verdict"] in ("better", "worse", "not shown")
        assert [seen["seed"] for seen in one["runs"]] == [0, 1]
        assert one["mean"] == pytest.approx(sum(seen["test"] for seen in one["runs"]) / 2)


def test_compare_judges_as_fit_does(clicks, tmp_path):
    found = as_json("compare", clicks, "--losses", "dpl,bpr", "--tau", "0.1", "--test", "0.2", "-q", *SMALL)
    fitted = as_json(
        "fit", clicks, "-o", tmp_path / "m", "--loss", "dpl", "--tau", "0.1", "--test", "0.2", "-q", *SMALL
    )
    assert found["losses"]["dpl"]["metrics"]["ndcg@5"] == fitted["metrics"]["test ndcg@5"]


@pytest.mark.parametrize("given", [["--tau", "0.1"], ["--set", "tau=0.1"], ["--set", "loss.tau=0.1"]])
def test_compare_says_which_loss_does_not_use_a_prior(given, clicks):
    result = good("compare", clicks, "--losses", "dpl,bpr", *given, *SMALL)
    assert "bpr has no prior: " in result.stderr
    assert "tau = 0.1 is ignored for it" in result.stderr
    said = failed("compare", clicks, "--losses", "infonce,bpr", *given, *SMALL)
    assert (
        "has no prior; losses with a prior: dcl, hcl" in said
        or "a field of loss = 'tau' is not known" in said
    )


def test_compare_tells_people(clicks):
    result = good("compare", clicks, *SMALL)
    header, first, second, remark, shared, luck = result.stdout.splitlines()
    assert "else the defaults of `fit`, which were not chosen for the data" in shared
    assert luck == "one training run per loss: --seeds 3 averages over random seeds"
    assert header.split() == ["loss", "ndcg@5", "interval", "difference", "p", "verdict"]
    assert first.split()[0] == "bpr"
    assert first.endswith("baseline")
    assert second.split()[0] == "dpl"
    assert "corrected by Holm" in remark
    assert "<Split random(test=0.2" in result.stderr


def test_verdicts():
    from truepair.evaluation import Comparison

    def words(difference, p):
        return Comparison("ndcg@5", 0, 0, difference, 0, 0, p, p).verdict

    assert [words(0.1, 0.01), words(-0.1, 0.01)] == ["better", "worse"]
    assert words(0.1, 0.05) == "not shown"


def test_compare_takes_models_without_training(clicks, tmp_path):
    args = ["compare", clicks, "--test", "0.2", "--losses"]
    options = ["--epochs", "2", "--dim", "4", "--metric", "ndcg@5", "--seeds", "2", "-q"]
    found = as_json(*args, "bpr,ease,popular,itemknn", *options)["losses"]
    assert list(found) == ["bpr", "ease", "popular", "itemknn"]
    assert [len(found[name]["runs"]) for name in found] == [2, 1, 1, 1]  # they have no seed
    alone = ["fit", clicks, "-o", tmp_path / "m", "--encoder", "ease", "--test", "0.2", "--metric", "ndcg@5"]
    assert found["ease"]["metrics"]["ndcg@5"] == as_json(*alone, "-q")["metrics"]["test ndcg@5"]
    closed = good(*args, "ease,popular", "--metric", "ndcg@5").stdout
    assert "the defaults of `fit`" not in closed
    said = failed(*args, "ease,popular", "--metric", "ndcg@5", "--dim", "4")
    assert "dim = 4 has no effect: encoder = EASE" in said
    assert "loss = bpr has no effect" in failed(*args, "bpr,dpl", "--encoder", "ease")


def test_compare_fails_clearly(clicks):
    assert "two or more different" in failed("compare", clicks, "--losses", "bpr,bpr")
    assert "Did you mean 'dpl'?" in failed("compare", clicks, "--losses", "bpr,dpll")
    assert "Invalid value for '--seeds'" in failed("compare", clicks, "--seeds", "0", code=2)
    assert "with --losses" in failed("compare", clicks, "--set", "loss=bpr")


# --- data ----------------------------------------------------------------------------------------------


def test_data_list_and_info():
    rows = as_json("data", "list")
    assert [row["name"] for row in rows] == list(DATASETS)
    assert {row["folder"] for row in rows} == {None}
    assert "ml-100k" in good("data", "list").stdout
    shown = good("data", "info", "ml-100k").stdout
    assert "943 users, 1,682 items" in shown
    assert DATASETS["ml-100k"].terms in shown
    assert "`truepair data fetch ml-100k`" in shown
    by_hand = good("data", "info", "yahoo-r3").stdout
    assert DATASETS["yahoo-r3"].by_hand in by_hand
    assert "no, and it cannot be downloaded; put the files into <data-dir>/yahoo-r3/" in by_hand
    assert "data fetch" not in by_hand
    assert as_json("data", "info", "ml-100k")["cite"] == DATASETS["ml-100k"].cite


def test_data_fetch_from_a_folder(real_data, monkeypatch):
    assert as_json("data", "fetch", "coat", "--data-dir", real_data)["folder"] == str(real_data / "coat")
    monkeypatch.setenv("TRUEPAIR_DATA", str(real_data))
    result = good("data", "fetch", "coat")
    assert result.stdout == f"{real_data / 'coat'}\n"
    assert DATASETS["coat"].terms in result.stderr
    assert as_json("data", "info", "coat")["folder"] == str(real_data / "coat")


def test_data_fails_clearly(tmp_path):
    for command in ("info", "fetch"):
        assert "Did you mean 'ml-100k'?" in failed("data", command, "ml100k")
    assert "cannot be downloaded automatically" in failed("data", "fetch", "yahoo-r3")
    assert "is not a folder" in failed("data", "fetch", "coat", "--data-dir", tmp_path / "nowhere")


# --- doctor and demo -----------------------------------------------------------------------------------


def test_doctor(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEPAIR_DATA", str(tmp_path / "nowhere"))
    found = as_json("doctor")
    assert found["versions"]["torch"] == importlib.metadata.version("torch")
    engine = Recommender(auto=False, epochs=1, dim=2).fit({"user": [1, 2], "item": [1, 2]}).result_.engine
    assert f"engine {engine!r} on" in found["machine"]["will train with"]
    assert found["data"]["data in TRUEPAIR_DATA"].endswith("nowhere (not there)")
    assert found["data"]["datasets not here"] == list(DATASETS)
    shown = good("doctor").stdout
    assert "will train with: engine" in shown
    assert "extra plots: matplotlib" in shown


def test_demo_calls_the_demo(tmp_path, monkeypatch):
    calls = []

    def run_demo(**given):
        calls.append(given)
        return types.SimpleNamespace(report=given["out"])

    stand_in = types.ModuleType("truepair.reporting.demo")
    stand_in.run_demo = run_demo
    monkeypatch.setitem(sys.modules, "truepair.reporting.demo", stand_in)
    out = tmp_path / "report.html"
    assert as_json("demo", "--out", out, "--seed", "4", "--data-dir", tmp_path) == {"report": str(out)}
    assert calls == [{"data_dir": tmp_path, "out": out, "seed": 4, "quiet": True}]
    assert good("demo", "--quiet").output == ""
    assert calls[1] == {"data_dir": None, "out": Path("truepair-demo.html"), "seed": 0, "quiet": True}
