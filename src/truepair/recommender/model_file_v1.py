"""Model files of version 1: two matrices in which all parts lie side by side, and state among the facts."""

from __future__ import annotations

import struct

import pyarrow as pa
import torch
from torch import Tensor

from truepair.data.ids import IdMap
from truepair.data.prepared.id_files import id_arrays, id_type
from truepair.errors import InputError
from truepair.recommender.stored_parts import Tensors, sparse_rows, spec_of_file, stored
from truepair.storage.plain_values import is_number
from truepair.storage.types import Json

_NOT_FACTS = (
    "parameters", "tau", "output", "only in validation", "vectors without pairs", "added items",
    "item features", "not used",
)  # fmt: skip


def upgraded(tensors: Tensors, facts: Json) -> tuple[dict[str, Tensor], Json]:
    """The tensors and facts of version 2; the caller checks them."""
    spec = spec_of_file(facts["parameters"])
    ids = {name: _ids(name, tensors[f"ids.{name}"]) for name in ("users", "items")}
    n_users, n = len(ids["users"]), len(ids["items"])
    if not n:
        raise InputError("it has no items.")
    found = {name: tensors[name] for name in ("seen.starts", "seen.items", "popularity")}
    named = {"disliked": "seen.disliked", "seen.weights": "seen.weights", "features.map": "features.map"}
    found |= {new: tensors[old] for old, new in named.items() if old in tensors}
    found |= {name: tensor for name, tensor in tensors.items() if name.startswith("training.")}
    for name, known in ids.items():
        found |= {f"ids.{name}.{part}": torch.from_numpy(a) for part, a in id_arrays(known).items()}
    if spec.closed_form is not None:
        found |= _closed(tensors, n, spec.closed_form.has_term)
    else:
        widths = spec.trained.dim, int(bool(spec.trained.popularity))
        found |= _blended(tensors, n_users, n, *widths) if spec.blend else _trained(tensors, *widths)
    starts = stored("seen.starts", tensors, torch.int64, n_users + 1)
    trained, added = starts.diff() > 0, torch.zeros(n, dtype=torch.bool)
    trained[_codes(facts, "only in validation", n_users)] = False
    trained[_codes(facts, "vectors without pairs", n_users)] = True
    added[_codes(facts, "added items", n)] = True
    found |= {"trained": trained, "added": added}
    tau = facts["tau"]
    if tau is not None:
        numbers = tau if isinstance(tau, list) else [tau]
        if not all(map(is_number, numbers)):
            raise InputError(f"tau is {tau!r:.60}, neither a number nor a list of numbers.")
        found["tau"] = torch.tensor(numbers, dtype=torch.float64)
    described = {
        "parameters": facts["parameters"], "output": facts["output"], "folded": "folded in" in facts,
        "user ids": id_type(ids["users"].ids.type), "item ids": id_type(ids["items"].ids.type),
        "tau of each user": isinstance(tau, list),
    }  # fmt: skip
    if "item features" in facts:
        described["features"] = facts["item features"]
    rest = {name: value for name, value in facts.items() if name not in _NOT_FACTS}
    return found, {"model": described, "facts": rest}


def _closed(tensors: Tensors, n: int, has_term: bool) -> dict[str, Tensor]:
    if has_term:
        return {"term": stored("items", tensors, torch.float32, n, 1)[:, 0].contiguous()}
    found = {f"history.{part}": tensors[f"users.{part}"] for part in ("starts", "columns", "values")}
    weights = [name for name in tensors if name == "items" or name.startswith("items.")]
    return found | {name.replace("items", "weights", 1): tensors[name] for name in weights}


def _trained(tensors: Tensors, dim: int, term: int) -> dict[str, Tensor]:
    """The named parts of both matrices: vectors, then the term, if there is one."""
    users, items = (stored(name, tensors, torch.float32, None, dim + term) for name in ("users", "items"))
    found = {"users": users[:, :dim].contiguous(), "items": items[:, :dim].contiguous()}
    return {**found, "term": items[:, dim].contiguous()} if term else found


def _blended(tensors: Tensors, n_users: int, n: int, dim: int, term: int) -> dict[str, Tensor]:
    """The same for a blend: the history of users and the weights of items come first."""
    items = stored("items", tensors, torch.float32, n, n + dim + term)
    sparse_rows("users", tensors, (n_users, n + dim + term))
    starts, columns, values = (tensors[f"users.{part}"] for part in ("starts", "columns", "values"))
    counts, is_vector = starts.diff(), columns >= n
    per_user = torch.bincount(torch.repeat_interleave(counts)[is_vector], minlength=n_users)
    if not bool((per_user == dim + term).all()):  # a file has all numbers that it asks for
        raise InputError(f"the vectors of {n_users} users do not have {dim + term} numbers each.")
    vectors = {"users": values[is_vector].reshape(n_users, dim + term), "items": items[:, n:]}
    return {
        **_trained(vectors, dim, term), "weights": items[:, :n].contiguous(),
        "history.starts": torch.cat([starts[:1], torch.cumsum(counts - dim - term, 0)]),
        "history.columns": columns[~is_vector], "history.values": values[~is_vector],
    }  # fmt: skip


def _codes(facts: Json, fact: str, n: int) -> list[int]:
    """The codes that a fact lists."""
    codes = facts.get(fact, [])
    if not isinstance(codes, list) or not all(type(code) is int and 0 <= code < n for code in codes):
        raise InputError(f"the fact {fact!r} is not a list of codes below {n}.")
    return codes


# --- ids as an Arrow stream --------------------------------------------------------------------------------


def _ids(name: str, content: Tensor) -> IdMap:
    if content.dtype != torch.uint8 or content.ndim != 1:
        raise InputError(f"the ids of {name} are not bytes.")
    stream = content.numpy().tobytes()
    try:
        _refuse_compressed(stream)
        with pa.ipc.open_stream(stream) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except InputError:
        raise
    except Exception as error:  # Arrow raises errors of every type on bytes that it did not write
        raise InputError(f"the ids of {name} are not a sound Arrow stream: {error}") from error
    if table.num_columns != 1:
        raise InputError(f"the ids of {name} have {table.num_columns} columns instead of one.")
    found = table.column(0).combine_chunks()
    ids = IdMap.of(found, name)
    if not ids.ids.equals(found):
        raise InputError(f"the ids of {name} are not distinct and sorted.")
    return ids


def _refuse_compressed(stream: bytes) -> None:
    """Raise if a part of an Arrow stream is compressed: truepair never wrote that, and a bomb would be.

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
