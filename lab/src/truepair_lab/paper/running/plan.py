"""What the paper's studies want run, in the order of their worth: one seed of everything first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from truepair_lab.lines import Key, Lines, digest
from truepair_lab.paper.presets import (
    ENCODERS,
    METHODS_OF,
    NO_ENCODER,
    REFERENCES,
    SEEDS,
    SEEDS_OF_DPL,
    SPLIT,
    TABLE_2,
    PaperData,
    ablations,
    authors_parameters,
    causes,
    sweeps,
)
from truepair_lab.searching import Place, best_settings, read_settings, settings_json

_WITHOUT_SEEDS = ("popularity", "itemknn", "ease")  # the same whatever the seed
_SWEPT, _ABLATED, _BELOW_PRINT = ("ml-1m",), ("ml-100k", "ml-1m"), ("yelp2018", "gowalla")


Tuned = Mapping[Place, Mapping[str, Any]]  # -> parameters, epoch, …


@dataclass(frozen=True)
class Wanted:
    """A run that a study wants."""

    study: str
    dataset: str
    encoder: str
    method: str
    variant: str
    seed: int
    parameters: Mapping[str, Any]

    @property
    def other_split(self) -> str:
        """The name of the split, see `presets.other_split`; "" for that of the dataset."""
        return self.variant.removeprefix(SPLIT) if self.variant.startswith(SPLIT) else ""

    def key(self, split: str) -> Key:
        """As `RunLine.key`."""
        named = self.study, self.dataset, self.encoder, self.method, self.variant, self.seed
        return (*named, digest(self.parameters), split)


def wanted_runs(
    data: PaperData, studies: Iterable[str], tuned: Tuned, seeds: int | None = None
) -> list[Wanted]:
    """All runs of these studies on one dataset. `tuned` is what `tuned_settings` gives.

    With this number of `seeds` each; without it, the default of the study.
    """
    found = [
        Wanted(study, data.name, encoder, method, variant, seed, parameters)
        for study in studies
        for encoder, method, variant, parameters in _RECIPES[study](data, tuned)
        for seed in range(
            _seeds(study, encoder, method) if seeds is None or method in _WITHOUT_SEEDS else seeds
        )
    ]
    return sorted(found, key=lambda wanted: wanted.seed)


def _seeds(study: str, encoder: str, method: str) -> int:
    if method in _WITHOUT_SEEDS:
        return 1
    return SEEDS_OF_DPL if (study, encoder, method) == ("paper", "mf", "dpl") else SEEDS[study]


Recipe = list[tuple[str, str, str, dict[str, Any]]]  # encoder, method, variant, parameters


def _paper(data: PaperData, tuned: Tuned) -> Recipe:
    methods = METHODS_OF | {"lightgcn": TABLE_2}
    return [(e, m, "", authors_parameters(data, e, m)) for e in ENCODERS for m in methods[e]]


def _paper_tuned(data: PaperData, tuned: Tuned) -> Recipe:
    """DPL and DPL with hard samples, looked at on the test part as the authors did: epochs to spare."""
    return [
        (e, m, "", optimistic(tuned[data.name, e, m]))
        for e in ENCODERS
        for m in ("dpl", "dpl-hard")
        if (data.name, e, m) in tuned
    ]


def _clean(data: PaperData, tuned: Tuned) -> Recipe:
    places = [(e, m) for e in ENCODERS for m in METHODS_OF[e]] + [(NO_ENCODER, m) for m in REFERENCES]
    return [(e, m, "", settled(tuned[data.name, e, m])) for e, m in places if (data.name, e, m) in tuned]


def settled(best: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a best trial, for training on everything: its epoch is the last."""
    parameters = dict(best["parameters"])
    if "patience" in parameters:
        parameters |= {"epochs": best["epoch"], "patience": None}
        parameters.pop("validate_every", None)
    return parameters


def optimistic(best: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a best trial, for the paper's protocol: looked at along the way, and some way on."""
    epochs = 5 * math.ceil(1.5 * best["epoch"] / 5)
    return dict(best["parameters"]) | {"epochs": epochs, "patience": None, "validate_every": 5}


def _sweep(data: PaperData, tuned: Tuned) -> Recipe:
    if data.name not in _SWEPT:
        return []
    return [(e, "dpl", variant, p) for e in ENCODERS for variant, p in sweeps(data, e).items()]


def _ablation(data: PaperData, tuned: Tuned) -> Recipe:
    if data.name not in _ABLATED:
        return []
    return [("mf", "dpl", variant, parameters) for variant, parameters in ablations(data).items()]


def _causes(data: PaperData, tuned: Tuned) -> Recipe:
    return causes(data) if data.name in _BELOW_PRINT else []


_RECIPES = {
    "paper": _paper,
    "paper-tuned": _paper_tuned,
    "clean": _clean,
    "sweep": _sweep,
    "ablation": _ablation,
    "causes": _causes,
}


# --- tuned settings ------------------------------------------------------------------------------------


def tuned_settings(lines: Lines) -> dict[Place, dict[str, Any]]:
    """The best settings of each (dataset, encoder, method): of the trials at hand, else the packaged ones."""
    return packaged_settings() | best_settings(lines)


def packaged_settings() -> dict[Place, dict[str, Any]]:
    """The settings that truepair's own searches found; their trials are in results/paper."""
    return read_settings(__package__, "tuned.json")


def settings_text(lines: Lines) -> str:
    """The text of tuned.json for these trials."""
    return settings_json(best_settings(lines))
