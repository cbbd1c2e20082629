"""Planted bugs: each is put into a copy of the code, and one of the tests that are named for it must fail.

    python tools/mutants/mutants.py [--only PATTERN] [--jobs N] [--timeout SECONDS] [--page FILE]

The bugs are in the *.toml files of this folder. A bug that no test catches is an error, and so is a text that
is no longer in its file, or a module with functions that has no bug. Compiled code cannot pass from one bug
to another: Python writes no bytecode, and machine code is kept in a folder named by the content of the kernel
files.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import fnmatch
import importlib
import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT, LISTS = Path(__file__).parents[2], Path(__file__).parent
_COPIED = ("src", "tests")
_LARGE = (
    "torch", "torch.distributed.tensor", "scipy.stats", "scipy.optimize", "scipy.sparse", "numba", "mpmath",
    "pyarrow.compute", "pyarrow.dataset", "safetensors.torch", "pandas", "optuna", "matplotlib.figure",
    "triton", "typer.testing", "rich.progress",
)  # fmt: skip
_PYTEST = (
    *("-o", "addopts=", "--strict-markers", "--doctest-modules", "-p", "no:cacheprovider"),
    *("-x", "-q", "-rfE", "--tb=no", "--assert=plain"),
)


@dataclass(frozen=True)
class Bug:
    """A text of a file, what replaces it, what that breaks, and the tests that must catch it."""

    name: str
    file: str
    text: str
    replacement: str
    breaks: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """The source with the bug; ValueError where the text does not occur exactly once."""
        if (count := source.count(self.text)) != 1:
            raise ValueError(
                f"{self.name}: its text occurs {count} times in {self.file}, and must occur once"
            )
        return source.replace(self.text, self.replacement)


@dataclass(frozen=True)
class Verdict:
    """What became of a bug: the test that caught it, or why none did."""

    bug: Bug
    caught_by: str
    problem: str
    seconds: float


def read_bugs(only: str = "*") -> list[Bug]:
    """The bugs of all lists whose name or file matches the pattern."""
    found = []
    for path in sorted(LISTS.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["bug"]:
            found.append(Bug(**{**entry, "tests": tuple(entry["tests"])}))
    return [bug for bug in found if any(fnmatch.fnmatch(text, only) for text in (bug.name, bug.file))]


def uncovered(bugs: Sequence[Bug]) -> list[str]:
    """The modules with functions that have no planted bug."""
    known = {bug.file for bug in bugs}
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "src").rglob("*.py"))}
    return [
        file
        for file, path in files.items()
        if file not in known and has_functions(path.read_text(encoding="utf-8"))
    ]


def has_functions(source: str) -> bool:
    """Whether a module has a function that does something: more than a docstring, as in an interface."""
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return any(
        not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for function in functions
        for statement in function.body
    )


# --- running -------------------------------------------------------------------------------------------


def _environment(folder: Path) -> dict[str, str]:
    """What the tests set themselves is set before the libraries are loaded, too."""
    settings = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    if importlib.util.find_spec("torch") and not importlib.import_module("torch").cuda.is_available():
        settings["TRITON_INTERPRET"] = "1"
    return (
        os.environ
        | settings
        | {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "NUMBA_NUM_THREADS": "4",
            "OMP_WAIT_POLICY": "passive",
            "PYTHONPATH": str(folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(folder / "compiled"),
        }
    )


class Copy:
    """A copy of the code in a folder of its own, in which one bug at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for entry in ROOT.iterdir():  # pages, results and configuration are only read
            if entry.name not in (*_COPIED, ".git"):
                (folder / entry.name).symlink_to(entry)
        compileall.compile_dir(folder / "src", quiet=2)
        command = [sys.executable, __file__, "--serve"]
        self.server = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(folder),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @contextmanager
    def with_bug(self, bug: Bug) -> Iterator[None]:
        """The bug is in the copy within the block."""
        path = self.folder / bug.file
        planted = bug.planted((ROOT / bug.file).read_text(encoding="utf-8"))
        try:
            path.write_text(planted, encoding="utf-8")
            yield
        finally:
            shutil.copy2(ROOT / bug.file, path)

    def test(self, tests: Sequence[str], timeout: float) -> tuple[int, str]:
        """The exit code and the output of pytest; the code is -1 after the timeout."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        arguments = [*_PYTEST, f"--basetemp={self.folder / 'temporary'}", *tests]
        self.server.stdin.write(json.dumps({"arguments": arguments, "timeout": timeout}) + "\n")
        self.server.stdin.flush()
        answer = json.loads(self.server.stdout.readline())
        return answer["code"], answer["output"]

    def close(self) -> None:
        """End the process of the tests."""
        self.server.communicate()


def serve() -> None:
    """Run pytest for each request on stdin, in a fork of this process: large libraries are loaded once."""
    for name in _LARGE:
        with suppress(ImportError):
            importlib.import_module(name)
    import pytest

    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryFile("w+") as output:
            child = os.fork()
            if child == 0:
                with open(os.devnull) as nothing:
                    os.dup2(nothing.fileno(), 0)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                code = int(pytest.main(request["arguments"]))
                sys.stdout.flush()
                os._exit(code)
            code = _ended(child, time.monotonic() + request["timeout"])
            output.seek(0)
            print(json.dumps({"code": code, "output": output.read()}), flush=True)


def _ended(child: int, latest: float) -> int:
    """The exit code of a process; -1 if it was ended because it took too long."""
    while time.monotonic() < latest:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def judge(bug: Bug, copy: Copy, timeout: float) -> Verdict:
    """Plant a bug and run its tests."""
    began = time.perf_counter()
    try:
        with copy.with_bug(bug):
            code, output = copy.test(bug.tests, timeout)
    except ValueError as error:
        return Verdict(bug, "", str(error), 0.0)
    seconds = time.perf_counter() - began
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?::\S+)", output, re.MULTILINE)
    if code == 1 and failed:
        return Verdict(bug, failed[1].partition("[")[0], "", seconds)
    problem = "survived" if code == 0 else f"pytest ended with {code}: {output.strip()[-300:]}"
    return Verdict(bug, "", problem, seconds)


def judge_all(bugs: Sequence[Bug], jobs: int, timeout: float) -> Iterator[Verdict]:
    """The verdicts in the order of the bugs. Without a bug, all tests must pass."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = [Copy(Path(folder) / str(number)) for number in range(jobs)]
        free: queue.Queue[Copy] = queue.Queue()
        for copy in copies:
            free.put(copy)

        def judged(bug: Bug) -> Verdict:
            copy = free.get()
            try:
                return judge(bug, copy, timeout)
            finally:
                free.put(copy)

        try:
            tests = sorted({test for bug in bugs for test in bug.tests})
            each = -(-len(tests) // jobs)
            shares = [tests[at : at + each] for at in range(0, len(tests), each)]
            for code, output in pool.map(Copy.test, copies, shares, [60 * timeout] * jobs):
                if code:
                    raise SystemExit(f"without a planted bug the tests must pass:\n{output[-2000:]}")
            yield from pool.map(judged, bugs)
        finally:
            for copy in copies:
                copy.close()


# --- reporting -----------------------------------------------------------------------------------------


def page(verdicts: Sequence[Verdict]) -> str:
    """The page of the documentation."""
    rows = [
        f"| {v.bug.name} | `{v.bug.file.removeprefix('src/')}` | {v.bug.breaks} | `{_short(v.caught_by)}` |"
        for v in verdicts
    ]
    return "\n".join(
        [
            "# Planted bugs",
            "",
            f"{len(verdicts)} bugs, each planted by itself into a copy of the code, and the test that caught",
            "it. `make mutants` repeats this; it fails where a bug survives, or where its text is no longer",
            "in the file. The lists are in `tools/mutants/`; this page is written by",
            "`python tools/mutants/mutants.py --page docs/mutants.md`.",
            "",
            "Every module has at least one, apart from those without functions: re-exports, constants,",
            "texts, interfaces.",
            "",
            "| bug | in | what it breaks | caught by |",
            "|---|---|---|---|",
            *(row.replace("||", r"\|\|") for row in rows),
            "",
        ]
    )


def _short(test: str) -> str:
    return test.removeprefix("tests/")


def main(arguments: Sequence[str] | None = None) -> None:
    """Plant the bugs, and print a table."""
    parser = argparse.ArgumentParser(description="Plant bugs; the tests must catch each of them.")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="bugs whose name or file matches")
    parser.add_argument("--jobs", type=int, default=1, help="bugs at a time")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for the tests of a bug")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--page", type=Path, help="write the table to this Markdown file")
    given = parser.parse_args(arguments)
    if given.serve:
        serve()
        return
    bugs = read_bugs(given.only)
    if not bugs:
        raise SystemExit(f"no bug matches {given.only!r}")
    if given.only == "*" and (without := uncovered(bugs)):
        raise SystemExit(f"modules without a bug: {', '.join(without)}; add one of each to {LISTS}/*.toml")
    verdicts = []
    for verdict in judge_all(bugs, max(given.jobs, 1), given.timeout):
        verdicts.append(verdict)
        found = verdict.caught_by or f"NOT CAUGHT: {verdict.problem}"
        print(f"{verdict.bug.name:40} {verdict.seconds:6.1f} s  {found}", flush=True)
    missed = [verdict.bug.name for verdict in verdicts if not verdict.caught_by]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} planted bugs were caught.")
    if missed:
        raise SystemExit(f"not caught: {', '.join(missed)}")
    if given.page is not None:
        given.page.write_text(page(verdicts), encoding="utf-8")


if __name__ == "__main__":
    main()
