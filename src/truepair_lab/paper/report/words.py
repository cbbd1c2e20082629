"""Words: how the report writes names, numbers and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from truepair_lab.paper.presets import DATA

NOT_RUN = "not run"
ENCODER_NAMES = {"mf": "MF", "lightgcn": "LightGCN", "-": ""}
METHOD_NAMES = {
    "bpr": "BPR",
    "infonce": "InfoNCE",
    "dcl": "DCL",
    "hcl": "HCL",
    "dpl": "DPL",
    "dpl-hard": "DPL, hard samples",
    "bns": "BNS",
    "ease": "EASE",
    "ials": "iALS",
    "itemknn": "ItemKNN",
    "popularity": "Popularity",
}


def in_order(names: Iterable[str]) -> Callable[[str], tuple[int, str]]:
    """A sort key: known names in their order, then others by the alphabet."""
    places = {name: place for place, name in enumerate(names)}
    return lambda name: (places.get(name, len(places)), name)


def short(value: float, digits: int = 4) -> str:
    """A figure without its leading zero.

    >>> short(0.43382), short(-0.012), short(1.5)
    ('.4338', '-.0120', '1.5000')
    """
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed(value: float, digits: int = 4) -> str:
    """A difference, always with its sign."""
    return ("+" if value >= 0 else "") + short(value, digits)


def plain(value: object) -> str:
    """A parameter, with three digits where it is no whole number.

    >>> plain(0.00123456), plain(32), plain(None)
    ('0.00123', '32', 'none')
    """
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as a person would say it.

    >>> duration(8.25), duration(600), duration(9000)
    ('8.2 s', '10.0 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def model_name(encoder: str, method: str, variant: str = "") -> str:
    """`MF DPL`, `EASE`, as people write them."""
    words = [ENCODER_NAMES.get(encoder, encoder), METHOD_NAMES.get(method, method)]
    return " ".join(filter(None, words)) + (f" ({variant})" if variant else "")


def dataset_name(name: str) -> str:
    """A dataset as people write it."""
    return DATA[name].title if name in DATA else name


def metric_name(metric: str) -> str:
    """`NDCG@20`, `P@5`."""
    name, _, k = metric.partition("@")
    letters = {"precision": "P", "recall": "R", "ndcg": "NDCG"}
    return f"{letters.get(name, name)}@{k}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; an upright stroke in a cell is escaped."""
    lines = [list(head), ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def details(summary: str, body: str) -> str:
    """A block that opens on a click."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def not_run(missing: Sequence[str]) -> str:
    """The line below a table that says why cells are empty."""
    return f"Not run, as no line tells of it: {', '.join(missing)}: see `truepair lab paper run`."
