"""truepair update."""

import json

import pytest
from typer.testing import CliRunner

import truepair as tp
from truepair.cli.main import app


@pytest.fixture
def folder(tmp_path):
    rows = [f"u{u},i{i}" for u in range(30) for i in range(u % 2, 20, 2) if (u + i) % 3]
    (tmp_path / "old.csv").write_text("user,item\n" + "\n".join(rows), encoding="utf-8")
    rows = [f"u{u},i{i}" for u in (28, 29, 30, 31) for i in range(u % 2, 24, 2)]
    (tmp_path / "new.csv").write_text("user,item\n" + "\n".join(rows), encoding="utf-8")
    (tmp_path / "numbers.csv").write_text("user,item\n1,2\n3,4\n", encoding="utf-8")
    (tmp_path / "expired.txt").write_text("i0\ni1\n", encoding="utf-8")
    tp.Recommender(dim=4, epochs=2, auto=False, device="cpu").fit(tmp_path / "old.csv").save(tmp_path / "m")
    return tmp_path


def call(folder, *words):
    names = {path.name: str(path) for path in folder.iterdir()} | {"other": str(folder / "other")}
    return CliRunner().invoke(app, ["update", *(names.get(word, word) for word in words)])


def test_update_and_forget_in_place(folder):
    found = call(
        folder, "m", "new.csv", "-o", "m", "--forget", "expired.txt", "--epochs", "1", "--json", "-q"
    )
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    model = tp.load(folder / "m")
    assert facts["updates"] == model.facts_["updates"]
    assert [next(iter(record)) for record in facts["updates"]] == ["forgotten users", "new users"]
    assert facts["updates"][1]["new users"] == 2
    assert (facts["users"], facts["items"], facts["pairs"]) == (32, 24, len(model.seen_))
    expected = tp.load(folder / "m")
    assert expected.seen_.n_items == 24


def test_it_is_what_python_does(folder):
    expected = tp.load(folder / "m").forget(users=["u3"]).update(folder / "new.csv", epochs=1)
    found = call(folder, "m", "new.csv", "-o", "other", "--forget-users", "u3", "--epochs", "1")
    assert found.exit_code == 0, found.output
    assert "forgotten users 1" in found.output
    assert tp.load(folder / "other").recommend(k=5).equals(expected.recommend(k=5))


def test_forgetting_alone_and_a_small_file(folder):
    size = (folder / "m").stat().st_size
    found = call(folder, "m", "-o", "other", "--forget", "i0,zz", "--unknown", "drop", "--no-optimizer")
    assert found.exit_code == 0, found.output
    assert tp.load(folder / "other").seen_.n_items == 19
    assert (folder / "other").stat().st_size < size


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["m", "numbers.csv"], "the new ones of type int64, such as 1"),
        (["m", "new.csv", "--forget", "zz"], "unknown item: 'zz'"),
        (["m", "new.csv", "--epochs", "-1"], "epochs"),
        (["m", "missing.csv"], "missing.csv"),
        (["m"], "nothing to do"),
        (["m", "--forget", "i0", "--epochs", "2"], "has no effect"),
        (["m", "--forget", "i0", "--unknown", "popular"], "unknown"),
        (["old.csv", "new.csv"], "old.csv"),
    ],
)
def test_errors_leave_the_file_unchanged(folder, words, message):
    before = (folder / "m").read_bytes()
    found = call(folder, *words, "-o", "m")
    assert found.exit_code == 1
    assert message in found.output
    assert (folder / "m").read_bytes() == before
