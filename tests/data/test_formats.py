from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.data.sources.formats import FORMATS, SUFFIXES
from truepair.errors import InputError

COLUMNS = {"user": [1, 2, 2], "item": [7, 7, 9], "rating": [4.0, 2.5, 5.0], "time": [30, 10, 20]}
WANTED = read_interactions(COLUMNS)
CSV = "user,item,rating,time\n1,7,4.0,30\n2,7,2.5,10\n2,9,5.0,20\n"
PLAIN = CSV.split("\n", 1)[1]


def read(folder: Path, name: str, content: str | bytes, **options: object) -> Interactions:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_interactions(path, **options)


# --- every format gives the same interactions ------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.CSV", CSV),
        ("semicolon.csv", CSV.replace(",", ";")),
        ("bar.csv", CSV.replace(",", "|")),
        ("tab.csv", CSV.replace(",", "\t")),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.txt", CSV),
        ("no_suffix", CSV),
        ("u.data", PLAIN.replace(",", "\t")),
        ("headerless.csv", PLAIN),
        ("ratings.dat", PLAIN.replace(",", "::")),
        ("space.txt", PLAIN.replace(",", " ")),
        ("space_header.txt", CSV.replace(",", " ")),
        (
            "a.inter",
            "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + PLAIN.replace(",", "\t"),
        ),
        ("crlf.csv", CSV.replace("\n", "\r\n")),
        ("cr.csv", CSV.replace("\n", "\r")),
        ("no_last_newline.csv", CSV.rstrip()),
        ("blank_lines.csv", "\n\n" + CSV.replace("\n", "\n\n")),
        ("bom.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("spaced_header.csv", CSV.replace("user,item", " User ID , item-id ")),
        ("quoted.csv", CSV.replace("1,7,4.0", '"1","7","4.0"')),
    ],
)
def test_text(tmp_path: Path, name: str, content: str | bytes) -> None:
    found = read(tmp_path, name, content)
    if name == "a.inter":  # its times are text like 30, and stay whole
        assert found.time.dtype == np.int64
    assert found == WANTED
    assert found.history == ()


def test_movielens_without_time(tmp_path: Path) -> None:
    found = read(tmp_path, "ratings.dat", "1::7::4\n2::7::2.5\n2::9::5\n")
    assert found == read_interactions(COLUMNS, time=False)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8-sig", "UTF8"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    found = read(tmp_path, "a.csv", "user,item\nanaïs,é\n".encode(encoding), encoding=encoding)
    assert found.user_ids.ids.to_pylist() == ["anaïs"]
    assert found.item_ids.ids.to_pylist() == ["é"]


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.inter", "a"])
@pytest.mark.parametrize("packing", [".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"])
def test_compressed_text(tmp_path: Path, name: str, packing: str) -> None:
    text = (CSV.replace(",", "\t") if name == "a.inter" else CSV).encode()
    path = tmp_path / (name + packing)
    if packing == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"folder/{name}", text)
            archive.writestr(f"__MACOSX/._{name}", b"\0")
    elif packing in (".zst", ".lz4"):
        with pa.output_stream(path, compression={".zst": "zstd", ".lz4": "lz4"}[packing]) as stream:
            stream.write(text)
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[packing].compress(text))
    assert read_interactions(path) == WANTED


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".feather", ".arrow", ".ipc", ""])
def test_columnar_files(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"text": ["x"] * 3, **COLUMNS})
    write = pq.write_table if suffix in (".parquet", ".pq", "") else feather.write_feather
    write(table, tmp_path / f"a{suffix}")
    assert read_interactions(tmp_path / f"a{suffix}") == WANTED


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ""])
def test_folders_of_parquet_files(tmp_path: Path, suffix: str) -> None:
    table, write = pa.table({"text": ["x"] * 3, **COLUMNS}), pq.write_table
    (tmp_path / "part").mkdir()
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.csv").touch()
    write(table[:1], tmp_path / f"a{suffix}")
    write(table[1:], tmp_path / "part" / f"b{suffix}")
    assert read_interactions(str(tmp_path), format=None if suffix else "parquet") == WANTED


def test_folders_of_arrow_files_are_refused(tmp_path: Path) -> None:
    feather.write_feather(pa.table(COLUMNS), tmp_path / "a.arrow")
    with pytest.raises(InputError, match=r"is a folder with 1 \.arrow, not of Parquet files alone"):
        read_interactions(tmp_path)


def test_hive_folders_give_their_columns(tmp_path: Path) -> None:
    for day, rows in {"2024-01-01": slice(0, 1), "2024-01-02": slice(1, 3)}.items():
        (tmp_path / f"date={day}").mkdir()
        part = {name: values[rows] for name, values in COLUMNS.items() if name != "time"}
        pq.write_table(pa.table(part), tmp_path / f"date={day}" / "0.parquet")
    assert np.diff(read_interactions(tmp_path).time).tolist() == [86_400_000_000, 0]


def test_arrow_stream(tmp_path: Path) -> None:
    table = pa.table(COLUMNS)
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as stream:
        stream.write_table(table)
    assert read_interactions(tmp_path / "a.arrow") == WANTED


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr"])
def test_npz(tmp_path: Path, layout: str) -> None:
    dense = np.array([[0, 4.0, 0], [2.5, 0, 5.0]])
    sp.save_npz(tmp_path / "a.npz", sp.coo_array(dense).asformat(layout))
    found = read_interactions(tmp_path / "a.npz")
    assert (found.n_users, found.n_items) == (2, 3)
    assert found.to_table()["rating"].to_pylist() == [4.0, 2.5, 5.0]


def test_adjacency(tmp_path: Path) -> None:
    found = read(tmp_path, "train.txt", "0 5 6 7\n1 5\r\n\n2\n 3  7 \t8 \n")
    assert found.to_table().to_pydict() == {"user": [0, 0, 0, 1, 3, 3], "item": [5, 6, 7, 5, 7, 8]}
    [step] = found.history
    assert (step.what, step.rows, step.users, step.items) == ("line of a user without items", 0, 1, 0)


def test_adjacency_of_words_and_repeats(tmp_path: Path) -> None:
    found = read(tmp_path, "train.txt", "ann hat cap hat\nbob cap\nann\n")
    assert found.to_table().to_pydict() == {"user": ["ann", "ann", "bob"], "item": ["cap", "hat", "cap"]}
    assert [step.rows for step in found.history] == [1]


def test_quoted_fields_with_separators_and_newlines(tmp_path: Path) -> None:
    text = 'user,item,rating\n"a, b","x\ny",1\n"say ""hi""",z,2\n'
    found = read(tmp_path, "a.csv", text)
    rows = found.to_table().to_pylist()
    assert {(row["user"], row["item"], row["rating"]) for row in rows} == {
        ("a, b", "x\ny", 1),
        ('say "hi"', "z", 2),
    }


def test_many_blocks_of_text(tmp_path: Path) -> None:
    n = 400_000
    text = "user,item,note\n" + "".join(f"u{row % 1000},{row},{'x' * 20}\n" for row in range(n))
    found = read(tmp_path, "a.csv", text)
    assert (len(found), found.n_users, found.n_items) == (n, 1000, n)


def test_format_forces(tmp_path: Path) -> None:
    pairs = read(tmp_path, "a.csv", "1 7\n2 7 9\n", format="adjacency")
    assert pairs.to_table().to_pydict() == {"user": [1, 2, 2], "item": [7, 7, 9]}
    assert read(tmp_path, "a.log", CSV.replace(",", "\t"), format="tsv") == WANTED


def test_every_suffix_has_a_format() -> None:
    assert set(SUFFIXES.values()) <= set(FORMATS)


# --- ids in text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "ids"),
    [
        (["1", "20", "-3"], [-3, 1, 20]),
        (["007", "8"], ["007", "8"]),
        (["1", "x"], ["1", "x"]),
        (["1.0", "2"], ["1.0", "2"]),
        (["0x10", "2"], ["0x10", "2"]),
        (["-0", "2"], ["-0", "2"]),
        ([str(2**63 + 1), "2"], [2, 2**63 + 1]),
        ([str(2**64), "2"], [str(2**64), "2"]),
        (["7", " 8 "], [7, 8]),
        (["true", "1"], ["1", "true"]),
        (["2024-01-01", "2024-01-02"], ["2024-01-01", "2024-01-02"]),
    ],
)
def test_text_becomes_integers_only_when_all_of_it_is(
    tmp_path: Path, cells: list[str], ids: list[object]
) -> None:
    text = "user,item\n" + "".join(f"{cell},{row}\n" for row, cell in enumerate(cells))
    assert read(tmp_path, "a.csv", text).user_ids.ids.to_pylist() == ids


# --- header or not ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "n"),
    [
        ("user,item\n1,2\n", {}, 1),
        ("1,2\n3,4\n", {}, 2),
        ("ann,2\nbob,4\n", {}, 2),  # a number: data
        ("ann,-2.5e3\nbob,4\n", {}, 2),
        ("user,2\n1,4\n", {"item": 1}, 1),  # a usual name wins over the number
        ("who,what\n1,2\n", {"user": "who", "item": "what"}, 1),
        ("who,2\n1,4\n", {"user": "who", "item": "2"}, 1),
        ("a,b\nc,d\n", {"user": 0, "item": 1}, 1),
        ("a,b\nc,d\n", {"header": False}, 2),
        ("1,2\n3,4\n", {"header": True, "user": "1", "item": "2"}, 1),
    ],
)
def test_header_is_found(tmp_path: Path, text: str, options: dict[str, object], n: int) -> None:
    assert len(read(tmp_path, "a.csv", text, **options)) == n


def test_headerless_columns_go_by_position(tmp_path: Path) -> None:
    found = read(tmp_path, "a.csv", "7,1,30,4,junk\n9,2,20,5,junk\n", user=1, item=0, rating=3, time=2)
    assert found.to_table().to_pydict() == {
        "user": [1, 2],
        "item": [7, 9],
        "rating": [4.0, 5.0],
        "time": [30, 20],
    }


# --- what is wrong with it, and where --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a\.csv is empty: it has 0 bytes"),
        ("a.csv", " \n\n", r"a\.csv is empty: all its lines are blank"),
        ("a.parquet", "", r"a\.parquet is empty"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), r"a\.csv\.gz is empty"),
        ("a.csv", "user,item\n", r"a\.csv has a header \(user, item\) but no rows; give at least one row"),
        ("a.csv", "user,item", r"a\.csv has a header \(user, item\) but no rows; give at least one row"),
        (
            "a.csv",
            "user\n1\n",
            r"a\.csv has no column that is recognised as the item; .*Only one column was found",
        ),
        ("a.csv", "ann,hat\nbob,cap\n", r"its columns are 'ann', 'hat'.*if it is data, pass header=False"),
        ("a.csv", "user,item\n1,2\n\n3,4,5\n", r"a\.csv, line 4: expected 2 fields, .* found 3"),
        ("a.csv", 'user,item\n"1\n\n1",2\n3\n', r"line 5: expected 2 fields, as in the first line, found 1"),
        ("a.csv", "1,2\r\n3,4\r\n5\r\n", r"line 3: expected 2 fields, as in the first line, found 1"),
        ("a.dat", "1::2::3\n1::2\n", r"line 2: expected 3 fields, as in the first line, found 2"),
        ("a.csv", b"user,item\n1,2\n\n3,\xe9\n", r"line 4: byte 0xe9 \(byte 18 of the file\) is not utf-8"),
        ("a.csv", b"user,item\n1,\xe9\n", r"pass encoding='latin-1'"),
        ("a.csv", "user,item\n1,2\n".encode("utf-16"), r"line 1: .* pass encoding='utf-16'"),
        (
            "a.csv.gz",
            gzip.compress(CSV.encode(), mtime=0)[:-12],
            r"a\.csv\.gz cannot be read as a \.gz file; .*damaged",
        ),
        ("a.csv.gz", CSV, r"a\.csv\.gz cannot be read as a \.gz file"),
        ("a.csv.bz2", CSV, r"cannot be read as a \.bz2 file"),
        ("a.csv.xz", CSV, r"cannot be read as a \.xz file"),
        ("a.csv.zst", CSV, r"cannot be read as a \.zst file"),
        ("a.csv.lz4", CSV, r"cannot be read as a \.lz4 file"),
        ("a.csv.zip", CSV, r"cannot be read as a \.zip file"),
        ("a.parquet", b"PAR1 but no more", r"a\.parquet cannot be read as parquet data"),
        ("a.feather", b"ARROW1 but no more", r"a\.feather cannot be read as arrow data"),
        ("a.arrow", b"neither", r"a\.arrow cannot be read as an Arrow stream"),
        (
            "a.parquet.gz",
            gzip.compress(b"PAR1", mtime=0),
            r"a parquet file inside \.gz cannot be read; unpack it first",
        ),
        ("a.npz", b"PK\x03\x04 but no more", r"a\.npz cannot be read as a SciPy sparse matrix"),
        (
            "m.txt",
            "0 0 1 0 5\n0 2 0 0 0\n",
            r"m\.txt has 5 numbers on every line: .*scipy\.sparse\.csr_array",
        ),
        ("a.txt", "1\n2\n", r"a\.txt has no rows"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, name, content)


def test_a_zip_of_many(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ml.zip", "w") as archive:
        archive.writestr("u.data", "1\t2")
        archive.writestr("u.item", "1|x")
    with pytest.raises(InputError, match=r"ml\.zip contains 2 files \(u\.data, u\.item\); unpack it"):
        read_interactions(tmp_path / "ml.zip")


def test_npz_runs_no_code(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", format=np.array([object()], dtype=object))
    with pytest.raises(InputError, match="allow_pickle=False"):
        read_interactions(tmp_path / "a.npz")


def test_npz_of_something_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    with pytest.raises(InputError, match=r"contains \['x'\]; save a matrix with scipy\.sparse\.save_npz"):
        read_interactions(tmp_path / "a.npz")


def test_npz_with_wild_indices(tmp_path: Path) -> None:
    parts = {"data": np.ones(2), "indices": np.array([0, 99]), "indptr": np.array([0, 1, 2]), "shape": (2, 3)}
    parts["format"] = np.array(b"csr")
    np.savez(tmp_path / "a.npz", **parts)
    with pytest.raises(InputError, match="cannot be read as a SciPy sparse matrix"):
        read_interactions(tmp_path / "a.npz")


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text(CSV)
    with pytest.raises(InputError, match=r"rating\.csv does not exist\. Did you mean 'ratings\.csv'\?"):
        read_interactions(tmp_path / "rating.csv")
    with pytest.raises(InputError, match="does not exist, nor does the folder"):
        read_interactions(tmp_path / "no" / "ratings.csv")


def test_folders_of_other_things(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder with no data files"):
        read_interactions(tmp_path)
    pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    for name in ("b.csv", "c.csv", "README"):
        (tmp_path / name).write_text(CSV)
    with pytest.raises(
        InputError, match=r"is a folder with 2 \.csv, 1 no suffix, 1 \.parquet, not of Parquet"
    ):
        read_interactions(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "cvs"}, "format = 'cvs' is not known; choose one of 'csv', .*Did you mean 'csv'?"),
        ({"encoding": "utf-9"}, "encoding = 'utf-9' is no encoding"),
        ({"header": "yes"}, "header = 'yes' is unknown; pass True, False, or None to detect it"),
        (
            {"user": "usr"},
            "user = 'usr': .*has no such column; its columns are 'user', .*Did you mean 'user'?",
        ),
        ({"user": 9}, "user = 9 is out of range; it must be a whole number from 0 to 3"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, "a.csv", CSV, **options)
