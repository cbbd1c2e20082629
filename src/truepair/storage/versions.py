"""Versions of installed packages."""

from __future__ import annotations

import importlib.metadata
import sys


def package_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed.

    The version of truepair is known in a source tree that is not installed, too.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(sys.modules["truepair"].__version__) if package == "truepair" else None
