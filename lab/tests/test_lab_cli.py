"""The command line of the lab: every command has help, an example and the common options."""

import shlex

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from truepair_lab.cli.main import app

ROOT = get_command(app)
GROUPS = ("paper", "plain", "quality")
COMMANDS = {(name,): command for name, command in ROOT.commands.items()}
COMMANDS |= {(group, name): c for group in GROUPS for name, c in ROOT.commands[group].commands.items()}


def shown_help(*words):
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands_are_those_of_the_docs():
    assert sorted(ROOT.commands) == ["bench", "paper", "plain", "prior-study", "quality", "theory", "truth"]
    for group in GROUPS:
        assert sorted(ROOT.commands[group].commands) == ["report", "run", "tune"]


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_help_shows_an_example(words):
    shown = shown_help(*words)
    assert f"Example:\n    truepair-lab {' '.join(words)}".rstrip() in shown
    assert "{" not in shown.partition("\n")[2]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_has_help(words):
    assert [p.name for p in COMMANDS[words].params if not (p.help or getattr(p, "hidden", False))] == []


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[-1] not in GROUPS], ids=" ".join)
def test_every_command_can_be_quiet_and_speak_json(words):
    assert {"quiet", "json"} <= {parameter.name for parameter in COMMANDS[words].params}


def test_examples_have_only_options_that_exist():
    for words, command in COMMANDS.items():
        given = [word for word in shlex.split(command.epilog) if word.startswith("-")]
        assert set(given) <= {option for p in command.params for option in p.opts}, words


@pytest.mark.parametrize("words", [(), *((group,) for group in GROUPS)], ids=" ".join)
def test_no_summary_of_a_command_is_cut(words):
    assert "..." not in shown_help(*words).partition("Commands:")[2]


def test_an_error_is_one_message(tmp_path):
    result = CliRunner().invoke(app, ["paper", "report", "--lines", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("truepair: ")
    assert "`truepair-lab paper run`" in result.stderr
