"""Fixtures that all tests share, and what a worker may take.

Compiled code is kept in the user's cache, in a folder named by the content of the kernel files. So it is what
the tests would compile themselves, and a second run compiles nothing.
"""

from __future__ import annotations

import os

# Arrays in tests are tiny and every core has a worker, so that more threads would only wait for each other.
# Libraries read this when they are imported. Numba gets four, of which tests of threads use several.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "4",
}.items():
    os.environ.setdefault(_name, _value)

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numba
import pytest
import torch
import typer.testing

import databases
from compiling import compile_once, warm_up

collect_ignore = ["tests/training/sampled/compile_kernels.py"]  # a script, for a process of its own

# Without a GPU the GPU engine's kernels run in Triton's interpreter; Triton reads this when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

numba.set_num_threads(1)  # this starts Numba's threads, which raises the number of PyTorch's
torch.set_num_threads(1)
compile_once()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public datasets: TRUEPAIR_DATA, else `shared/data` beside the checkout."""
    beside = Path(__file__).parents[1] / "shared" / "data"
    folder = Path(os.environ.get("TRUEPAIR_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder; set TRUEPAIR_DATA")
    return folder


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a PostgreSQL server, without a database. Tests skip where it cannot be started."""
    try:
        with databases.server() as address:
            yield f"postgresql://{databases.USER}:{databases.QUOTED}@{address}"
    except databases.NoServerError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def postgresql(postgresql_server: str) -> str:
    """The same URL; its database `postgres` is empty: add /postgres."""
    empty = "drop schema if exists public, lab, truepair cascade"
    databases.execute(f"{postgresql_server}/postgres", empty, "create schema public")
    return postgresql_server


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each engine, in which tables can be made."""
    pytest.importorskip("duckdb" if request.param == "duckdb" else f"adbc_driver_{request.param}")
    if request.param != "postgresql":
        return f"{request.param}:///{tmp_path}/shop.{request.param}"
    return f"{request.getfixturevalue('postgresql')}/postgres"


@pytest.fixture(scope="session", autouse=True)
def cache_of_downloads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test fetches or makes up comes into the user's cache of datasets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUEPAIR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Typer's runner would make every command of an app anew for each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


def pytest_collection_finish(session: pytest.Session) -> None:
    """A run of the whole suite compiles first; a run of some tests compiles what they need."""
    if len(session.items) > 1000 and not session.config.option.collectonly:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
        warm_up(int(worker))
