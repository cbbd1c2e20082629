"""The paper's experiments as data: datasets and splits, the authors' settings, studies and search spaces.

Two protocols, never mixed:

paper   the authors' settings, trained on the whole train part, the test part looked at along the way and
        the best epoch taken for each metric separately. That is what was published; it is optimistic.
clean   validation held out of train; every method gets the same number of trials over the same ranges;
        epoch and settings are chosen by validation NDCG@20; then each seed is trained on the whole train
        part for the chosen number of epochs, and the test part is looked at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from truepair.data.datasets.loading import load, load_split
from truepair.data.datasets.registry import DATASETS
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import split_random, split_random_per_user
from truepair.errors import InputError, check_choice
from truepair.recommender.holdout import joined

METRICS = tuple(f"{name}@{k}" for k in (5, 10, 20) for name in ("precision", "recall", "ndcg"))
KS = 5, 10, 20
CHOOSE_BY = "ndcg@20"
SEEDS = {"paper": 3, "paper-tuned": 5, "clean": 5, "sweep": 3, "ablation": 3, "causes": 1}  # seeds 0, 1, …
SEEDS_OF_DPL = 5  # on MF with the authors' settings too: it is what the paper is about
SPLIT_SEED = 2023  # of every random split; the hashes below were computed with it

STUDIES = {
    "paper": "the authors' settings; the best test epoch for each metric (optimistic)",
    "paper-tuned": "tuned settings; the best test epoch for each metric (optimistic)",
    "clean": "tuned settings; epoch chosen on validation; test looked at once",
    "sweep": "M, N and τ around the authors' settings on MovieLens-1M (optimistic)",
    "ablation": "parts of DPL taken away or replaced, at the authors' settings",
    "causes": "DPL on sparse data, one of the authors' settings or the split changed (optimistic)",
    "timing": "one epoch of BPR, DPL and BNS at batch 1024",
}

ENCODERS = ("mf", "lightgcn")
TABLE_2 = ("bpr", "infonce", "dcl", "hcl", "dpl")
TABLE_3 = ("bpr", "bns", "dpl", "dpl-hard")
METHODS = ("bpr", "infonce", "dcl", "hcl", "dpl", "dpl-hard", "bns")
METHODS_OF = {"mf": METHODS, "lightgcn": METHODS[:-1]}  # BNS is Table III's, and that is of MF
REFERENCES = ("popularity", "itemknn", "ease", "ials")
NO_ENCODER = "-"


@dataclass(frozen=True)
class PaperData:
    """One of the paper's datasets: where it comes from, its split, the authors' settings for it."""

    name: str
    title: str
    source: str  # its name in the catalogue
    split_hash: str | None  # of (train, test); None: nobody has published the files
    tau: float
    hard_tau: float  # of DPL with hard samples
    weight_decay: float
    mf: tuple[int, int]  # M, N
    lightgcn: tuple[int, int]
    clean_batch: int  # batch size of the clean protocol
    given: bool = False  # the split comes with the data


_ALL = (
    PaperData(
        "ml-100k", "MovieLens-100k", "ml-100k-paper-split", "3c2cad5ca5ca68bed1d3642569b06807",
        0.07, 0.3, 1e-5, (10, 10), (5, 1), 1024, given=True,
    ),
    PaperData(
        "ml-1m", "MovieLens-1M", "ml-1m", "9f2f39d59ae296d1b79ae2e4d8d0ba37",
        0.05, 0.25, 1e-6, (10, 10), (5, 1), 4096,
    ),
    # the authors' settings for Yahoo! R3 are not known: those of the data nearest to it, and its density
    PaperData("yahoo-r3", "Yahoo! R3", "yahoo-r3", None, 0.03, 0.1, 1e-5, (10, 10), (5, 1), 1024),
    PaperData(
        "yelp2018", "Yelp2018", "yelp2018", "63c10eaeb8d1592f6ae91c86da1aa032",
        0.01, 0.1, 1e-6, (5, 5), (10, 1), 8192,
    ),
    PaperData(
        "gowalla", "Gowalla", "gowalla", "0f31822d1286564c96f4219cff76ea15",
        0.01, 0.1, 1e-6, (5, 5), (5, 1), 8192,
    ),
)  # fmt: skip

DATA: dict[str, PaperData] = {data.name: data for data in _ALL}


# --- splits --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Material:
    """A dataset ready for both protocols. `whole` has no validation part; `holdout` has one, same test."""

    data: PaperData
    whole: Split
    holdout: Split

    @cached_property
    def train(self) -> Interactions:
        """The whole train part."""
        return self.whole.train


def load_material(name: str, data_dir: str | Path | None = None, progress: bool = False) -> Material:
    """Load a dataset and make its splits; an error if they are not the ones the results are about."""
    data = DATA[check_choice("dataset", name, DATA)]
    if data.given:
        given = load_split(data.source, data_dir, progress)
        whole = Split(given.train.pairs_only(), None, given.test.pairs_only(), given.recipe)
        part = split_random(whole.train, test=0.1, seed=SPLIT_SEED)
        holdout = Split(part.train, part.test, whole.test, f"{whole.recipe}, valid=0.1, seed={SPLIT_SEED}")
    else:
        pairs = load(data.source, data_dir, progress).pairs_only()  # without ratings and times: pairs are all
        whole = split_random(pairs, test=0.2, seed=SPLIT_SEED)
        holdout = split_random(pairs, test=0.2, valid=0.1, seed=SPLIT_SEED)
    if data.split_hash is not None and whole.hash != data.split_hash:
        raise InputError(
            f"the split of {name} is {whole.hash}, but the results are about {data.split_hash}: "
            f"the files of {data.source!r} are not the published ones. Fetch them again."
        )
    return Material(data, whole, holdout)


SPLIT = "split="  # before the name of another split, in a variant


def other_split(material: Material, name: str, data_dir: str | Path | None = None) -> Material:
    """The same pairs, split in another way: "per-user", "files" (as they come), or at random by a seed.

    It has no validation part, so that nothing can be searched on it.
    """
    pairs = joined([material.whole.train, material.whole.test])
    if name == "files":
        given = load_split(material.data.source, data_dir)
        made = Split(given.train.pairs_only(), None, given.test.pairs_only(), given.recipe)
    elif name == "per-user":
        made = split_random_per_user(pairs, test=0.2, seed=SPLIT_SEED)
    else:
        made = split_random(pairs, test=0.2, seed=int(name))
    return replace(material, whole=made, holdout=made)


def missing_files(name: str) -> str | None:
    """What a person must do before a dataset that cannot be downloaded can be used; None if it can be."""
    return DATASETS[DATA[name].source].by_hand or None


# --- the authors' settings -----------------------------------------------------------------------------

_AUTHORS: dict[str, Any] = {
    "epochs": 200, "batch_size": 1024, "optimizer": "adam", "learning_rate": 1e-3,
    "schedule": "step", "decay_epoch": 100, "decay": 0.5, "patience": None, "validate_every": 5,
    "encoder.dim": 32,
}  # fmt: skip


def authors_parameters(data: PaperData, encoder: str, method: str) -> dict[str, Any]:
    """The authors' settings, flat; where the paper is silent, docs/paper.md says what was taken."""
    m, n = data.mf if encoder == "mf" else data.lightgcn
    flat = _AUTHORS | {"weight_decay": data.weight_decay, "encoder": encoder, "sampler": "uniform"}
    if encoder == "lightgcn":
        flat |= {"encoder.hops": 1}
    return flat | _loss_of(data, method, m, n, many=data.mf[1])


def _loss_of(data: PaperData, method: str, m: int, n: int, many: int) -> dict[str, Any]:
    """`many` unlabelled items for the contrastive losses: with N = 1 they would all be BPR."""
    prior = {"loss.tau": data.tau, "n_extra": m}
    contrast = {**prior, "n_unlabelled": many}
    floor = {"loss.floor": round(0.01 / (1 - data.tau), 6)}  # the authors clamp before dividing by 1 − τ
    hard_floor = {"loss.floor": round(0.01 / (1 - data.hard_tau), 6)}
    table: dict[str, dict[str, Any]] = {
        "bpr": {"loss": "bpr", "n_extra": 0, "n_unlabelled": 1},
        "infonce": {"loss": "infonce", "n_extra": 0, "n_unlabelled": many},
        "dcl": {"loss": "dcl", **contrast},
        "hcl": {"loss": "hcl", "loss.beta": 1.0, **contrast},
        "dpl": {"loss": "dpl", **prior, **floor, "n_unlabelled": n},
        "dpl-hard": {
            "loss": "dpl-hard", "loss.beta": 1.0, **prior, **hard_floor, "loss.tau": data.hard_tau,
            "n_unlabelled": many,
        },
        "bns": {
            "loss": "bpr", "n_extra": 0, "n_unlabelled": 1,
            "sampler": "bns", "sampler.pool": 5, "sampler.weight": 5.0, "sampler.in_batch": True,
        },
    }  # fmt: skip
    return table[check_choice("method", method, table)]


def ablations(data: PaperData) -> dict[str, dict[str, Any]]:
    """DPL on MF at the authors' settings, and what remains of it without a part."""
    dpl, bpr = authors_parameters(data, "mf", "dpl"), authors_parameters(data, "mf", "bpr")
    hard, (m, n) = authors_parameters(data, "mf", "dpl-hard"), data.mf
    half = {key: value for key, value in dpl.items() if key != "n_extra"} | {"loss": "dpl-half", "n_extra": 0}
    return {
        "dpl": dpl,
        "half": half,
        "tau=0": dpl | {"loss.tau": 0.0, "n_extra": 0},
        "n-alone": bpr | {"n_unlabelled": n},
        "hard": hard,
        "hard-alone": hard | {"loss.tau": 0.0, "n_extra": 0},
        "dns": _top_n(hard, n),
        "dns-alone": _top_n(hard, n) | {"loss.tau": 0.0, "n_extra": 0},
        "relative-clamp": dpl | {"loss.clamp": "relative"},
        "bpr-matched": bpr | {"n_unlabelled": m + n},
        "infonce-matched": authors_parameters(data, "mf", "infonce") | {"n_unlabelled": m + n},
    }


def _top_n(hard: dict[str, Any], n: int) -> dict[str, Any]:
    """The settings of soft weights, with the N highest-scored of 5·N candidates in their place."""
    kept = {name: value for name, value in hard.items() if name != "loss.beta"}
    return kept | {"loss": "dpl", "sampler": "dns", "sampler.pool": 5 * n}


def causes(data: PaperData) -> list[tuple[str, str, str, dict[str, Any]]]:
    """(encoder, method, variant, parameters): the authors' settings with one thing changed."""
    decays: dict[str, dict[str, Any]] = {
        f"decay={decay:g}": {"weight_decay": decay} for decay in (5e-7, 1e-7, 1e-8, 0.0)
    }
    others: dict[str, dict[str, Any]] = {
        "rows=1e-06": {"weight_decay": 0.0, "l2_users": 1e-6, "l2_items": 1e-6},
        "step=0.1": {"decay": 0.1},
        "batch=8192": {"batch_size": 8192},
        **{f"{SPLIT}{name}": {} for name in ("2024", "per-user", "files")},
    }
    fewer = {"decay=1e-07": decays["decay=1e-07"]}
    places = {
        ("mf", "dpl"): decays | others, ("mf", "bpr"): fewer, ("mf", "infonce"): fewer,
        ("lightgcn", "dpl"): fewer,
    }  # fmt: skip
    return [
        (encoder, method, variant, authors_parameters(data, encoder, method) | change)
        for (encoder, method), changes in places.items()
        for variant, change in changes.items()
    ]


def sweeps(data: PaperData, encoder: str) -> dict[str, dict[str, Any]]:
    """M, N and τ, one at a time, around the authors' settings."""
    base = authors_parameters(data, encoder, "dpl")
    steps = range(11) if encoder == "mf" else (0, 1, 2, 3, 5, 7, 10)
    taus = (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    found = {f"M={m}": base | {"n_extra": m} for m in steps}
    found |= {f"N={n}": base | {"n_unlabelled": n} for n in steps if n}
    return found | {
        f"tau={tau:g}": base | {"loss.tau": tau, "loss.floor": round(0.01 / (1 - tau), 6)}
        for tau in (taus if encoder == "mf" else taus[::2])
    }
