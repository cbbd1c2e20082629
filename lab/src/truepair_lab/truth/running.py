"""Running a case: every treatment is searched on seed 0, then trained and measured on every seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from truepair.errors import check_whole
from truepair.training import EpochState, FitResult, Settings
from truepair_lab import store
from truepair_lab.truth.cases import TruthCase, check_room
from truepair_lab.truth.fitting import Effort, best_of, fit_treatment, search, validation_of
from truepair_lab.truth.lines import Key, TruthLine, append
from truepair_lab.truth.probes import Found, Probe
from truepair_lab.truth.sources import Asked
from truepair_lab.truth.treatments import EVERY, Treatment
from truepair_lab.truth.true_label_metrics import judged_users, list_quality, quality

PROBED_EPOCHS = {1: (1, 3, 10, 30), 2: (2, 4, 10, 30)}  # by how often a run is looked at
Say = Callable[[str], None]


def run_case(
    asked: Asked,
    seeds: int,
    folder: Path,
    say: Say,
    effort: Effort | None = None,
    treatments: Mapping[str, Treatment] = EVERY,
) -> int:
    """Train what has no line yet, and add the lines to `folder`; how many there were to add."""
    cases = _cases(asked, check_whole("seeds", seeds, 1, 100))
    wanted = {n: t for n, t in treatments.items() if t.labels is None or cases[0].complete}
    found, broken = store.read(folder, TruthLine)
    for text in broken:
        say(f"left out: {text}")
    done = {line.key: line for line in found}
    made = 0
    for name, treatment in wanted.items():
        missing = [case for case in cases if _key(case, name) not in done]
        if not missing:
            continue
        began, first = time.perf_counter(), done.get(_key(cases[0], name))
        chosen, tried = _chosen(cases[0], name, treatment, effort or Effort(), done, first)
        for case in missing:
            line = _line(case, name, treatment, replace(chosen, seed=case.seed), effort or Effort(), tried)
            append(folder / f"{case.name}.jsonl", line)
            done[line.key] = line
        made += len(missing)
        say(f"{cases[0].name}, {treatment.title}: {_reached(done, cases, name)} in {_since(began)}")
    return made


def _cases(asked: Asked, seeds: int) -> list[TruthCase]:
    """One for each seed; the first shows whether there is room for the others."""
    first = asked.case(0)
    check_room(first.train, seeds)
    return [first, *(asked.case(seed) for seed in range(1, seeds))]


def _key(case: TruthCase, name: str) -> Key:
    return case.name, case.exposure, case.hide, name, case.seed


def _chosen(
    case: TruthCase,
    name: str,
    treatment: Treatment,
    effort: Effort,
    done: Mapping[Key, TruthLine],
    first: TruthLine | None,
) -> tuple[Settings, Sequence[Sequence[float | None]]]:
    """Settings from a line, from the treatment that lends them, or from a search."""
    plain = effort.grid(case)[0]
    lender = first or done.get(_key(case, treatment.settings_of or ""))
    if lender is not None:
        rate, decay = (lender.settings[part] for part in ("learning_rate", "weight_decay"))
        return replace(plain, learning_rate=rate, weight_decay=decay), ()
    trials = search(case, treatment, effort)
    tried = [[t.settings.learning_rate, t.settings.weight_decay, t.score] for t in trials]
    return best_of(trials), tried


def _line(
    case: TruthCase,
    name: str,
    treatment: Treatment,
    settings: Settings,
    effort: Effort,
    tried: Sequence[Sequence[float | None]],
) -> TruthLine:
    began, watch = time.perf_counter(), _Watch(case, treatment, settings)
    fitted = fit_treatment(case, treatment, settings, effort.dim, watch)
    return TruthLine(
        case=case.name,
        exposure=case.exposure,
        hide=case.hide,
        treatment=name,
        seed=case.seed,
        tau=case.tau,
        facts=facts_of(case),
        settings={"learning_rate": settings.learning_rate, "weight_decay": settings.weight_decay},
        search=tried if case.seed == 0 else (),
        epoch=fitted.epoch,
        epochs=len(fitted.history),
        quality=quality(case, fitted.users, fitted.items),
        curve=watch.curve,
        probes=watch.ended(fitted),
        clamped=fitted.clamped,
        seconds=time.perf_counter() - began,
    )


def facts_of(case: TruthCase) -> dict[str, int]:
    """The sizes of a case."""
    return {
        "users": case.train.n_users,
        "items": case.train.n_items,
        "train": len(case.train),
        "valid": len(case.valid),
        "judged users": len(judged_users(case)),
        "judged positives": int((case.truth & case.judged).sum()),
    }


class _Watch:
    """The `on_epoch` of a measured run: validation, and measures that nothing is chosen by."""

    def __init__(self, case: TruthCase, treatment: Treatment, settings: Settings) -> None:
        self.epochs = PROBED_EPOCHS[settings.validate_every]
        self.case, self.validation = case, validation_of(case, treatment)
        self.probe = Probe(case, treatment) if treatment.labels is None else None
        self.curve: list[list[float]] = []
        self.probes: list[tuple[int, Found]] = []

    def __call__(self, state: EpochState, /) -> float:
        """The validation score."""
        users, items = state.matrices()
        found = list_quality(self.case, users, items)
        self.curve.append([state.epoch, found["ndcg@20"]])
        if self.probe is not None and state.epoch in self.epochs:
            self.probes.append((state.epoch, self.probe.at((users, items))))
        return self.validation(state)

    def ended(self, fitted: FitResult) -> list[tuple[int, Found]]:
        """The probes, with one at the best epoch as the last."""
        if self.probe is None:
            return []
        return [*self.probes, (fitted.epoch, self.probe.at((fitted.users, fitted.items)))]


def _reached(done: Mapping[Key, TruthLine], cases: Sequence[TruthCase], name: str) -> str:
    scores = [done[_key(case, name)].quality["ndcg@20"] for case in cases]
    return f"NDCG@20 against the truth {sum(scores) / len(scores):.4f}"


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.0f} s"
