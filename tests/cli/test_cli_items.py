"""`truepair fit --item-features` and `truepair add-items`."""

import json

import pytest
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.recommender.estimator import Recommender

PAIRS = [(u, i) for u in range(12) for i in range(8) if (u + i) % 2 == 0 and (u, i) != (0, 0)]
FIT = ["--encoder", "hybrid", "--dim", "4", "--epochs", "3", "--set", "auto=false", "--quiet"]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def files(tmp_path):
    (tmp_path / "clicks.csv").write_text("user,item\n" + "".join(f"{u},i{i}\n" for u, i in PAIRS))
    rows = [f"i{i},{'even' if i % 2 == 0 else 'odd|rare'},{i}\n" for i in range(10)]
    (tmp_path / "items.csv").write_text("item,kinds,price\n" + "".join(rows))
    (tmp_path / "users.csv").write_text("user,age\n" + "".join(f"{u},{20 + u}\n" for u in range(12)))
    return tmp_path


def test_a_model_with_features_and_new_items(files):
    model, more = files / "m.truepair", files / "more.truepair"
    features = ["--item-features", files / "items.csv", "--user-features", files / "users.csv"]
    fitted = run("fit", files / "clicks.csv", "-o", model, *FIT, *features)
    assert fitted.exit_code == 0, fitted.output
    added = run("add-items", model, files / "items.csv", "-o", more, "--json")
    assert added.exit_code == 0, added.output
    facts = json.loads(added.stdout)
    assert (facts["added"], facts["items"]) == (2, 10)
    lists = run("recommend", more, "--users", "1", "-k", "10", "--json")
    assert {"i8", "i9"} <= {row["item"] for row in json.loads(lists.stdout)}
    assert Recommender.load(model).seen_.n_items == 8  # the model itself is as it was
    assert "2 items are added to 8" in run("add-items", model, files / "items.csv", "-o", more).stdout


def test_errors_are_one_message_and_no_file(files):
    model, out = files / "m.truepair", files / "out.truepair"
    for args, message in (
        (["fit", files / "clicks.csv", "-o", out, *FIT], "needs features"),
        (
            ["fit", files / "clicks.csv", "-o", out, "--item-features", files / "items.csv"],
            "--item-features has no effect",
        ),
        (
            ["fit", files / "clicks.csv", "-o", out, *FIT, "--item-features", files / "users.csv"],
            "recognised as the item",
        ),
        (
            ["fit", files / "clicks.csv", "-o", out, *FIT, "--item-features", files / "none.csv"],
            "none.csv",
        ),
    ):
        result = run(*args)
        assert result.exit_code == 1, result.output
        assert message in result.output
        assert not out.exists()
    good = run("fit", files / "clicks.csv", "-o", model, *FIT, "--item-features", files / "items.csv")
    assert good.exit_code == 0, good.output
    (files / "twice.csv").write_text("item,kinds,price\nx,even,1\nx,odd,2\n")
    result = run("add-items", model, files / "twice.csv", "-o", out)
    assert result.exit_code == 1
    assert "several rows for 1 items: 'x'" in result.output
    assert not out.exists()
