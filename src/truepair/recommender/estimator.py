"""Recommender: fit, recommend, similar items and users, scores, new people, save and load."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch

from truepair.data.columns import find_columns
from truepair.data.ids import Codes, IdMap, canonical_ids
from truepair.data.interactions import Interactions
from truepair.data.memory import memory_source
from truepair.data.split import Split
from truepair.errors import (
    InputError,
    StorageError,
    check_choice,
    check_number,
    check_type,
    check_whole,
    did_you_mean,
)
from truepair.evaluation import Validation, parse_metric
from truepair.losses import LOSSES, Loss, Prior
from truepair.models.blend import Blend, check_vectors, trained_part, with_vectors
from truepair.models.closed_forms import ALL_ENCODERS, CLOSED, EASE, ClosedForm
from truepair.models.encoders import ENCODERS, Encoder
from truepair.models.matrices import Rows, dense, dot_rows, take_rows, unit_rows
from truepair.prior import prepare
from truepair.ranking.selection import top_k
from truepair.recommender.candidates import Shelf
from truepair.recommender.closed_fit import Solved, solve
from truepair.recommender.defaults import given_over, unused, usual, usual_batch
from truepair.recommender.holdout import as_interactions, joined, split_for_fitting
from truepair.recommender.model_file import Model, load_model, save_model
from truepair.recommender.output import Output, output_of, to_output
from truepair.recommender.parameters import PARTS, check_saveable, current_name, described, rebuilt
from truepair.sampling import SAMPLERS, Sampler
from truepair.training import AUTO, ENGINES, FitResult, Job, Settings, check_sampler, fit, fold_in

Unknown = Literal["error", "popular"]
_SETTINGS = [f.name for f in dataclasses.fields(Settings)]
_USED_WITHOUT_TRAINING = ("encoder", "metric", "device")
BY_NAME = ("dim", "scoring", "temperature", "popularity")  # of an encoder that is given by name


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Recommender:
    """Learns from interactions and recommends, in the caller's ids.

    loss, encoder, sampler  a name ("infonce", "mf", "full") or a value such as `DPL(tau=0.05)`
    encoder                 "popular", "itemknn" and "ease" are found without training: of all parameters
                            they use `metric` and `device` alone, and learn from everything given
    dim, scoring, temperature, popularity, tau
                            for an encoder and a loss that are given by name, an error beside a value; τ is
                            a number, one number per user, "density", or estimated by a quick extra training:
                            "auto", "per-user". "infonce-posterior" takes another extra
                            training, see `InfoNCEPosterior`
    plus, plus_weight       "ease" or a value such as `EASE(l2=500)`: its scores times this weight are added
                            to those of the trained encoder, after training
    validation, metric      the share of the pairs that is held out to choose the epoch by this metric;
                            0 trains all epochs on everything
    engine                  how to train: "auto" is "full" with sampler="full", else "gpu" on CUDA and "cpu"
                            elsewhere, else "reference"; all other parameters are those of `Settings`
    n_extra, n_unlabelled, patience
                            an error where they are given and not used: exact sampling draws nothing, and
                            by itself holds nothing out

    What is None, and patience="auto", goes by the sampler, see `usual`. "exact", which draws nothing: cosine
    scores at temperature 0.15 of 128 dimensions, 8 to 128 users a batch, all of 40 epochs at 0.005 with a
    cosine schedule and no weight decay, and nothing is held out. Samplers that draw: dot products of 64
    dimensions, a 64th of the pairs a batch, from 64 to 1024, 200 epochs at 0.003 with a patience of 10 and
    weight decay 1e-5, and a tenth is held out.

    >>> clicks = {"user": ["ann", "ann", "bob", "bob"], "item": ["tea", "milk", "tea", "jam"]}
    >>> model = Recommender(dim=4, epochs=5, validation=0).fit(clicks)
    >>> model.recommend(["ann"], k=1).column("item").to_pylist()
    ['jam']
    """

    # as scikit-learn wants it: parameters are kept as given, and checked when they are used
    loss: str | Loss = "infonce"
    encoder: str | Encoder | ClosedForm = "mf"
    sampler: str | Sampler = "full"
    dim: int | None = None
    scoring: Literal["dot", "cosine"] | None = None
    temperature: float | None = None
    popularity: float | None = None
    tau: Prior = "density"
    plus: str | EASE | None = None
    plus_weight: float = 1.0
    validation: float | None = None
    metric: str = "ndcg@20"
    engine: str = AUTO
    epochs: int | None = None
    batch_size: int | None = None
    n_extra: int = 5
    n_unlabelled: int = 5
    optimizer: Literal["adam", "sgd", "adagrad"] = "adam"
    learning_rate: float | None = None
    schedule: Literal["constant", "step", "linear", "cosine"] | None = None
    decay_epoch: int = 100
    decay: float = 0.1
    weight_decay: float | None = None
    l2_users: float = 0.0
    l2_items: float = 0.0
    patience: int | Literal["auto"] | None = "auto"
    validate_every: int = 1
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        self.set_params(sampler=self.sampler, engine=self.engine)

    # --- parameters ------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; an unknown one is an error."""
        for name, value in params.items():
            if name not in _PARAMETERS:
                raise InputError(f"{name!r} is no parameter of Recommender.{did_you_mean(name, _PARAMETERS)}")
            setattr(self, name, current_name(name, value))
        return self

    def __repr__(self) -> str:
        state = f", fitted on {self.seen_}" if self._is_fitted() else ""
        return f"Recommender({', '.join(f'{k}={v!r}' for k, v in self._changed().items())}{state})"

    def _changed(self) -> dict[str, Any]:
        return {k: v for k, v in self.get_params().items() if repr(v) != repr(getattr(Recommender, k))}

    def closed_form(self) -> ClosedForm | None:
        """The encoder, if it is one without training."""
        encoder = self.encoder
        if isinstance(encoder, str) and encoder in CLOSED:
            encoder = CLOSED[encoder]()
        return encoder if isinstance(encoder, ClosedForm) else None

    def added(self) -> EASE | None:
        """What is added to the scores of a trained encoder."""
        check_number("plus_weight", self.plus_weight, 0)
        plus = self.plus
        if isinstance(plus, str):
            plus = cast(EASE, PARTS["plus"][check_choice("plus", plus, PARTS["plus"])]())
        if plus is not None:
            check_type("plus", plus, EASE, "give 'ease', a value such as EASE(l2=500), or None")
        return plus

    @property
    def held_out(self) -> float:
        """The share of the pairs that `fit` holds out to choose the epoch by."""
        if self.closed_form() is not None:
            return 0.0  # there is no epoch to choose
        share: float = given_over(usual(self.sampler), self.get_params())["validation"]
        return share

    def check(self) -> None:
        """An error if a parameter makes no sense, used or not, or is given and nothing uses it."""
        trained = {} if self.closed_form() is None else {"encoder": Recommender.encoder}
        Recommender(**{**self.get_params(), **trained}).job(n_pairs=0)
        for name, why in self._unused().items():
            value = "one for each user" if np.ndim(getattr(self, name)) else getattr(self, name)
            raise InputError(f"{name} = {value} is given, and {why}.")

    def _unused(self) -> dict[str, str]:
        return unused(self._changed(), self.encoder, self.loss, self.sampler, self.closed_form())

    def job(self, n_pairs: int) -> tuple[Encoder, Loss, Sampler, Settings]:
        """The checked encoder, loss, sampler and settings that the parameters mean for so many pairs."""
        encoder, loss, sampler = self.encoder, self.loss, self.sampler
        known = given_over(usual(sampler, loss), self.get_params())
        if (closed := self.closed_form()) is not None:
            raise InputError(
                f"encoder = {closed} is not trained; to train, give one of {', '.join(ENCODERS)}."
            )
        if isinstance(encoder, str):
            kind_of_encoder = ENCODERS[check_choice("encoder", encoder, ALL_ENCODERS)]
            encoder = kind_of_encoder(**{name: known[name] for name in BY_NAME})
        if isinstance(loss, str):
            kind = LOSSES[check_choice("loss", loss, LOSSES)]
            loss = kind(**({"tau": self.tau} if kind.uses_prior else {}))
        if isinstance(sampler, str):
            sampler = self._sampler(check_choice("sampler", sampler, SAMPLERS))
        remedy = f"give one of {', '.join(ALL_ENCODERS)}, or a value such as MF(dim=64)"
        check_type("encoder", encoder, Encoder, remedy)
        assert isinstance(encoder, Encoder)
        check_type("loss", loss, Loss, f"give one of {', '.join(LOSSES)}, or a value such as DPL(tau=0.05)")
        check_type(
            "sampler", sampler, Sampler, f"give one of {', '.join(SAMPLERS)}, or a value such as DNS()"
        )
        assert isinstance(loss, Loss)
        assert isinstance(sampler, Sampler)
        check_sampler(loss, sampler)
        self.added()
        check_choice("engine", self.engine, [AUTO, *ENGINES])
        check_number("validation", known["validation"], 0, 1, open_high=True)
        parse_metric(self.metric)
        params: dict[str, Any] = {name: known.get(name) for name in _SETTINGS}
        if params["batch_size"] is None:
            params["batch_size"] = usual_batch(sampler, n_pairs)
        return encoder, loss, sampler, Settings(**params)

    def _sampler(self, name: str) -> Sampler:
        """A sampler by name; one that chooses gets a pool that leaves a choice."""
        sampler = SAMPLERS[name]()
        pool = getattr(sampler, "pool", None)
        if pool is None or pool > self.n_unlabelled:
            return sampler
        return dataclasses.replace(sampler, pool=2 * self.n_unlabelled)  # type: ignore[type-var]

    # --- fitting ---------------------------------------------------------------------------------------

    def fit(
        self,
        interactions: Any,
        valid: Any = None,
        *,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> Self:
        """Learn from interactions: an `Interactions`, a `Split` (its test part is not touched), or
        anything that `read_interactions` takes.

        Without a validation part, a share `validation` of the pairs is held out to choose the epoch; the
        model does not learn from it, but knows it as seen. No user and no item is held out entirely.
        An encoder without training has no epoch to choose and nothing to keep in a checkpoint: nothing is
        held out for it, and a validation part that is given is judged by, and not learnt from.
        """
        self.check()  # before any work
        closed = self.closed_form()
        split = split_for_fitting(interactions, valid, self.held_out, self.seed)
        by_default = split.valid is None and closed is None and self.validation is None
        if by_default and self.patience not in ("auto", None):
            raise InputError(
                f"patience = {self.patience} is given, and with exact sampling nothing is held out to judge "
                "by; leave it out, or give validation=0.1."
            )
        result: FitResult | Solved
        filled: dict[str, Any] = {}
        if closed is not None:
            result = solve(closed, split, self.metric, Settings(device=self.device).torch_device())
        else:
            result, filled = self._train(split, checkpoint, progress)
        parts = [split.train] if split.valid is None else [split.train, split.valid]
        seen = joined(parts)
        popularity = np.where(split.train.item_counts > 0, seen.item_counts, 0)
        facts = self._facts(result, split) | filled
        users, items = self._with_added(result, split, facts)
        self._take(Model(users, items, seen, popularity, facts))
        self.output_, self.result_ = output_of(interactions), result
        return self

    def _train(
        self, split: Split, checkpoint: str | Path | None, progress: bool
    ) -> tuple[FitResult, dict[str, Any]]:
        """The trained model, and what is worth remembering of what the loss left to the data."""
        encoder, loss, sampler, settings = self.job(len(split.train))
        on_epoch = Validation(split.valid, split.train, self.metric) if split.valid is not None else None
        settings = settings if on_epoch else dataclasses.replace(settings, patience=None)
        asked = Job(encoder, loss, sampler, split.train, settings)
        job, filled = prepare(asked, engine=self.engine, progress=progress)
        fitted = fit(job, on_epoch, engine=self.engine, checkpoint=checkpoint, progress=progress)
        return fitted, filled

    def _with_added(
        self, result: FitResult | Solved, split: Split, facts: dict[str, Any]
    ) -> tuple[Rows, Rows]:
        """The matrices, with what is added to the scores of a trained encoder; the facts get its score."""
        ease = self.added()
        if ease is None or not isinstance(result, FitResult):
            return result.users, result.items
        total = Blend.of(ease, self.plus_weight, split.train, Settings(device=self.device).torch_device())
        users, items = total.matrices(result.users, result.items)
        if split.valid is not None:
            score = Validation(split.valid, split.train, self.metric)(Solved(users, items, ease, None, 0.0))
            facts["metrics"] = {f"validation {self.metric}": score}
        return users, items.cpu()

    def _facts(self, result: FitResult | Solved, split: Split) -> dict[str, Any]:
        trained = result if isinstance(result, FitResult) else None
        unused = [] if trained else [name for name in _PARAMETERS if name not in _USED_WITHOUT_TRAINING]
        return {
            "parameters": {name: described(value) for name, value in self._as_used(trained).items()},
            "tau": described(getattr(trained.job.loss, "tau", None)) if trained else None,
            "data": split.train.hash,
            "split": split.hash,
            "epoch": result.epoch,
            "engine": result.engine,
            "training loss": trained.history[trained.epoch - 1].loss if trained else None,
            "clamped share": result.clamped,
            **({"not used": unused} if unused else {}),
            "metrics": {} if result.score is None else {f"validation {self.metric}": result.score},
            "versions": {name: _version(name) for name in ("truepair", "torch", "numpy", "pyarrow")},
        }

    def _as_used(self, trained: FitResult | None) -> dict[str, Any]:
        """The parameters, with the usual values that were used, whatever will be usual one day."""
        if trained is None:
            return self.get_params()
        by_name = BY_NAME if isinstance(self.encoder, str) else ()
        return {
            **self.get_params(),
            **{name: getattr(trained.job.encoder, name) for name in by_name},
            **{name: getattr(trained.job.settings, name) for name in _SETTINGS},
            "validation": self.held_out,
        }

    def _take(self, model: Model) -> None:
        self.users_, self.items_, self.seen_ = model.users, model.items, model.seen
        self.popularity_, self.facts_ = model.popularity, model.facts

    def _is_fitted(self) -> bool:
        return hasattr(self, "users_")

    def _check_fitted(self) -> None:
        if not self._is_fitted():
            raise InputError("this Recommender is not fitted yet; call fit(interactions) first.")

    # --- recommending ----------------------------------------------------------------------------------

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        exclude_items: Any = None,
        only_items: Any = None,
        unknown: Unknown = "error",
    ) -> Any:
        """A table of user, item, score, rank: the `k` best items of each user, best first.

        All users if none are named. A user gets fewer than k rows only where fewer candidates exist.
        `unknown="popular"` gives people who were not trained on the most popular items.
        """
        options = {"exclude_seen": exclude_seen, "exclude_items": exclude_items, "only_items": only_items}
        parts = list(self.recommend_in_parts(users, k, unknown=unknown, **options))
        return to_output(pa.concat_tables(parts), self.output_)

    def recommend_in_parts(
        self,
        users: Any = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        exclude_items: Any = None,
        only_items: Any = None,
        unknown: Unknown = "error",
        part: int = 8192,
    ) -> Iterator[pa.Table]:
        """`recommend`, as Arrow tables of `part` users at a time, for writing to a file as it goes."""
        self._check_fitted()
        k = check_whole("k", k, 1)
        check_choice("unknown", unknown, ["error", "popular"])
        trained = self.seen_.user_counts > 0  # a split may name people who are only in its test part
        known = (
            self.seen_.user_ids
            if trained.all()
            else IdMap(self.seen_.user_ids.outside(np.flatnonzero(trained)))
        )
        ids = known.ids if users is None else canonical_ids(users, "user")
        places = (known.find if unknown == "popular" else known.codes)(ids, "user")
        codes = np.where(places < 0, -1, np.flatnonzero(trained)[places])
        shelf = Shelf.of(self.items_, self.seen_, self.popularity_, exclude_items, only_items)
        for start in range(0, max(len(codes), 1), part):
            chosen = slice(start, start + part)
            yield shelf.ranked(self.users_, ids[chosen], codes[chosen], k, exclude_seen)

    def similar_items(self, items: Any, k: int = 10) -> Any:
        """A table of item, similar, score, rank: the `k` items of most similar vectors, by cosine.

        Of an encoder without training: the `k` items that speak most for this one, by their weights.
        """
        self._check_fitted()
        ids = self.seen_.item_ids
        codes = ids.codes(items, "item")
        if (closed := self.closed_form()) is not None:
            queries, directions = closed.alike(self.items_, codes)
        else:
            directions = unit_rows(self._vectors(self.items_))
            queries = take_rows(directions, codes)
        return self._similar("item", queries, directions, ids, codes, k)

    def similar_users(self, users: Any, k: int = 10) -> Any:
        """A table of user, similar, score, rank: the `k` users of most similar vectors, by cosine."""
        self._check_fitted()
        ids = self.seen_.user_ids
        codes, closed = ids.codes(users, "user"), self.closed_form()
        directions = (
            unit_rows(self._vectors(self.users_)) if closed is None else closed.alike_users(self.users_)
        )
        return self._similar("user", take_rows(directions, codes), directions, ids, codes, k)

    def _vectors(self, rows: Rows) -> Rows:
        """What was trained, without what is added to all scores of an item."""
        vectors = rows if self.added() is None else trained_part(rows, self.seen_.n_items)
        return vectors[:, :-1] if self.job(0)[0].popularity else vectors

    def _similar(self, what: str, queries: Rows, matrix: Rows, ids: IdMap, codes: Codes, k: int) -> Any:
        k, asked = min(check_whole("k", k, 1), len(ids) - 1), np.arange(len(codes))
        if k == 0:  # there is nobody else
            k, asked = 1, asked[:0]
        best = top_k(queries, matrix, k, rows=asked, exclude=_alone(codes, ids))
        table = pa.table(
            {
                what: ids.outside(np.repeat(codes[asked], k)),
                "similar": ids.outside(best.items.ravel()),
                "score": best.scores.ravel(),
                "rank": np.tile(np.arange(1, k + 1), len(asked)),
            }
        )
        return to_output(table, self.output_)

    def score(self, pairs: Any) -> Any:
        """The table of pairs with their scores, in the order given; higher means better for that user."""
        self._check_fitted()
        raw = memory_source(pairs.to_table() if isinstance(pairs, Interactions) else pairs)
        at = find_columns(raw, {"rating": False, "weight": False, "time": False})
        users, items = raw.read([at["user"], at["item"]])
        user_codes = self.seen_.user_ids.codes(users, "user")
        item_codes = self.seen_.item_ids.codes(items, "item")
        if len(user_codes) != len(item_codes):
            raise InputError(f"{len(user_codes)} users but {len(item_codes)} items; a pair needs both.")
        table = pa.table(
            {
                "user": self.seen_.user_ids.outside(user_codes),
                "item": self.seen_.item_ids.outside(item_codes),
                "score": dot_rows(self.users_, self.items_, user_codes, item_codes),
            }
        )
        return to_output(table, output_of(pairs))

    # --- new people ------------------------------------------------------------------------------------

    def fold_in(self, history: Any, *, unknown: Literal["error", "drop"] = "error") -> Recommender:
        """A recommender for people unseen in training, from what they did: same items, no retraining.

        Their vectors are fitted by the same loss with the item vectors held fixed; of an encoder without
        training they are their history, exactly as if it had been there. The result has the
        people of `history` who have an item as its users, and all methods of a fitted recommender.
        """
        self._check_fitted()
        check_choice("unknown", unknown, ["error", "drop"])
        people = as_interactions(history)
        items = self.seen_.item_ids.find(people.item_ids, "item")
        known = items[people.items] >= 0
        if unknown == "error" and not known.all():
            self.seen_.item_ids.codes(
                people.item_ids.outside(people.items), "item"
            )  # the error that names them
        if not known.any():
            raise InputError(
                "the history holds no item that was trained on; use recommend(unknown='popular')."
            )
        guests, users = np.unique(people.users[known], return_inverse=True)
        guest_ids = IdMap(people.user_ids.outside(guests))
        pairs = Interactions(users, items[people.items[known]], guest_ids, self.seen_.item_ids)
        vectors = self._rows_of(pairs)
        guest = Recommender(**self.get_params())
        facts = {**self.facts_, "folded in": pairs.hash}
        guest._take(Model(vectors, self.items_, pairs, self.popularity_, facts))
        guest.output_ = output_of(history)
        return guest

    def _rows_of(self, pairs: Interactions) -> Rows:
        if (closed := self.closed_form()) is not None:
            return closed.rows(pairs)
        encoder, loss, sampler, settings = self.job(len(pairs))
        loss = loss.with_prior(_mean(self.facts_["tau"]))  # the prior that was trained with
        plus, n = self.added(), self.seen_.n_items
        items = dense("items", self.items_ if plus is None else trained_part(self.items_, n))
        vectors = fold_in(items, encoder, loss, sampler, pairs, settings, self.popularity_)
        return vectors if plus is None else with_vectors(pairs.csr(), vectors)

    # --- saving ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write everything that `load` needs to one file, atomically; see docs/file-format.md."""
        self._check_fitted()
        check_saveable(self.facts_["parameters"])
        facts = {**self.facts_, "output": self.output_}
        save_model(path, Model(self.users_, self.items_, self.seen_, self.popularity_, facts))

    @classmethod
    def load(cls, path: str | Path) -> Recommender:
        """A recommender that was saved; opening it runs no code of the file."""
        model = load_model(path)
        try:
            params = {name: rebuilt(name, value) for name, value in model.facts["parameters"].items()}
            recommender = cls().set_params(**{**_BEFORE, **params})
            recommender.set_params(**{name: getattr(cls, name) for name in recommender._unused()})
            if str(recommender.device).startswith("cuda") and not torch.cuda.is_available():
                recommender.device = "auto"  # trained on a GPU, served without one
            recommender.check()
            _check_rows(recommender, model)
            check_number("tau", _mean(model.facts["tau"]) or 0.0, 0, 1, open_high=True)
            output = check_choice("output", model.facts["output"], ["arrow", "pandas", "polars"])
        except (KeyError, TypeError, AttributeError, ZeroDivisionError, InputError) as error:
            raise StorageError(f"{path} does not describe a Recommender: {error!r:.300}") from error
        recommender._take(model)
        recommender.output_ = cast(Output, output)
        return recommender


_PARAMETERS = [f.name for f in dataclasses.fields(Recommender)]
_KINDS = {True: "sparse", False: "dense"}
_BEFORE = {
    "scoring": "dot",
    "temperature": 1.0,
    "popularity": 0.0,
}  # of files from before these were parameters


def _alone(codes: Codes, ids: IdMap) -> Interactions:
    """Somebody for each code, who has that one."""
    return Interactions(np.arange(len(codes)), codes, IdMap.range(len(codes)), ids)


def _check_rows(made: Recommender, model: Model) -> None:
    """An error if the matrices are not such as the recommender makes."""
    n, closed = model.seen.n_items, made.closed_form()
    if closed is not None:
        what, kinds, width = str(closed), (closed.sparse_users, closed.sparse_items), closed.width(n)
    else:
        encoder, sums = made.job(0)[0], made.added() is not None
        what, kinds = f"{encoder}{' with EASE' if sums else ''}", (sums, False)
        width = encoder.dim + bool(encoder.popularity) + n * sums
    for name, rows, sparse in (("users", model.users, kinds[0]), ("items", model.items, kinds[1])):
        if sp.issparse(rows) != sparse or rows.shape[1] != width:
            raise InputError(
                f"{name} of {what} are {_KINDS[sparse]} rows of {width} numbers, and these are "
                f"{_KINDS[sp.issparse(rows)]}, of shape {tuple(rows.shape)}."
            )
    if made.added() is not None:
        check_vectors(model.users, n)


def _mean(tau: Any) -> Any:
    return sum(tau) / len(tau) if isinstance(tau, list) else tau


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
