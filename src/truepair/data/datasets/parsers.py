"""Parsers: a folder with a public dataset's raw files -> Interactions, Split, titles."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.data.split import Split
from truepair.data.split_recipes import split_given
from truepair.errors import InputError

Titles = dict[int, str]
"""Item id -> title."""


# --- MovieLens -------------------------------------------------------------------------------------


def ml_100k(folder: Path) -> Interactions:
    """u.data: user, item, rating, time, separated by tabs."""
    return read_interactions(folder / "u.data", format="tsv", header=False)


def ml_100k_titles(folder: Path) -> Titles:
    """u.item, else the same titles from the table in RecBole's wheel."""
    if (folder / "u.item").exists():
        rows = _rows(folder / "u.item", "|", "latin-1")
        return {int(item): title.strip() for item, title, *_ in rows}
    rows = _rows(_existing_file(folder, "ml-100k.item", "u.item"), "\t", "utf-8")
    next(rows)  # the header
    # the year was split off the title; the one item without a title has a misspelt "unknown" as its year
    return {int(i): "unknown" if year == "unkonwn" else f"{title} ({year})" for i, title, year, *_ in rows}


def ml_1m(folder: Path) -> Interactions:
    """ratings.dat, or a copy of it without its fourth column, the time."""
    file = "ratings.dat" if (folder / "ratings.dat").exists() else "ratings_notime.dat"
    return read_interactions(folder / file, format="movielens", header=False)


def ml_1m_titles(folder: Path) -> Titles:
    """movies.dat: item::title::genres."""
    rows = _rows(_existing_file(folder, "movies.dat"), "::", "latin-1")
    return {int(item): title.strip() for item, title, *_ in rows}


def paper_split(folder: Path) -> Split:
    """100k_train.csv and 100k_test.csv, as the paper's authors published them."""
    train, test = (read_interactions(folder / f"100k_{part}.csv") for part in ("train", "test"))
    return split_given(train, test)


def paper_split_titles(folder: Path) -> Titles:
    """item_map.csv: the item of the split, its number in MovieLens, its title."""
    with open(folder / "item_map.csv", encoding="utf-8", newline="") as file:
        return {int(row["item"]): row["title"].strip() for row in csv.DictReader(file)}


def paper_split_titles_of(ml_100k_folder: Path) -> Titles:
    """The same titles from MovieLens: the authors numbered items by first appearance in u.data."""
    titles = ml_100k_titles(ml_100k_folder)
    items = dict.fromkeys(int(row[1]) for row in _rows(ml_100k_folder / "u.data", "\t", "ascii"))
    return {number: titles[item] for number, item in enumerate(items)}


# --- sequences and times -------------------------------------------------------------------------------


def sequences(file: Path) -> Interactions:
    """One line for each user: the user, then their items, oldest first; the time is the position."""
    return read_interactions(file, format="adjacency", chronological=True)


def grocery(folder: Path) -> Interactions:
    """train.csv: user_id, item_id, time, separated by tabs, below a header."""
    return read_interactions(folder / "train.csv", format="tsv", user="user_id", item="item_id", time="time")


# --- published splits ----------------------------------------------------------------------------------


def lightgcn_split(folder: Path) -> Split:
    """train.txt and test.txt: each line is a user followed by their items, in order; test continues train."""
    train, test = (sequences(folder / f"{part}.txt") for part in ("train", "test"))
    split = split_given(train, test)
    position = np.asarray(split.test.time) + split.train.user_counts[split.test.users]
    return replace(split, test=replace(split.test, time=position))


def coat_split(folder: Path) -> Split:
    """train.ascii (ratings of self-chosen items) and test.ascii (of random items): matrices, 0 is unknown.

    Pairs that are in both files stay in train only; their ratings are equal.
    """
    train, test = (_of_matrix(folder / f"{part}.ascii") for part in ("train", "test"))
    return split_given(train, test, overlap="drop")


def yahoo_r3_split(folder: Path) -> Split:
    """The two files unchanged: self-chosen items of 15,400 users; random items of 5,400 of them."""
    train, test = _yahoo_parts(folder)
    return split_given(train, test, overlap="drop")


def yahoo_r3(folder: Path) -> Interactions:
    """The pairs of users 1 … 5,400, who are in both files: most likely the data of the paper."""
    table = pa.concat_tables([part.to_table() for part in _yahoo_parts(folder)])
    return read_interactions(table.filter(pc.less_equal(table["user"], 5400)), duplicates="first")


def union(split: Split) -> Interactions:
    """All pairs of all parts, with their times or positions."""
    table = pa.concat_tables([part.to_table() for part in split.parts.values()])
    if "order" not in table.column_names:
        return read_interactions(table)
    return replace(read_interactions(table, time="order"), time_kind="order")


# --- complete labels ---------------------------------------------------------------------------------


def kuairec(folder: Path) -> Interactions:
    """The positives, over all items of the block, including those without a positive."""
    found = read_interactions(folder / "small_matrix_positives.csv")
    items = IdMap.of([int(line) for line in (folder / "small_matrix_items.txt").read_text().split()], "item")
    codes = items.codes(found.item_ids, "item")[found.items]
    return Interactions(found.users, codes, found.user_ids, items)


def jester5k(folder: Path) -> Interactions:
    """jester5k.npz: a users x jokes matrix in SciPy's CSC arrays; ids are rows and columns."""
    with np.load(folder / "jester5k.npz", allow_pickle=False) as parts:
        arrays = parts["data"], parts["indices"], parts["indptr"]
        return read_interactions(sp.csc_array(arrays, shape=tuple(parts["shape"].tolist())))


# --- raw files -------------------------------------------------------------------------------------


def _existing_file(folder: Path, file: str, official_name: str | None = None) -> Path:
    if not (folder / file).exists():
        raise InputError(f"{folder} has no {official_name or file} with the titles; put it there.")
    return folder / file


def _rows(path: Path, separator: str, encoding: str) -> Iterator[list[str]]:
    with open(path, encoding=encoding, newline="\n") as file:
        for line in file:
            yield line.rstrip("\r\n").split(separator)


def _of_matrix(path: Path) -> Interactions:
    matrix = np.loadtxt(path, dtype=np.int64, ndmin=2)
    users, items = np.nonzero(matrix)
    n_users, n_items = matrix.shape
    rating = matrix[users, items].astype(np.float64)
    return Interactions(users, items, IdMap.range(n_users), IdMap.range(n_items), rating)


def _yahoo_parts(folder: Path) -> list[Interactions]:
    files = [folder / f"ydata-ymusic-rating-study-v1_0-{part}.txt" for part in ("train", "test")]
    return [read_interactions(file, format="tsv", header=False) for file in files]
