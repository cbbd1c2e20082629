"""Ctrl-C at any moment of a command: one line and exit code 130, or the finished command's own code."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import truepair
from truepair.cli.interruption import end_at_interrupt, end_process, interrupt_raises

# Runs the command line; SIGINT comes when a module is looked for, and what it raises is lost, as in C.
# A shell that starts the tests in the background would have its children ignore SIGINT.
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass
sys.meta_path.insert(0, Finder())
sys.argv = ["truepair", *{arguments!r}]
from truepair.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("truepair.cli.main", ["--version"]),
        ("typer", ["--version"]),
        ("truepair.data.datasets.registry", ["data", "list"]),  # within the command
    ],
)
def test_during_imports(module, arguments):
    program = PROGRAM.format(module=module, arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr, ended.stdout) == (130, "interrupted\n", "")


def test_little_is_imported_before_ctrl_c_is_in_hand():
    """Without `site`, whose imports come first: what else truepair needs must be imported later."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import truepair.__main__; print(*sorted(set(sys.modules) - before))"
    )
    folder = str(Path(truepair.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, folder], capture_output=True, text=True, check=True
    )
    assert not {"typing", "re", "threading", "inspect", "typer"} & set(ended.stdout.split())


@pytest.fixture
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_and_lose_it():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("default_handler")
def test_a_lost_interrupt_ends_the_block():
    after = []

    def block():
        with interrupt_raises():
            interrupt_and_lose_it()
            after.append("went on")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert after == ["went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("default_handler")
def test_a_second_interrupt_ends_the_process(monkeypatch):
    ended = []

    def end():
        ended.append(1)
        raise SystemExit

    monkeypatch.setattr("truepair.cli.interruption.end_process", end)

    def block():
        with interrupt_raises():
            interrupt_and_lose_it()
            signal.raise_signal(signal.SIGINT)

    with pytest.raises((SystemExit, KeyboardInterrupt)):
        block()
    assert ended == [1]


@pytest.mark.usefixtures("default_handler")
def test_a_handler_of_another_program_stays():
    def other(signum, frame):
        pass

    for handler in (other, signal.SIG_IGN):
        signal.signal(signal.SIGINT, handler)
        end_at_interrupt()
        assert signal.getsignal(signal.SIGINT) is handler
        with interrupt_raises():
            assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.usefixtures("default_handler")
def test_before_a_command_and_in_other_threads():
    end_at_interrupt()
    assert signal.getsignal(signal.SIGINT) is end_process
    seen = []

    def command():
        with interrupt_raises():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=command)
    thread.start()
    thread.join()
    command()
    assert seen[0] is end_process
    assert seen[1] is not end_process
    assert signal.getsignal(signal.SIGINT) is end_process
