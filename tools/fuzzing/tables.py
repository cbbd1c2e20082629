"""Targets: tables with a row an item (features, filters), conditions, and files of ids and pairs."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.mutations import ALPHABET
from fuzzing.target import Target
from truepair.data.ids import IdMap
from truepair.data.tables.features import Features
from truepair.errors import InputError
from truepair.recommender.estimator import Recommender

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ITEMS = ["jam", "mate", "milk", "roll", "tea"]
_COLUMNS: dict[str, list[Any]] = {
    "item": _ITEMS,
    "kind": ["food", "drink", "drink", "food", "drink"],
    "tags": [["sweet", "red"], ["hot"], [], ["sweet"], ["hot", "red"]],
    "price": [2.5, None, 1.0, 0.5, 3.0],
    "vector": [[1.0, 2.0], [0.5, 1.5], None, [0.0, 0.0], [2.0, 1.0]],
}


@functools.cache
def _models() -> list[Recommender]:
    """Two that know all items but mate: without features, and with the features of the table."""
    clicks = {"user": [1, 1, 2, 2, 3, 3], "item": ["tea", "milk", "tea", "jam", "jam", "roll"]}
    plain = Recommender(dim=4, epochs=1, auto=False, device="cpu")
    hybrid = Recommender(encoder="hybrid", dim=4, epochs=1, device="cpu")
    return [plain.fit(clicks), hybrid.fit(clicks, item_features=_COLUMNS)]


def _ready(folder: Path) -> list[bytes]:
    """No input, but the models: an input's time is its own."""
    _models()
    return []


def _use_table(source: Any) -> None:
    """Everything that reads such a table; what one reader refuses, another may take."""
    plain, hybrid = _models()
    ids = IdMap.of(pa.array(_ITEMS), "item")
    trained = np.array([item != "mate" for item in _ITEMS])
    refused: list[InputError] = []
    for use in (
        lambda: Features.of(source, ids, trained).digest,
        lambda: plain.add_items(source).recommend(k=5),
        lambda: hybrid.add_items(source).recommend(k=5),
        lambda: plain.recommend(k=2, items=source, where="price < 2 or kind == 'food'", unknown="drop"),
        lambda: plain.recommend(k=2, items=source, quota={"kind": 1}, unknown="drop"),
    ):
        try:
            use()
        except InputError as error:
            refused.append(error)
    if len(refused) == 5:
        raise refused[0]


# --- files ---------------------------------------------------------------------------------------------

_SUFFIXES = (".csv", ".parquet", ".arrow")


def _files(folder: Path) -> list[bytes]:
    """Each begins with the number of its format."""
    table = pa.table(_COLUMNS)
    rows = zip(_ITEMS, _COLUMNS["kind"], _COLUMNS["tags"], _COLUMNS["price"], strict=True)
    text = "item,kind,tags,price\n" + "".join(f"{i},{k},{'|'.join(t)},{p or ''}\n" for i, k, t, p in rows)
    other = table.set_column(1, "kind", table["kind"].dictionary_encode()).append_column(
        "day", pa.array([1, 2, None, 4, 5], pa.date32())
    )
    found = [*_ready(folder), b"\0" + text.encode(), b"\0" + text.replace(",", "\t").encode()]
    for each in (table, other):
        sink = pa.BufferOutputStream()
        pq.write_table(each, sink)
        found.append(b"\1" + sink.getvalue().to_pybytes())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, each.schema) as writer:
            writer.write_table(each)
        found.append(b"\2" + sink.getvalue().to_pybytes())
    return found


def _use_file(data: bytes, folder: Path) -> None:
    path = folder / f"items{_SUFFIXES[data[0] % len(_SUFFIXES)] if data else '.csv'}"
    path.write_bytes(data[1:])
    _use_table(path)


# --- columns in memory ---------------------------------------------------------------------------------


def _column_cases() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    text = st.sampled_from(["food", "drink", "sweet|red", "", " ", "nan", "1", "mate"]) | st.text(ALPHABET)
    number = st.floats(width=32) | st.integers(-(2**63), 2**63) | st.sampled_from([0, 1, 1e308, 10**30])
    leaf = st.none() | st.booleans() | number | text
    value = leaf | st.lists(leaf, max_size=3) | st.lists(st.floats(), min_size=2, max_size=2)
    alike = st.one_of(*(st.lists(st.none() | one, max_size=5, min_size=5) for one in (text, number, value)))
    column = alike | st.lists(value, max_size=6) | leaf
    names = st.sampled_from(["kind", "tags", "price", "vector", "item", "item_id", "day", "", "\0"])
    changes = st.dictionaries(names, column, max_size=3)
    return st.tuples(changes, st.lists(names, max_size=1))


def _use_columns(data: bytes, folder: Path) -> None:
    changes, dropped = json.loads(data)
    table = {**_COLUMNS, **changes}
    _use_table({name: column for name, column in table.items() if name not in dropped})


# --- conditions and limits -----------------------------------------------------------------------------

_TOKENS = (
    *(
        "price",
        "kind",
        "tags",
        "vector",
        "item",
        "other",
        "1",
        "-1",
        "0.5",
        "1e999",
        "9" * 30,
        "'food'",
        "''",
    ),
    *("<", "<=", "==", "!=", ">", "in", "not in", "not", "and", "or", "is", "(", ")", "[", "]", ",", "True"),
    *("None", "('a', 'food')", "[1, 'a']", "[]", "lambda: 0", "f'{kind}'", "b'x'", "1j", "*", "'\\ud800'"),
)


def _condition_cases() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    words = st.lists(st.sampled_from(_TOKENS), min_size=1, max_size=7).map(" ".join)
    comparison = st.tuples(
        st.sampled_from(["price", "kind", "tags", "vector", "item", "1", "'a'"]),
        st.sampled_from(["<", "==", "!=", ">=", "in", "not in"]),
        st.sampled_from(["1", "-1.5", "'food'", "True", "price", "tags", "[1, 2]", "['a']", "9" * 30]),
    ).map(" ".join)
    deep = st.sampled_from(["not " * 450 + "price", "(" * 900 + "price" + ")" * 900, "1 < " * 400 + "2"])
    mask = st.lists(st.booleans() | st.none() | st.integers(0, 2), max_size=6)
    name = st.sampled_from([*_COLUMNS, "x", ""])
    return st.fixed_dictionaries(
        {},
        optional={
            "where": comparison | comparison | words | deep | st.text(ALPHABET, max_size=9) | mask,
            "quota": st.dictionaries(name, st.integers(-1, 3) | st.none() | st.floats(), max_size=2),
            "diversify": st.floats() | st.integers(-1, 2) | st.none(),
            "explain": st.booleans() | st.integers(-2, 9) | st.text(max_size=2) | st.floats(),
            "exclude_items": st.dictionaries(st.text(max_size=2), st.lists(name, max_size=2), max_size=2)
            | st.lists(name, max_size=2),
            "unknown": st.sampled_from(["error", "drop", "popular", "x"]),
            "cold": st.sampled_from(["popular", "separate", "error", "x"]),
        },
    )


def _use_conditions(data: bytes, folder: Path) -> None:
    options = json.loads(data)
    if "where" in options or "quota" in options:
        options["items"] = _COLUMNS
    _models()[0].recommend(k=2, **options)


# --- files of ids and pairs ----------------------------------------------------------------------------


def _id_files(folder: Path) -> list[bytes]:
    """Each begins with what it is for."""
    return [
        *_ready(folder),
        b"\0tea\nmate\n",
        b"\0\xef\xbb\xbf1\r\n2\r\n",
        b"\1user,item\n1,tea\n2,jam\n",
        b"\0011 tea jam\n2 jam\n",
    ]


def _use_id_file(data: bytes, folder: Path) -> None:
    """A file of items or users to forget, or of pairs that nobody must get."""
    from truepair.cli.commands.recommend import _excluded
    from truepair.cli.table_files import read_ids

    path, model = folder / "ids.txt", _models()[0]
    path.write_bytes(data[1:])
    if data[:1] == b"\0":
        ids = model.seen_.item_ids
        kept = Recommender(**model.get_params())
        kept.model_, kept.output_ = model.model_, model.output_
        kept.forget(items=read_ids(ids, "item", None, path), unknown="drop")
        kept.recommend(k=2)
        read_ids(model.seen_.user_ids, "user", None, path)
    else:
        model.recommend(k=2, exclude_items=_excluded(model, None, str(path)), unknown="drop")


TABLES = [
    Target("item table files", _use_file, _files, 60),
    Target("item table columns", _use_columns, _ready, 40, _column_cases),
    Target("conditions", _use_conditions, _ready, 30, _condition_cases),
    Target("id files", _use_id_file, _id_files, 30),
]
