"""A short part of `make soak`: two chains of kills."""

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
