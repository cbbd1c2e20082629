"""truepair learns recommenders from what people did, without punishing what they have not seen yet.

    import truepair as tp

    split = tp.split_random(tp.read_interactions("clicks.csv"), test=0.2, valid=0.1)
    model = tp.Recommender(loss="dpl", encoder="mf", dim=64).fit(split)
    print(tp.evaluate_split(model.users_, model.items_, split, on="test").table())
    print(model.recommend(["ann"], k=10))

Names are loaded when they are first used, so `import truepair.losses` brings PyTorch and nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truepair.data.interactions import Interactions as Interactions
    from truepair.data.reading import read_interactions as read_interactions
    from truepair.data.simulation import simulate_world as simulate_world
    from truepair.data.split import Split as Split
    from truepair.data.splitting import split_random as split_random
    from truepair.evaluation import Validation as Validation
    from truepair.evaluation import evaluate_split as evaluate_split
    from truepair.losses import BPR as BPR
    from truepair.losses import DPL as DPL
    from truepair.models.encoders import MF as MF
    from truepair.models.encoders import LightGCN as LightGCN
    from truepair.recommender.estimator import Recommender as Recommender
    from truepair.sampling import Uniform as Uniform
    from truepair.training import Settings as Settings
    from truepair.training import fit as fit

__version__ = "0.2.0"

_HOME = {
    "Interactions": "data.interactions",
    "read_interactions": "data.reading",
    "simulate_world": "data.simulation",
    "Split": "data.split",
    "split_random": "data.splitting",
    "BPR": "losses",
    "DPL": "losses",
    "MF": "models.encoders",
    "LightGCN": "models.encoders",
    "Uniform": "sampling",
    "Settings": "training",
    "fit": "training",
    "Validation": "evaluation",
    "evaluate_split": "evaluation",
    "Recommender": "recommender.estimator",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'truepair' has no attribute {name!r}")
    return getattr(importlib.import_module(f"truepair.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
