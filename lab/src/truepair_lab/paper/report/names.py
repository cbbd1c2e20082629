"""Names: how the report writes encoders, methods, datasets, and what was not run."""

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


def model_name(encoder: str, method: str, variant: str = "") -> str:
    """`MF DPL`, `EASE`, as people write them."""
    words = [ENCODER_NAMES.get(encoder, encoder), METHOD_NAMES.get(method, method)]
    return " ".join(filter(None, words)) + (f" ({variant})" if variant else "")


def dataset_name(name: str) -> str:
    """A dataset as people write it."""
    return DATA[name].title if name in DATA else name


def not_run(missing: Sequence[str]) -> str:
    """The line below a table that says why cells are empty."""
    return f"Not run: {', '.join(missing)}. `truepair-lab paper run` adds what is missing."
