"""The clean protocol's search: the same effort and the same ranges for every method, validation only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice
from truepair.evaluation import Validation
from truepair.search.domains import Choice, Powers, Range, When
from truepair.search.runner import TrainingRunner
from truepair.search.running import Runner
from truepair.search.trials import OpenTrial, Trial
from truepair_lab.lines import TrialLine
from truepair_lab.paper.baselines import device_name, solved
from truepair_lab.paper.presets import (
    CHOOSE_BY,
    METHODS_OF,
    NO_ENCODER,
    REFERENCES,
    Material,
    PaperData,
)
from truepair_lab.searching import (
    Place,
    Quest,
    Searched,
    best_trials,
    lasting,
    trial_line,
    trials_for,
)

__all__ = [
    "TRIALS",
    "Place",
    "PointRunner",
    "best_trials",
    "fixed_of",
    "fixed_reference",
    "lasting",
    "search",
    "space_of",
]

TRIALS = {"mf": 30, "lightgcn": 10, NO_ENCODER: 30}
# Dimension and N end where a trial would take minutes: they are not extended beyond, for any method.
_DIM = {"mf": Powers(32, 128, most=128), "lightgcn": Powers(32, 64, most=64)}
_N = Powers(1, 32, least=1, most=32)
_LONGER = 4  # times the epochs, for a best trial that was still rising
_TEMPERATURE = Range(0.05, 0.5, log=True)
_PRIOR: dict[str, Searched] = {
    "loss.tau": Range(0.001, 0.4, log=True, most=0.9),
    "n_extra": Powers(1, 16, least=1, most=16),
}


def space_of(encoder: str, method: str) -> dict[str, Searched]:
    """What is searched: shared ranges, and a method's own parameters."""
    if encoder == NO_ENCODER:
        return dict(_REFERENCE_SPACES[check_choice("method", method, _REFERENCE_SPACES)])
    # the contrastive losses carry their temperature themselves: their floor is stated in it
    whose = "loss" if method in ("infonce", "dcl", "hcl") else "encoder"
    shared: dict[str, Searched] = {
        "learning_rate": Range(1e-3, 2e-2, log=True),
        "weight_decay": Range(1e-9, 1e-4, log=True),
        "encoder.dim": _DIM[encoder],
        "n_unlabelled": _N,
        "encoder.scoring": Choice(("dot", "cosine")),
        f"{whose}.temperature": When("encoder.scoring", "cosine", _TEMPERATURE),
    }
    if encoder == "lightgcn":
        shared["encoder.hops"] = Choice((1, 2, 3))
    own = _OWN[check_choice("method", method, _OWN)]
    return {name: domain for name, domain in (shared | own).items() if domain is not None}


# the least score, for the floor of DCL and HCL: −1 for cosines, and to be found for inner products
_FLOOR = {"loss.min_score": When("encoder.scoring", "dot", Range(-10.0, -1.0, least=-50.0, most=0.0))}
_OWN: dict[str, dict[str, Any]] = {
    "bpr": {},
    "infonce": {},
    "dcl": {**_PRIOR, **_FLOOR},
    "hcl": {**_PRIOR, **_FLOOR, "loss.beta": Range(0.1, 2.0, least=0)},
    "dpl": {**_PRIOR},
    "dpl-hard": {**_PRIOR, "loss.beta": Range(0.1, 4.0, least=0)},
    # BNS keeps one of its pool: the pool takes the place of N
    "bns": {
        "n_unlabelled": None,
        "sampler.pool": Powers(2, 32, least=2, most=32),
        "sampler.weight": Range(0.5, 20.0, log=True),
    },
}

_REFERENCE_SPACES: dict[str, dict[str, Searched]] = {
    "popularity": {},
    "itemknn": {
        "encoder.neighbours": Powers(16, 1024, least=1),
        "encoder.shrink": Range(0.1, 1000.0, log=True),
    },
    "ease": {"encoder.l2": Range(10.0, 5000.0, log=True)},
    "ials": {
        "factors": Powers(32, 256, most=512),
        "regularization": Range(0.01, 1000.0, log=True),
        "alpha": Range(0.1, 100.0, log=True),
    },
}


def fixed_of(data: PaperData, encoder: str, method: str) -> dict[str, Any]:
    """What is not searched."""
    if encoder == NO_ENCODER:
        return fixed_reference(method)
    flat: dict[str, Any] = {
        "encoder": encoder, "loss": method, "sampler": "uniform", "batch_size": data.clean_batch,
        "epochs": _epochs(data, encoder), "patience": 15, "validate_every": 5,
    }  # fmt: skip
    if method == "bns":
        # the batch that estimates F costs batch² scores a step: the paper's own size
        flat |= {"loss": "bpr", "sampler": "bns", "sampler.in_batch": True, "n_unlabelled": 1}
        flat |= {"batch_size": 1024}
    return flat


def fixed_reference(method: str) -> dict[str, Any]:
    """Of a reference point: its encoder; iALS is no encoder of truepair."""
    return {} if method == "ials" else {"encoder": {"popularity": "popular"}.get(method, method)}


def _epochs(data: PaperData, encoder: str) -> int:
    """The most epochs of a trial."""
    if data.clean_batch <= 1024:
        return 100
    return 60 if encoder == "mf" else 40


# --- searching -----------------------------------------------------------------------------------------


def search(
    material: Material, encoder: str, method: str, out: Path, *, progress: bool = False, together: int = 1
) -> TrialLine:
    """The best trial of one method on one dataset; every trial is a line in `out`.

    A search that was stopped goes on from its journal; one whose lines are all there is over. If the best
    trial was still rising at its last epoch, it is trained again with more epochs, twice at most.
    """
    check_choice("method", method, REFERENCES if encoder == NO_ENCODER else METHODS_OF[encoder])
    space, runner = space_of(encoder, method), _runner(material, encoder, method)
    place, trials = (material.data.name, encoder, method), trials_for(space, TRIALS[encoder])
    quest = Quest(place, material.holdout.hash, space, runner, trials, device_name())
    quest.run(out, progress, together)
    while True:
        best, lines = quest.best(out), quest.lines(out)
        epochs = best.parameters.get("epochs", 0)
        over = best.epoch != epochs or epochs > _LONGER * quest.runner.fixed["epochs"]
        if over or any(trial.parameters.get("epochs", 0) > epochs for trial in lines):
            return best
        longer = dict(best.parameters) | {"epochs": _LONGER * epochs}
        quest.keep(quest.one_trial(len(lines), longer), out)


def _runner(material: Material, encoder: str, method: str) -> Runner:
    valid, train = material.holdout.valid, material.holdout.train
    assert valid is not None
    fixed = fixed_of(material.data, encoder, method)
    if encoder == NO_ENCODER:
        return PointRunner(method, fixed, train, Validation(valid, train, CHOOSE_BY, cold="model"))
    return TrainingRunner(fixed, train, valid, CHOOSE_BY)


class PointRunner:
    """Solves reference points and gives their one score."""

    def __init__(self, method: str, fixed: Mapping[str, Any], train: Interactions, judge: Validation) -> None:
        self.method, self.fixed, self.train, self.judge = method, dict(fixed), train, judge
        self.identity = judge.identity

    def __call__(self, batch: Sequence[OpenTrial]) -> None:
        """One after the other."""
        for asked in batch:
            began = time.perf_counter()
            try:
                model = solved(self.method, asked.parameters, self.train)
            except (InputError, RuntimeError, MemoryError) as error:
                asked.fail(str(error))
            else:
                asked.finish(
                    self.judge.score(model.users, model.items),
                    model.epochs,
                    time.perf_counter() - began,
                    model.engine,
                )


def _line(material: Material, encoder: str, method: str, trial: Trial) -> TrialLine:
    return trial_line((material.data.name, encoder, method), material.holdout.hash, device_name(), trial)
