"""URLs of databases: what they name, and that no message or text shows a password."""

import os
from pathlib import Path

import pytest

from truepair.data.sources.sql_urls import (
    Database,
    check_no_url,
    find_database,
    is_url,
    parse_url,
    without_password,
)
from truepair.errors import InputError

SECRET = "hunter2"

GOOD = {
    f"postgresql://ann:{SECRET}@host/shop": ("postgresql://ann@host/shop", None),
    f"postgres://ann:{SECRET}@host:5432/shop#clicks": ("postgres://ann@host:5432/shop", "clicks"),
    f"PostgreSQL://ann:a:{SECRET}%40@a:1,b:2/shop?sslmode=require": ("postgresql://ann@a:1,b:2/shop", None),
    f"postgresql://host/shop?user=ann&password={SECRET}#a.b": ("postgresql://host/shop", "a.b"),
    f"postgresql:///?host=/run/pg&password={SECRET}": ("postgresql:///", None),
    "postgresql://[::1]:5432/shop#my%20%23%40 clicks": ("postgresql://[::1]:5432/shop", "my #@ clicks"),
}


@pytest.mark.parametrize("url", GOOD)
def test_what_a_url_of_a_server_names(url):
    found = parse_url(url)
    assert (found.shown, found.table) == GOOD[url]
    assert found.engine == "postgresql"
    assert found.path is None
    assert found.address == url.partition("#")[0]
    assert SECRET not in repr(found) + without_password(url)


def test_what_a_url_of_a_file_names():
    assert parse_url("sqlite:///a%23b/shop.db") == Database(
        "sqlite", "a#b/shop.db", "sqlite:///a%23b/shop.db"
    )
    found = parse_url("duckdb:////tmp/shop.duckdb#my.clicks")
    assert (found.path, found.table) == (Path("/tmp/shop.duckdb"), "my.clicks")
    assert parse_url("sqlite:///~/shop.db").path == Path.home() / "shop.db"


BAD = [
    *(f"postgresql://ann:{SECRET}{mark}x@host/shop" for mark in "@/?# %\n"),
    *(f"postgresql://ann:x{mark}{SECRET}@host/shop" for mark in "@/?# %\n"),
    f"postgresql://ann:{SECRET}%00@host/shop",
    f"postgresql://ann:{SECRET}%zz@host/shop",
    f"postgresql://host/shop?password={SECRET}@x",
    f"mysql://ann:{SECRET}@host/shop",
    f"postgresql+psycopg://ann:{SECRET}@host/shop",
    f"sqlite://ann:{SECRET}@host",
    f"sqlite:///shop.db?key={SECRET}",
    f"duckdb:///?key={SECRET}",
    f"sqlite:///%00{SECRET}",
]


@pytest.mark.parametrize("url", BAD)
def test_a_url_that_is_not_understood_is_not_shown(url):
    with pytest.raises(InputError) as error:
        parse_url(url)
    assert SECRET not in str(error.value) + without_password(url) + without_password(f"--x={url}")
    assert url.partition(":")[0] in str(error.value)


@pytest.mark.parametrize("url", [*GOOD, *BAD])
def test_a_path_made_of_a_url_is_not_shown(url):
    if not url.lower().startswith(("postgres:", "postgresql:", "sqlite:", "duckdb:")):
        return
    for path in (Path(url), str(Path(url))):
        with pytest.raises(InputError) as error:
            find_database(path)
        assert SECRET not in str(error.value)


def test_only_urls_lose_something():
    assert without_password("clicks.csv") == "clicks.csv"
    assert without_password("sqlite:///a b.db#clicks") == "sqlite:///a b.db#clicks"
    assert (
        without_password(f"--candidates=postgres://a:{SECRET}@h/d#t u")
        == "--candidates=postgres://a@h/d#t%20u"
    )
    assert is_url("postgresql://x")
    assert not is_url("clicks.csv")
    assert not is_url(Path("postgresql://x"))
    check_no_url(Path("clicks.db"))


def test_files_are_recognised_by_their_first_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_bytes(b"SQLite format 3\0" + bytes(84))
    Path("b.db").write_bytes(bytes(8) + b"DUCK" + bytes(8))
    Path("c.db").write_bytes(b"user,item\n1,2\n")
    assert find_database("a.csv") == Database("sqlite", "a.csv", "sqlite:///a.csv")
    assert find_database(Path("b.db")) == Database("duckdb", "b.db", "duckdb:///b.db")
    assert find_database("c.db") is None
    assert find_database("missing.db") is None
    assert find_database("nul\0.db") is None


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert find_database(tmp_path / "pipe") is None  # opening it would wait for a writer
