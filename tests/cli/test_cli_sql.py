"""Commands on databases: rows come by a query, lists go into a table, and no text has a password."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import truepair as tp
from databases import PASSWORD, QUOTED, execute
from truepair.cli.main import app
from truepair.recommender.estimator import Recommender
from worlds import two_tastes

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
EASE = ("--encoder", "ease")
ALL = 'select "user", item from clicks'


def run(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert PASSWORD not in result.output
    assert QUOTED not in result.output
    return result


def good(*args):
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(*args):
    result = run(*args)
    assert result.exit_code != 0
    return " ".join(result.stderr.split())


@pytest.fixture
def shop(postgresql):
    """A database with a password and a table of clicks."""
    tp.write_table(two_tastes().to_table(), f"{postgresql}/postgres", "clicks")
    return f"{postgresql}/postgres"


def test_fit_recommend_and_write_back(database, tmp_path):
    model, shop = tmp_path / "model", database
    tp.write_table(two_tastes().to_table(), shop, "clicks")
    facts = json.loads(good("fit", shop, "--query", ALL, "-o", model, *EASE, "--json"))
    assert facts["source"] == shop.replace(f":{QUOTED}", "")
    assert facts["pairs"] == len(two_tastes())
    assert QUOTED.encode() not in model.read_bytes()
    said = good("recommend", model, "-o", shop, "--table", "lists", "-k", "3", "--quiet")
    assert said == "" or "saved to table lists" in said
    expected = Recommender.load(model).recommend(k=3).to_pylist()
    found = execute(shop, 'select "user", item, score, "rank" from lists order by "user", "rank"')
    assert [tuple(row) for row in found] == [tuple(row.values()) for row in expected]
    facts = json.loads(
        good("recommend", model, "-o", shop, "--table", "lists", "--users", "0", "-k", "2", "--json")
    )
    assert facts == {"output": shop.replace(f":{QUOTED}", ""), "table": "lists", "rows": 2}
    assert len(execute(shop, "select * from lists")) == 2
    good("recommend", model, "-o", shop, "--table", "reasons", "--users", "0", "-k", "2", "--explain")
    assert json.loads(execute(shop, "select because from reasons")[0][0])[0].keys() == {"item", "weight"}


def test_every_command_takes_a_query(shop, tmp_path):
    model, query = tmp_path / "model", ("--query", ALL)
    good("fit", f"{shop}#clicks", "-o", model, *EASE)
    held_out = ("--query", 'select "user", 1 + item as item from clicks')
    assert "ndcg" in good("evaluate", model, shop, *held_out, "--cold", "popular")
    assert "ease" in good("compare", shop, *query, "--losses", "popular,ease")
    facts = json.loads(good("update", model, shop, *query, "-o", tmp_path / "next", "--json"))
    assert facts["source"] == shop.replace(f":{QUOTED}", "")
    assert "time" in failed("backtest", shop, *query)  # the clicks have none
    execute(shop, "create table items as select distinct item, item as price from clicks")
    args = ("--items", f"{shop}#items", "--where", "price < 9", "--users", "0", "--json")
    assert {row["item"] < 9 for row in json.loads(good("recommend", model, *args))} == {True}
    execute(shop, 'create table never as select distinct 0 as "user", item from clicks where item > 4')
    args = ("--exclude-pairs", f"{shop}#never", "--users", "0", "--include-seen", "--json")
    assert {row["item"] < 5 for row in json.loads(good("recommend", model, *args))} == {True}


def test_what_is_refused(shop, tmp_path):
    model = tmp_path / "model"
    good("fit", f"{shop}#clicks", "-o", model, *EASE)
    assert "name a table: --table lists" in failed("recommend", model, "-o", shop)
    assert "--table x has no effect on files" in failed(
        "recommend", model, "-o", tmp_path / "x.csv", "--table", "x"
    )
    assert "--table x has no effect on files" in failed("recommend", model, "--table", "x")
    csv = ("--table", "x", "--format", "csv")
    assert "--format csv has no effect on a database" in failed("recommend", model, "-o", shop, *csv)
    assert "table clicks without 'score', 'rank'" in failed(
        "recommend", model, "-o", shop, "--table", "clicks"
    )
    assert "cannot be a path here" in failed("fit", f"{shop}#clicks", "-o", shop)
    assert "is a database; pass --query" in failed("fit", shop, "-o", model)
    assert "query needs a database" in failed("fit", tmp_path / "model", "--query", "select 1", "-o", model)
    assert "has no effect on 'ml-100k', which is the name of a dataset" in failed(
        "fit", "ml-100k", "--query", ALL, "-o", model
    )
    assert "has no test part; use --test 0.2" in failed(
        "fit", f"{shop}#clicks", "--test", "given", "-o", model
    )
    assert "unexpected extra argument" in failed("fit", "clicks.csv", shop, "-o", model)
    assert "--no-such" in failed("fit", shop, f"--no-such={shop}", "-o", model)
    assert "No such command" in failed(shop)


def test_how_to_continue_has_no_password(shop, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        (tmp_path / "model.checkpoint").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Recommender, "fit", interrupted)
    said = failed("fit", shop, "--query", ALL, "-o", tmp_path / "model")
    assert f"truepair fit {shlex.quote(shop.replace(f':{QUOTED}', ''))} --query" in said


def test_the_report_of_tuning_has_no_password(shop, tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr("truepair.reporting.page.Page.write", lambda page, path: titles.append(page.title))
    search = ("--trials", "1", "--extensions", "0", "--storage", tmp_path / "journal")
    search += ("-o", tmp_path / "report.html")
    good("tune", f"{shop}#clicks", *EASE, *search)
    assert titles == [f"Tuning infonce-ease-full on {shop.replace(f':{QUOTED}', '')}#clicks"]
    assert QUOTED.encode() not in (tmp_path / "journal").read_bytes()


def test_the_commands_of_the_page(postgresql, tmp_path, monkeypatch):
    """Each command of docs/sql.md, on the server; its tables have the clicks of a small world."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    url = f"{postgresql.replace(f':{QUOTED}', '')}/postgres"
    clicks = two_tastes().to_table()
    names = [{"user": "user_id", "item": "item_id"}.get(name, name) for name in clicks.column_names]
    tp.write_table(clicks.rename_columns(names), url, "clicks")
    tp.write_table({"item_id": range(30), "price": range(30)}, url, "items")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("truepair ")]
    assert len(lines) >= 3
    for line in lines:
        assert "postgresql://ann@localhost/shop" in line
        words = shlex.split(line.replace("postgresql://ann@localhost/shop", url))
        good(*words[1:], *(EASE if words[1] == "fit" else ()))
    assert len(execute(f"{postgresql}/postgres", "select * from recommendations")) > 0
