"""`truepair recommend` with a table of items: filters, quotas, diversity, explanations."""

import json
import uuid

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.models.closed_forms import EASE
from truepair.recommender.estimator import Recommender
from worlds import two_tastes


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def good(*args):
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists")
    Recommender(encoder=EASE(l2=10)).fit(two_tastes()).save(folder / "model")
    kinds = ["tea", "jam", "milk"]
    items = pa.table(
        {"item": range(30), "price": [n % 7 for n in range(30)], "kind": [kinds[n % 3] for n in range(30)]}
    )
    pa_csv.write_csv(items, folder / "items.csv")
    pq.write_table(items, folder / "items.parquet")
    return folder


@pytest.mark.parametrize("table", ["items.csv", "items.parquet"])
def test_the_options_are_those_of_the_library(table, folder):
    args = ["--items", folder / table, "--where", "price < 5 and kind != 'milk'", "--quota", "kind=2"]
    args += ["--quota", "price=1", "--diversify", "0.3", "--explain", "-k", "4"]
    rows = json.loads(good("recommend", folder / "model", *args, "--json"))
    options = {"where": "price < 5 and kind != 'milk'", "quota": {"kind": 2, "price": 1}}
    expected = Recommender.load(folder / "model").recommend(
        k=4, items=folder / table, diversify=0.3, explain=True, **options
    )
    assert rows == expected.to_pylist()
    assert {len(row["because"]) for row in rows} >= {3, 5}
    assert all(row["item"] % 7 < 5 and row["item"] % 3 != 2 for row in rows)


def test_reasons_on_the_screen_and_in_files(folder, tmp_path):
    args = ["recommend", folder / "model", "--explain", "-k", "3", "--users", "3,4"]
    expected = Recommender.load(folder / "model").recommend([3, 4], k=3, explain=True).to_pylist()
    lines = good(*args).splitlines()
    assert lines[0].split() == ["user", "item", "score", "rank", "because", "rest", "popularity"]
    first = expected[0]["because"][0]
    assert f"{first['item']} {first['weight']:.3f}, " in lines[1]
    for name in ("l.csv", "l.jsonl", "l.parquet"):
        good(*args, "-o", tmp_path / name)
    cells = pa_csv.read_csv(tmp_path / "l.csv")["because"].to_pylist()
    assert [json.loads(cell) for cell in cells] == [row["because"] for row in expected]
    found = [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    assert found == expected
    assert pq.read_table(tmp_path / "l.parquet").to_pylist() == expected


def test_no_rest_where_weights_do_not_add_up(tmp_path):
    Recommender(dim=4, epochs=2, auto=False).fit(two_tastes()).save(tmp_path / "m")
    args = ["recommend", tmp_path / "m", "--explain", "-k", "2", "--users", "3"]
    assert "None" not in good(*args)
    assert [row["rest"] for row in json.loads(good(*args, "--json"))] == [None, None]


def test_reasons_have_ids_as_text_where_a_format_has_no_such_type(tmp_path):
    data = two_tastes(n_items=10, each=4)
    ids = pa.array([uuid.UUID(int=n).bytes for n in range(10)], pa.uuid())
    table = pa.table({"user": data.users, "item": ids.take(pa.array(data.items))})
    Recommender(encoder="itemknn").fit(table).save(tmp_path / "m")
    args = ["recommend", tmp_path / "m", "--explain", "-k", "2"]
    names = {str(uuid.UUID(int=n)) for n in range(10)}
    rows = json.loads(good(*args, "--json"))
    assert {reason["item"] for row in rows for reason in row["because"]} <= names
    good(*args, "-o", tmp_path / "l.csv")
    assert str(uuid.UUID(int=3)) in (tmp_path / "l.csv").read_text()


def test_items_that_some_users_must_not_get(folder, tmp_path):
    everything = json.loads(good("recommend", folder / "model", "-k", "30", "--users", "3,4", "--json"))
    first = next(row["item"] for row in everything if row["user"] == 3)
    for name, text in {
        "pairs.csv": f"user,item,rating\n3,{first},x\n4,9\n".replace("4,9", "4,9,y"),
        "pairs.tsv": f"user\titem\n3\t{first}\n4\t9\n",
    }.items():
        (tmp_path / name).write_text(text)
        args = ["--exclude-pairs", tmp_path / name, "-k", "30", "--users", "3,4"]
        found = json.loads(good("recommend", folder / "model", *args, "--json"))
        kept = [row for row in everything if (row["user"], row["item"]) not in {(3, first), (4, 9)}]
        assert len(kept) < len(everything)
        assert [(row["user"], row["item"]) for row in found] == [(row["user"], row["item"]) for row in kept]


def test_pairs_of_a_file_get_the_types_of_the_model(tmp_path):
    data = two_tastes(n_items=10, each=4)
    table = pa.table({"user": [f"{user}" for user in data.users], "item": [f"{item}" for item in data.items]})
    Recommender(encoder="itemknn").fit(table).save(tmp_path / "m")
    (tmp_path / "pairs.csv").write_text("user,item\n1,2\n1,3\n")
    args = ["recommend", tmp_path / "m", "--users", "1", "-k", "10", "--include-seen", "--json"]
    found = json.loads(good(*args, "--exclude-pairs", tmp_path / "pairs.csv"))
    assert {row["item"] for row in json.loads(good(*args))} - {row["item"] for row in found} == {"2", "3"}


FAILURES = {
    "pairs and items": (["--exclude-pairs", "pairs.csv", "--exclude-items", "3"], "exclude each other"),
    "pairs of strangers": (["--exclude-pairs", "pairs.csv"], "unknown user: 999"),
    "no pairs": (["--exclude-pairs", "nowhere.csv"], "nowhere.csv does not exist"),
    "pairs without items": (["--exclude-pairs", "few.csv"], "few.csv"),
    "no table": (["--where", "price < 3"], "where needs a table of the items with its columns"),
    "no use": (["--items", "items.csv"], "items has no effect without where or quota"),
    "no file": (["--items", "nowhere.csv", "--where", "price < 3"], "nowhere.csv does not exist"),
    "no column": (["--items", "items.csv", "--where", "prize < 3"], "Did you mean 'price'?"),
    "a call": (["--items", "items.csv", "--where", "exit(3)"], "'exit(3)' is not allowed here"),
    "a dunder": (["--items", "items.csv", "--where", "price.__class__ == 1"], "is not allowed here"),
    "no condition": (["--items", "items.csv", "--where", ""], "cannot be read"),
    "nothing left": (["--items", "items.csv", "--where", "price > 99"], "no item is left to recommend"),
    "quota of nothing": (["--items", "items.csv", "--quota", "kind"], "such as category=3"),
    "quota of text": (["--items", "items.csv", "--quota", "kind=few"], "such as category=3"),
    "quota of 0": (["--items", "items.csv", "--quota", "kind=0"], "quota of 'kind' = 0 is out of range"),
    "too diverse": (["--diversify", "1"], "diversify = 1.0 is out of range"),
    "missing items": (["--items", "few.csv", "--where", "price < 3"], "add them, or pass --unknown drop"),
}


@pytest.mark.parametrize("what", FAILURES)
def test_failures_are_clear(what, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "few.csv").write_text("item,price\n1,2\n2,3\n")
    (folder / "pairs.csv").write_text("user,item\n999,2\n")
    args, message = FAILURES[what]
    result = run("recommend", "model", *args)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
