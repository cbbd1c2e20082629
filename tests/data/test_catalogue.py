"""The catalogue: its entries, its parsers on made-up files, and the real files where they are at hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from truepair.data.datasets import parsers
from truepair.data.datasets.dataset import Addresses, Archive, Dataset, Wheel
from truepair.data.datasets.download import sha256_of
from truepair.data.datasets.loading import fetch, load, load_split, load_titles, locate
from truepair.data.datasets.registry import DATASETS, find_dataset
from truepair.data.interactions import Interactions
from truepair.errors import InputError

NAMES = list(DATASETS)
REAL = [name for name in NAMES if name != "yahoo-r3"]


@pytest.fixture(autouse=True)
def no_other_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may look into the developer's own cache, or at a network."""
    monkeypatch.delenv("TRUEPAIR_DATA", raising=False)
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        "truepair.data.datasets.loading._get", lambda *a: pytest.fail("looked at the network")
    )


def rows_of(data: Interactions) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in data.to_table().to_pylist()]


def put(folder: Path, files: dict[str, str], encoding: str = "utf-8") -> Path:
    for name, text in files.items():
        (folder / name).write_text(text, encoding=encoding)
    return folder


# --- the registry ------------------------------------------------------------------------------------


def test_the_names() -> None:
    assert [
        *("ml-100k", "ml-100k-paper-split", "ml-1m", "gowalla", "yelp2018"),
        *("ml-1m-sequences", "beauty", "sports", "grocery"),
        *("coat", "kuairec", "jester5k", "yahoo-r3"),
    ] == NAMES
    assert all(name == dataset.name for name, dataset in DATASETS.items())


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=NAMES)
def test_an_entry_says_all_there_is_to_say(dataset: Dataset) -> None:
    assert "\n" not in dataset.about
    assert dataset.terms
    assert dataset.cite
    assert dataset.page.startswith("https://")
    assert bool(dataset.sources) != bool(dataset.by_hand)
    assert min(dataset.size) > 0
    names = [file.name for file in dataset.files]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in dataset.files if file.sha256)
    assert all(file.instead_of in names for file in dataset.files if file.instead_of)
    assert all(re.fullmatch(r"[\w.-]+", name) for name in names)


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=NAMES)
def test_a_source_has_all_that_is_needed(dataset: Dataset, tmp_path: Path) -> None:
    for number, source in enumerate(dataset.sources):
        folder = tmp_path / str(number)
        folder.mkdir()
        gives = [*source.files, source.becomes] if isinstance(source, Wheel) else source.files
        for name in gives:
            (folder / dataset.file(name).name).touch()
        assert dataset.missing(folder) == []
        if isinstance(source, Archive | Addresses):
            assert source.url.startswith("https://")
            assert isinstance(source, Addresses) or source.url.endswith(".zip")
            # the address of a single file is not that of a folder
            assert isinstance(source, Archive) or source.url.endswith("/") or len(source.files) == 1
            # whole files are checked, one by one or with the archive
            checked = isinstance(source, Archive) and source.sha256
            assert checked or all(dataset.file(name).sha256 for name in source.files)
        if isinstance(source, Archive):  # the file that makes the set complete comes last
            assert not dataset.file(source.files[-1]).optional


def test_unknown_names() -> None:
    for call in (find_dataset, load, load_split, load_titles, fetch, locate):
        with pytest.raises(InputError, match=r"dataset = 'gowala' is not known.*Did you mean 'gowalla'\?"):
            call("gowala")


@pytest.mark.parametrize(
    ("call", "has", "what"),
    [
        (load_split, "split", "published split"),
        (load_titles, "titles", "titles"),
    ],
)
def test_what_a_dataset_has_not(call: Any, has: str, what: str) -> None:
    having = [name for name in NAMES if DATASETS[name].has(has)]
    assert having
    for name in set(NAMES) - set(having):
        listed = ", ".join(map(repr, having))
        with pytest.raises(InputError, match=rf"dataset = '{name}' has no {what}; available for: {listed}\."):
            call(name)


# --- parsers on made-up files ------------------------------------------------------------------------


def test_ml_100k(tmp_path: Path) -> None:
    put(tmp_path, {"u.data": "196\t242\t3\t881250949\n22\t242\t1\t878887116\n"})
    assert rows_of(parsers.ml_100k(tmp_path)) == [(22, 242, 1.0, 878887116), (196, 242, 3.0, 881250949)]
    with pytest.raises(InputError, match=r"has no u\.item with the titles; put it there"):
        parsers.ml_100k_titles(tmp_path)
    put(tmp_path, {"u.item": "242|Café (1995) |01-Jan-1995||http://x|0|1\n"}, "latin-1")
    assert parsers.ml_100k_titles(tmp_path) == {242: "Café (1995)"}


def test_ml_1m_with_and_without_time(tmp_path: Path) -> None:
    put(tmp_path, {"ratings_notime.dat": "1::1193::5\n2::661::3\n"})
    assert rows_of(parsers.ml_1m(tmp_path)) == [(1, 1193, 5.0), (2, 661, 3.0)]
    put(tmp_path, {"ratings.dat": "1::1193::5::978300760\n2::661::3::978302109\n"})
    assert rows_of(parsers.ml_1m(tmp_path)) == [(1, 1193, 5.0, 978300760), (2, 661, 3.0, 978302109)]
    put(tmp_path, {"movies.dat": "1193::Léon: a film (1994)::Drama|War\n"}, "latin-1")
    assert parsers.ml_1m_titles(tmp_path) == {1193: "Léon: a film (1994)"}


def test_paper_split(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"100k_train.csv": "user,item,rating\n0,1,4\n1,0,5\n", "100k_test.csv": "user,item,rating\n0,2,3\n"},
    )
    split = parsers.paper_split(tmp_path)
    assert rows_of(split.train) == [(0, 1, 4.0), (1, 0, 5.0)]
    assert rows_of(split.test) == [(0, 2, 3.0)]
    assert rows_of(parsers.union(split)) == [(0, 1, 4.0), (0, 2, 3.0), (1, 0, 5.0)]
    put(tmp_path, {"item_map.csv": 'item,movie_id,title\n0,9,"Film, The (1990)"\n1,7,Other\n'})
    assert parsers.paper_split_titles(tmp_path) == {0: "Film, The (1990)", 1: "Other"}


def test_titles_of_the_paper_split_come_from_movielens_too(tmp_path: Path) -> None:
    put(tmp_path, {"u.data": "5\t9\t3\t1\n5\t7\t3\t1\n6\t9\t3\t1\n", "u.item": "7|Seven|x\n9|Nine|x\n"})
    assert parsers.paper_split_titles_of(tmp_path) == {0: "Nine", 1: "Seven"}


def test_lightgcn_split(tmp_path: Path) -> None:
    put(tmp_path, {"train.txt": "0 1 2\n1 2\n", "test.txt": "0 3\n1\n"})
    split = parsers.lightgcn_split(tmp_path)
    assert rows_of(split.train) == [
        (0, 1, 0),
        (0, 2, 1),
        (1, 2, 0),
    ]  # with the position in the user's history
    assert rows_of(split.test) == [(0, 3, 2)]
    assert split.train.time_kind == split.test.time_kind == "order"
    assert len(parsers.union(split)) == 4


def test_sequences(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": "5 9 3 7\n2 3\n"})
    found = parsers.sequences(tmp_path / "a.txt")
    assert sorted(rows_of(found)) == [(2, 3, 0), (5, 3, 1), (5, 7, 2), (5, 9, 0)]
    assert found.time_kind == "order"


def test_grocery(tmp_path: Path) -> None:
    put(tmp_path, {"train.csv": "user_id\titem_id\ttime\n2177\t3\t965779200\n41\t18\t1068249600\n"})
    found = parsers.grocery(tmp_path)
    assert rows_of(found) == [(41, 18, 1068249600), (2177, 3, 965779200)]
    assert found.time_kind == "clock"


def test_coat(tmp_path: Path) -> None:
    put(tmp_path, {"train.ascii": "0 4 0\n1 0 0\n", "test.ascii": "0 4 3\n0 5 0\n"})
    split = parsers.coat_split(tmp_path)
    assert rows_of(split.train) == [(0, 1, 4.0), (1, 0, 1.0)]
    assert rows_of(split.test) == [(0, 2, 3.0), (1, 1, 5.0)]
    assert "1 test pair also in train: dropped from test" in split.notes
    assert rows_of(parsers.union(split).with_min_rating(4)) == [(0, 1, 4.0), (1, 1, 5.0)]


def test_yahoo_r3(tmp_path: Path) -> None:
    folder = tmp_path / "yahoo-r3"
    folder.mkdir()
    name = "ydata-ymusic-rating-study-v1_0-{}.txt"
    train = "1\t14\t5\n1\t35\t1\n5400\t14\t2\n5401\t14\t4\n15400\t1000\t3\n"
    put(folder, {name.format("train"): train, name.format("test"): "1\t49\t1\n1\t35\t4\n5400\t1\t3\n"})
    split = load_split("yahoo-r3", tmp_path)
    assert len(split.train) == 5
    assert rows_of(split.test) == [(1, 49, 1.0), (5400, 1, 3.0)]
    found = load("yahoo-r3", tmp_path)
    assert rows_of(found) == [
        *((1, 14, 5.0), (1, 35, 1.0), (1, 49, 1.0)),  # of two ratings of a pair, the one in train
        *((5400, 1, 3.0), (5400, 14, 2.0)),
    ]
    assert found.user_ids.ids.to_pylist() == [1, 5400]
    assert [step.rows for step in found.history] == [1]


def test_kuairec(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"small_matrix_positives.csv": "user,item\n14,137\n19,137\n", "small_matrix_items.txt": "103\n137\n"},
    )
    found = parsers.kuairec(tmp_path)
    assert rows_of(found) == [(14, 137), (19, 137)]
    assert found.item_ids.ids.to_pylist() == [103, 137]


def test_jester5k(tmp_path: Path) -> None:
    # columns are jokes: user 0 rated both, user 1 the first, user 2 both
    arrays = {
        "data": [1.5, -2.0, 3.0, -0.5, 4.0],
        "indices": [0, 1, 2, 0, 2],
        "indptr": [0, 3, 5],
        "shape": [3, 2],
    }
    np.savez(tmp_path / "jester5k.npz", **{name: np.array(values) for name, values in arrays.items()})
    assert rows_of(parsers.jester5k(tmp_path)) == [
        *((0, 0, 1.5), (0, 1, -0.5), (1, 0, -2.0)),
        *((2, 0, 3.0), (2, 1, 4.0)),
    ]


# --- the real files ----------------------------------------------------------------------------------


def test_checksums_are_those_of_the_real_files(real_data: Path) -> None:
    lines = (real_data / "SHA256SUMS").read_text().splitlines()
    published = {path: checksum for checksum, path in (line.split() for line in lines)}
    sets = [DATASETS[name] for name in REAL]
    ours = {f"{dataset.folder}/{file.name}": file.sha256 for dataset in sets for file in dataset.files}
    there = {path: checksum for path, checksum in published.items() if not path.endswith("/README")}
    assert there.items() <= ours.items()
    assert {path for path in ours if path not in there} == {"ml-100k/ml-100k.item", "ml-1m/ratings.dat"}


@pytest.mark.parametrize("name", REAL)
def test_real_files_have_the_verified_numbers(real_data: Path, name: str) -> None:
    dataset = DATASETS[name]
    assert locate(name, real_data) == real_data / dataset.folder
    found = load(name, real_data)
    assert (found.n_users, found.n_items, len(found)) == dataset.size
    assert (found.rating is not None) == dataset.has("ratings")
    has_times = dataset.has("times") and not (real_data / name / "ratings_notime.dat").exists()
    assert (found.time is not None) == (has_times or dataset.has("order"))
    assert found.time_kind == ("order" if dataset.has("order") else "clock")
    assert found.history == ()


def test_a_checksum_of_a_real_file(real_data: Path) -> None:
    assert sha256_of(real_data / "ml-100k" / "u.data") == DATASETS["ml-100k"].file("u.data").sha256


_UNLIKE = (
    "test is unlike train: popular items are held out {} often than at random ({} of their pairs against "
    "{}); a random validation part may choose the wrong settings: {}"
)


@pytest.mark.parametrize(
    ("name", "train", "test", "notes"),
    [
        ("ml-100k-paper-split", 80_000, 20_000, ["38 test pairs of 35 items that train does not have"]),
        ("gowalla", 810_128, 217_242, [_UNLIKE.format("more", "25.8%", "21.2%", "use hold_out='last'")]),
        ("yelp2018", 1_237_259, 324_147, [_UNLIKE.format("less", "17.7%", "20.8%", "use hold_out='last'")]),
        (
            "coat",
            290 * 24,
            290 * 16 - 366,
            [
                "366 test pairs also in train: dropped from test",
                _UNLIKE.format("less", "17.2%", "38.0%", "validate on a part that is like test"),
            ],
        ),
    ],
)
def test_real_splits(real_data: Path, name: str, train: int, test: int, notes: list[str]) -> None:
    split = load_split(name, real_data)
    assert (len(split.train), len(split.test)) == (train, test)
    assert list(split.notes) == notes
    assert (split.train.n_users, split.train.n_items) == DATASETS[name].size[:2]


def test_real_titles(real_data: Path) -> None:
    titles = {name: load_titles(name, real_data) for name in NAMES if DATASETS[name].has("titles")}
    sizes = {name: len(found) for name, found in titles.items()}
    assert sizes == {"ml-100k": 1_682, "ml-100k-paper-split": 1_682, "ml-1m": 3_883}
    assert titles["ml-100k"][1] == titles["ml-1m"][1] == "Toy Story (1995)"
    assert titles["ml-100k-paper-split"][0] == titles["ml-100k"][242] == "Kolya (1996)"
    assert titles["ml-100k"][543] == "Misérables, Les (1995)"
    for name, found in titles.items():
        assert set(load(name, real_data).item_ids.ids.to_pylist()) <= set(found)


def test_real_titles_of_the_paper_split_can_be_had_from_movielens(real_data: Path, tmp_path: Path) -> None:
    given = load_titles("ml-100k-paper-split", real_data)
    (tmp_path / "ml-100k").symlink_to(real_data / "ml-100k")
    (tmp_path / "ml-100k-paper-split").mkdir()
    for part in ("train", "test"):
        there = tmp_path / "ml-100k-paper-split" / f"100k_{part}.csv"
        there.symlink_to(real_data / "ml-100k-paper-split" / there.name)
    assert load_titles("ml-100k-paper-split", tmp_path) == given


def test_the_paper_split_is_movielens(real_data: Path) -> None:
    """The same ratings, under other numbers."""
    ours, theirs = load("ml-100k", real_data), load("ml-100k-paper-split", real_data)
    assert sorted(ours.user_counts) == sorted(theirs.user_counts)
    assert sorted(ours.item_counts) == sorted(theirs.item_counts)
    assert np.sum(ours.rating) == np.sum(theirs.rating)


def test_what_has_complete_labels() -> None:
    assert [name for name in NAMES if DATASETS[name].has("truth")] == ["kuairec", "jester5k"]


def test_the_real_jester(real_data: Path) -> None:
    rated = load("jester5k", real_data)
    assert (rated.rating.min(), rated.rating.max()) == (-9.95, 9.9)
