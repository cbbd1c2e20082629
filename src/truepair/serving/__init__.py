"""The service: lists over HTTP, and a store of what users do."""

from importlib.util import find_spec

from truepair.errors import InputError


def check_extra() -> None:
    """Raise if a package that the service needs is not installed."""
    needed = ("fastapi", "uvicorn", "prometheus_client")
    if missing := [name for name in needed if find_spec(name) is None]:
        raise InputError(f"serving needs {', '.join(missing)}: pip install 'truepair[serve]'")
