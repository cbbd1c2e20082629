"""Storage: a fitted model in one file: two matrices, who has what, the ids, and plain facts; never pickle.

docs/file-format.md describes the file. Opening a file runs no code of it, and everything in it is checked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions, trusted_interactions
from truepair.data.tables.features import FeatureEncoding
from truepair.errors import InputError, StorageError, check_number
from truepair.models.factor_matrices import Rows, by_columns, n_rows
from truepair.models.feature_map import FeatureMap, check_map
from truepair.models.start import Side, Start
from truepair.storage.tensor_file import read_tensors, write_tensors

KIND, VERSION = "truepair model", 1
FEATURES = "item features"  # the fact: how a table becomes features
_MAP = "features.map"  # the tensor
_WEIGHTS = "seen.weights"  # of pairs; a file without them has none
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted recommender: matrices, the known interactions of its users, and facts about the training."""

    users: Rows  # [n_users, d]
    items: Rows  # [n_items, d]
    seen: Interactions
    popularity: Codes  # [n_items], how many people had each item in training; 0 was never trained
    facts: dict[str, Any] = field(default_factory=dict)
    start: Start | None = None  # where an update goes on; None for closed forms, and where it was not kept
    item_map: FeatureMap | None = None  # from features to rows of items; None without features


def save_model(path: str | Path, model: Model, updatable: bool = True) -> None:
    """Write the model atomically: if it fails, an existing file stays as it was.

    `updatable` writes the state of its training, from which an update goes on.
    """
    tensors = {
        **_parts("users", model.users),
        **_parts("items", model.items),
        "seen.starts": torch.from_numpy(model.seen.indptr.copy()),
        "seen.items": torch.from_numpy(model.seen.items.astype(np.int32)),
        "popularity": torch.from_numpy(model.popularity.copy()),
        "ids.users": _ids_to_bytes(model.seen.user_ids),
        "ids.items": _ids_to_bytes(model.seen.item_ids),
        **(_training(model.start) if updatable and model.start is not None else {}),
    }
    if model.seen.disliked is not None:  # a tensor that files without dislikes do not have
        tensors["disliked"] = torch.from_numpy(model.seen.disliked.copy())
    if model.seen.weight is not None:
        tensors[_WEIGHTS] = torch.from_numpy(model.seen.weight.astype(np.float64))
    facts = model.facts
    if (found := model.item_map) is not None:
        tensors[_MAP] = found.weights
        stored = {"columns": found.encoding.as_json(), "l2": found.l2, "cosine": found.cosine}
        facts = {**facts, FEATURES: stored}
    write_tensors(Path(path), KIND, VERSION, tensors, facts)


def load_model(path: str | Path) -> Model:
    """Read a model; a corrupt, foreign, hostile or newer file is a StorageError that says what is wrong."""
    path = Path(path)
    tensors, facts = read_tensors(path, KIND, VERSION)
    try:
        return _checked(tensors, facts)
    except (InputError, KeyError, pa.ArrowException, OSError, ValueError, TypeError, struct.error) as error:
        raise StorageError(f"{path} is not a sound model: {error}") from error


def _checked(tensors: dict[str, Tensor], facts: Any) -> Model:
    if not isinstance(facts, dict):
        raise InputError(f"its facts are a {type(facts).__name__}, not an object.")
    n_items = _count("items", tensors)
    if not n_items:  # their width would cost a file nothing
        raise InputError("it has no items.")
    items = _matrix("items", tensors, n_items)
    # sparse users: no file can ask for more columns than it has items, or numbers for each of them
    users = _matrix("users", tensors, items.shape[1])
    if users.shape[1] != items.shape[1]:
        raise InputError(f"users have {users.shape[1]} dimensions, items {items.shape[1]}.")
    if isinstance(users, sp.csr_array) and isinstance(items, Tensor):
        items = by_columns(items)
    user_ids = _bytes_to_ids("users", tensors["ids.users"], n_rows(users))
    item_ids = _bytes_to_ids("items", tensors["ids.items"], n_items)
    pairs = tensors["seen.starts"], tensors["seen.items"]
    seen = _seen(*pairs, user_ids, item_ids, tensors.get("disliked"), _weights(tensors.get(_WEIGHTS)))
    popularity = tensors["popularity"]
    if popularity.dtype != torch.int64 or popularity.shape != (n_items,) or bool((popularity < 0).any()):
        raise InputError(f"popularity is not {n_items} counts.")
    item_map = _item_map(tensors, facts.pop(FEATURES, None), items.shape[1])
    start = _start(tensors, len(user_ids), n_items)
    return Model(users, items, seen, popularity.numpy(), facts, start, item_map)


def _item_map(tensors: dict[str, Tensor], stored: Any, width: int) -> FeatureMap | None:
    """The map from features to rows of items, if the file has one."""
    if (stored is None) != (_MAP not in tensors):
        raise InputError("it has either a map of features or what the features are, and not both.")
    if stored is None:
        return None
    if not isinstance(stored, dict):
        raise InputError(f"the fact {FEATURES!r} is a {type(stored).__name__}, not an object.")
    encoding, weights, cosine = FeatureEncoding.from_json(stored["columns"]), tensors[_MAP], stored["cosine"]
    check_map(weights, encoding, width)
    cosine = None if cosine is None else check_number("the cosine of the map", cosine, -1.01, 1.01)
    return FeatureMap(encoding, weights, check_number("the l2 of the map", stored["l2"], 0), cosine)


def mean_prior(tau: Any) -> Any:
    """The prior of a model's facts: one number, None, or the mean of one for each user."""
    return sum(tau) / len(tau) if isinstance(tau, list) else tau


# --- the state of training: optional, so that a file of an earlier version has none ---------------------

_STEPS = "training.steps"


def _training(start: Start) -> dict[str, Tensor]:
    tensors = {
        f"training.{name}.{part}": tensor
        for name, side in start.sides().items()
        for part, tensor in zip(Side._fields, side, strict=True)
        if tensor is not None
    }
    return {**tensors, _STEPS: torch.tensor(start.steps)}


def _start(tensors: dict[str, Tensor], n_users: int, n_items: int) -> Start | None:
    """The state of training; a part of one, or one of another shape, is an error."""
    found = {name for name in tensors if name.startswith("training.")}
    if not found:
        return None
    steps = tensors[_STEPS]
    if steps.dtype != torch.int64 or steps.ndim:
        raise InputError(f"{_STEPS} is {steps.dtype} of shape {tuple(steps.shape)}, not one int64.")
    parts = Side._fields if int(steps) else Side._fields[:1]
    names = {side: [f"training.{side}.{part}" for part in parts] for side in ("users", "items")}
    if unknown := found - {_STEPS, *names["users"], *names["items"]}:
        raise InputError(f"{min(unknown)} does not belong to a training state of {int(steps)} steps.")
    users, items = (Side(*(tensors[name] for name in names[side])) for side in ("users", "items"))
    for name, side, n in (("users", users, n_users), ("items", items, n_items)):
        if side.vectors.ndim != 2 or len(side.vectors) != n:
            raise InputError(
                f"training.{name}.vectors has {tuple(side.vectors.shape)} numbers for {n} {name}."
            )
    return Start(users, items, int(steps))


# --- matrices: one tensor, or three of a sparse one ----------------------------------------------------


def _parts(name: str, matrix: Rows) -> dict[str, Tensor]:
    if isinstance(matrix, Tensor):
        return {name: matrix.float()}
    rows = matrix.copy()
    rows.sum_duplicates()  # sorts each row too
    return {
        f"{name}.starts": torch.from_numpy(rows.indptr.astype(np.int64)),
        f"{name}.columns": torch.from_numpy(rows.indices.astype(np.int32)),
        f"{name}.values": torch.from_numpy(rows.data.astype(np.float32)),
    }


def _count(name: str, tensors: dict[str, Tensor]) -> int:
    """How many rows a matrix has, by the size of its tensor alone."""
    return len(tensors[name]) if name in tensors else max(len(tensors[f"{name}.starts"]) - 1, 0)


def _matrix(name: str, tensors: dict[str, Tensor], width: int) -> Rows:
    if name in tensors:
        return _dense(name, tensors[name])
    starts, columns, values = (tensors[f"{name}.{part}"] for part in ("starts", "columns", "values"))
    return _sparse(name, starts, columns, values, width)


def _dense(name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.float32 or tensor.ndim != 2 or not tensor.shape[1]:
        raise InputError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not a float32 matrix.")
    if broken := int((~tensor.isfinite()).any(dim=1).sum()):
        raise InputError(f"{broken} rows of {name} hold NaN or infinity.")
    return tensor


def _sparse(name: str, starts: Tensor, columns: Tensor, values: Tensor, width: int) -> sp.csr_array:
    """A row a user or item."""
    kinds = (starts.dtype, columns.dtype, values.dtype)
    if kinds != (torch.int64, torch.int32, torch.float32):
        raise InputError(f"{name} is of {', '.join(map(str, kinds))}, not of int64, int32 and float32.")
    _check_lines(name, starts, columns, values)
    counts = starts.diff()
    whole = len(starts) > 1 and starts[0] == 0 and starts[-1] == len(columns) == len(values)
    if not whole or bool((counts < 0).any()):
        raise InputError(f"{name}.starts does not divide {len(columns)} columns among {len(counts)} rows.")
    if bool(((columns < 0) | (columns >= width)).any()):
        raise InputError(f"{name} has columns that are not among {width}.")
    if not bool((torch.diff(torch.repeat_interleave(counts) * width + columns) > 0).all()):
        raise InputError(f"{name} has a row whose columns are not distinct and rising.")
    if broken := int((~values.isfinite()).sum()):
        raise InputError(f"{broken} values of {name} are NaN or infinity.")
    parts = (values.numpy(), columns.numpy(), starts.numpy())
    return sp.csr_array(parts, shape=(len(counts), width))


def _check_lines(name: str, *tensors: Tensor) -> None:
    if any(tensor.ndim != 1 for tensor in tensors):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InputError(f"{name} is of shapes {shapes}; each must have one axis.")


def _weights(found: Tensor | None) -> Floats | None:
    """The weights of the known pairs, if there are any; `Interactions` checks their values."""
    if found is not None and (found.dtype != torch.float64 or found.ndim != 1):
        raise InputError(
            f"{_WEIGHTS} is {found.dtype} of shape {tuple(found.shape)}, not numbers of float64."
        )
    return None if found is None else found.numpy()


def _seen(
    starts: Tensor,
    items: Tensor,
    user_ids: IdMap,
    item_ids: IdMap,
    disliked: Tensor | None,
    weight: Floats | None,
) -> Interactions:
    if (starts.dtype, items.dtype) != (torch.int64, torch.int32):
        raise InputError(f"seen is of {starts.dtype} and {items.dtype}, not of int64 and int32.")
    _check_lines("seen", starts, items)
    counts = np.diff(starts.numpy())
    whole = len(starts) == len(user_ids) + 1 and starts[0] == 0 and starts[-1] == len(items)
    if not whole or (counts < 0).any():
        raise InputError(f"seen.starts does not divide {len(items)} items among {len(user_ids)} users.")
    if disliked is not None and (disliked.dtype != torch.int64 or disliked.ndim != 1):
        raise InputError(f"disliked is {disliked.dtype} of shape {tuple(disliked.shape)}, not keys of int64.")
    kind = np.int32 if len(user_ids) <= 2**31 else np.int64
    users: Codes = np.repeat(np.arange(len(user_ids), dtype=kind), counts)
    codes = items.numpy()
    if disliked is None and weight is None and _is_canonical(codes, starts.numpy(), len(item_ids)):
        cached = {"indptr": starts.numpy(), "user_counts": counts}
        for array in cached.values():
            array.flags.writeable = False
        return trusted_interactions(users, codes, user_ids, item_ids, cached)
    keys = None if disliked is None else disliked.numpy()
    return Interactions(users, codes, user_ids, item_ids, weight=weight, disliked=keys)


def _is_canonical(items: npt.NDArray[np.int32], starts: Codes, n_items: int) -> bool:
    """Whether the items of each user are codes, distinct and rising."""
    if not len(items):
        return True
    rising = items[1:] > items[:-1]
    inner = starts[(starts > 0) & (starts < len(items))]
    rising[inner - 1] = True  # another user begins
    return bool(rising.all()) and items.min() >= 0 and int(items.max()) < n_items


def _ids_to_bytes(ids: IdMap) -> Tensor:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": ids.ids})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return torch.frombuffer(bytearray(sink.getvalue()), dtype=torch.uint8)


def _refuse_compressed(stream: bytes) -> None:
    """Raise if a part of an Arrow stream is compressed: truepair never writes that, and a bomb would be.

    The fourth field of a record batch's header says so (Message.fbs of the Arrow format).
    """
    for message in pa.ipc.MessageReader.open_stream(stream):
        if message.type == "schema":
            continue
        if message.type != "record batch":
            raise InputError(f"the ids have a {message.type} message, and truepair writes none.")
        header = message.metadata.to_pybytes()
        table = _flatbuffer_field(header, struct.unpack_from("<I", header)[0], 2)
        if table is None or _flatbuffer_field(header, table, 3) is not None:
            raise InputError("the ids are compressed or malformed, and truepair writes neither.")


def _flatbuffer_field(header: bytes, table: int, field: int) -> int | None:
    """Where the table in a field of a flatbuffer's table lies; None if the field is absent."""
    vtable = table - struct.unpack_from("<i", header, table)[0]
    size = struct.unpack_from("<H", header, vtable)[0]
    slot = 4 + 2 * field
    offset = struct.unpack_from("<H", header, vtable + slot)[0] if slot < size else 0
    place = table + offset
    return int(place + struct.unpack_from("<I", header, place)[0]) if offset else None


def _bytes_to_ids(name: str, content: Tensor, expected: int) -> IdMap:
    if content.dtype != torch.uint8 or content.ndim != 1:
        raise InputError(f"the ids of {name} are not bytes.")
    stream = content.numpy().tobytes()
    try:
        _refuse_compressed(stream)
        with pa.ipc.open_stream(stream) as reader:
            table = reader.read_all()
        table.validate(full=True)
        width = table.num_columns
    except InputError:
        raise
    except Exception as error:  # Arrow raises errors of every type on bytes that it did not write
        raise InputError(f"the ids of {name} are not a sound Arrow stream: {error}") from error
    if width != 1:
        raise InputError(f"the ids of {name} have {width} columns instead of one.")
    found = table.column(0).combine_chunks()
    if len(found) != expected:
        raise InputError(f"there are {len(found)} ids for {expected} {name}.")
    ids = IdMap.of(found, name)
    if not ids.ids.equals(found):
        raise InputError(f"the ids of {name} are not distinct and sorted.")
    return ids
