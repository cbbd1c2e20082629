"""Targets: readers of interactions."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from fuzzing.mutations import ALPHABET
from fuzzing.target import Target
from truepair.data.reading import read_interactions
from truepair.data.rows.options import MISSING
from truepair.data.rows.pairs import DUPLICATES
from truepair.data.sources.formats import FORMATS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_USERS, _ITEMS = [1, 1, 2, 3, 3, 4], [7, 9, 7, 8, 9, 11]
_RATINGS, _TIMES = [4.0, 2.5, 5.0, 1.0, 3.5, 4.5], [30, 10, 20, 60, 50, 40]
_CSV = "user,item,rating,time\n" + "".join(
    f"{u},{i},{r},{t}\n" for u, i, r, t in zip(_USERS, _ITEMS, _RATINGS, _TIMES, strict=True)
)
_KINDS = """user,item,kind,weight,time
1,7,view,2,2024-05-30
1,9,buy,1,2024-05-31
2,7,view,-1,2024-05-31
1,7,buy,3,2024-06-01
"""
_QUOTED = 'user;item;when\n"ann; lee";"a ""b""";2024-05-31\n"bob";caf\u00e9;2024-06-01 10:00:00\n'


def _read(data: bytes, folder: Path, name: str, **options: Any) -> None:
    """Read a file, and touch everything that was read."""
    path = folder / name
    path.write_bytes(data)
    found = read_interactions(path, **options)
    assert found.hash
    assert found.report()
    assert found.to_table().num_rows == len(found)


def _text(folder: Path) -> list[bytes]:
    return [_CSV.encode(), _CSV.split("\n", 1)[1].encode(), _QUOTED.encode(), _CSV.encode("utf-16")]


def _tables() -> list[pa.Table]:
    whole = pa.table({"user": _USERS, "item": _ITEMS, "rating": _RATINGS, "time": _TIMES})
    names = pa.array(["ann", "bob", "bob", "çağ", None, "ann"])
    text = pa.table({"user": names, "item": names.dictionary_encode(), "note": [["x"], [], None] * 2})
    days = pa.array([1, 2, 3, 4, 5, None], pa.timestamp("ms", "UTC"))
    other = pa.table(
        {"user": names.cast(pa.string_view()), "item": pa.array(_ITEMS, pa.uint64()), "time": days}
    )
    return [whole, text, other]


def _arrow(folder: Path) -> list[bytes]:
    found = []
    for table in _tables():
        for make in (pa.ipc.new_file, pa.ipc.new_stream):
            for compression in (None, "zstd"):
                sink = pa.BufferOutputStream()
                options = pa.ipc.IpcWriteOptions(compression=compression)
                with make(sink, table.schema, options=options) as writer:
                    writer.write_table(table)
                found.append(sink.getvalue().to_pybytes())
    return found


def _parquet(folder: Path) -> list[bytes]:
    found = []
    for table in _tables():
        for options in ({"compression": "none", "use_dictionary": False}, {"compression": "zstd"}):
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, **options)
            found.append(sink.getvalue().to_pybytes())
    return found


def _npz(folder: Path) -> list[bytes]:
    matrix = sp.coo_array((_RATINGS, (_USERS, _ITEMS)), shape=(5, 12))
    found = []
    for layout in ("csr", "csc", "coo", "bsr", "dia"):
        stream = io.BytesIO()
        sp.save_npz(stream, matrix.asformat(layout), compressed=layout == "csc")
        found.append(stream.getvalue())
    rows = matrix.tocsr()
    stream = io.BytesIO()
    np.savez(stream, data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=np.array(rows.shape))
    return [*found, stream.getvalue()]


def _adjacency(folder: Path) -> list[bytes]:
    return [
        b"0 1 2 3\n1 2\n2\n3 1 4 5\n",
        b"ann tea milk\r\nbob tea\r\n\r\n",
        "1 2\n\u00a0\n2 3 4\n".encode(),
    ]


def _other_text(folder: Path) -> list[bytes]:
    """Each begins with the number of its format."""
    rows = _CSV.split("\n", 1)[1]
    texts = {
        "tsv": _CSV.replace(",", "\t"),
        "space": rows.replace(",", " "),
        "movielens": rows.replace(",", "::"),
        "recbole": "user_id:token\titem_id:token\trating:float\n" + rows.replace(",", "\t"),
    }
    return [bytes([_TEXT_FORMATS.index(name)]) + text.encode() for name, text in texts.items()]


_TEXT_FORMATS = ("csv", "tsv", "space", "movielens", "recbole", "adjacency")


def _read_other_text(data: bytes, folder: Path) -> None:
    name = _TEXT_FORMATS[data[0] % len(_TEXT_FORMATS)] if data else "csv"
    _read(data[1:], folder, "a", format=name)


_PACKINGS = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")


def _packed(folder: Path) -> list[bytes]:
    """Each begins with the number of its compression."""
    text = _CSV.encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("inside/a.csv", text)
    packers: tuple[Callable[[bytes], bytes], ...] = (gzip.compress, bz2.compress, lzma.compress)
    packed = [pack(text) for pack in packers]
    for name in ("zstd", "lz4"):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, name) as stream:
            stream.write(text)
        packed.append(sink.getvalue().to_pybytes())
    return [bytes([place]) + content for place, content in enumerate([*packed, archive.getvalue()])]


def _read_packed(data: bytes, folder: Path) -> None:
    suffix = _PACKINGS[data[0] % len(_PACKINGS)] if data else ".gz"
    _read(data[1:], folder, "a.csv" + suffix)


# --- options -------------------------------------------------------------------------------------------


def _options() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    column = (
        st.none() | st.sampled_from(["user", "item", "rating", "time", "x", "", "\0"]) | st.integers(-2, 5)
    )
    column |= st.just(False)
    encodings = [
        "utf-8",
        "utf-16",
        "latin-1",
        "utf-7",
        "undefined",
        "punycode",
        "idna",
        "base64",
        "hex",
        "rot13",
    ]
    encodings += [
        "unicode_escape",
        "raw_unicode_escape",
        "cp1252",
        "utf-32",
        "mbcs",
        "u\0",
        "",
        "zlib",
        "\ud800",
    ]
    names = st.sampled_from(
        ["a.csv", "a", "a.npz", "a.arrow", "a\0b", "~\0", "~nobody/a", "b" * 300, "\ud800"]
    )
    number = st.none() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=True)
    return st.fixed_dictionaries(
        {"text": st.sampled_from([_CSV, _QUOTED]) | st.text(ALPHABET, max_size=200)},
        optional={
            "name": names,
            **dict.fromkeys(("user", "item", "rating", "weight", "time"), column),
            "format": st.sampled_from([None, *FORMATS, "other"]),
            "header": st.sampled_from([None, True, False, 7]),
            "encoding": st.sampled_from(encodings) | st.text(ALPHABET, max_size=8),
            "duplicates": st.sampled_from([*DUPLICATES, "other"]),
            "missing": st.sampled_from([*MISSING, "other"]),
            "min_rating": number,
            "core": st.none() | st.integers(-1, 4) | st.lists(st.integers(0, 3), max_size=3),
        },
    )


def _read_with_options(data: bytes, folder: Path) -> None:
    options = json.loads(data)
    content = options.pop("text").encode("utf-8", "surrogatepass")
    name = options.pop("name", "a.csv")
    if isinstance(options.get("core"), list):
        options["core"] = tuple(options["core"])
    if name in ("a.csv", "a", "a.npz", "a.arrow"):
        _read(content, folder, name, **options)
    else:
        read_interactions(name if name.startswith("~") else folder / name, **options)


# --- weights and dislikes ------------------------------------------------------------------------------


def _weightings() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    number = st.none() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=True)
    scalar = number | st.booleans() | st.text(ALPHABET, max_size=5)
    kind = st.sampled_from(["view", "buy", "", "nan"]) | st.text(ALPHABET, max_size=3)
    feedback = st.sampled_from([{"view": 1, "buy": 10}, {"view": 0, "buy": 2.5}, {"view": -1, "buy": 1e308}])
    half_life = st.sampled_from(["90d", "1.5h", "0d", "1d12h", "9" * 12 + "w", "٣d", "1e5s", "0.00001s"])
    now = st.sampled_from(["2024-06-01", "2024-06-02T00:00:00Z", 1_717_300_000, 10**18, "9999-12-31", "now"])
    counts = st.sampled_from(["log", "cap:10", "cap:0.5", "cap:0", "cap:1e9", "cap:"])
    return st.fixed_dictionaries(
        {
            "text": st.sampled_from(
                [_CSV, _KINDS, _KINDS, _KINDS.replace("-1", "1"), _KINDS.replace("2024", "9024")]
            )
        },
        optional={
            "feedback": feedback | feedback | st.dictionaries(kind, scalar, max_size=3) | scalar,
            "kind": st.none() | st.sampled_from(["kind", "kind", "item", "x", 2, -1, False]),
            "half_life": half_life | half_life | scalar,
            "now": now | now | scalar,
            "counts": counts | counts | scalar,
            "dislikes": st.booleans() | st.booleans() | scalar,
            "chronological": st.booleans() | scalar,
            "max_disliked_rating": number,
            "duplicates": st.sampled_from(DUPLICATES),
            "weight": st.sampled_from([None, None, False, "time", "rating"]),
        },
    )


READERS = [
    Target("csv", partial(_read, name="a.csv"), _text, 120),
    Target("arrow", partial(_read, name="a.arrow"), _arrow, 190),
    Target("parquet", partial(_read, name="a.parquet"), _parquet, 130),
    Target("npz", partial(_read, name="a.npz"), _npz, 90),
    Target("adjacency", partial(_read, name="a.txt"), _adjacency, 80),
    Target("other text", _read_other_text, _other_text, 90),
    Target("compressed", _read_packed, _packed, 50),
    Target("reading options", _read_with_options, lambda folder: [], 30, _options),
    Target("weighting options", _read_with_options, lambda folder: [], 30, _weightings),
]
