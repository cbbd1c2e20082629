"""The generator of mutants makes the changes that it names, and the same sample for the same seed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from mutation.__main__ import mirrored_tests, modules_of, table
from mutation.mutants import KINDS, mutants, sampled

ROOT = Path(__file__).parents[2]

SOURCE = '''"""One 1 in the docstring."""


def f(a: int = 3, *, b: bool = False) -> "int | None":
    """1 + 1"""
    if a < 4 and not b:
        return a + g(a, flag=True)
    message = f"τ {a + 1}"
    return None


def g(x, flag=None):
    return x * 2 if flag is None else x
'''


def changes(text: str) -> list[tuple[str, str, str]]:
    return [(mutant.kind, mutant.before, mutant.after) for mutant in mutants(text)]


def test_every_kind_of_change() -> None:
    assert sorted(changes(SOURCE)) == sorted(
        [
            ("constant", "3", "4"),
            ("constant", "False", "True"),
            ("comparison", "a < 4", "(a <= 4)"),
            ("constant", "4", "5"),
            ("and/or", "a < 4 and not b", "(a < 4 or not b)"),
            ("not", "not b", "(b)"),
            ("condition", "a < 4 and not b", "(not (a < 4 and (not b)))"),
            ("return", "return a + g(a, flag=True)", "return None"),
            ("operator", "a + g(a, flag=True)", "(a - g(a, flag=True))"),
            ("keyword", "g(a, flag=True)", "g(a)"),
            ("constant", "True", "False"),
            ("return", "return x * 2 if flag is None else x", "return None"),
            ("condition", "flag is None", "(not flag is None)"),
            ("operator", "x * 2", "(x / 2)"),
            ("constant", "2", "3"),
            ("comparison", "flag is None", "(flag is not None)"),
        ]
    )
    assert {kind for kind, _, _ in changes(SOURCE)} == set(KINDS)


def test_a_mutant_is_a_module_with_one_other_line() -> None:
    for mutant in mutants(SOURCE):
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(SOURCE))
        lines = zip(SOURCE.splitlines(), mutant.text.splitlines(), strict=True)
        assert [number for number, (old, new) in enumerate(lines, 1) if old != new] == [mutant.line]


@pytest.mark.parametrize("text", ["x = 'a' + 'b'", "x: 'list[int]' = []", "x = a < b < c", "x = f'{1 + 1}'"])
def test_what_is_left_alone(text: str) -> None:
    assert mutants(text) == []


def test_samples_depend_on_the_seed_alone() -> None:
    assert sampled(SOURCE, 5, "0:m") == sampled(SOURCE, 5, "0:m")
    assert len(sampled(SOURCE, 5, "0:m")) == 5
    assert sampled(SOURCE, 5, "0:m") != sampled(SOURCE, 5, "1:m")
    assert sampled(SOURCE, 100, "0:m") == mutants(SOURCE)


def test_which_tests_run(tmp_path: Path) -> None:
    (tmp_path / "tests" / "data").mkdir(parents=True)
    (tmp_path / "tests" / "data" / "test_ids.py").touch()
    of = [
        mirrored_tests(Path("src/truepair") / name, tmp_path)
        for name in ("data/ids.py", "data/deep/x.py", "y.py")
    ]
    data = Path("tests/data")
    assert of == [[data / "test_ids.py", data], [data], [Path("tests")]]


def test_the_modules_of_a_folder() -> None:
    found = modules_of(["sampling", "data/ids.py"])
    assert Path("src/truepair/sampling/samplers.py") in found
    assert found[-1] == Path("src/truepair/data/ids.py")
    assert not any(path.name == "__init__.py" for path in found)


def test_the_table() -> None:
    scores = {Path("src/truepair/a.py"): [True, False], Path("src/truepair/b.py"): []}
    assert table(scores).splitlines()[2:] == [
        "| a.py | 2 | 1 | 50% |",
        "| b.py | 0 | 0 | - |",
        "| all | 2 | 1 | 50% |",
    ]


@pytest.mark.long
def test_a_run() -> None:
    command = [sys.executable, "-m", "mutation", "data/durations.py", "--count", "1"]
    done = subprocess.run(command, cwd=ROOT / "tools", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| data/durations.py | 1 | " in done.stdout
