"""What a command advises works when it is typed, and notes and errors name options, not Python keywords."""

import pytest
from test_cli import as_json, failed, good
from typer.main import get_command

from truepair.cli.main import app
from truepair.cli.options import with_options
from truepair.data.reading import read_interactions
from truepair.errors import InputError
from truepair.recommender.estimator import Recommender

PARAMETERS = get_command(app).commands["fit"].params


@pytest.mark.parametrize(
    ("python", "option"),
    [
        ("or pass missing='drop' to remove them", "or pass --missing drop to remove them"),
        ("or pass time=False.", "or pass --time -."),
        ("if it is data, pass header=False.", "if it is data, pass --no-header."),
        ("With dislikes=True, a weight", "With --dislikes, a weight"),
        ("as feedback=None, kind=None.", "as --feedback none, --kind -."),
        ("or pass a later now=….", "or pass a later --now …."),
        ("keep fewer items (core=…), or", "keep fewer items (--core …), or"),
        ("or set validation=0.1.", "or set --validation 0.1."),
        ("Pass rating=<name or position>.", "Pass --rating <name or position>."),
        ("pass duplicates = one of 'last', 'first'", "pass --duplicates one of 'last', 'first'"),
        ("missing = 'x' is not known", "--missing = 'x' is not known"),
        ("feedback={'view': 1, 'return': -1}, or", "--feedback view=1,return=-1, or"),
        ("or use scoring='cosine', which", "or use --set scoring=cosine, which"),
        ("lower learning_rate.", "lower --learning-rate."),
        ("/data/min_rating.csv has no row", "/data/min_rating.csv has no row"),
        ("use recommend(unknown='popular')", "use recommend(unknown='popular')"),
        ("--kind = 'x' cannot be used", "--kind = 'x' cannot be used"),
        ("a field of encoder = 'x' is not known", "a field of encoder = 'x' is not known"),
    ],
)
def test_errors_name_options(python, option):
    assert with_options(python, PARAMETERS) == option


FIT = ["fit", "clicks.csv", "-o", "m", "--encoder", "popular", "--metric", "ndcg@5"]


@pytest.mark.parametrize(
    ("rows", "advice", "options"),
    [
        (["user,item", "1,2", ",3", "2,2"], "pass --missing drop to", ["--missing", "drop"]),
        (["user,item,weight", "1,2,0", "2,2,1"], "weights: --weight -.", ["--weight", "-"]),
        (["user,item,time", "1,2,soon", "2,2,now"], "leave the column out (--time -)", ["--time", "-"]),
        (["user,item,user_id", "1,2,3", "2,2,4"], "pass one: --user user", ["--user", "user"]),
    ],
)
def test_advice_works_where_it_is_given(tmp_path, monkeypatch, rows, advice, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.csv").write_text("\n".join(rows))
    assert advice in failed(*FIT)
    good(*FIT, *options)


def test_a_model_with_feedback_takes_plain_likes_as_advised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.csv").write_text(SHOP)
    (tmp_path / "likes.csv").write_text("user,item\nann,jam\n")
    good("fit", "shop.csv", "-o", "m", "--encoder", "ease", "--feedback", "view=1,buy=10,return=-1")
    update = ["update", "m", "likes.csv", "-o", "m"]
    assert "give --feedback none." in failed(*update)
    good(*update, "--feedback", "none")
    good("fit", "shop.csv", "-o", "m", "--encoder", "ease", "--kind", "event_type", "--feedback", KINDS)
    assert "give --feedback none, --kind -." in failed(*update)
    good(*update, "--feedback", "none", "--kind", "-")


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        ({"half_life": "7d"}, {"half_life": None}),
        ({"user": "customer"}, {"user": "user"}),
        ({"missing": "drop"}, {"missing": "error"}),
    ],
)
def test_a_rule_of_the_fit_is_undone_as_advised(rules, options):
    rows = {"customer": ["ann", "bob"], "item": ["tea", "jam"], "time": [1_700_000_000, 1_700_000_001]}
    if "user" not in rules:
        rows["user"] = rows.pop("customer")
    model = Recommender(encoder="ease").fit(rows, **rules)
    ((name, value),) = options.items()
    advice = f"{name}=<name or position>" if name == "user" else f"{name}={value!r}"
    with pytest.raises(InputError, match=f"To change it, give {advice}"):
        model.update({"user": ["ann"], "thing": ["jam"]})
    model.update({"user": ["ann"], "item": ["jam"]}, **options)
    with pytest.raises(InputError, match=r"no such column|recognised") as error:
        model.update({"user": ["ann"], "thing": ["jam"]}, **options)
    assert "as the data of the fit" not in str(error.value)  # nothing of them is left


def test_rules_of_a_fit_are_not_advised_where_a_file_cannot_be_opened(tmp_path):
    model = Recommender(encoder="ease").fit({"user": ["ann", "bob"], "item": ["tea", "jam"]}, missing="drop")
    (tmp_path / "picture.png").write_bytes(PNG)
    for name in ("picture.png", "nothing.csv"):
        with pytest.raises(InputError) as error:
            model.update(tmp_path / name)
        assert "as the data of the fit" not in str(error.value)


KINDS = "view=1,buy=10,return=-1"
SHOP = "user,item,event_type\nann,tea,view\nann,jam,return\nbob,tea,buy\n"


def test_a_column_of_kinds_that_is_not_read_is_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.csv").write_text(SHOP)
    said = "note: column 'event_type' is not read, so that every kind of row counts as a like, returns too; "
    python = "pass feedback={'view': 1, 'buy': 10, 'return': -1}, or kind=False if that is meant"
    assert said + python in read_interactions("clicks.csv").report()
    option = "give --feedback view=1,buy=10,return=-1, or --kind - if that is meant"
    assert said + option in good(*FIT).stderr
    kinds = {"view": 1, "buy": 10, "return": -1}
    for options in ({"kind": False}, {"feedback": kinds}):
        assert "is not read" not in read_interactions("clicks.csv", **options).report()
    for given in (["--kind", "-"], ["--feedback", "view=1,buy=10,return=-1"]):
        assert "is not read" not in good(*FIT, *given).stderr
    table = {"user": ["ann"], "item": ["tea"], "type": ["food"]}  # a column of items is no column of kinds
    assert "is not read" not in read_interactions(table, item="type").report()
    assert "is not read" in read_interactions(table).report()


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00"


@pytest.mark.parametrize("name", ["picture.png", "picture.csv", "picture"])
def test_a_picture_is_not_a_table(tmp_path, name):
    (tmp_path / name).write_bytes(PNG)
    with pytest.raises(InputError, match=f"{name} is not a table: it is binary, and neither"):
        read_interactions(tmp_path / name)


def test_import_drops_rows_that_miss_a_value(tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.csv").write_text("user,item,time\nann,tea,1700000000\n,tea,1700000000\nbob,jam,\n")
    assert "pass --missing drop to remove such rows" in failed("import", "clicks.csv", "shop.sqlite")
    found = as_json("import", "clicks.csv", "shop.sqlite", "--missing", "drop")
    assert found["events"] == {"read": 1, "changed": 1}
    assert "--missing = 'x' is not known" in failed("import", "clicks.csv", "shop.sqlite", "--missing", "x")
