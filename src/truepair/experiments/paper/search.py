"""The clean protocol's search: the same effort and the same ranges for every method, validation only."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice
from truepair.evaluation import Validation
from truepair.experiments.lines import Lines, TrialLine, append_line, read_lines
from truepair.experiments.paper.points import device_name, solved
from truepair.experiments.paper.presets import (
    CHOOSE_BY,
    METHODS_OF,
    NO_ENCODER,
    REFERENCES,
    Material,
    PaperData,
)
from truepair.experiments.tuning import (
    Asked,
    Choice,
    Powers,
    Range,
    Runner,
    Trial,
    When,
    training_runner,
    tune,
)
from truepair.experiments.tuning.domains import Domain
from truepair.experiments.tuning.trials import Outcome

TRIALS = {"mf": 30, "lightgcn": 10, NO_ENCODER: 30}
_ONE_PARAMETER = 12  # trials enough for a line: they lie closer together than 30 in a plane
# Dimension and N end where a trial would take minutes: they are not extended beyond, for any method.
_DIM = {"mf": Powers(32, 128, most=128), "lightgcn": Powers(32, 64, most=64)}
_N = Powers(1, 32, least=1, most=32)
_LONGER = 4  # times the epochs, for a best trial that was still rising
_TEMPERATURE = Range(0.05, 0.5, log=True)
Searched = Domain | When
Place = tuple[str, str, str]  # dataset, encoder, method
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
        return {} if method == "ials" else {"encoder": {"popularity": "popular"}.get(method, method)}
    flat: dict[str, Any] = {
        "encoder": encoder, "loss": method, "sampler": "uniform", "batch_size": data.clean_batch,
        "epochs": _epochs(data, encoder), "patience": 15, "validate_every": 5,
    }  # fmt: skip
    if method == "bns":
        # the batch that estimates F costs batch² scores a step: the paper's own size
        flat |= {"loss": "bpr", "sampler": "bns", "sampler.in_batch": True, "n_unlabelled": 1}
        flat |= {"batch_size": 1024}
    return flat


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
    place = material.data.name, encoder, method
    runner: Any = _runner(material, encoder, method)

    def lines() -> list[TrialLine]:
        found = read_lines(out).trials
        return [
            t for t in found if (t.dataset, t.encoder, t.method) == place and t.split == material.carved.hash
        ]

    def keep(trial: Trial) -> None:
        append_line(out / f"trials-{material.data.name}.jsonl", _line(material, encoder, method, trial))

    for trial in _trials(space_of(encoder, method), runner, place, out, progress, together, len(lines())):
        if trial.number not in {line.number for line in lines()}:
            keep(trial)
    while True:
        best = best_trials(Lines(trials=lines()))[place]
        epochs = best.parameters.get("epochs", 0)
        over = best.epoch != epochs or epochs > _LONGER * runner.fixed["epochs"]
        if over or any(trial.parameters.get("epochs", 0) > epochs for trial in lines()):
            return best
        keep(_one_trial(runner, len(lines()), dict(best.parameters) | {"epochs": _LONGER * epochs}))


def _trials(
    space: Mapping[str, Searched],
    runner: Any,
    place: Place,
    out: Path,
    progress: bool,
    together: int,
    kept: int,
) -> Sequence[Trial]:
    """The trials of a search; none where its journal is gone and as many as were asked for are kept."""
    if not space:  # nothing to choose
        return [] if kept else [_one_trial(runner, 0, runner.fixed)]
    encoder = place[1]
    trials = min(TRIALS[encoder], _ONE_PARAMETER) if len(space) == 1 else TRIALS[encoder]
    storage = out / "storage" / f"{_file(place)}.journal"
    if kept >= trials and not storage.exists():
        return []
    storage.parent.mkdir(parents=True, exist_ok=True)
    study = " ".join(place)
    found = tune(
        space, runner, trials=trials, storage=storage, study=study, together=together, progress=progress
    )
    return found.trials


def _file(place: Place) -> str:
    return "_".join("none" if part == NO_ENCODER else part for part in place)


def _one_trial(runner: Any, number: int, parameters: Mapping[str, Any]) -> Trial:
    """A trial that is not chosen by the search."""
    ended: list[Outcome] = []
    runner([Asked(number, {**runner.fixed, **parameters}, ended.append)])
    return Trial(number, {**runner.fixed, **parameters}, **dataclasses.asdict(ended[0]))


def _runner(material: Material, encoder: str, method: str) -> Runner:
    valid, train = material.carved.valid, material.carved.train
    assert valid is not None
    fixed = fixed_of(material.data, encoder, method)
    if encoder == NO_ENCODER:
        return PointRunner(method, fixed, train, Validation(valid, train, CHOOSE_BY))
    return training_runner(fixed, train, valid, CHOOSE_BY)


class PointRunner:
    """Solves reference points and gives their one score."""

    def __init__(self, method: str, fixed: Mapping[str, Any], train: Interactions, score: Validation) -> None:
        self.method, self.fixed, self.train, self.score = method, dict(fixed), train, score
        self.identity = score.identity

    def __call__(self, batch: Sequence[Asked]) -> None:
        """One after the other."""
        for asked in batch:
            began = time.perf_counter()
            try:
                model = solved(self.method, asked.parameters, self.train)
            except (InputError, RuntimeError, MemoryError) as error:
                asked.fail(str(error))
            else:
                asked.finish(self.score(model), model.epochs, time.perf_counter() - began, model.engine)


def _line(material: Material, encoder: str, method: str, trial: Trial) -> TrialLine:
    return TrialLine(
        dataset=material.data.name,
        encoder=encoder,
        method=method,
        number=trial.number,
        state=trial.state,
        parameters=lasting(trial.parameters),
        score=_rounded(trial.score),
        epoch=trial.epoch,
        curve=[(epoch, round(score, 5)) for epoch, score in trial.history],
        split=material.carved.hash,
        engine=trial.engine,
        device=device_name(),
        seconds=round(trial.seconds, 3),
    )


def lasting(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without what does not change a result."""
    return {name: value for name, value in parameters.items() if name not in ("engine", "device", "metric")}


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 6)


def best_trials(lines: Lines) -> dict[Place, TrialLine]:
    """The best finished trial of each (dataset, encoder, method); of equal ones the first."""
    found: dict[Place, TrialLine] = {}
    for line in sorted(lines.trials, key=lambda line: line.number):
        if line.state != "complete" or line.score is None:
            continue
        place = line.dataset, line.encoder, line.method
        if place not in found or line.score > (found[place].score or 0.0):
            found[place] = line
    return found
