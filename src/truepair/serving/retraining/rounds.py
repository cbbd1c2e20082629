"""Retraining: one round from the store to a decision. It runs in a process of its own."""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice, check_number, check_whole
from truepair.evaluation.comparison import SIGNIFICANT
from truepair.evaluation.statistics import bootstrap_interval
from truepair.recommender.estimator import Recommender
from truepair.serving.events.event import Kinds
from truepair.serving.events.store import open_store
from truepair.serving.retraining.decisions import Decision, now_text
from truepair.serving.retraining.judging import MARGIN, Judgement, judged, n_users, verdict
from truepair.serving.retraining.training_data import TrainingData, split_events
from truepair.serving.retraining.versions import State, Versions
from truepair.storage.types import Json

By = Literal["auto", "update", "fit"]
WAYS = ("auto", "update", "fit")
"""How a candidate is trained; "auto" updates, and fits where much is new or an update is impossible."""

USERS = 30
"""With fewer users a candidate is not judged, and not trained."""

MUCH = 0.2
"""The share of pairs since the last fit from which on "auto" fits anew."""


@dataclass(frozen=True)
class RetrainingPlan:
    """What a trainer is asked to do, as plain JSON."""

    model: str
    store: str
    kinds: dict[str, float]
    by: By = "auto"
    users: int = USERS
    margin: float = MARGIN

    def __post_init__(self) -> None:
        check_choice("--retrain-by", self.by, WAYS)
        check_whole("--judge-people", self.users, 2)
        check_number("--judge-margin", self.margin, 0, 1, open_high=True)


def check_retrainable(model: Recommender, by: By = "auto") -> None:
    """Raise if the service cannot retrain the model in this way."""
    if model.spec_.encoder.learns_from_features:
        name = model.spec_.parameters()["encoder"]
        raise InputError(
            f"a model with encoder = {name!r} cannot be retrained by the service, which does not have its "
            "features; fit it with them, and leave out --retrain and --retrain-events."
        )
    if by == "fit" and model.spec_.trend is not None:
        raise InputError(
            "--retrain-by fit: this model has a trend, and the service does not have the times of its data; "
            "leave it out, or use --retrain-by update."
        )


def retrain(plan: RetrainingPlan) -> Decision | None:
    """Train and judge a candidate, and promote it if it loses less than the margin.

    None if another process trains already. Errors are raised: nothing is changed then.
    """
    versions = Versions(Path(plan.model))
    with versions.training() as free:
        return _Round(plan, versions).decide() if free else None


class _Round:
    def __init__(self, plan: RetrainingPlan, versions: Versions) -> None:
        self.plan, self.versions, self.began = plan, versions, time.monotonic()
        self.kinds = Kinds(plan.kinds)
        self.state: State = versions.state()

    def decide(self) -> Decision:
        """One round; the decision is on the disk when it is returned."""
        running = Recommender.load(self.versions.path(self.state.current))
        check_retrainable(running, self.plan.by)
        with closing(open_store(self.plan.store, create=False)) as store, closing(store.reader()) as reader:
            events, forgotten = reader.table(), reader.forgotten_users()
        self.versions.attempt(len(events))
        state = self.state
        learner = self._learner(running, forgotten)
        until = state.until[state.current], state.judged
        data = split_events(learner.seen_, events, self.kinds, *until, forgotten)
        self.decision = Decision(
            "waited", "", against=state.current, events=data.events, new_events=data.new_events,
            judged_events=data.judged_events, people=n_users(data), metric=running.metric,
            new_pairs=data.new_pairs, margin=self.plan.margin,
        )  # fmt: skip
        if reason := self._too_little(data):
            return self._logged(self._decided("waited", reason))
        by, candidate = self._trained(learner, data)
        best = running if state.best == state.current else Recommender.load(self.versions.path(state.best))
        found = judged(candidate, running, best, data, self.kinds, running.metric)
        self.decision = dataclasses.replace(self.decision, by=by, best=state.best, **_measured(found))
        return self._concluded(candidate, found, data)

    def _too_little(self, data: TrainingData) -> str:
        n, least = n_users(data), self.plan.users
        if not data.new_pairs:
            return f"none of the {data.new_events:,} new events is a pair that the model could learn"
        among = f"among the newest {data.judged_events:,} of {data.new_events:,} new events"
        return "" if n >= least else f"{n:,} users have a new like {among}, and {least:,} are needed to judge"

    def _learner(self, running: Recommender, forgotten: set[str]) -> Recommender:
        """A copy of the model that has forgotten who was deleted."""
        learner = Recommender.load(self.versions.path(self.state.current))
        users = [user for user in running.seen_.user_ids.ids.to_pylist() if str(user) in forgotten]
        return learner.forget(users=users) if users else learner

    def _trained(self, learner: Recommender, data: TrainingData) -> tuple[str, Recommender]:
        """A candidate, and how it was trained."""
        assert data.learnt is not None
        is_much = data.new_pairs + learner.model_.new_pairs > MUCH * len(data.known)  # since the last fit
        can_fit = learner.spec_.trend is None  # pairs of the model and the store do not have all times
        if self.plan.by != "fit" and not (self.plan.by == "auto" and is_much and can_fit):
            try:
                return "update", learner.update(data.learnt)
            except InputError:
                if self.plan.by == "update":
                    raise
        return "fit", _fitted(learner, data.known)

    def _concluded(self, candidate: Recommender, found: Judgement, data: TrainingData) -> Decision:
        state, margin, n = self.state, self.plan.margin, found.candidate.n_users
        tests = [found.against(former, margin) for former in (found.running, found.best)]
        p, needed = max(test.p for test in tests), max(test.needed for test in tests)
        self.decision = dataclasses.replace(self.decision, p=p, needed=needed)
        numbers = f"{_scores(found, state)}; p = {p:.3g} that it loses {100 * margin:.3g}% or more"
        outcome = verdict(tests, n)
        if outcome == "waited":
            few = f"{n:,} users have judged, and {needed:,} are needed"
            return self._logged(self._decided("waited", f"{few}: {numbers}"))
        if outcome == "refused":
            decision = self._decided("refused", f"the candidate may be worse: {numbers}")
            self.versions.refuse(data.last, decision)
            return decision
        number = max(self.versions.state().next, state.next)
        decision = self._decided("promoted", f"the candidate is not worse: {numbers}", number)
        is_best = found.against(found.best, 0.0).p < SIGNIFICANT
        self.versions.remove_unfinished(number)
        candidate.save(self.versions.path(number))
        if self.versions.promote(number, data.cut, data.last, decision, state, is_best):
            return decision
        self.versions.remove_unfinished(number)
        served = self.versions.state().current
        return self._logged(self._decided("overtaken", f"version {served} is served by now; {numbers}"))

    def _decided(self, decision: str, reason: str, version: int | None = None) -> Decision:
        seconds, now = round(time.monotonic() - self.began, 2), now_text()
        return dataclasses.replace(
            self.decision, decision=decision, reason=reason, version=version, seconds=seconds, time=now
        )

    def _logged(self, decision: Decision) -> Decision:
        self.versions.log.append(decision.as_json())
        return decision


def _fitted(running: Recommender, pairs: Interactions) -> Recommender:
    """A new model with the settings of the old one; those that were chosen automatically are kept."""
    candidate = Recommender(**running.spec_.parameters()).fit(pairs)
    candidate.output_ = running.output_
    return candidate


def _scores(found: Judgement, state: State) -> str:
    """The scores, as a reason states them."""
    new, old, best = (one.mean(found.metric) for one in (found.candidate, found.running, found.best))
    text = f"{found.metric} {new:.4f}, the served one {old:.4f}"
    return text if state.best == state.current else f"{text}, the best one (version {state.best}) {best:.4f}"


def _measured(found: Judgement) -> Json:
    """The numbers of a judgement, for the log."""
    metric = found.metric
    difference = found.candidate.values(metric) - found.running.values(metric)
    scores = {"candidate": found.candidate, "running": found.running, "best_score": found.best}
    spans = {name: (score.mean(metric), *score.interval(metric)) for name, score in scores.items()}
    spans["difference"] = float(difference.mean()), *bootstrap_interval(difference)
    named = {name: dict(zip(("mean", "low", "high"), span, strict=True)) for name, span in spans.items()}
    return {"people": found.candidate.n_users, **named}
