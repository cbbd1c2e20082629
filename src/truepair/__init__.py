"""truepair: recommenders from implicit feedback (who clicked, bought or watched what).

    import truepair as tp

    split = tp.split_random(tp.read_interactions("clicks.csv"), test=0.2)
    model = tp.Recommender().fit(split)
    print(model.evaluate(split).table())
    print(model.recommend(["ann"], k=10))

By default a `Recommender` trains matrix factorization with a softmax loss (InfoNCE) of cosine scores over the
full catalogue: every item that a user does not have is compared, and none is drawn at random. Other losses,
samplers and encoders are parameters, by name or as objects. Debiased pairwise learning, which corrects for
unlabelled items that are positive after all, is `Recommender(loss="dpl", sampler="uniform")`.

>>> import truepair as tp
>>> world = tp.simulate_world(60, 40, tau=0.1, density=0.1, seed=1)
>>> split = tp.split_random(world.observed, test=0.2)
>>> model = tp.Recommender(dim=8, epochs=5).fit(split)
>>> model.evaluate(split).ks
(5, 10, 20)
>>> len(model.recommend(["user 0001"], k=3))
3

Names are loaded when they are first used, so that `import truepair.losses` loads PyTorch and nothing else.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # not from typing: its import would delay the handler of Ctrl-C
if TYPE_CHECKING:
    from pathlib import Path

    from truepair.data.datasets.loading import load as _load
    from truepair.data.drift import simulate_drift as simulate_drift
    from truepair.data.interactions import Interactions as Interactions
    from truepair.data.prepared.opening import open_prepared as open_prepared
    from truepair.data.preparing.prepare import prepare_interactions as prepare_interactions
    from truepair.data.reading import read_interactions as read_interactions
    from truepair.data.simulation import simulate_world as simulate_world
    from truepair.data.sources.sql_writing import write_table as write_table
    from truepair.data.split import Split as Split
    from truepair.data.split_recipes import k_folds as k_folds
    from truepair.data.split_recipes import split_given as split_given
    from truepair.data.split_recipes import split_leave_last_out as split_leave_last_out
    from truepair.data.split_recipes import split_random as split_random
    from truepair.data.split_recipes import split_random_per_user as split_random_per_user
    from truepair.data.split_recipes import split_temporal as split_temporal
    from truepair.evaluation import Comparison as Comparison
    from truepair.evaluation import Evaluation as Evaluation
    from truepair.evaluation import Validation as Validation
    from truepair.evaluation import compare as compare
    from truepair.evaluation import compare_all as compare_all
    from truepair.evaluation import evaluate as evaluate
    from truepair.losses import BCE as BCE
    from truepair.losses import BPR as BPR
    from truepair.losses import BSL as BSL
    from truepair.losses import CCL as CCL
    from truepair.losses import DCL as DCL
    from truepair.losses import DPL as DPL
    from truepair.losses import HCL as HCL
    from truepair.losses import PSL as PSL
    from truepair.losses import SL as SL
    from truepair.losses import DPLHalf as DPLHalf
    from truepair.losses import DPLHard as DPLHard
    from truepair.losses import InfoNCE as InfoNCE
    from truepair.losses import register_loss as register_loss
    from truepair.models.closed_forms import EASE as EASE
    from truepair.models.closed_forms import ItemKNN as ItemKNN
    from truepair.models.closed_forms import Popular as Popular
    from truepair.models.encoders import MF as MF
    from truepair.models.encoders import Hybrid as Hybrid
    from truepair.models.encoders import LightGCN as LightGCN
    from truepair.models.encoders import Recurrence as Recurrence
    from truepair.models.encoders import SASRec as SASRec
    from truepair.models.trend import Trend as Trend
    from truepair.prior import estimate_prior as estimate_prior
    from truepair.recommender.estimator import Recommender as Recommender
    from truepair.recommender.tuning import Tuning as Tuning
    from truepair.recommender.tuning import tune as tune
    from truepair.reporting.backtesting import Backtest as Backtest
    from truepair.reporting.backtesting import backtest as backtest
    from truepair.sampling import BNS as BNS
    from truepair.sampling import DNS as DNS
    from truepair.sampling import Full as Full
    from truepair.sampling import Popularity as Popularity
    from truepair.sampling import Uniform as Uniform
    from truepair.search.domains import Choice as Choice
    from truepair.search.domains import Powers as Powers
    from truepair.search.domains import Range as Range
    from truepair.search.domains import When as When
    from truepair.training import FitResult as FitResult
    from truepair.training import Job as Job
    from truepair.training import Settings as Settings
    from truepair.training import fit as fit

    load_dataset = _load

__version__ = "0.2.0"

_MODULES = {  # module -> its public names
    "data.interactions": "Interactions",
    "data.prepared.opening": "open_prepared",
    "data.preparing.prepare": "prepare_interactions",
    "data.reading": "read_interactions",
    "data.sources.sql_writing": "write_table",
    "data.simulation": "simulate_world",
    "data.drift": "simulate_drift",
    "data.split": "Split",
    "data.split_recipes": "k_folds split_random split_random_per_user split_leave_last_out split_temporal "
    "split_given",
    "sampling": "Uniform Popularity DNS BNS Full",
    "losses": "BPR BCE CCL InfoNCE SL BSL PSL DCL HCL DPL DPLHard DPLHalf register_loss",
    "models.encoders": "MF LightGCN Hybrid SASRec Recurrence",
    "models.closed_forms": "Popular ItemKNN EASE",
    "models.trend": "Trend",
    "training": "Settings Job fit FitResult",
    "prior": "estimate_prior",
    "evaluation": "Evaluation Comparison Validation evaluate compare compare_all",
    "recommender.estimator": "Recommender",
    "recommender.tuning": "Tuning tune",
    "reporting.backtesting": "backtest Backtest",
    "search.domains": "Range Powers Choice When",
}
_OTHER_NAMES = {"load_dataset": ("data.datasets.loading", "load")}
_HOME = {name: (module, name) for module, names in _MODULES.items() for name in names.split()} | _OTHER_NAMES
__all__ = [*sorted({*_HOME, "load"})]


def load(path: str | Path) -> Recommender:
    """A fitted `Recommender` from a file that `Recommender.save` or `truepair fit` wrote."""
    from truepair.recommender.estimator import Recommender as Loaded

    return Loaded.load(path)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        from truepair.errors import did_you_mean

        raise AttributeError(f"module 'truepair' has no attribute {name!r}.{did_you_mean(name, __all__)}")
    module, attribute = _HOME[name]
    return getattr(importlib.import_module(f"truepair.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
