"""URLs of databases: which engine, where, which table; and their text without the password."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from truepair.errors import InputError, did_you_mean

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_PATH_OF_URL = re.compile(r"(postgres|postgresql|sqlite|duckdb):/", re.IGNORECASE)
_FORM = {
    "postgresql": "postgresql://user@host:5432/database",
    "sqlite": "sqlite:///folder/file.db",
    "duckdb": "duckdb:///folder/file.duckdb",
}

# Strict, so that no part of a password can be taken for a host, a database or a table, which messages show
_CHARACTER = r"(?:[^\s:@/?#%]|%(?!00)[0-9a-f]{2})"
_POSTGRESQL = re.compile(
    rf"postgres(?:ql)?://(?:(?P<user>{_CHARACTER}*)(?P<password>:(?:{_CHARACTER}|:)*)?@)?"
    r"(?P<place>[^\s@/?#]*(?:/[^\s@/?#]*)?)(?P<options>\?[^\s@#]*)?(?:#(?P<table>[^@#]+))?",
    re.IGNORECASE,
)
_FILE = re.compile(r"(?:sqlite|duckdb):///(?P<path>[^?#]+)(?:#(?P<table>[^#]+))?", re.IGNORECASE)

_MAGIC = {"sqlite": (0, b"SQLite format 3\0"), "duckdb": (8, b"DUCK")}
"""Engine -> where in its files which bytes are."""


@dataclass(frozen=True)
class Database:
    """A database, and perhaps one of its tables."""

    engine: str
    """One of postgresql, sqlite and duckdb."""
    address: str = field(repr=False)
    """What the engine connects to: a URL with its password, or the path of a file."""
    shown: str
    """The URL without the password and without options."""
    table: str | None = None

    @property
    def path(self) -> Path | None:
        """The file; None for a server."""
        return None if self.engine == "postgresql" else Path(self.address)


def is_url(source: object) -> bool:
    """Whether this is a URL, of a database or of anything else; text only, since a path has no `//`."""
    return isinstance(source, str) and _URL.match(source) is not None


def find_database(source: str | os.PathLike[str]) -> Database | None:
    """The database of a URL, or of a file that is one by its first bytes; None for other paths."""
    if is_url(source):
        return parse_url(str(source))
    path = Path(source)
    check_no_url(path)
    try:
        path = path.expanduser()
        engine = engine_of(path) if path.is_file() else None  # a pipe can be read only once
    except (OSError, RuntimeError, ValueError):
        return None  # the reader of files says what is wrong
    return None if engine is None else Database(engine, str(path), f"{engine}:///{quote(str(path))}")


def check_no_url(path: Path) -> None:
    """Raise if a path is the URL of a database; the message does not show it: it may have a password."""
    if _PATH_OF_URL.match(str(path)):
        raise InputError("the URL of a database cannot be a path here; give a file, or a URL as text.")


def engine_of(path: Path) -> str | None:
    """The engine of a file, by its first bytes; None for other files."""
    with path.open("rb") as file:
        head = file.read(16)
    return next((engine for engine, (at, magic) in _MAGIC.items() if head[at:].startswith(magic)), None)


def parse_url(url: str) -> Database:
    """The database of a URL. An error never contains the URL, which may have a password."""
    scheme = url.partition("://")[0].lower()
    engine = "postgresql" if scheme == "postgres" else scheme
    if engine not in _FORM:
        raise InputError(
            f"{scheme}:// cannot be read; give a path, or the URL of a database: {', '.join(_FORM.values())}."
            + did_you_mean(scheme, _FORM)
        )
    found = (_POSTGRESQL if engine == "postgresql" else _FILE).fullmatch(url)
    if found is None:
        raise InputError(f"the URL of {scheme} is not of the form {_FORM[engine]}{_HINTS[engine]}.")
    table = None if found["table"] is None else unquote(found["table"])
    if engine == "postgresql":
        user = f"{found['user']}@" if found["user"] else ""
        address = url.partition("#")[0]
        return Database(engine, address, f"{scheme}://{user}{found['place']}", table)
    path = os.path.expanduser(unquote(found["path"]))
    if "\0" in path:
        raise InputError(f"the URL of {scheme} has a NUL in the path of the file; correct it.")
    return Database(engine, path, f"{scheme}:///{found['path']}", table)


_FILE_HINT = (
    ": three slashes before a relative path, four before an absolute one, no options; #table at the end "
    "names a table, and ? # % in names are %3F %23 %25"
)
_HINTS = {
    "postgresql": "; in names and passwords, : @ / ? # % and spaces are written as %3A %40 %2F %3F %23 %25 "
    "%20. #table at the end names a table",
    "sqlite": _FILE_HINT,
    "duckdb": _FILE_HINT,
}


def without_password(text: str) -> str:
    """The text, in which a URL has no password; a URL that is not understood is cut off after its scheme.

    >>> without_password("postgresql://ann:secret@host/shop#clicks")
    'postgresql://ann@host/shop#clicks'
    """
    found = re.search(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE)
    if found is None:
        return text
    try:
        database = parse_url(text[found.start() :])
    except InputError:
        return f"{text[: found.end()]}…"
    table = "" if database.table is None else f"#{quote(database.table, errors='replace')}"
    return f"{text[: found.start()]}{database.shown}{table}"
