"""Paths that begin with `~`: the home folder, or an error that names the path."""

import pytest

from truepair.cli.main import main
from truepair.data.datasets.loading import cache_dir, locate
from truepair.data.reading import read_interactions
from truepair.errors import InputError

BAD = ["~\0", "~\0/x.csv", "~nobody-has-this-name/x.csv"]
PAIRS = {"user": [1, 2], "item": [1, 2]}


@pytest.mark.parametrize("path", BAD)
def test_a_path_that_no_machine_has(path, monkeypatch):
    said = r"'~.*' is not a path of this machine"
    with pytest.raises(InputError, match=said):
        read_interactions(path)
    with pytest.raises(InputError, match=said):
        read_interactions(PAIRS, items=path)
    with pytest.raises(InputError, match=said):
        locate("ml-100k", path)
    if "\0" not in path:  # an environment holds none
        monkeypatch.setenv("TRUEPAIR_CACHE", path)
        with pytest.raises(InputError, match=said):
            cache_dir()


@pytest.mark.parametrize("path", BAD)
def test_on_the_command_line(path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["truepair", "fit", path, "-o", "m"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "is not a path of this machine" in capsys.readouterr().err


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.csv").write_text("user,item\n1,1\n2,2\n")
    (tmp_path / "items.txt").write_text("1\n2\n3\n")
    assert read_interactions("~/x.csv", items="~/items.txt").n_items == 3
    monkeypatch.setenv("TRUEPAIR_CACHE", "~/cache")
    assert cache_dir() == tmp_path / "cache"
