"""Write docs/api.md from the docstrings of the public names: `python tools/api_reference.py`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import truepair

PAGE = Path(__file__).parents[1] / "docs" / "api.md"

GROUPS = {
    "Recommender": "truepair.recommender.estimator",
    "Data": "truepair.data",
    "Models": "truepair.models",
    "Losses": "truepair.losses",
    "Samplers": "truepair.sampling",
    "Training": "truepair.training",
    "Evaluation": "truepair.evaluation",
    "The prior": "truepair.prior",
    "Backtests": "truepair.reporting.backtesting",
    "Tuning": "truepair.search truepair.recommender.tuning",
}

OPENING = """\
# API reference

Every public name of `import truepair as tp`, with its signature and its docstring. The formulas are in
[reference.md](reference.md) and [losses.md](losses.md). `python tools/api_reference.py` writes this page from
the docstrings, and a test checks that it is up to date.
"""


def api_page() -> str:
    """The page as text."""
    names = sorted((name for name in truepair.__all__ if not name.startswith("_")), key=str.lower)
    groups = {title: [name for name in names if _group(name) == title] for title in GROUPS}
    contents = [
        f"- [{title}](#{title.lower().replace(' ', '-')}): {', '.join(f'`{name}`' for name in names)}"
        for title, names in groups.items()
        if names
    ]
    sections = [
        "\n\n".join([f"## {title}", *(_entry(name) for name in names)])
        for title, names in groups.items()
        if names
    ]
    return "\n\n".join([OPENING.rstrip(), "\n".join(contents), *sections]) + "\n"


def _group(name: str) -> str:
    module = getattr(truepair, name).__module__
    if module == "truepair":  # `load`
        return "Recommender"
    for title, packages in GROUPS.items():
        if any(f"{module}.".startswith(f"{package}.") for package in packages.split()):
            return title
    raise SystemExit(f"{name} is defined in {module}, which has no group in tools/api_reference.py")


def _entry(name: str) -> str:
    value = getattr(truepair, name)
    parts = [f"### {name}", _described(f"tp.{name}", value)]
    if inspect.isclass(value):
        parts += [f"#### {name}.{method}\n\n{_described(method, f)}" for method, f in _methods(value)]
    return "\n\n".join(parts)


def _described(name: str, value: Any) -> str:
    """Signature and docstring: the first paragraph as prose, the rest as it is laid out in the source."""
    first, _, rest = (inspect.getdoc(value) or "").partition("\n\n")
    parts = [f"```text\n{_signature(name, value)}\n```"] if callable(value) else []
    parts += [" ".join(line.strip() for line in first.splitlines())] if first else []
    parts += [f"```text\n{rest}\n```"] if rest else []
    return "\n\n".join(parts)


def _signature(name: str, value: Any) -> str:
    """`name(parameters)`, on one line where it fits, else a line for each parameter."""
    signature = inspect.signature(value)
    shown = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    texts = [_parameter(parameter) for parameter in shown]
    kinds = [parameter.kind for parameter in shown]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        texts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    gives = "" if inspect.isclass(value) else _annotation(" -> ", signature.return_annotation)
    line = f"{name}({', '.join(texts)}){gives}"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {t}," for t in texts), f"){gives}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    kind = _annotation(": ", parameter.annotation)
    default = "" if parameter.default is parameter.empty else f"{' = ' if kind else '='}{parameter.default!r}"
    return f"{stars.get(parameter.kind, '')}{parameter.name}{kind}{default}"


def _annotation(before: str, annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return before + (annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods that the class itself, or a base in `spec` or `search`, defines and describes."""
    own = [
        b for b in kind.__mro__ if b is kind or b.__module__.startswith(("truepair.spec", "truepair.search"))
    ]
    for name, value in {name: value for base in reversed(own) for name, value in vars(base).items()}.items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and inspect.isfunction(plain) and plain.__doc__:
            yield name, plain


if __name__ == "__main__":
    PAGE.write_text(api_page())
