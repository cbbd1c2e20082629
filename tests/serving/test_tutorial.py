"""docs/tutorial.md: every step of it, one after the other, in one shell."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.long
def test_every_step_runs(postgresql, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    steps = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "\n".join(["set -em", *steps]).replace("localhost:8000", f"localhost:{port}")
    script = script.replace("truepair serve", f"truepair serve --port {port}")
    here = {"SHOP": f"{postgresql}/postgres", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={**os.environ, **here}, text=True, capture_output=True,
        timeout=300,
    )  # fmt: skip
    log = (tmp_path / "serve.log").read_text()
    assert shell.returncode == 0, shell.stdout + shell.stderr + log
    assert '"decision":"promoted"' in shell.stdout
    assert '"stored":500' in shell.stdout
    assert (tmp_path / "backup").is_dir()
