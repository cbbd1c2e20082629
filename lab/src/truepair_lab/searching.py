"""A search whose trials are lines: it can be stopped, goes on, and is over when its lines are all there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from truepair.search.domains import Domain, When
from truepair.search.running import run_search
from truepair.search.trials import OpenTrial, Trial
from truepair_lab.lines import Lines, TrialLine, append_line, read_lines

Searched = Domain | When
Place = tuple[str, str, str]  # dataset, encoder, method
ONE_PARAMETER = 12  # trials enough for a line: they lie closer together than 30 in a plane


@dataclass(frozen=True)
class Quest:
    """A search of one method on one dataset.

    split   the checksum of what is learnt from and chosen by
    runner  runs trials, see `tuning.Runner`; its `fixed` are the parameters that all trials share
    trials  how many; see `trials_for`
    device  where it runs, for the lines
    extensions  how often ranges may grow
    first   values of the first trial, where it is not the middle of the space
    """

    place: Place
    split: str
    space: Mapping[str, Searched]
    runner: Any
    trials: int
    device: str
    extensions: int = 2
    first: Mapping[str, Any] = field(default_factory=dict)

    def run(
        self,
        out: Path,
        progress: bool = False,
        together: int = 1,
        on_trial: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        """Run what is missing; every trial is a line in `out` as soon as it ends, after `on_trial`."""

        def ended(trial: Trial) -> None:
            on_trial(trial)
            self.keep(trial, out)

        found = self._found(out, progress, together, ended)
        known = {line.number for line in self.lines(out)}  # read once: the folder has thousands of lines
        for trial in found:
            if trial.number not in known:
                self.keep(trial, out)

    def lines(self, out: Path) -> list[TrialLine]:
        """The trials that are kept."""
        return [
            line
            for line in read_lines(out).trials
            if (line.dataset, line.encoder, line.method) == self.place and line.split == self.split
        ]

    def best(self, out: Path) -> TrialLine:
        """The best trial that is kept."""
        return best_trials(Lines(trials=self.lines(out)))[self.place]

    def keep(self, trial: Trial, out: Path) -> None:
        """Add the line of a trial."""
        append_line(
            out / f"trials-{self.place[0]}.jsonl", trial_line(self.place, self.split, self.device, trial)
        )

    def one_trial(self, number: int, parameters: Mapping[str, Any]) -> Trial:
        """A trial that is not chosen by the search."""
        ended: list[Trial] = []
        whole = {**self.runner.fixed, **parameters}
        self.runner([OpenTrial(number, dict(whole), ended.append)])
        return ended[0]

    def _found(
        self, out: Path, progress: bool, together: int, ended: Callable[[Trial], None]
    ) -> Sequence[Trial]:
        """The trials; none where the journal is gone and as many as were asked for are kept."""
        kept = len(self.lines(out))
        if not self.space:  # nothing to choose
            if not kept:
                ended(self.one_trial(0, {}))
            return []
        storage = self._storage(out)
        if kept >= self.trials and not storage.exists():
            return []
        storage.parent.mkdir(parents=True, exist_ok=True)
        found = run_search(
            self.space,
            self.runner,
            trials=self.trials,
            storage=storage,
            study=" ".join(self.place),
            together=together,
            progress=progress,
            extensions=self.extensions,
            on_trial=ended,
            first=self.first,
        )
        return found.trials

    def is_left(self, out: Path) -> bool:
        """Whether trials are kept, and the journal is gone: a search could only begin anew."""
        return not self._storage(out).exists() and bool(self.lines(out))

    def _storage(self, out: Path) -> Path:
        name = "_".join("none" if part == "-" else part for part in self.place)
        return out / "storage" / f"{name}.journal"


def trials_for(space: Mapping[str, Searched], trials: int) -> int:
    """The number of trials; smaller if there is only one parameter to search."""
    return min(trials, ONE_PARAMETER) if len(space) == 1 else trials


def trial_line(place: Place, split: str, device: str, trial: Trial) -> TrialLine:
    """The line of a trial."""
    return TrialLine(
        *place,
        number=trial.number,
        state=trial.state,
        parameters=lasting(trial.parameters),
        score=None if trial.score is None else round(trial.score, 6),
        epoch=trial.epoch,
        curve=[(epoch, round(score, 5)) for epoch, score in trial.history],
        split=split,
        engine=trial.engine,
        device=device,
        seconds=round(trial.seconds, 3),
    )


def lasting(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without what does not change a result."""
    return {name: value for name, value in parameters.items() if name not in ("engine", "device", "metric")}


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


def best_settings(lines: Lines) -> dict[Place, dict[str, Any]]:
    """The parameters, epoch and validation score of each best trial."""
    return {
        place: {"parameters": dict(best.parameters), "epoch": best.epoch, "validation": best.score}
        for place, best in best_trials(lines).items()
    }


def read_settings(package: str, name: str) -> dict[Place, dict[str, Any]]:
    """The best settings in a file of this package, as `settings_json` wrote them."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    found = {tuple(place.split()): best for place, best in json.loads(text).items()}
    return {(dataset, encoder, method): best for (dataset, encoder, method), best in found.items()}


def settings_json(settings: Mapping[Place, Mapping[str, Any]]) -> str:
    """The best settings as JSON, in the order of their places."""
    found = {" ".join(place): best for place, best in sorted(settings.items())}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"
