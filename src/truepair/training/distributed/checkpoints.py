"""Checkpoints of many ranks, by torch.distributed.checkpoint: each rank writes its own rows.

A checkpoint is a folder:

    run.json        the job, the history, and the name of the folder below that holds the tensors
    epoch-000005/   of torch.distributed.checkpoint; a tensor "item:250-500" has these rows of the items

run.json is replaced last and at once, so that at every moment it names tensors that are whole. Any number of
ranks can go on from it: each reads the pieces that its rows lie in. PyTorch keeps the index of the tensors as
a pickle, so open only checkpoints that you trust.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from truepair.errors import StorageError
from truepair.storage.atomic import atomic_write
from truepair.storage.types import Json
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.shards import Shard

KIND, VERSION = "truepair distributed checkpoint", 1
_FACTS, _FOLDER = "run.json", "epoch-"


def save(
    path: Path,
    tensors: Mapping[str, Tensor],
    shard_of: Callable[[str], Shard],
    facts: Mapping[str, object],
    epoch: int,
    group: ProcessGroup,
) -> None:
    """Write a checkpoint; if that fails on any rank, the old one is still there."""
    folder = path / f"{_FOLDER}{epoch:06d}"
    _on_first(group, lambda: _make_room(path), path)
    pieces: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        shard = shard_of(name)
        if tensor.ndim:
            pieces[f"{name}:{shard.first}-{shard.last}"] = tensor.detach()
        elif group.is_first:
            pieces[name] = tensor.detach()
    problem = ""
    try:
        with _no_warning():
            save_tensors(pieces, storage_writer=FileSystemWriter(folder), no_dist=group.size == 1)
    except (Exception, CheckpointException) as error:  # the second is not an Exception
        # the rank on which it failed, where torch.distributed.checkpoint says so; else this one
        rank = next(iter(error.failures)) if isinstance(error, CheckpointException) else group.rank
        problem = f"{reason(error)} on rank {rank}"
    _check_all(group, problem, path)
    _on_first(group, lambda: _commit(path, folder, facts), path)


def _make_room(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise StorageError(f"{path} is a file of another engine; give another path, or delete it.")
    path.mkdir(parents=True, exist_ok=True)
    committed = _folder_in(path)
    for other in path.glob(f"{_FOLDER}*"):  # of a run that was killed while it wrote
        if other.name != committed:
            shutil.rmtree(other)


def _commit(path: Path, folder: Path, facts: Mapping[str, object]) -> None:
    stated = {"kind": KIND, "version": VERSION, "folder": folder.name, **facts}
    with atomic_write(path / _FACTS, "the checkpoint") as file:
        file.write(json.dumps(stated).encode())
    for other in path.glob(f"{_FOLDER}*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def _folder_in(path: Path) -> str | None:
    try:
        return str(json.loads((path / _FACTS).read_bytes())["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_all(group: ProcessGroup, problem: str, path: Path) -> None:
    """An error on all ranks if one of them has a problem."""
    if found := next(filter(None, group.texts(problem)), ""):
        before = "the one before it is untouched" if _folder_in(path) else "there was none before"
        raise StorageError(f"cannot write the checkpoint {path}: {found}; {before}.")


def _on_first(group: ProcessGroup, action: Callable[[], None], path: Path) -> None:
    """Rank 0 does it; if it fails, all ranks raise."""
    problem = ""
    if group.is_first:
        try:
            action()
        except (OSError, StorageError) as error:
            problem = reason(error)
    _check_all(group, problem, path)


def reason(error: BaseException) -> str:
    """The innermost reason: torch.distributed.checkpoint wraps those of all ranks in one."""
    while isinstance(error, CheckpointException):
        error, _ = next(iter(error.failures.values()))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


# --- reading -------------------------------------------------------------------------------------------


def read_facts(path: Path, group: ProcessGroup) -> Json | None:
    """What the checkpoint says, as rank 0 sees it; None if there is none."""
    text = group.texts(_facts_text(path) if group.is_first else "")[0]
    if not text:
        return None
    try:
        facts = json.loads(text)
        known = facts["kind"] == KIND and facts["version"] == VERSION and isinstance(facts["job"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise StorageError(
            f"{path} is no checkpoint of engine 'distributed' that this version can read. Give another "
            "path, or delete it to start anew."
        )
    return dict(facts)


def _facts_text(path: Path) -> str:
    try:
        return (path / _FACTS).read_text() or "{}"
    except FileNotFoundError:  # there is none, or it was killed before the first one was whole
        return ""
    except (OSError, UnicodeDecodeError):
        return "{}"


def read_rows(path: Path, facts: Mapping[str, object], shard_of: Callable[[str], Shard]) -> dict[str, Tensor]:
    """The rank's own rows of all tensors of a checkpoint; ValueError if one is not whole."""
    folder = path / str(facts.get("folder"))
    if not folder.name.startswith(_FOLDER) or folder.parent != path:
        raise ValueError(f"its folder is {facts.get('folder')!r}")
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    names = {key.partition(":")[0] for key in stored}
    return {name: _rows(folder, stored, name, shard_of(name)) for name in names}


def _rows(folder: Path, stored: Mapping[str, object], name: str, shard: Shard) -> Tensor:
    """The shard's rows of one table, a piece at a time."""
    if name in stored:  # one number
        return _read(folder, stored, name)
    keys = [key for key in stored if key.startswith(f"{name}:")]
    pieces = {key: tuple(map(int, key.partition(":")[2].split("-"))) for key in keys}
    found, have = list[Tensor](), shard.first
    for key, (begin, end) in sorted(pieces.items(), key=lambda piece: piece[1]):
        first, last = max(begin, shard.first), min(end, shard.last)
        if first >= last:
            continue
        content = _read(folder, stored, key)
        if first != have or len(content) != end - begin:
            raise ValueError(f"{name} has no rows from {have} on")
        found.append(content[first - begin : last - begin].clone())  # not all of the piece
        have = last
    if have != shard.last:
        raise ValueError(f"{name} has no rows from {have} to {shard.last}")
    return torch.cat(found)


def _read(folder: Path, stored: Mapping[str, object], key: str) -> Tensor:
    about = stored[key]
    if not isinstance(about, TensorStorageMetadata):
        raise ValueError(f"{key} is not a tensor")
    content = torch.empty(about.size, dtype=about.properties.dtype)
    with _no_warning():
        load_tensors({key: content}, storage_reader=FileSystemReader(folder), no_dist=True)
    return content


@contextmanager
def _no_warning() -> Iterator[None]:
    """PyTorch warns that it reads or writes without other ranks, which is what is meant here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield
