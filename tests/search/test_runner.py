"""The runner for our own models: alone and together the same, pruned and diverged runs end alone."""

import pytest

from truepair.errors import InputError
from truepair.losses import DPL
from truepair.models.closed_forms import EASE
from truepair.models.encoders import MF, LightGCN
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import split_for_fitting
from truepair.sampling import DNS
from truepair.search.domains import Choice, Powers, Range
from truepair.search.runner import TrainingRunner
from truepair.search.running import run_search
from truepair.search.trials import OpenTrial
from truepair.spec import Spec
from worlds import two_tastes

SPLIT = split_for_fitting(two_tastes(), None, 0.2, 0)
FIXED = {
    "loss": "dpl", "encoder": "mf", "encoder.dim": 4, "sampler": "uniform", "epochs": 4, "batch_size": 32,
    "device": "cpu",
}  # fmt: skip


def runner_of(fixed=FIXED, engine="reference"):
    return TrainingRunner(fixed, SPLIT.train, SPLIT.valid, "ndcg@5", engine)


class Batch:
    """Trials without a search."""

    def __init__(self, runner, *chosen, others=()):
        self.ended = {}
        self.asked = [
            OpenTrial(
                n, {**runner.fixed, **each}, lambda outcome, n=n: self.ended.update({n: outcome}), others
            )
            for n, each in enumerate(chosen)
        ]

    def run(self, runner):
        runner(self.asked)
        return [self.ended[n] for n in range(len(self.asked))]


CHOSEN = [{"learning_rate": 0.01, "loss.tau": 0.1}, {"learning_rate": 0.02, "loss.tau": 0.05}, {"seed": 3}]


@pytest.mark.parametrize("engine", ["cpu", "reference"])  # the first compiles, unless it has before
def test_together_and_alone_give_the_same(engine):
    runner = runner_of(engine=engine)
    together = Batch(runner, *CHOSEN).run(runner)
    alone = [Batch(runner, each).run(runner)[0] for each in CHOSEN]
    facts = ("state", "score", "epoch", "history", "engine")
    for a, b in zip(together, alone, strict=True):
        assert [getattr(a, name) for name in facts] == [getattr(b, name) for name in facts]
        assert a.state == "complete"
        assert a.engine == engine
        assert a.score == max(score for _, score in a.history)
        assert a.seconds > 0


def test_it_is_what_the_recommender_would_reach():
    runner = runner_of()
    (found,) = Batch(runner, CHOSEN[0]).run(runner)
    model = Recommender.of({**runner.fixed, **CHOSEN[0]}).fit(SPLIT)
    assert (found.score, found.epoch) == (model.result_.score, model.result_.epoch)


def test_pruned_diverged_and_senseless_runs_end_alone():
    runner = runner_of()
    chosen = [{"learning_rate": 1e-6}, {"learning_rate": 1e30}, {"n_unlabelled": 0}, {"loss.bet": 3}, {}]
    others = [[(1, 2.0)]] * 3  # nobody can keep up with these
    batch = Batch(runner, *chosen, others=others)
    batch.asked[-1].pruned_by = ()
    pruned, diverged, senseless, unknown, good = batch.run(runner)
    assert (pruned.state, len(pruned.history)) == ("pruned", 3)
    assert (diverged.state, senseless.state, unknown.state) == ("failed",) * 3
    assert "learning rate 1e+30" in diverged.why
    assert "n_unlabelled (N) = 0" in senseless.why
    assert "a field of loss = 'bet' is not known" in unknown.why
    assert (good.state, len(good.history)) == ("complete", 4)


def test_an_engine_that_cannot_fails_the_trial():
    runner = runner_of({**FIXED, "optimizer": "adam"}, engine="cpu")
    (found,) = Batch(runner, {}).run(runner)
    assert "engine = 'cpu': optimizer = 'adam'" in found.why


def test_a_parameter_without_effect_does_not_fail_a_trial():
    """A space may have parameters of several losses."""
    runner = runner_of({**FIXED, "loss": "bpr"})
    plain, beside = Batch(runner, {}, {"tau": 0.2}).run(runner)
    assert (beside.state, beside.score) == ("complete", plain.score)


def test_models_without_training_are_solved_once():
    runner = runner_of({"encoder": "ease", "device": "cpu"})
    low, high = Batch(runner, {"encoder.l2": 1.0}, {"encoder.l2": 1e6}).run(runner)
    assert (low.state, low.epoch, low.history, low.engine) == ("complete", None, (), "closed form")
    assert low.score != high.score


@pytest.mark.parametrize("together", [1, 3])
def test_a_whole_search(tmp_path, together):
    pytest.importorskip("optuna")
    space = {
        "learning_rate": Range(1e-3, 0.1, log=True),
        "n_unlabelled": Powers(1, 4),
        "seed": Choice([0, 1]),
    }
    options = {"storage": tmp_path / "j", "study": "s", "together": together, "extensions": 0}
    found = run_search(space, runner_of(), trials=6, **options)
    assert len(found.trials) == 6
    for trial in (t for t in found.trials if t.state == "complete"):
        model = Recommender.of(trial.parameters).fit(SPLIT)
        assert (model.result_.score, model.result_.epoch) == (trial.score, trial.epoch)
    other = split_for_fitting(two_tastes(seed=1), None, 0.2, 0)
    with pytest.raises(InputError, match="differs in its measure"):
        run_search(space, TrainingRunner(FIXED, other.train, other.valid, "ndcg@5"), trials=6, **options)


def parts_of(flat):
    spec = Recommender.of(flat).spec
    return spec.encoder, spec.loss


def test_flat_parameters_mean_what_the_recommender_means():
    drawn = {"dim": 8, "tau": 0.2, "loss": "dpl", "sampler": "uniform"}
    assert parts_of(drawn) == (MF(dim=8), DPL(tau=0.2))
    mixed = {**drawn, "encoder.scoring": "cosine", "loss.floor": 0.1}
    assert parts_of(mixed) == (MF(dim=8, scoring="cosine"), DPL(tau=0.2, floor=0.1))
    usual = Recommender.of({"encoder": "lightgcn", "encoder.hops": 2, "temperature": 0.2})  # beside a field
    assert usual.spec.encoder == LightGCN(dim=128, scoring="cosine", temperature=0.2, hops=2)
    assert Recommender.of({"sampler": "dns", "n_unlabelled": 40}).spec.sampler == DNS(pool=80)
    solved = Recommender.of({"loss": "bpr", "tau": 0.2, "encoder": "ease", "encoder.l2": 3.0})
    assert Spec.of(solved.given(), unused="drop").closed_form == EASE(l2=3.0)
    with pytest.raises(InputError, match="'dims' is not a parameter of Recommender"):
        Recommender.of({"dims": 8})
    with pytest.raises(InputError, match="must be a name where its fields are named"):
        Recommender.of({"encoder": MF(), "encoder.dim": 3, "dim": 3})
