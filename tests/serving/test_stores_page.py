"""docs/stores.md: every step of it, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest
from test_serve_command import running
from typer.testing import CliRunner

import databases
import truepair as tp
from services import clicks, model, serve
from truepair.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "stores.md").read_text()
KEY = "a-long-random-text-for-admins"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_every_step_runs(postgresql, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    basket = ["tea", "milk", "jam", "roll"]
    people = {"ann": basket[:2], "bob": basket[1:], "cat": basket[2:], "dan": basket[::2]}
    pairs = [f"{user},{item}" for user, items in people.items() for item in items]
    Path("clicks.csv").write_text("\n".join(["user,item", *pairs]))
    Path("items.csv").write_text("item,price\ntea,3\nmilk,1\n")
    tp.Recommender(dim=4, epochs=3, auto=False).fit("clicks.csv").save(Path("model.truepair"))
    url = f"{postgresql}/postgres"
    lines = [
        line
        for block in blocks("sh")
        for line in block.replace("postgresql://ann@localhost/shop", url).splitlines()
    ]
    serve, *others = lines
    for line in others:
        result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert result.exit_code == 0, result.output
        assert databases.QUOTED not in result.output
    assert len(databases.execute(url, "select * from truepair.events")) == len(pairs)
    [program] = blocks("py")
    with running(*shlex.split(serve)[2:], cwd=tmp_path, TRUEPAIR_ADMIN_TOKEN=KEY) as (_, port):
        exec(program.replace("localhost:8000", f"127.0.0.1:{port}"), {})
    assert len(capsys.readouterr().out.splitlines()) == 2
    kinds = databases.execute(url, "select kind from truepair.events where \"user\" = 'eve' order by kind")
    assert kinds == [("read",), ("read",), ("star",)]


def test_the_table_has_every_address(serve, model):
    paths = [path for path in serve(model).get("/openapi.json").json["paths"] if path.startswith("/api/")]
    assert len(paths) > 20
    for path in paths:
        first, *_ = path.removeprefix("/api/").split("/")
        assert f"`{first}" in PAGE, path
