"""Storage: a fitted model in one file: the parts of its scorer, who has what, ids, plain facts; never pickle.

docs/file-format.md describes the file. Opening a file runs no code of it, and everything in it is checked.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions, Origin, trusted_interactions
from truepair.data.log import Log, Policy
from truepair.data.prepared.id_files import id_arrays, id_type, ids_of_arrays
from truepair.data.rows.options import ReadOptions
from truepair.data.rows.pairs import interactions_of
from truepair.data.tables.features import FeatureEncoding
from truepair.errors import InputError, StorageError, check_choice, check_number, check_whole
from truepair.models.encoders import SequenceEncoder
from truepair.models.factor_matrices import Rows, by_columns
from truepair.models.feature_map import FeatureMap
from truepair.models.scorer import Scorer
from truepair.models.start import Side, Start
from truepair.models.trend import Counts
from truepair.recommender.caller import OUTPUTS
from truepair.recommender.model import UPDATES, Model
from truepair.recommender.model_file_v1 import upgraded
from truepair.recommender.stored_parts import Tensors, divided, sparse_rows, spec_of_file, stored
from truepair.spec import Spec
from truepair.spec.parameters import check_saveable
from truepair.storage.plain_values import is_number
from truepair.storage.tensor_file import read_tensors, write_tensors
from truepair.storage.types import Array, Json

KIND, VERSION = "truepair model", 2
_ERRORS = (
    StorageError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, pa.ArrowException,
)  # fmt: skip


class Stored(NamedTuple):
    """What a file holds."""

    model: Model
    output: str


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
        **{_NETWORK + name: weights for name, weights in model.network.items()},
        **(_training(model.start) if updatable and model.start is not None else {}),
    }  # fmt: skip
    optional: dict[str, Tensor | Array | None] = {
        "term": scorer.term, "seen.disliked": seen.disliked,
        "seen.weights": None if seen.weight is None else seen.weight.astype(np.float64),
        "added": model.added if model.added.any() else None,
        "tau": None if model.tau is None else np.atleast_1d(np.asarray(model.tau, np.float64)),
        "features.map": None if model.item_map is None else model.item_map.weights,
    }  # fmt: skip
    for name, array in optional.items():
        if array is not None:
            tensors[name] = array if isinstance(array, Tensor) else torch.from_numpy(array.copy())
    if (recent := model.recent) is not None:
        tensors |= {
            "recent.total": torch.from_numpy(recent.total.copy()),
            "recent.faded": torch.from_numpy(recent.faded.copy()),
            "recent.moment": torch.tensor(recent.moment, dtype=torch.float64),
            "recent.lengths": torch.tensor(recent.lengths, dtype=torch.float64),
        }  # fmt: skip
    if seen.stored_log is not None:
        tensors |= _events(seen.stored_log)
    if scorer.history is not None and not _same_rows(scorer.history, seen.weighted_csr()):
        tensors |= _rows("history", scorer.history)
    described = {
        "parameters": parameters, "output": output, "folded": model.folded,
        "user ids": id_type(seen.user_ids.ids.type), "item ids": id_type(seen.item_ids.ids.type),
        "tau of each user": isinstance(model.tau, tuple),
        "data": model.data, "updates": model.n_updates, "new pairs": model.new_pairs,
        "reading": seen.origin.policy.reading,
    }  # fmt: skip
    if (found := model.item_map) is not None:
        facts = {"columns": found.encoding.as_json(), "l2": found.l2, "cosine": found.cosine}
        described["features"] = facts
    write_tensors(Path(path), KIND, VERSION, tensors, {"model": described, "facts": model.facts})


def load_model(path: str | Path) -> Stored:
    """Read a model; a corrupt, foreign, hostile or newer file is a StorageError that says what is wrong."""
    path = Path(path)
    tensors, facts = read_tensors(path, KIND, VERSION, since=1)
    try:
        _object("facts", facts)
        if "model" not in facts:
            tensors, facts = upgraded(tensors, facts)
        _object("facts", facts["facts"])
        return _checked(tensors, facts["model"], facts["facts"])
    except _ERRORS as error:
        reason = str(error) if isinstance(error, InputError | StorageError) else repr(error)
        raise StorageError(f"{path} is not a sound model: {reason:.400}") from error


def _checked(tensors: Tensors, described: Json, facts: Json) -> Stored:
    spec = spec_of_file(described["parameters"])
    user_ids = _ids_of("users", tensors, described["user ids"])
    item_ids = _ids_of("items", tensors, described["item ids"])
    if not len(item_ids):
        raise InputError("it has no items.")
    n_users, n_items = len(user_ids), len(item_ids)
    seen = _seen(tensors, user_ids, item_ids)
    reading = described.get("reading")
    policy = Policy() if reading is None else ReadOptions(**_object("reading", reading)).policy
    seen = seen.made_from(Origin(policy, _log(tensors, policy, seen)))
    scorer = _scorer(tensors, spec, seen)
    popularity = stored("popularity", tensors, torch.int64, n_items)
    total = float(popularity.double().sum())
    if bool((popularity < 0).any()) or not 0 < total < 2**53:  # counts are added as 64-bit integers
        raise InputError(f"popularity adds up to {total:g} pairs; it must be counts, 1 to 2^53 together.")
    records = _updates(facts)
    new_pairs = sum(record.get("new pairs", 0) for record in records)
    no_items = torch.zeros(n_items, dtype=torch.bool)
    model = Model(
        spec, scorer, seen, popularity.numpy(),
        trained=stored("trained", tensors, torch.bool, n_users).numpy(),
        added=stored("added", {"added": no_items, **tensors}, torch.bool, n_items).numpy(),
        tau=_tau(tensors, described, spec, n_users),
        start=_start(tensors, spec, n_users, n_items),
        network=_network(tensors, spec),
        item_map=_item_map(tensors, described.get("features"), scorer),
        folded=bool(described["folded"]), data=str(described.get("data", facts.get("data", ""))),
        n_updates=check_whole("updates", described.get("updates", len(records)), 0),  # absent: an older file
        new_pairs=check_whole("new pairs", described.get("new pairs", new_pairs), 0),
        facts=facts,
    )  # fmt: skip
    return Stored(
        model.with_recent(_recent(tensors, spec, n_items)),
        check_choice("output", described["output"], OUTPUTS),
    )


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
    users = stored("users", tensors, torch.float32, n_users, dim) if dim else torch.zeros(n_users, 0)
    items = stored("items", tensors, torch.float32, n, dim) if dim else torch.zeros(n, 0)
    term = stored("term", tensors, torch.float32, n) if has_term else None
    if not has_weights:
        return Scorer(users, items, term)
    has_history = "history.starts" in tensors
    history = sparse_rows("history", tensors, (n_users, n)) if has_history else seen.weighted_csr()
    if is_sparse:
        return Scorer(users, items, term, history, sparse_rows("weights", tensors, (n, n)))
    return Scorer(users, items, term, history, by_columns(stored("weights", tensors, torch.float32, n, n)))


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
    arrays = rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data.astype(np.float32)
    return {f"{name}.{part}": torch.from_numpy(a) for part, a in zip(_SPARSE, arrays, strict=True)}


def _same_rows(one: sp.csr_array, other: sp.csr_array) -> bool:
    arrays = ((getattr(one, name), getattr(other, name)) for name in ("indptr", "indices", "data"))
    return one is other or all(np.array_equal(a, b) for a, b in arrays)


# --- what is known ---------------------------------------------------------------------------------------


def _seen(tensors: Tensors, user_ids: IdMap, item_ids: IdMap) -> Interactions:
    starts = stored("seen.starts", tensors, torch.int64, None)
    items = stored("seen.items", tensors, torch.int32, None)
    counts = divided("seen.starts", starts, len(items), len(user_ids)).numpy()
    weight = disliked = None
    if "seen.weights" in tensors:
        weight = stored("seen.weights", tensors, torch.float64, len(items)).numpy()
    if "seen.disliked" in tensors:
        disliked = stored("seen.disliked", tensors, torch.int64, None).numpy()
    kind = np.int32 if len(user_ids) <= 2**31 else np.int64
    users: Codes = np.repeat(np.arange(len(user_ids), dtype=kind), counts)
    codes = items.numpy()
    own = users, codes, user_ids, item_ids
    if disliked is None and weight is None and _is_canonical(codes, starts.numpy(), len(item_ids)):
        return trusted_interactions(*own, indptr=starts.numpy(), user_counts=counts)
    return Interactions(*own, weight=weight, disliked=disliked)


_EVENTS = {"time": None, "weight": torch.float64, "disliked": torch.bool}


def _events(log: Log) -> dict[str, Tensor]:
    """The events of a log; its users as where the events of each begin."""
    counts = np.bincount(log.users, minlength=len(log.user_ids))
    found = {"starts": np.concatenate([[0], np.cumsum(counts)]), "items": log.items.astype(np.int32)}
    found |= {name: getattr(log, name) for name in _EVENTS if getattr(log, name) is not None}
    if log.time_kind == "order" and "time" in found:
        found["order"] = found.pop("time")
    return {f"events.{name}": torch.from_numpy(column.copy()) for name, column in found.items()}


def _log(tensors: Tensors, policy: Policy, seen: Interactions) -> Log | None:
    """The events of a file, in order; None if it has none."""
    if "events.starts" not in tensors:
        return None
    starts, items = tensors["events.starts"], stored("events.items", tensors, torch.int32, None)
    n, counts = len(items), divided("events.starts", starts, len(items), seen.n_users)
    columns: Json = {}
    for name, kind in _EVENTS.items():
        if (column := tensors.get(f"events.{name}")) is not None:
            kind = kind or (torch.int64 if column.dtype == torch.int64 else torch.float64)
            columns[name] = stored(f"events.{name}", tensors, kind, n).numpy()
    if "events.order" in tensors:
        columns |= {"time": stored("events.order", tensors, torch.int64, n).numpy(), "time_kind": "order"}
    if n and not 0 <= int(items.min()) <= int(items.max()) < seen.n_items:
        raise InputError(f"events.items has codes that are not among {seen.n_items} items.")
    users = np.repeat(np.arange(seen.n_users), counts.numpy())
    ids = seen.user_ids, seen.item_ids
    log = Log(users, items.numpy(), *ids, policy=policy, **columns)
    if not np.array_equal(interactions_of(log).keys, seen.keys):
        raise InputError("its events are not those of its pairs.")
    return log


def _is_canonical(items: npt.NDArray[np.int32], starts: Codes, n_items: int) -> bool:
    """Whether the items of each user are codes, distinct and rising."""
    rising = items[1:] > items[:-1]
    rising[starts[(starts > 0) & (starts < len(items))] - 1] = True  # another user begins
    return bool(rising.all()) and bool(((items >= 0) & (items < n_items)).all())


def _recent(tensors: Tensors, spec: Spec, n_items: int) -> Counts | None:
    """The counts behind the trend, if the spec has one."""
    if spec.trend is None:
        return None
    moment = float(stored("recent.moment", tensors, torch.float64))
    lengths = stored("recent.lengths", tensors, torch.float64, len(spec.trend.half_lives)).tolist()
    total = stored("recent.total", tensors, torch.float64, n_items).numpy()
    faded = stored("recent.faded", tensors, torch.float64, len(lengths), n_items).numpy()
    if min(lengths) <= 0 or min(total.min(), faded.min()) < 0:
        raise InputError("its counts of recent events are not counts.")
    return Counts(moment, tuple(lengths), total, faded)


def _tau(tensors: Tensors, described: Json, spec: Spec, n_users: int) -> float | tuple[float, ...] | None:
    """None, a number, or a number for each user of the training; users that were folded in were not there."""
    if "tau" not in tensors:
        if spec.is_trained and isinstance(word := getattr(spec.loss, "tau", None), str):
            raise InputError(f"the prior of its loss is {word!r:.60}, and it does not have tau, the number.")
        return None
    tau, by_user = stored("tau", tensors, torch.float64, None), bool(described["tau of each user"])
    expected = n_users if by_user else 1
    if not len(tau) or (len(tau) != expected and not (by_user and described["folded"])):
        raise InputError(f"tau has {len(tau)} numbers for {n_users} users.")
    for number in (float(tau.min()), float(tau.max())):
        check_number("tau", number, 0, 1, open_high=True)
    return tuple(tau.tolist()) if by_user else float(tau[0])


def _updates(facts: Json) -> list[Json]:
    """The records of updates; raise if they are not such as updates write."""
    records = facts.get(UPDATES, [])
    if not isinstance(records, list):
        raise InputError(f"the fact {UPDATES!r} is {records!r:.60}, not a list of records.")
    for place, record in enumerate(records, 1):
        plain = isinstance(record, dict) and all(
            value is None or isinstance(value, str) or is_number(value) for value in record.values()
        )
        if not plain:
            raise InputError(f"the record of update {place} is {record!r:.60}, not names with plain values.")
    return records


def _object(what: str, value: object) -> Json:
    if not isinstance(value, dict):
        raise InputError(f"its {what} are a {type(value).__name__}, not an object.")
    return value


def _item_map(tensors: Tensors, described: Json | None, scorer: Scorer) -> FeatureMap | None:
    """The map from features to rows of items, if the file has one."""
    if (described is None) != ("features.map" not in tensors):
        raise InputError("it has either a map of features or what the features are, and not both.")
    if described is None:
        return None
    _object("features", described)
    encoding = FeatureEncoding.from_json(described["columns"])
    weights = stored(
        "features.map", tensors, torch.float32, len(encoding.names) + 1, replace(scorer, trend=None).width
    )
    cosine = described["cosine"]
    cosine = None if cosine is None else check_number("the cosine of the map", cosine, -1.01, 1.01)
    return FeatureMap(encoding, weights, check_number("the l2 of the map", described["l2"], 0), cosine)


_NETWORK = "network."


def _network(tensors: Tensors, spec: Spec) -> dict[str, Tensor]:
    """The weights of a network: all that the encoder has, and no others."""
    found = {name for name in tensors if name.startswith(_NETWORK)}
    encoder = spec.encoder
    layout = encoder.network().state_dict() if isinstance(encoder, SequenceEncoder) else {}
    if wrong := found ^ {_NETWORK + name for name in layout}:
        raise InputError(f"a network of {spec.encoder} has other weights: {min(wrong)!r} is only in one.")
    return {
        name: stored(_NETWORK + name, tensors, torch.float32, *value.shape) for name, value in layout.items()
    }


# --- the state of training ---------------------------------------------------------------------------------

_STEPS = "training.steps"


def _training(start: Start) -> dict[str, Tensor]:
    tensors = {_STEPS: torch.tensor(start.steps)}
    for name, side in start.sides().items():
        parts = side._asdict().items()
        tensors |= {f"training.{name}.{part}": tensor for part, tensor in parts if tensor is not None}
    return tensors


def _start(tensors: Tensors, spec: Spec, n_users: int, n_items: int) -> Start | None:
    """The state of training; a part of one, or one of another shape, is an error."""
    found = {name for name in tensors if name.startswith("training.")}
    if not found:
        return None
    if not spec.is_trained:
        raise InputError(f"{spec.encoder} is not trained, and the file has a state of training.")
    steps, dim = int(stored(_STEPS, tensors, torch.int64)), spec.trained.dim
    parts = Side._fields if steps else Side._fields[:1]
    sides: dict[str, Side] = {}
    for side, n in (("users", n_users), ("items", n_items)):
        names = [f"training.{side}.{part}" for part in parts]
        found.difference_update(names)
        stored(names[0], tensors, torch.float32, n, dim)  # `Start` compares the others with it
        sides[side] = Side(*(tensors[name] for name in names))
    if unknown := found - {_STEPS}:
        raise InputError(f"{min(unknown)} does not belong to a training state of {steps} steps.")
    start = Start(sides["users"], sides["items"], steps)
    if start.has_moments and spec.settings.optimizer != "adam":
        raise InputError(f"the training state has moments of Adam, not of {spec.settings.optimizer}.")
    return start


# --- ids ---------------------------------------------------------------------------------------------------


def _ids(name: str, ids: IdMap) -> dict[str, Tensor]:
    """The ids as arrays: integers, UUIDs, or the bytes of text and where they start."""
    return {f"ids.{name}.{part}": torch.from_numpy(array) for part, array in id_arrays(ids).items()}


def _ids_of(name: str, tensors: Tensors, kind: str) -> IdMap:
    prefix = f"ids.{name}."
    arrays = {key.removeprefix(prefix): t.numpy() for key, t in tensors.items() if key.startswith(prefix)}
    return ids_of_arrays(f"the ids of {name}", kind, arrays)
