"""Tensor files: tensors and plain facts in one safetensors file, written whole or not at all.

Opening one runs no code. A checksum of the content is in the header.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import safetensors
import torch
from torch import Tensor

from truepair.errors import StorageError
from truepair.storage.atomic import atomic_write
from truepair.storage.plain_values import every_value, from_json


def write_tensors(path: Path, kind: str, version: int, tensors: Mapping[str, Tensor], facts: object) -> None:
    """Write a file of this kind and version atomically; if that fails, the old file is still there."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts, allow_nan=False)
    header = {"kind": kind, "version": str(version), "facts": text, "digest": digest_of(tensors, text)}
    with atomic_write(path, f"the {kind}") as file:
        _write(file, tensors, header)


_TYPES = {
    torch.float64: "F64", torch.int64: "I64", torch.float32: "F32", torch.int32: "I32", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def _write(file: BinaryIO, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """The format of safetensors, a tensor at a time: its `save` makes a copy of the whole file, and its
    `save_file` replaces the file that is locked.

    The length of the header in 8 bytes; the header as JSON, padded to eights; the bytes of the tensors, the
    widest types first, so that each begins at a multiple of its size.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {"__metadata__": dict(facts)}
    end = 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.element_size() * tensor.numel()
        header[name] = {
            "dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end],
        }  # fmt: skip
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        file.write(_bytes_of(tensors[name]).data)


def _bytes_of(tensor: Tensor) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous tensor, without a copy; NumPy has no bfloat16."""
    flat = tensor.reshape(-1)
    return flat.view(torch.uint8).numpy() if len(flat) else np.empty(0, np.uint8)  # an empty one has strides


def read_tensors(
    path: Path, kind: str, version: int, since: int | None = None
) -> tuple[dict[str, Tensor], Any]:
    """The tensors and facts of a file of this kind; anything wrong with it is a StorageError.

    `version` is the newest that is known, and `since` the oldest, by default the same.
    """
    if path.is_dir():
        raise StorageError(f"{path} is a folder, not a {kind}; name a file in it.")
    if not path.is_file():
        raise StorageError(f"there is no {kind} at {path}; check the path.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            _check_header(path, header, kind, version, since or version)
            # copies: in the file's own memory they lie at odd addresses, and sums of floats depend on those
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118, no dict
        facts = from_json(header["facts"])
        digest = digest_of(tensors, header["facts"])
        every_value(facts)  # raises if they are nested too deeply
    except (safetensors.SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise StorageError(f"{path} cannot be read as a {kind}: {error}. It is damaged.") from error
    if header.get("digest") != digest:
        raise StorageError(f"{path} is damaged: its checksum does not match its content.")
    return tensors, facts


def _check_header(path: Path, header: Mapping[str, str], kind: str, version: int, since: int) -> None:
    if header.get("kind") != kind:
        raise StorageError(f"{path} is not a {kind}, but {header.get('kind', 'something foreign')!r:.60}.")
    found = header.get("version", "")
    if found.isascii() and found.isdigit() and int(found[:9]) > version:
        raise StorageError(
            f"{path} is a {kind} of version {found[:9]}; this truepair reads up to {version}; upgrade it."
        )
    if found not in map(str, range(since, version + 1)):
        raise StorageError(f"{path} is a {kind} of version {found!r:.20}, which never existed; damaged.")


def digest_of(tensors: Mapping[str, Tensor], text: str) -> str:
    """The checksum of a file's facts and of the name, type, shape and bytes of each tensor."""
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes_of(tensor.contiguous()).data)
    return digest.hexdigest()
