"""Storage: a fitted model in one file: the parts of its scorer, who has what, ids, plain facts; never pickle.

docs/file-format.md describes the file. Opening a file runs no code of it, and everything in it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions, trusted_interactions
from truepair.data.prepared.id_files import id_arrays, id_type, ids_of_arrays
from truepair.data.tables.features import FeatureEncoding
from truepair.errors import InputError, StorageError, check_choice, check_number
from truepair.evaluation.metrics import Mask
from truepair.models.factor_matrices import Rows, by_columns
from truepair.models.feature_map import FeatureMap, check_map
from truepair.models.scorer import Scorer
from truepair.models.start import Side, Start
from truepair.recommender.model import UPDATES, Model
from truepair.recommender.model_file_v1 import upgraded
from truepair.recommender.output import OUTPUTS, Output
from truepair.recommender.stored_parts import check_lines, sparse_rows, spec_of_file
from truepair.spec import Spec
from truepair.spec.parameters import check_saveable
from truepair.storage.plain_values import is_number
from truepair.storage.tensor_file import read_tensors, write_tensors

KIND, VERSION = "truepair model", 2
_ERRORS = (
    InputError,
    StorageError,
    KeyError,
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
)
Tensors = Mapping[str, Tensor]
Floats = npt.NDArray[np.float64]


class Stored(NamedTuple):
    """What a file holds."""

    model: Model
    output: Output


def save_model(path: str | Path, model: Model, output: str = "arrow", updatable: bool = True) -> None:
    """Write the model atomically: if it fails, an existing file stays as it was.

    `updatable` writes the state of its training, from which an update goes on.
    """
    parameters = model.parameters_json()
    check_saveable(parameters)
    seen, scorer = model.seen, model.scorer
    tensors = {
        **_rows("users", scorer.users), **_rows("items", scorer.items), **_rows("weights", scorer.weights),
        "seen.starts": torch.from_numpy(seen.indptr.copy()),
        "seen.items": torch.from_numpy(seen.items.astype(np.int32)),
        "popularity": torch.from_numpy(model.popularity.copy()),
        "trained": torch.from_numpy(model.trained.copy()),
        **_ids("users", seen.user_ids), **_ids("items", seen.item_ids),
        **(_training(model.start) if updatable and model.start is not None else {}),
    }  # fmt: skip
    optional: dict[str, Any] = {
        "term": scorer.term, "seen.disliked": seen.disliked,
        "seen.weights": None if seen.weight is None else seen.weight.astype(np.float64),
        "added": model.added if model.added.any() else None,
        "tau": None if model.tau is None else np.atleast_1d(np.asarray(model.tau, np.float64)),
        "features.map": None if model.item_map is None else model.item_map.weights,
    }  # fmt: skip
    for name, array in optional.items():
        if array is not None:
            tensors[name] = array if isinstance(array, Tensor) else torch.from_numpy(array.copy())
    if scorer.history is not None and not _same_rows(scorer.history, seen.weighted_csr()):
        tensors |= _rows("history", scorer.history)
    described = {
        "parameters": parameters, "output": output, "folded": model.folded,
        "user ids": id_type(seen.user_ids.ids.type), "item ids": id_type(seen.item_ids.ids.type),
        "tau of each user": isinstance(model.tau, tuple),
    }  # fmt: skip
    if (found := model.item_map) is not None:
        described["features"] = {
            "columns": found.encoding.as_json(), "l2": found.l2, "cosine": found.cosine,
        }  # fmt: skip
    write_tensors(Path(path), KIND, VERSION, tensors, {"model": described, "facts": model.facts})


def load_model(path: str | Path) -> Stored:
    """Read a model; a corrupt, foreign, hostile or newer file is a StorageError that says what is wrong."""
    path = Path(path)
    tensors, facts = read_tensors(path, KIND, VERSION, since=1)
    try:
        if not isinstance(facts, dict):
            raise InputError(f"its facts are a {type(facts).__name__}, not an object.")
        if "model" not in facts:
            tensors, facts = upgraded(tensors, facts)
        return _checked(tensors, facts["model"], facts["facts"])
    except _ERRORS as error:
        reason = str(error) if isinstance(error, InputError | StorageError) else repr(error)
        raise StorageError(f"{path} is not a sound model: {reason:.400}") from error


def _checked(tensors: Tensors, described: Mapping[str, Any], facts: dict[str, Any]) -> Stored:
    spec = spec_of_file(described["parameters"])
    user_ids = _ids_of("users", tensors, described["user ids"])
    item_ids = _ids_of("items", tensors, described["item ids"])
    if not len(item_ids):
        raise InputError("it has no items.")
    seen = _seen(tensors, user_ids, item_ids)
    scorer = _scorer(tensors, spec, seen)
    popularity = tensors["popularity"]
    if (
        popularity.dtype != torch.int64
        or popularity.shape != (len(item_ids),)
        or bool((popularity < 0).any())
    ):
        raise InputError(f"popularity is not {len(item_ids)} counts.")
    total = float(popularity.double().sum())
    if not 0 < total < 2**53:  # fold-in divides by it, and counts are added as 64-bit integers
        raise InputError(f"popularity adds up to {total:g} pairs; it must be from 1 to 2^53.")
    if not isinstance(facts, dict):
        raise InputError(f"its facts are a {type(facts).__name__}, not an object.")
    _check_updates(facts)
    model = Model(
        spec, scorer, seen, popularity.numpy(),
        trained=_mask("trained", tensors, len(user_ids)), added=_mask("added", tensors, len(item_ids)),
        tau=_tau(tensors, described, spec, len(user_ids)),
        start=_start(tensors, spec, len(user_ids), len(item_ids)),
        item_map=_item_map(tensors, described.get("features"), scorer),
        folded=bool(described["folded"]), facts=facts,
    )  # fmt: skip
    return Stored(model, cast(Output, check_choice("output", described["output"], OUTPUTS)))


# --- the parts of a scorer -------------------------------------------------------------------------------


_PARTS, _SPARSE = ("users", "items", "term", "history", "weights"), ("starts", "columns", "values")


def _scorer(tensors: Tensors, spec: Spec, seen: Interactions) -> Scorer:
    """The parts that the spec says, and no others."""
    n_users, n = seen.n_users, seen.n_items
    closed = spec.closed_form
    dim = 0 if closed is not None else spec.trained.dim
    has_term = closed.has_term if closed is not None else bool(spec.trained.popularity)
    has_weights = spec.blend is not None or (closed is not None and not closed.has_term)
    is_sparse = closed is not None and closed.sparse_items
    wanted = [*(["users", "items"] if dim else []), *(["term"] if has_term else [])]
    if has_weights:
        wanted += [f"weights.{part}" for part in _SPARSE] if is_sparse else ["weights"]
    _check_parts(tensors, spec, wanted, [f"history.{part}" for part in _SPARSE] if has_weights else [])
    users = _dense("users", tensors, (n_users, dim)) if dim else torch.zeros(n_users, 0)
    items = _dense("items", tensors, (n, dim)) if dim else torch.zeros(n, 0)
    term = _dense("term", tensors, (n,)) if has_term else None
    if not has_weights:
        return Scorer(users, items, term)
    history = (
        sparse_rows("history", tensors, (n_users, n)) if "history.starts" in tensors else seen.weighted_csr()
    )
    if is_sparse:
        return Scorer(users, items, term, history, sparse_rows("weights", tensors, (n, n)))
    return Scorer(users, items, term, history, by_columns(_dense("weights", tensors, (n, n))))


def _check_parts(tensors: Tensors, spec: Spec, wanted: list[str], optional: list[str]) -> None:
    kind = f"a model of {spec.encoder}{'' if spec.blend is None else ' with EASE'}"
    if missing := [name for name in wanted if name not in tensors]:
        raise InputError(f"{kind} has {missing[0]!r}, and the file does not.")
    others = {name for name in tensors if name.split(".")[0] in _PARTS}.difference(wanted, optional)
    if others:
        raise InputError(f"{kind} does not have {min(others)!r}, and the file does.")


def _rows(name: str, matrix: Rows | None) -> dict[str, Tensor]:
    """The tensors of a matrix; none where it has no columns."""
    if matrix is None or not matrix.shape[1]:
        return {}
    if isinstance(matrix, Tensor):
        return {name: matrix.float()}
    rows = matrix.copy()
    rows.sum_duplicates()  # sorts each row too
    return {
        f"{name}.starts": torch.from_numpy(rows.indptr.astype(np.int64)),
        f"{name}.columns": torch.from_numpy(rows.indices.astype(np.int32)),
        f"{name}.values": torch.from_numpy(rows.data.astype(np.float32)),
    }


def _same_rows(one: sp.csr_array, other: sp.csr_array) -> bool:
    arrays = ((getattr(one, name), getattr(other, name)) for name in ("indptr", "indices", "data"))
    return one is other or all(np.array_equal(a, b) for a, b in arrays)


def _dense(name: str, tensors: Tensors, shape: tuple[int, ...]) -> Tensor:
    tensor = tensors[name]
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
        raise InputError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, not float32 of {shape}.")
    broken = ~tensor.isfinite()
    if n := int((broken if tensor.ndim == 1 else broken.any(dim=1)).sum()):
        raise InputError(f"{n} rows of {name} hold NaN or infinity.")
    return tensor


# --- what is known ---------------------------------------------------------------------------------------


def _seen(tensors: Tensors, user_ids: IdMap, item_ids: IdMap) -> Interactions:
    starts, items, disliked = tensors["seen.starts"], tensors["seen.items"], tensors.get("seen.disliked")
    if (starts.dtype, items.dtype) != (torch.int64, torch.int32):
        raise InputError(f"seen is of {starts.dtype} and {items.dtype}, not of int64 and int32.")
    check_lines("seen", starts, items)
    counts = np.diff(starts.numpy())
    whole = len(starts) == len(user_ids) + 1 and starts[0] == 0 and starts[-1] == len(items)
    if not whole or ((counts < 0) | (starts.numpy()[:-1] < 0)).any():  # differences may wrap around
        raise InputError(f"seen.starts does not divide {len(items)} items among {len(user_ids)} users.")
    if disliked is not None and (disliked.dtype != torch.int64 or disliked.ndim != 1):
        raise InputError(f"disliked is {disliked.dtype} of shape {tuple(disliked.shape)}, not keys of int64.")
    weight = tensors.get("seen.weights")
    if weight is not None and (weight.dtype != torch.float64 or weight.ndim != 1):
        raise InputError(
            f"seen.weights is {weight.dtype} of shape {tuple(weight.shape)}, not numbers of float64."
        )
    kind = np.int32 if len(user_ids) <= 2**31 else np.int64
    users: Codes = np.repeat(np.arange(len(user_ids), dtype=kind), counts)
    codes = items.numpy()
    if disliked is None and weight is None and _is_canonical(codes, starts.numpy(), len(item_ids)):
        return trusted_interactions(
            users, codes, user_ids, item_ids, indptr=starts.numpy(), user_counts=counts
        )
    more: dict[str, Any] = {
        "weight": None if weight is None else weight.numpy(),
        "disliked": None if disliked is None else disliked.numpy(),
    }
    return Interactions(users, codes, user_ids, item_ids, **more)


def _is_canonical(items: npt.NDArray[np.int32], starts: Codes, n_items: int) -> bool:
    """Whether the items of each user are codes, distinct and rising."""
    if not len(items):
        return True
    rising = items[1:] > items[:-1]
    inner = starts[(starts > 0) & (starts < len(items))]
    rising[inner - 1] = True  # another user begins
    return bool(rising.all()) and items.min() >= 0 and int(items.max()) < n_items


def _mask(name: str, tensors: Tensors, n: int) -> Mask:
    found = tensors.get(name, torch.zeros(n, dtype=torch.bool) if name == "added" else None)
    if found is None or found.dtype != torch.bool or tuple(found.shape) != (n,):
        raise InputError(f"{name} is not {n} values of True or False.")
    return np.asarray(found.numpy())


def _tau(
    tensors: Tensors, described: Mapping[str, Any], spec: Spec, n_users: int
) -> float | tuple[float, ...] | None:
    """None, a number, or a number for each user of the training; users that were folded in were not there."""
    if "tau" not in tensors:
        if spec.is_trained and isinstance(word := getattr(spec.loss, "tau", None), str):
            raise InputError(f"the prior of its loss is {word!r:.60}, and it does not have tau, the number.")
        return None
    tau, by_user = tensors["tau"], bool(described["tau of each user"])
    if tau.dtype != torch.float64 or tau.ndim != 1 or not len(tau):
        raise InputError(f"tau is {tau.dtype} of shape {tuple(tau.shape)}, not numbers of float64.")
    expected = n_users if by_user else 1
    if len(tau) != expected and not (by_user and described["folded"]):
        raise InputError(f"tau has {len(tau)} numbers for {n_users} users.")
    for number in (float(tau.min()), float(tau.max())):
        check_number("tau", number, 0, 1, open_high=True)
    return tuple(tau.tolist()) if by_user else float(tau[0])


def _check_updates(facts: Mapping[str, Any]) -> None:
    """Raise if the records are not such as updates write."""
    records = facts.get(UPDATES, [])
    if not isinstance(records, list):
        raise InputError(f"the fact {UPDATES!r} is {records!r:.60}, not a list of records.")
    for place, record in enumerate(records, 1):
        plain = isinstance(record, dict) and all(
            value is None or isinstance(value, str) or is_number(value) for value in record.values()
        )
        if not plain:
            raise InputError(f"the record of update {place} is {record!r:.60}, not names with plain values.")


def _item_map(tensors: Tensors, stored: Any, scorer: Scorer) -> FeatureMap | None:
    """The map from features to rows of items, if the file has one."""
    if (stored is None) != ("features.map" not in tensors):
        raise InputError("it has either a map of features or what the features are, and not both.")
    if stored is None:
        return None
    if not isinstance(stored, dict):
        raise InputError(f"its features are a {type(stored).__name__}, not an object.")
    encoding, weights = FeatureEncoding.from_json(stored["columns"]), tensors["features.map"]
    check_map(weights, encoding, scorer.width)
    cosine = stored["cosine"]
    cosine = None if cosine is None else check_number("the cosine of the map", cosine, -1.01, 1.01)
    return FeatureMap(encoding, weights, check_number("the l2 of the map", stored["l2"], 0), cosine)


# --- the state of training ---------------------------------------------------------------------------------

_STEPS = "training.steps"


def _training(start: Start) -> dict[str, Tensor]:
    tensors = {
        f"training.{name}.{part}": tensor
        for name, side in start.sides().items()
        for part, tensor in zip(Side._fields, side, strict=True)
        if tensor is not None
    }
    return {**tensors, _STEPS: torch.tensor(start.steps)}


def _start(tensors: Tensors, spec: Spec, n_users: int, n_items: int) -> Start | None:
    """The state of training; a part of one, or one of another shape, is an error."""
    found = {name for name in tensors if name.startswith("training.")}
    if not found:
        return None
    if not spec.is_trained:
        raise InputError(f"{spec.encoder} is not trained, and the file has a state of training.")
    steps = tensors[_STEPS]
    if steps.dtype != torch.int64 or steps.ndim:
        raise InputError(f"{_STEPS} is {steps.dtype} of shape {tuple(steps.shape)}, not one int64.")
    parts = Side._fields if int(steps) else Side._fields[:1]
    names = {side: [f"training.{side}.{part}" for part in parts] for side in ("users", "items")}
    if unknown := found - {_STEPS, *names["users"], *names["items"]}:
        raise InputError(f"{min(unknown)} does not belong to a training state of {int(steps)} steps.")
    users, items = (Side(*(tensors[name] for name in names[side])) for side in ("users", "items"))
    for name, side, n in (("users", users, n_users), ("items", items, n_items)):
        if tuple(side.vectors.shape) != (n, spec.trained.dim):
            raise InputError(
                f"training.{name}.vectors has the shape {tuple(side.vectors.shape)}, not "
                f"{(n, spec.trained.dim)}."
            )
    start = Start(users, items, int(steps))
    if start.has_moments and spec.settings.optimizer != "adam":
        raise InputError(f"the training state has moments of Adam, not of {spec.settings.optimizer}.")
    return start


# --- ids ---------------------------------------------------------------------------------------------------


def _ids(name: str, ids: IdMap) -> dict[str, Tensor]:
    """The ids as arrays: integers, UUIDs, or the bytes of text and where they start."""
    arrays = id_arrays(ids)
    return {f"ids.{name}.{part}": torch.from_numpy(array) for part, array in arrays.items()}


def _ids_of(name: str, tensors: Tensors, kind: str) -> IdMap:
    prefix = f"ids.{name}."
    arrays = {key.removeprefix(prefix): t.numpy() for key, t in tensors.items() if key.startswith(prefix)}
    return ids_of_arrays(f"the ids of {name}", kind, arrays)
