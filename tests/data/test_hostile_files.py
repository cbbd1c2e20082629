"""Files that are damaged, or made to do harm: the error is truepair's own, and names the file."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from truepair.data.reading import read_interactions
from truepair.errors import InputError

TEXT = "user,item\n1,2\n3,4\n"


def refused(folder: Path, name: str, content: str | bytes, match: str, **options: object) -> None:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=match):
        read_interactions(path, **options)


# --- Arrow and Parquet ---------------------------------------------------------------------------------


def ipc(table: pa.Table, kind: str) -> bytes:
    sink = pa.BufferOutputStream()
    with getattr(pa.ipc, f"new_{kind}")(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    assert content.count(old) == 1
    assert len(old) == len(new)
    return content.replace(old, new)


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_offsets_and_indices_beyond_the_data(tmp_path: Path, kind: str) -> None:
    text = pa.table({"user": ["ann", "bob"], "item": [1, 2]})
    offsets = struct.pack("<3i", 0, 3, 6)
    wild = replaced(ipc(text, kind), offsets, struct.pack("<3i", 0, 3, 2**30))
    refused(tmp_path, "a.arrow", wild, r"a\.arrow cannot be read as (arrow data|an Arrow stream)")
    categories = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int64()), ["ann", "bob"])
    whole = ipc(pa.table({"user": categories, "item": [5, 6]}), kind)
    indices = struct.pack("<2q", 1, 0)
    wild = replaced(whole, indices, struct.pack("<2q", 2**40, 0))  # pyarrow's take would read there
    refused(tmp_path, "a.arrow", wild, r"a\.arrow cannot be read as (arrow data|an Arrow stream)")


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_column_names_that_are_not_utf8(tmp_path: Path, kind: str) -> None:
    content = ipc(pa.table({"user": [1, 2], "item": [1, 2]}), kind).replace(b"item", b"it\xffm")
    refused(tmp_path, "a.arrow", content, r"a\.arrow cannot be read as (arrow data|an Arrow stream)")


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    table = pa.table({"user": ["ann", "bob"], "item": [1, 2]})
    sink = pa.BufferOutputStream()
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, sink, **options)
    content = replaced(sink.getvalue().to_pybytes(), b"ann", b"\xff\xfe\xff")
    refused(tmp_path, "a.parquet", content, r"a\.parquet cannot be read as parquet data.*[Uu][Tt][Ff]-?8")
    for kind in ("file", "stream"):
        content = replaced(ipc(table, kind), b"annbob", b"\xff\xfe\xffbob")
        refused(tmp_path, "a.arrow", content, r"a\.arrow cannot be read as .*[Uu][Tt][Ff]-?8")


@pytest.mark.parametrize("encoded", [False, True])
def test_time_zones_that_are_not_utf8(tmp_path: Path, encoded: bool) -> None:
    times = pa.array([1, 2], pa.timestamp("ms", "Asia/Tokyo"))
    times = times.dictionary_encode() if encoded else times
    content = ipc(pa.table({"user": [1, 2], "item": [1, 2], "time": times}), "file")
    refused(
        tmp_path, "a.arrow", content.replace(b"Asia", b"As\xffa"), r"a\.arrow cannot be read as arrow data"
    )


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_views_of_nulls_that_lead_nowhere(tmp_path: Path, kind: pa.DataType) -> None:
    names = pa.array(["ann", None, "a name that is not short"], pa.string()).cast(kind)
    mask, views, *data = names.buffers()
    wild = np.frombuffer(views, np.int64).reshape(3, 2).copy()
    wild[1] = (2**31 - 1, 2**40 + 7)  # a long text in a buffer that does not exist
    names = pa.Array.from_buffers(kind, 3, [mask, pa.py_buffer(wild), *data])
    content = ipc(pa.table({"user": names, "item": [1, 2, 3]}), "file")
    refused(tmp_path, "a.arrow", content, "1 of 3 rows have no user")
    assert len(read_interactions(tmp_path / "a.arrow", missing="drop")) == 2


# --- NumPy ---------------------------------------------------------------------------------------------

CSR = sp.csr_array(np.array([[0, 4.0, 0], [2.5, 0, 5.0]]))
PARTS = {name: getattr(CSR, name) for name in ("data", "indices", "indptr", "shape")}


@pytest.mark.parametrize("layout", [None, b"csr", b"csc", b"bsr", b"coo", b"dia"])
@pytest.mark.parametrize(
    "changes",
    [
        {"shape": np.array([2.0, 3.0])},
        {"shape": np.array(["2", "3"])},
        {"shape": np.array(3)},
        {"shape": np.array([2, 3, 4])},
        {"shape": np.array([2, -3])},
        {"indptr": np.array(1)},
        {"indices": np.array([1.5, 0.5, 2.5])},
        {"indices": np.array([1, 0, 9])},
        {"data": np.array(["a", "b", "c"])},
        {"data": np.zeros(3, [("a", int)])},
    ],
    ids=str,
)
def test_npz_with_arrays_of_other_types_and_shapes(
    tmp_path: Path, changes: dict[str, np.ndarray], layout: bytes | None
) -> None:
    stream, parts = io.BytesIO(), {**PARTS, **changes}
    if layout is not None:
        parts |= {"format": np.array(layout), "row": parts["indices"], "col": parts["indices"]}
        parts |= {"offsets": parts["indices"]}
    np.savez(stream, **parts)
    refused(tmp_path, "a.npz", stream.getvalue(), r"a\.npz")


# --- text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding",
    [
        "undefined",
        "punycode",
        "idna",
        "unicode_escape",
        "raw_unicode_escape",
        "base64",
        "u\0tf-8",
        "\ud800",
        "",
    ],
)
def test_codecs_that_are_not_for_files(tmp_path: Path, encoding: str) -> None:
    refused(tmp_path, "a.csv", TEXT, r"encoding = .* is no encoding of files", encoding=encoding)
    refused(tmp_path, "é.csv", "user,item\n1,é\n", "encoding = .* is no encoding of files", encoding=encoding)


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    refused(tmp_path, "a.csv", b"user,item\n1,+2AA-\n", r"a\.csv has half a surrogate", encoding="utf-7")


@pytest.mark.parametrize("format", [None, "csv", "tsv", "space", "movielens", "recbole", "adjacency"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n" * 70_000 + "1 2\n", "its first 65,536 bytes are blank"),
        ("\u00a0\n\u2003\n", "all its lines are blank"),
        ("\x1c\n \n", "all its lines are blank"),
    ],
    ids=["many blank lines", "Unicode spaces", "a file separator"],
)
def test_blank_beginnings(tmp_path: Path, content: str, message: str, format: str | None) -> None:
    refused(tmp_path, "a.txt", content, message, format=format)


def test_a_first_line_that_is_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n" * 65_000 + "1 " + " ".join(map(str, range(5000))) + "\n")
    assert len(read_interactions(path)) == 5000


@pytest.mark.parametrize(
    "name", ["a\0.csv", "~\0/a.csv", "~nobody-of-this-name/a.csv", "b" * 300, "\ud800.csv"]
)
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(InputError, match=r"does not exist|not a path|cannot be opened"):
        read_interactions(name)


def test_a_type_that_python_does_not_have(tmp_path):
    """A column of intervals of days: it can be left out, and is not touched else."""
    found = Path(__file__).parents[1] / "fuzz" / "found" / "arrow-type-without-a-class.input"
    (tmp_path / "x.arrow").write_bytes(found.read_bytes())
    with pytest.raises(InputError, match=r"x\.arrow: column 'time' of type day_time_interval .* time=False"):
        read_interactions(tmp_path / "x.arrow", missing="drop")
    assert len(read_interactions(tmp_path / "x.arrow", time=False, missing="drop")) == 5
