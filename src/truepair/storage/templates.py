"""Templates: HTML by jinja2 from the folder `templates` of a package; all text is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment(package: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def rendered(package: str, template: str, **values: object) -> str:
    """The text of a template of a package with these values."""
    return _environment(package).get_template(template).render(**values)
