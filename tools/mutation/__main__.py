"""`make mutants`: which of a sample of small changes of the source the tests notice, by module.

A mutant is killed if a test fails, an import fails, or the tests take much longer than without it. First the
test file of the module's name runs, then the test folder that mirrors the module's folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutation.mutants import Mutant, sampled

_ROOT = Path(__file__).parents[2]
_PRODUCT = Path("src/truepair")
_COPIED = ("src", "tests", "tools", "lab", "docs", "README.md", "pyproject.toml", "conftest.py")
_SLACK = 30.0  # seconds more than three times the time without a change


class Copy:
    """A copy of the project in which modules are changed and tests run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in _COPIED:
            if (_ROOT / name).is_dir():
                shutil.copytree(_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(_ROOT / name, folder / name)
        self.seconds: dict[Path, float] = {}

    def is_killed(self, module: Path, mutant: Mutant, tests: list[Path]) -> bool:
        """Whether a test notices the mutant."""
        path = self.folder / module
        before = path.read_text()
        for test in tests:
            limit = 3 * self._seconds(test) + _SLACK
            path.write_text(mutant.text)
            try:
                if not self._pass(test, limit):
                    return True
            finally:
                path.write_text(before)
        return False

    def _seconds(self, tests: Path) -> float:
        """How long the tests take without a change; then they must pass."""
        if tests not in self.seconds:
            start = time.monotonic()
            if not self._pass(tests, 1800.0):
                sys.exit(f"{tests} fails without a mutant; mend it first.")
            self.seconds[tests] = time.monotonic() - start
        return self.seconds[tests]

    def _pass(self, tests: Path, limit: float) -> bool:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            str(tests),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return False
        if done.returncode > 2:  # not a failed test or import
            sys.exit(f"pytest {tests} ended with {done.returncode}:\n{done.stdout.decode()[-2000:]}")
        return done.returncode == 0


def mirrored_tests(module: Path, root: Path = _ROOT) -> list[Path]:
    """The tests of a module: its own file, if it has one, and the folder that mirrors its folder."""
    folder = Path("tests") / module.relative_to(_PRODUCT).parent
    while not (root / folder).is_dir():
        folder = folder.parent
    own = folder / f"test_{module.stem}.py"
    return [own, folder] if (root / own).is_file() else [folder]


def modules_of(names: list[str]) -> list[Path]:
    """The modules of the product at these paths, given relative to src/truepair."""
    found = []
    for name in names:
        path = _ROOT / _PRODUCT / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        found += [file.relative_to(_ROOT) for file in files if file.name != "__init__.py"]
    return found


def table(scores: dict[Path, list[bool]]) -> str:
    """A row for each module: mutants, killed, score."""
    lines = ["| module | mutants | killed | score |", "|---|---|---|---|"]
    total = [killed for found in scores.values() for killed in found]
    for name, found in [*((str(m.relative_to(_PRODUCT)), f) for m, f in scores.items()), ("all", total)]:
        share = f"{sum(found) / len(found):.0%}" if found else "-"
        lines.append(f"| {name} | {len(found)} | {sum(found)} | {share} |")
    return "\n".join(lines)


def main() -> None:
    """Run it; survivors are printed as they are found, the table at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", default=["losses", "sampling", "evaluation"])
    parser.add_argument("--count", type=int, default=5, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file for the table")
    args = parser.parse_args()
    scores: dict[Path, list[bool]] = {}
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copy = Copy(Path(folder) / "project")
        for module in modules_of(args.modules):
            tests, scores[module] = mirrored_tests(module), []
            for mutant in sampled((_ROOT / module).read_text(), args.count, f"{args.seed}:{module}"):
                killed = copy.is_killed(module, mutant, tests)
                scores[module].append(killed)
                if not killed:
                    print(f"survived: {module}:{mutant.line} {mutant.before!r} -> {mutant.after!r}")
            print(f"{module}: {sum(scores[module])} of {len(scores[module])} killed", flush=True)
            if args.out:
                args.out.write_text(table(scores) + "\n")
    print(table(scores))


if __name__ == "__main__":
    main()
