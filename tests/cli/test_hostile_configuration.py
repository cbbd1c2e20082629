"""Configurations and `--set` that are made to break parsers: the error is truepair's own."""

import pytest
from typer.testing import CliRunner

from truepair.cli.configuration import Training, assignment, read_toml
from truepair.cli.main import app
from truepair.cli.sources import as_column
from truepair.errors import InputError

HOSTILE = {
    "lists within lists": ("[" * 5000 + "]" * 5000, "nested too deeply"),
    "tables within tables": ("{a = " * 5000 + "1" + "}" * 5000, "nested too deeply"),
    "lists that Python can still parse": ("[" * 60 + "]" * 60, "more than 32 deep"),
    "a long dotted name": ("{" + "a." * 5000 + "b = 1}", "more than 32 deep"),
    "thousands of digits": ("9" * 5000, "4300 digits"),
    "thousands of hexadecimal digits": ("0x" + "f" * 5000, "more than 64 bits"),
    "a number of 65 bits": (str(2**64), "more than 64 bits"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_of_set(name):
    text, message = HOSTILE[name]
    with pytest.raises(InputError, match=message):
        assignment(f"dim={text}")
    with pytest.raises(InputError, match=message):
        Training(tau=text).flat()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_configuration(name, tmp_path):
    text, message = HOSTILE[name]
    path = tmp_path / "a.toml"
    path.write_text(f"dim = {text}\n")
    with pytest.raises(InputError, match=rf"settings .*a\.toml as TOML: .*{message}"):
        Training(config=path).recommender()


def test_a_table_nested_by_its_name(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("[" + "a." * 3000 + "b]\nx = 1\n")
    with pytest.raises(InputError, match=r"a\.toml as TOML: .*more than 32 deep"):
        read_toml(path)


def test_a_configuration_that_is_no_text_or_no_file(tmp_path):
    (tmp_path / "a.toml").write_bytes(b'loss = "\xff"')
    with pytest.raises(InputError, match=r"a\.toml as TOML: .*can't decode byte 0xff"):
        read_toml(tmp_path / "a.toml")
    with pytest.raises(InputError, match=r"cannot read the settings .*null"):
        read_toml(tmp_path / "a\0b")


def test_on_the_command_line(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n1,2\n")
    base = ["fit", str(tmp_path / "a.csv"), "-o", str(tmp_path / "m"), "--set"]
    for value in ("a=" + "[" * 5000, "dim=" + "9" * 5000):
        result = CliRunner().invoke(app, [*base, value])
        assert result.exit_code == 1
        assert "truepair: " in result.stderr


def test_a_column_of_thousands_of_digits_is_a_name():
    assert as_column("9" * 5000) == "9" * 5000
    assert as_column("12") == 12
