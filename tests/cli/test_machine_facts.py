"""What `truepair data` and `truepair doctor` say of this machine."""

import importlib.util
import json

from typer.testing import CliRunner

from truepair.cli.main import app


def as_json(*args):
    return json.loads(CliRunner().invoke(app, [*map(str, args), "--json"]).stdout)


def test_datasets_are_looked_for_in_the_given_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("TRUEPAIR_DATA", raising=False)
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data" / "ml-100k").mkdir(parents=True)
    (tmp_path / "data" / "ml-100k" / "u.data").write_text("1\t2\t3\t4\n")
    found = {row["name"]: row["folder"] for row in as_json("data", "list", "--data-dir", tmp_path / "data")}
    assert {name for name, folder in found.items() if folder} == {"ml-100k"}
    assert as_json("data", "info", "ml-100k")["folder"] is None


def test_extras_are_found_where_they_are_installed():
    extras = as_json("doctor")["extras"]
    packages = {package: there for part in extras.values() for package, there in part.items()}
    assert {"matplotlib", "optuna"} <= set(packages)
    assert packages == {name: importlib.util.find_spec(name) is not None for name in packages}
