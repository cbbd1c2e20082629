"""A study in a journal: one append-only file that Optuna writes, which many processes may share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import check_distribution_compatibility
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler, TPESampler
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, TrialState

from truepair.errors import InputError, StorageError, TruepairError
from truepair.search.domains import (
    Choice,
    Domain,
    Flat,
    Powers,
    Space,
    Value,
    When,
    distribution_of,
    domain_of,
    is_asked,
    place_of,
    plain_space,
    read_space,
)
from truepair.search.journal import Presence, Process, locked
from truepair.search.trials import History, OpenTrial, Trial
from truepair.storage.plain_values import every_value, is_number, read_record
from truepair.storage.types import Json
from truepair.storage.versions import current_parameters

_RANDOM_TRIALS = 8  # before the sampler learns from them


class KeptStudy:
    """Optuna's study of this name, created if it does not exist, with its meaning and its extensions.

    `meaning` is everything that makes two scores comparable; a study with another meaning is refused. With
    `keep_space`, an existing study keeps the space that it began with. `has_default` marks a new study whose
    first trial is the default.
    """

    def __init__(
        self, storage: Path, name: str, meaning: Flat, *, keep_space: bool = False, has_default: bool = False
    ) -> None:
        self.path, self.name = storage.absolute(), name
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise InputError(f"storage = {str(storage)!r} must be a file in a folder that exists.")
        with self.lock(), contextlib.ExitStack() as stack:
            self.study = self._opened()
            self.presence = Presence(self.path)
            stack.callback(self.presence.leave)
            self._check(meaning, keep_space, has_default)
            self.recover(everything=self.presence.alone)
            stack.pop_all()

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Everything that is asked of the study is asked within this."""
        return locked(self.path)

    def _opened(self) -> optuna.Study:
        try:
            # Optuna asks for a lock of its own; everything that it writes is written within `locked`
            backend = JournalFileBackend(str(self.path), lock_obj=threading.RLock())  # type: ignore[arg-type]
            storage, name = JournalStorage(backend), self.name
            study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=True
            )
            _check_contents(study)
        except TruepairError:
            raise
        except Exception as error:  # Optuna raises errors of every type on lines that it did not write
            why = f"is not a journal of trials ({error!r:.100}); use another file"
            raise StorageError(f"{self.path} {why}.") from error
        return study

    def _check(self, meaning: Flat, keep_space: bool, has_default: bool) -> None:
        kept = self.study.user_attrs.get("meaning")
        if kept is None:
            self.study.set_user_attr("has default", has_default)
            self.study.set_user_attr("meaning", dict(meaning))
            return
        for what in meaning:
            there, now = _current(kept.get(what)), _current(meaning[what])
            if there != now and not (keep_space and what == "space"):
                which = f"study {self.name!r} in {self.path}"
                raise InputError(
                    f"{which} differs in its {what}: {there} there, {now} now. Use another name."
                )

    # --- contents --------------------------------------------------------------------------------------

    def frozen(self) -> list[FrozenTrial]:
        """Optuna's trials, in their order."""
        return self.study.get_trials(deepcopy=False)

    def trials(self) -> tuple[Trial, ...]:
        """The trials that have ended, without those that were interrupted: they are run again."""
        return tuple(_trial(one) for one in self.frozen() if one.state.is_finished() and _counts(one))

    def counted(self) -> int:
        """How many trials are done or under way; those that were interrupted are not."""
        return sum(map(_counts, self.frozen()))

    def has_default(self) -> bool:
        """Whether trial 0 of this study is the default; it is not in journals of earlier versions."""
        return bool(self.study.user_attrs.get("has default"))

    def default_number(self) -> int | None:
        """The number of the trial of the default, if it is done or under way."""
        marked = (one.number for one in self.frozen() if _counts(one) and one.user_attrs.get("default"))
        return next(marked, None)

    def at_work(self) -> bool:
        """Whether a process of this machine runs a trial; other machines are not known."""
        here = Process.this().host
        return any(not t.state.is_finished() and t.user_attrs["owner"]["host"] == here for t in self.frozen())

    def recover(self, everything: bool = False) -> None:
        """End the trials that dead processes left, or all that are open.

        A trial is made and given its owner under the lock, so one without an owner has lost it.
        """
        for one in self.frozen():
            owner = one.user_attrs.get("owner")
            if not one.state.is_finished() and (everything or owner is None or Process(**owner).is_dead()):
                self._end(one.number, one.user_attrs.get("outcome"))

    # --- the space and its extensions ------------------------------------------------------------------

    @property
    def extensions(self) -> list[Json]:
        """Each: the space as it became, and the names of what grew."""
        return list(self.study.user_attrs.get("extensions", []))

    def space(self) -> dict[str, Domain | When]:
        """The space as it is now."""
        return read_space([self.study.user_attrs["meaning"], *self.extensions][-1]["space"])

    def extend(self, space: Space, names: Sequence[str]) -> None:
        """Keep a larger space."""
        facts = {"space": plain_space(space), "names": list(names)}
        self.study.set_user_attr("extensions", [*self.extensions, facts])

    # --- asking and reporting --------------------------------------------------------------------------

    def ask(
        self,
        fixed: Flat,
        space: Space,
        pinned: Flat,
        pruned_by: Sequence[History] = (),
        seed: int | None = None,
    ) -> OpenTrial:
        """A new trial; what is pinned has that value, the rest is chosen by TPE. Without a seed: the default.

        What TPE samples is a function of the seed and of how many trials there are, so that a search that was
        interrupted goes on as it would have, and no two processes sample the same.
        """
        sampler: BaseSampler = RandomSampler(0)
        if seed is not None:
            own = int(np.random.SeedSequence([seed, self.counted()]).generate_state(1)[0])
            sampler = TPESampler(
                n_startup_trials=_RANDOM_TRIALS, multivariate=False, constant_liar=True, seed=own
            )
        places = {name: place_of(domain_of(space[name]), value) for name, value in pinned.items()}
        self.study.sampler = PartialFixedSampler(places, sampler)
        trial = self.study.ask()
        trial.set_user_attr("owner", asdict(Process.this()))
        if seed is None:
            trial.set_user_attr("default", True)
        parameters = dict(fixed)
        for name, entry in space.items():
            if is_asked(entry, parameters):
                parameters[name] = _suggested(trial, name, domain_of(entry))
        trial.set_user_attr("parameters", parameters)
        return OpenTrial(trial.number, parameters, lambda ended: self._settle(trial, ended), pruned_by)

    def _settle(self, trial: optuna.Trial, ended: Trial) -> None:
        facts = {name: value for name, value in asdict(ended).items() if name not in ("number", "parameters")}
        # a process that took this one for dead has ended its trial already: nothing can be changed then
        with self.lock(), contextlib.suppress(RuntimeError):
            if ended.state == "pruned" and ended.history:
                trial.report(ended.history[-1][1], ended.history[-1][0])  # TPE ranks pruned ones by it
            trial.set_user_attr("outcome", facts)
            self._end(trial.number, facts)

    def abandon(self, asked: OpenTrial) -> None:
        """End a trial that was interrupted."""
        asked.ended = True
        with self.lock():
            self._end(asked.number, None)

    def _end(self, number: int, outcome: Flat | None) -> None:
        # To Optuna a trial that failed is pruned before its first report. TPE does not see failed ones, takes
        # their place for unexplored, and asks there again and again: 45 of 54 trials in a test.
        value, state = None, TrialState.PRUNED
        if outcome is None:
            state = TrialState.FAIL
        elif outcome["state"] == "complete":
            value, state = outcome["score"], TrialState.COMPLETE
        self.study.tell(number, value, state, skip_if_finished=True)


def _current(value: object) -> object:
    """Fixed parameters, or a space, by their names of today."""
    return current_parameters(value) if isinstance(value, Mapping) else value


def _counts(one: FrozenTrial) -> bool:
    """Whether a trial is done or under way: one that ended without an outcome was interrupted."""
    return not one.state.is_finished() or "outcome" in one.user_attrs


def _trial(one: FrozenTrial) -> Trial:
    asked = {"number": one.number, "parameters": one.user_attrs.get("parameters", {})}
    return read_record(Trial, {**asked, **one.user_attrs["outcome"]})


def _suggested(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    if isinstance(domain, Choice):
        return trial.suggest_categorical(name, domain.values)
    if isinstance(domain, Powers):
        return 1 << trial.suggest_int(name, domain.scaled(domain.low), domain.scaled(domain.high))
    return trial.suggest_float(name, domain.low, domain.high, log=domain.log)


def _check_contents(study: optuna.Study) -> None:
    """Raise an error of any type if something that is read later is not such as truepair and Optuna write it.

    Any program may have written the file.
    """
    facts, domains = study.user_attrs, dict[str, Domain]()
    every_value(facts)  # raises if they are nested too deeply
    (direction,) = study.directions
    meaning = [facts["meaning"]] if "meaning" in facts else []
    for each in [*meaning, *facts.get("extensions", [])]:
        _require("an extension", all(isinstance(name, str) for name in each.get("names", [])))
        domains |= {name: domain_of(entry) for name, entry in read_space(each["space"]).items()}
    _require("what it looks for", direction.name == "MAXIMIZE")
    for one in study.get_trials(deepcopy=False):
        every_value(one.user_attrs)
        if "outcome" in one.user_attrs:
            trial = _trial(one)
            _require("a score", trial.score is not None or trial.state == "failed")
        if "owner" in one.user_attrs:
            _require("a process", 0 < read_record(Process, one.user_attrs["owner"]).pid < 2**31)
        # what Optuna's sampler learns from; it refuses a range of another kind in a later trial
        numbers = [one.value] if one.state is TrialState.COMPLETE else []
        for step, score in one.intermediate_values.items():
            numbers += [step, score]
        for name, distribution in one.distributions.items():
            numbers.append(distribution.to_internal_repr(one.params[name]))
            if name in domains:
                check_distribution_compatibility(distribution, distribution_of(domains[name]))
        _require("a number", all(map(is_number, numbers)))


def _require(what: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{what} is not allowed")
