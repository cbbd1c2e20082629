"""Tokens: who may read lists, who may write events."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from truepair.errors import InputError, check_choice
from truepair.serving.refusals import RefusalError

RIGHTS: dict[str, tuple[str, ...]] = {
    "read": ("read",),
    "write": ("write",),
    "admin": ("read", "write", "admin"),
}
"""A kind of token -> what it allows: `read` lists, `write` events; `admin` both, and to change the model."""
_SHORTEST = 16
_REMEDY = "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"


@dataclass(frozen=True, eq=False)
class Tokens:
    """The kinds of all tokens by their digests. Without any, whoever can connect may do everything."""

    kinds: Mapping[bytes, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(tokens: Mapping[str, list[str]]) -> Tokens:
        """Tokens by kind; one that is too short or occurs twice is an error."""
        found: dict[bytes, str] = {}
        for kind, texts in tokens.items():
            check_choice("the kind of tokens", kind, RIGHTS)
            for text in texts:
                if len(text) < _SHORTEST or not text.isascii() or not text.isprintable() or " " in text:
                    raise InputError(
                        f"a {kind} token of {len(text)} characters cannot be used; a token has at least "
                        f"{_SHORTEST} ASCII characters and no space; {_REMEDY}."
                    )
                if found.setdefault(_digest(text), kind) != kind:
                    raise InputError(f"one token is {kind} and {found[_digest(text)]}; {_REMEDY}.")
        return Tokens(found)

    @staticmethod
    def read(path: Path | None, environment: Mapping[str, str] = os.environ) -> Tokens:
        """Those of a TOML file such as `read = ["…"]`, and of TRUEPAIR_READ_TOKEN and the like."""
        tokens: dict[str, list[str]] = {} if path is None else _in_file(path)
        for kind in RIGHTS:
            if text := environment.get(f"TRUEPAIR_{kind.upper()}_TOKEN"):
                tokens.setdefault(kind, []).append(text)
        return Tokens.of(tokens)

    def with_one(self, kind: str, text: str) -> Tokens:
        """These tokens and one more."""
        return Tokens({**self.kinds, _digest(text): kind})

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def check(self, header: str | None, right: str) -> None:
        """Raise a RefusalError unless the header `Authorization: Bearer TOKEN` has a token with this right.

        All tokens are compared, each in constant time, so that the time says nothing about them.
        """
        if not self.kinds:
            return
        owner = self.owner(header)
        if owner is None:
            remedy = "send the header 'Authorization: Bearer TOKEN'"
            raise RefusalError(401, f"a {right} token is needed; {remedy}.", {"www-authenticate": "Bearer"})
        kind = self.kinds[owner]
        if right not in RIGHTS[kind]:
            raise RefusalError(403, f"a {kind} token does not allow this; a {right} token is needed.")

    def owner(self, header: str | None) -> bytes | None:
        """The digest of the token in the header, if it is a known one."""
        scheme, _, text = (header or "").partition(" ")
        asked = _digest(text.strip())
        found = [digest for digest in self.kinds if hmac.compare_digest(digest, asked)]
        return found[0] if found and scheme.lower() == "bearer" else None


def credentials(headers: Mapping[str, str]) -> str | None:
    """The header Authorization; a token in X-API-Key, as programs for Gorse send it, counts as one."""
    key = headers.get("x-api-key")
    return headers.get("authorization") or (f"Bearer {key}" if key else None)


def check_binding(host: str, tokens: Tokens) -> None:
    """Raise unless the service has tokens, or can be reached from this machine alone."""
    if not tokens and not is_loopback(host):
        raise InputError(
            f"--host {host} can be reached from other machines, and there are no tokens; give --tokens FILE "
            "or set TRUEPAIR_READ_TOKEN and TRUEPAIR_WRITE_TOKEN, or use --host 127.0.0.1."
        )


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _in_file(path: Path) -> dict[str, list[str]]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f'cannot read tokens from {path}: {error}; write read = ["TOKEN"].') from None
    for kind, texts in content.items():
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f'{path}: {kind} is no list of texts; write {kind} = ["TOKEN"].')
    return content


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()
