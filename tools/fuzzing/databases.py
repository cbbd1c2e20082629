"""Targets: damaged files of SQLite; URLs, queries and names of tables."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzing.mutations import ALPHABET
from fuzzing.target import Target
from truepair.data.reading import read_interactions
from truepair.data.sources.sql_urls import without_password
from truepair.data.sources.sql_writing import write_table
from truepair.errors import TruepairError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ROWS = [("ann", 7, 4.5), ("bob", 7, 3), ("bob", None, 5), ("cat", 9, 0.5)]
_SECRET = "hunter2"


def _make(path: Path) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma synchronous = off")
        connection.execute("create table clicks (user text, item integer, rating numeric)")
        connection.executemany("insert into clicks values (?, ?, ?)", _ROWS)
        connection.commit()


# --- files ---------------------------------------------------------------------------------------------


def _files(folder: Path) -> list[bytes]:
    _make(folder / "seed.db")
    return [(folder / "seed.db").read_bytes()]


def _use_file(data: bytes, folder: Path) -> None:
    (folder / "damaged.db").write_bytes(data)
    url = f"sqlite:///{folder}/damaged.db"
    with suppress(TruepairError):
        write_table({"user": ["ann"], "item": [1]}, url, "lists")
    (folder / "damaged.db").write_bytes(data)
    read_interactions(f"{url}#clicks", missing="drop")


# --- texts ---------------------------------------------------------------------------------------------

_WORDS = (
    *(
        "select",
        "user",
        "item",
        "rating",
        "*",
        ",",
        "from",
        "clicks",
        "where",
        "1",
        "'a'",
        "x'ff'",
        "null",
        "as",
    ),
    *(
        "union all",
        "order by",
        "limit",
        "0",
        ";",
        "--",
        "delete from clicks",
        "drop table clicks",
        "(",
        ")",
        '"',
    ),
    *(
        "cast(",
        "as text)",
        "zeroblob(9)",
        "9e999",
        "count(*)",
        "group by",
        "pragma table_info(clicks)",
        "with x as",
    ),
)
_URLS = (
    *("sqlite:///{folder}/a.db", "sqlite:///{folder}/a.db#clicks", "sqlite:///{folder}/none.db#clicks"),
    *(
        "sqlite:///{folder}",
        "sqlite://{folder}/a.db",
        "sqlite:///a.db?mode=rw",
        "{folder}/a.db",
        "sqlite:///",
    ),
    *(
        f"postgresql://ann:{_SECRET}@@host/shop",
        f"postgres://ann:{_SECRET}/x@host",
        f"mysql://ann:{_SECRET}@h/d",
    ),
    *(
        f"postgresql://ann:{_SECRET}%zz@host/shop#x",
        f"postgresql://ann:{_SECRET}#@host/shop",
        "duckdb:///{folder}/a.db",
    ),
)


def _cases() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    text = st.text(ALPHABET + "/%?;", max_size=9)
    words = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=9).map(" ".join)
    columns = st.sampled_from(
        ["*", "user, item", "item as user, rating as item", "'a' as user, 1 as item", "user"]
    )
    rest = st.sampled_from(
        ["", " where item > 7", " limit 0", " union all select 1, 'x', x'ff'", "; drop table clicks"]
    )
    query = st.builds("select {} from clicks{}".format, columns, rest)
    names = ["lists", "clicks", "main.lists", 'x"; drop table clicks; --', "sqlite_master", "a.b.c"]
    name = st.sampled_from(names) | text | st.integers()
    url = st.just(_URLS[0]) | st.sampled_from(_URLS) | st.builds("sqlite:///{{folder}}/{}".format, text)
    values = st.lists(st.integers() | st.none() | text, min_size=1, max_size=1)
    return st.fixed_dictionaries({"url": url}) | st.one_of(
        st.fixed_dictionaries({"url": url, "query": query | query | words | text | st.integers()}),
        st.fixed_dictionaries({"url": url, "fragment": name}),
        st.fixed_dictionaries(
            {"url": url, "name": name, "columns": st.dictionaries(text, values, max_size=3)}
        ),
    )


def _use_texts(data: bytes, folder: Path) -> None:
    """No text shows the password of a URL, and whatever is read or written elsewhere, the clicks stay."""
    case = json.loads(data)
    _make(folder / "a.db")
    url = case["url"].replace("{folder}", str(folder)) + (
        f"#{case['fragment']}" if "fragment" in case else ""
    )
    assert _SECRET not in without_password(url) + without_password(f"--source={url}")
    try:
        if "name" in case:
            write_table(case["columns"], url, case["name"])
        else:
            read_interactions(url, query=case.get("query"), missing="drop")
    except TruepairError as error:
        if _SECRET in str(error):
            raise AssertionError("an error shows the password") from error
        raise
    finally:
        with closing(sqlite3.connect(folder / "a.db")) as connection:
            assert connection.execute("select * from clicks").fetchall() == _ROWS


DATABASES = [
    Target("database files", _use_file, _files, 30),
    Target("database texts", _use_texts, lambda folder: [], 30, _cases),
]
