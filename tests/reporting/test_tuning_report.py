"""What is said of a search: the best, what mattered, what was extended, what failed and why."""

import json
from dataclasses import replace

import pytest

from trial_runners import SPACE, Runner, search
from truepair.recommender.tuning import Tuning
from truepair.reporting.figures import Panel, Series, draw_points
from truepair.reporting.tuning import (
    best_trials,
    edges,
    facts,
    importance,
    in_words,
    page,
    rows_of,
)
from truepair.search.domains import Range, When
from truepair.search.trials import Trial

pytest.importorskip("optuna")


class Fragile(Runner):
    """Fails for large values."""

    def one(self, asked):
        asked.fail("too <large>") if asked.parameters["x"] > 0.05 else super().one(asked)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    space = {**SPACE, "idle": Range(0, 1), "t": When("kind", "b", Range(0, 1))}
    return search(tmp_path_factory.mktemp("report"), Fragile(at=256), space, trials=40)


def test_what_mattered(found):
    shares = importance(found)
    assert set(shares) == set(found.space)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["encoder.dim"] > shares["idle"]
    few = Tuning(found.best, found.trials[:5], found.space, ())
    assert importance(few) == {}


def test_in_words(found):
    told = in_words(found, "ndcg@20")
    assert f"The best of {len(found.trials)} trials is trial {found.best.number}: ndcg@20 " in told
    assert f"encoder.dim = {found.best.parameters['encoder.dim']}" in told
    assert "Most important: " in told
    assert "Extended, because the best lay at an edge: encoder.dim" in told
    assert "times: too <large>" in told
    assert "seconds of training" in told


def test_the_best_come_first(found):
    scores = [trial.score for trial in best_trials(found)]
    assert scores == sorted(scores, reverse=True)
    assert best_trials(found)[0] == found.best
    row = rows_of(found, [found.best], "ndcg@20")[0]
    assert list(row) == ["trial", "ndcg@20", "epoch", *found.space]


def test_edges():
    best = Trial(0, {"a": 1.0, "b": 1.0}, 0.5, 1, "complete")
    assert edges(Tuning(best, (best,), {"a": Range(0, 1), "b": Range(0, 1, most=1.0)}, ())) == ["a"]


def test_facts_are_plain(found):
    told = json.loads(json.dumps(facts(found)))
    assert told["best"]["parameters"] == dict(found.best.parameters)
    assert len(told["trials"]) == len(found.trials)
    assert "encoder.dim" in told["extended"]


def test_the_page(found):
    pytest.importorskip("matplotlib")
    html = page(found, "ndcg@20", "Tuning dpl").html()
    assert html.count("<svg") == 1
    assert "too &lt;large&gt;" in html
    assert "importance" in html
    few = Tuning(found.best, (found.best,), found.space, ())
    assert "–" in page(few, "ndcg@20", "One trial").html()


def test_small_multiples():
    pytest.importorskip("matplotlib")
    best = Series([1, 10, 100], [0.1, 0.3, 0.2], best=1, line=[0.1, 0.3, 0.3])
    panels = [Panel(str(n), {"_": best}, ylabel="score", log="x") for n in range(4)]
    panels.append(Panel("words", {"_": Series(["a", "b", "a"], [0.1, 0.3, 0.2])}))
    assert draw_points(panels) == draw_points(panels)
    assert "var(--series-1)" in draw_points(panels)


def trial(number, score, **parameters):
    return Trial(number, parameters, score, None, "complete")


def test_pruned_trials_are_not_among_the_best():
    trials = (trial(0, 0.2), replace(trial(1, 0.9), state="pruned"), trial(2, 0.4), trial(3, 0.2))
    assert [one.number for one in best_trials(Tuning(trials[2], trials, {}, ()))] == [2, 0, 3]
