"""A short part of `make soak` and of `make soak-ranks`: chains of kills."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "soak"


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_two_killed_runs_end_as_promised():
    options = ["--kills", "3", "--only-kills", "--engines", "full", "--seed", "3"]
    done = subprocess.run([sys.executable, str(TOOL), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| full | " in done.stdout
    assert " | 0 | 0 | 0 |" in done.stdout.splitlines()[-1]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_killed_ranks_of_torchrun_end_as_promised():
    options = ["--kills", "2", "--only-kills", "--ranks", "2", "--seed", "5"]
    done = subprocess.run([sys.executable, str(TOOL / "ranks.py"), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("| 2 | ")
