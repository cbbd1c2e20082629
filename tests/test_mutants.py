"""The lists of planted bugs are true: their texts are in the code, and their tests exist."""

import ast
import importlib.util
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def mutants():
    specification = importlib.util.spec_from_file_location("mutants", ROOT / "tools/mutants/mutants.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules["mutants"] = module  # a dataclass asks for the module that it is of
    specification.loader.exec_module(module)
    yield module
    del sys.modules["mutants"]


@pytest.fixture(scope="module")
def bugs(mutants):
    return mutants.read_bugs()


def test_names_are_distinct_and_say_what_breaks(bugs):
    assert max(Counter(bug.name for bug in bugs).values()) == 1
    assert all(bug.breaks and "|" not in bug.breaks and bug.tests for bug in bugs)


def test_every_text_occurs_once_and_the_bug_is_python(bugs):
    for bug in bugs:
        source = (ROOT / bug.file).read_text(encoding="utf-8")
        planted = bug.planted(source)  # raises where the text does not occur exactly once
        assert planted != source, bug.name
        compile(planted, bug.file, "exec")


@cache
def functions_of(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_exists(bugs):
    for bug in bugs:
        for test in bug.tests:
            file, _, function = test.partition("::")
            assert not function or function in functions_of(file), f"{bug.name}: {test} does not exist"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from x import y\nA = 1\n", False),
        ('class Part(Protocol):\n    def run(self):\n        """Run."""\n', False),
        ('def run():\n    """Run."""\n    go()\n', True),
        ("class Part:\n    def run(self):\n        return 1\n", True),
    ],
)
def test_a_module_with_functions_needs_a_bug(mutants, source, expected):
    assert mutants.has_functions(source) is expected


def test_every_module_with_functions_has_a_bug(mutants, bugs):
    without = mutants.uncovered(bugs)
    assert not without, f"modules without a planted bug; add one of each to tools/mutants: {without}"


def test_modules_without_a_bug_are_named_before_any_is_planted(mutants, monkeypatch):
    every = mutants.read_bugs()
    left = [bug for bug in every if bug.file != "src/truepair/randomness.py"]
    assert "src/truepair/randomness.py" in mutants.uncovered(left)
    assert "src/truepair/training/trainer.py" not in mutants.uncovered(left)
    monkeypatch.setattr(mutants, "read_bugs", lambda only: left)
    with pytest.raises(SystemExit, match=r"modules without a bug: .*src/truepair/randomness\.py"):
        mutants.main([])


def test_a_text_that_is_not_there_once_is_an_error(mutants):
    bug = mutants.Bug("b", "x.py", "a = 1", "a = 2", "everything", ("tests",))
    assert bug.planted("a = 1\n") == "a = 2\n"
    for source in ("a = 3\n", "a = 1\na = 1\n"):
        with pytest.raises(ValueError, match=r"b: its text occurs \d times in x.py, and must occur once"):
            bug.planted(source)


@pytest.mark.parametrize(
    ("code", "output", "caught_by", "problem"),
    [
        (1, "FAILED tests/t.py::test_x[1-a] - assert", "tests/t.py::test_x", ""),
        (0, "5 passed", "", "survived"),
        (2, "ERROR tests/t.py - SyntaxError", "", "pytest ended with 2: ERROR tests/t.py - SyntaxError"),
        (-1, "..", "", "pytest ended with -1: .."),
    ],
)
def test_only_a_failing_test_catches_a_bug(mutants, tmp_path, code, output, caught_by, problem):
    """Neither an import that fails nor a timeout counts."""

    class Copy(mutants.Copy):
        def __init__(self):
            self.folder = tmp_path

        def test(self, tests, timeout):
            return code, output

    file = "src/truepair/storage/versions.py"
    (tmp_path / file).parent.mkdir(parents=True)
    text = "importlib.metadata.version(package)"
    bug = mutants.Bug("b", file, text, "None", "versions", ("tests/t.py",))
    found = mutants.judge(bug, Copy(), 1.0)
    assert (found.caught_by, found.problem) == (caught_by, problem)
    assert (tmp_path / file).read_text() == (ROOT / file).read_text()  # as it was before
