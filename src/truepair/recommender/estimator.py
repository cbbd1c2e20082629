"""Recommender: fit, evaluate, recommend, similar items and users, new users, save and load."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa

from truepair.data.interactions import Interactions
from truepair.data.sources.in_memory import table_type
from truepair.data.split import Split
from truepair.errors import InputError, check_type
from truepair.evaluation import Evaluation, evaluate
from truepair.evaluation.task import Cold
from truepair.models.factor_matrices import Rows
from truepair.recommender import lists
from truepair.recommender.caller import Unknown, to_output
from truepair.recommender.features.new_items import add_items
from truepair.recommender.features.tables import FeatureTables
from truepair.recommender.fitting import fit_split
from truepair.recommender.holdout import check_alike, opened, split_for_fitting
from truepair.recommender.model import Model
from truepair.recommender.model_file import load_model, save_model
from truepair.recommender.reindexing import fold_in_users
from truepair.recommender.updating.forget import forgotten
from truepair.recommender.updating.update import updated
from truepair.search.automatic import chosen_settings
from truepair.spec import Spec
from truepair.spec.parameters import Parameters
from truepair.storage.notebook import html_table
from truepair.storage.types import Ids, Source, Table
from truepair.training import Job

Serving = Literal["popular", "separate", "error"]


class Recommender(Parameters):
    """Learns from interactions and recommends items, in the caller's ids.

    loss, encoder, sampler  a name such as "infonce", "mf", "full", or an object such as `DPL(tau=0.05)`.
                            The encoders "popular", "itemknn" and "ease" are closed forms: nothing is trained,
                            and all parameters but `metric`, `device` and `seed` raise an error.
    dim, scoring, temperature, popularity
                            options of an encoder that is given by name.
    tau                     the prior of a loss that is given by name: a number, one number per user,
                            "density" (the share of observed pairs), or "auto" and "per-user", which estimate
                            it by a short extra training.
    blend, blend_weight     "ease" or an object such as `EASE(l2=500)`: after training, its scores times
                            the weight are added to those of the trained encoder.
    trend                   what is popular lately, added to scores: `Trend(("7d",), (0.5,))`, or "none".
    validation, metric      the share of the pairs that is held out to choose the epoch by this metric;
                            0 trains for all epochs on all pairs.
    hold_out                which pairs are held out: a "random" share, the "last" of each user, all after a
                            "time"; "auto" is "last" where the pairs of most users have times, else "random".
    stop_after              end training after this epoch; the learning rate still follows the schedule of
                            `epochs`. `tune` sets it to the epoch that it chose.
    engine                  "auto" is "full" with sampler="full"; otherwise "gpu" on CUDA, "cpu" elsewhere, or
                            "reference" where these cannot train the model: LightGCN, BNS, dislikes, Adam on
                            a CPU.

    All other parameters are those of `Settings`. If you pass an object, set its options on the object.
    Passing `dim` as well raises an error, and so does any option that has no effect.

    auto                    with the loss "infonce" and the sampler "full", `fit` chooses what is not given of
                            temperature, popularity, dim, epochs, blend and trend, on held-out pairs;
                            `facts_["automatic"]` states what, how, and the call that repeats it. False uses
                            the values below; blend="none", trend="none" leave out one of them alone.

    Defaults depend on the sampler, and for other samplers than "full" on the engine:

    sampler, engine         "full", auto=False       others, "cpu"              others, "gpu" or "reference"
    dim                     128                      64                         64
    scoring                 cosine, temperature .15  dot product                dot product
    batch_size              8 to 4096 users          has no effect              64 to 1024, a 64th of all
    optimizer               adam                     adagrad                    adam
    epochs, learning_rate   40, 0.005                50, 0.1                    200, 0.003
    schedule                cosine                   linear                     constant
    weight_decay, l2_users  0, 0                     0, 0.1                     1e-5, 0
    validation, patience    nothing is held out      nothing; DNS: 0.1, 10      0.1, 10 epochs

    The encoders "sasrec" and "recurrence" read the order of events and have defaults of their own:
    docs/sequences.md. `auto` has no effect on them.

    >>> clicks = {"user": ["ann", "ann", "bob", "bob"], "item": ["tea", "milk", "tea", "jam"]}
    >>> model = Recommender(dim=4, epochs=5).fit(clicks)
    >>> model.recommend(["ann"], k=1).column("item").to_pylist()
    ['jam']
    """

    @property
    def spec(self) -> Spec:
        """The spec of the parameters, checked: raise if one is invalid, or is given and has no effect."""
        return Spec.of(self.get_params())

    def job(self, interactions: Interactions) -> Job:
        """The training job that the parameters describe for these interactions."""
        disliked = interactions.disliked is not None
        return Spec.of(self.get_params(), disliked=disliked, unused="drop").job(interactions)

    def _repr_html_(self) -> str:
        state, rows = "not fitted", {**self.given()}
        if hasattr(self, "model_"):
            state, rows = repr(self.model_), with_model(self.model_).given() | self.facts_["metrics"]
        return html_table(f"Recommender, {state}", rows.items())

    def __repr__(self) -> str:
        given = [f"{name}={value!r}" for name, value in self.given().items()]
        return f"Recommender({', '.join([*given, repr(self.model_)] if hasattr(self, 'model_') else given)})"

    # --- fitting and evaluating ------------------------------------------------------------------------

    def fit(
        self,
        interactions: Source | Split,
        valid: Source = None,
        *,
        item_features: Table = None,
        user_features: Table = None,
        budget: str | float | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
        **reading: Any,
    ) -> Self:
        """Learn from an `Interactions`, a `Split` (its test part is not used), or any source that
        `read_interactions` takes, with its options as further arguments: fit("log.csv", missing="drop").

        The model keeps how its data were read (`reading_`): `update`, `truepair evaluate` and the
        service read alike.

        Without a validation part, automatic settings are judged by a tenth of the pairs, held out in the way
        of `hold_out`; with times of a clock and hold_out="auto", by what came last in time, which chooses the
        trend too. Then the model learns from everything. `budget` limits the time of both, as seconds or
        text such as "2min"; without it, the search may do 2.5 times the work of one full training, as counted
        in advance: docs/automatic.md has the times.

        The share `validation` of the pairs is held out to choose the epoch. The model does not learn from it,
        but does not recommend it either. Every user and item keeps a pair to learn from. A closed form has no
        epoch to choose: a validation part is used only for scoring.

        `item_features` and `user_features` are for the encoder "hybrid": tables with a row for each item or
        user (a path, a table or a dict of columns), whose other columns are the features: text is a category,
        a list of text are tags or tokens, a number is a number, a list of numbers is a vector. Every item
        (user) with an interaction needs a row; cells may be empty.
        """
        spec = self.spec
        source = opened(interactions, reading)
        train = source.train if isinstance(source, Split) else source
        if train.disliked is not None:
            spec = Spec.of(self.get_params(), disliked=True)
        split = split_for_fitting(source, valid, spec.validation, spec.settings.seed, spec.hold_out)
        if split.valid is None and self.patience not in ("auto", None):
            remedy = "make the split with valid=0.1" if spec.validation else "set validation=0.1"
            why = "there is no validation part; leave it out, or"
            raise InputError(f"patience = {self.patience} has no effect: {why} {remedy}.")
        tables = FeatureTables.of(spec.encoder, split.train, item_features, user_features)
        choice = chosen_settings(spec, split, budget, checkpoint, progress, tables)
        self.model_, self.result_ = fit_split(choice.spec, split, checkpoint, progress, choice.facts, tables)
        self.output_ = table_type(split.train)
        return self

    def evaluate(
        self,
        split: Split | None = None,
        on: Literal["valid", "test"] = "test",
        *,
        ks: tuple[int, ...] = (5, 10, 20),
        cold: Cold = "popular",
        candidates: Table = None,
    ) -> Evaluation:
        """Evaluate on a part of the split whose train part was fitted, by ranking the whole catalogue.

        Raise if the model has learnt from a pair of that part: its score would mean nothing. For `cold` and
        `candidates`, which need no split, see the function `evaluate`.
        """
        if split is not None or candidates is None:
            check_type("split", split, Split, "make one with split_random, and fit on it")
        return evaluate(self, split, on, ks=ks, cold=cold, candidates=candidates)

    def check_unseen(self, split: Split, on: Literal["valid", "test"]) -> Recommender:
        """The recommender to evaluate on this part of a split; raise if the part was among the data of `fit`.

        It is this one, or one whose users have not done yet what the validation part holds.
        """
        model, target = self._fitted(), split.valid if on == "valid" else split.test
        own, rules = split.train.origin.policy.reading, model.seen.origin.policy.reading
        if own is not None and rules is not None:
            check_alike(own, rules)
        if (split.train.user_ids, split.train.item_ids) != (model.seen.user_ids, model.seen.item_ids):
            raise InputError("the model was fitted on other users or items; fit and evaluate on one split.")
        if on == "valid" and model.data == split.train.hash:
            # fitted on this split: the validation part is known, and nothing was learnt from it
            return with_model(model.as_of(split.train), self.output_) if model.spec.reads_order else self
        n_seen = 0 if target is None else int(model.seen.has(target.users, target.items).sum())
        if n_seen:
            raise InputError(f"{n_seen:,} pairs of the {on} part were in the data; use fit(split).")
        return self

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise InputError("this Recommender is not fitted yet; call fit(interactions) first.")
        if self.model_.spec.settings.device != self.device:  # it was changed since
            spec = self.model_.spec.varied(device=self.device)
            self.model_ = dataclasses.replace(self.model_, spec=spec)
        return self.model_

    def matrices(self) -> tuple[Rows, Rows]:
        """(users, items): the dot product of a row of each is a score."""
        return self._fitted().scorer.matrices()

    def vectors(self, of: Literal["items", "users"] = "items") -> Table:
        """A table of item and vector (user and vector), for an index of another program, such as faiss.

        The dot product of a user's and an item's vector is the score. Items that are never recommended and
        users who were not trained are left out. A closed form or a blend has no such vectors, and raises.

        >>> clicks = {"user": ["ann", "ann", "bob", "bob"], "item": ["tea", "milk", "tea", "jam"]}
        >>> model = Recommender(dim=4, epochs=5).fit(clicks)
        >>> model.vectors().column("item").to_pylist()
        ['jam', 'milk', 'tea']
        """
        return to_output(lists.vectors(self._fitted(), of), self.output_)

    spec_ = property(lambda self: self._fitted().spec, doc="The spec that was fitted, with what was chosen.")
    seen_ = property(lambda self: self._fitted().seen, doc="The interactions that are not recommended again.")
    reading_ = property(
        lambda self: dict(self._fitted().seen.origin.policy.reading or {}),
        doc="How its data were read: the options of `read_interactions` that say what rows mean.",
    )
    popularity_ = property(lambda self: self._fitted().popularity, doc="The users of each item in training.")
    history_ = property(lambda self: self._fitted().history, doc="Who has a trained row; what is popular.")
    facts_ = property(lambda self: self._fitted().facts, doc="How the model was made, as plain JSON.")

    # --- recommending ----------------------------------------------------------------------------------

    def recommend(
        self,
        users: Ids = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        exclude_items: Ids | Mapping[object, Ids] = None,
        only_items: Ids = None,
        items: Table = None,
        where: object = None,
        quota: Mapping[str, int] | None = None,
        diversify: float = 0.0,
        explain: bool | int = False,
        unknown: Unknown = "error",
        cold: Serving = "popular",
        at: object = None,
    ) -> Table:
        """A table of user, item, score, rank: the `k` best items of each user, best first.

        `users` is one id or several; without it, all users. A user gets fewer than k rows only if there are
        fewer candidates. `exclude_items` may be a mapping of users to items that they must not get.

        items       a table for `where` and `quota`, one row an item: a path, a table or a dict of columns.
        where       which items may be recommended: an Arrow expression on columns of `items`, text such as
                    "price < 10 and stock > 0" (never executed), or a mask over its rows. Null means no.
        quota       at most so many items of each value of a column: {"category": 3}. Null is not limited.
        diversify   λ in [0, 1): the list is chosen from the best 10 · k items, one by one, by the highest
                    (1 - λ) · score - λ · (largest cosine to an item chosen before), with scores scaled to
                    [0, 1]. The column score is the model's; it then need not fall with the rank.
        explain     adds columns. because: up to 5 (or `explain`) items of the user that speak for this one,
                    with weights. popularity: the part of the score that is the same for all users. rest: the
                    remainder, so that weights + rest + popularity = score. Without a closed form or a blend,
                    weights are similarities of items and do not add up, and rest is null.
        unknown     ids that the model does not know: "error"; "drop" ignores them, users and items; "popular"
                    ignores unknown items and gives unknown users the most popular ones. Items without a row
                    in `items` are an error with "error"; else they are not recommended.
        cold        users whose pairs were not trained on, such as those of a test part: "popular" gives them
                    the most popular items, "separate" leaves them out, "error" raises.
        at          the moment of the lists, for a model with a trend: a date or a number in the unit of the
                    times, from the last event on. By default the last event; later, what was popular lately
                    has faded.
        """
        options = lists.ListOptions(
            exclude_seen,
            exclude_items,
            only_items,
            items,
            where,
            quota,
            diversify,
            explain,
            unknown,
            cold,
            at,
        )
        return to_output(pa.concat_tables(lists.recommend(self._fitted(), users, k, options)), self.output_)

    def recommend_in_parts(
        self, users: Ids = None, k: int = 10, *, part: int = 8192, **options: Any
    ) -> Iterator[pa.Table]:
        """`recommend`, with its options, as Arrow tables of `part` users at a time, to write to a file."""
        return lists.recommend(self._fitted(), users, k, lists.ListOptions(**options), part)

    def similar_items(self, items: Ids, k: int = 10) -> Table:
        """A table of item, similar, score, rank: the `k` items with the most similar vectors.

        The similarity is the cosine, without what all popular items have in common. For a closed form: the
        `k` items with the largest weights for this one.
        """
        return to_output(lists.Neighbours(self._fitted()).items(items, k), self.output_)

    def similar_users(self, users: Ids, k: int = 10) -> Table:
        """A table of user, similar, score, rank: the `k` users with the most similar vectors, by cosine."""
        return to_output(lists.Neighbours(self._fitted()).users(users, k), self.output_)

    def score(self, pairs: Source) -> Table:
        """The table of pairs with their scores, those of `recommend`; a higher score ranks higher."""
        return to_output(lists.score_pairs(self._fitted(), pairs), table_type(pairs, self.output_))

    def fold_in(
        self, history: Source, *, unknown: Literal["error", "drop"] = "error", **reading: Any
    ) -> Recommender:
        """A recommender for users who were not trained on, from their interactions; nothing is retrained.

        Their vectors are fitted by the same loss while the item vectors stay fixed. For a closed form, the
        result is exact. The users of the result are those of `history` with at least one known item. Options
        of `read_interactions` are taken, too, such as `**model.reading_`; without them every row is a like.
        """
        folded = fold_in_users(self._fitted(), history, unknown, reading)
        return with_model(folded, table_type(history, self.output_))

    # --- updating --------------------------------------------------------------------------------------

    def update(
        self, new: Source, *, epochs: int | None = None, progress: bool = False, **reading: Any
    ) -> Self:
        """Learn from new interactions, an `Interactions` or any source that `read_interactions` takes.

        They are read as the data of the fit were, but for options of `read_interactions` that are given.
        Weights and dislikes are those of known and new events together, by the rule for repeats
        (`duplicates`, `half_life`, `counts`); what is new is later.

        The model goes on from where it is: it trains for `epochs` epochs (5 by default) on all pairs that it
        knows, validation pairs too, and the new ones. New users and items
        get vectors that are fitted against the known ones first, and are then refined with them; with
        epochs=0 the known vectors stay as they are. Settings are those of the fit; automatic ones are not
        searched again, and EASE of a blend is solved again. A closed form equals a new fit on all pairs.

        If anything fails, the model is unchanged. `facts_["updates"]` has a record of each update.
        """
        self.model_, self.result_ = updated(self._fitted(), new, epochs, progress, reading)
        return self

    def forget(
        self, *, items: Ids = None, users: Ids = None, unknown: Literal["error", "drop"] = "error"
    ) -> Self:
        """Remove items, such as those that have expired, and users, with their rows and pairs.

        All other vectors stay as they are, also those of users who have no pair left. A closed form, and EASE
        of a blend, is solved again for the pairs that are left. `unknown="drop"` ignores unknown ids.
        """
        self.model_ = forgotten(self._fitted(), items, users, unknown)
        return self

    def add_items(self, items: Table, *, popularity: float | None = None) -> Recommender:
        """A recommender that knows more items: those of a table of features that nobody has yet.

        Their vectors come from a map from features to the vectors of trained items, a ridge regression whose
        regularisation is chosen on held-out items. A model with `item_features` has the map already, and
        `items` need only have rows of new items, with the same columns. For another model, the table must
        also have rows of all trained items, to learn the map from. New items are recommended, listed as
        similar, saved and loaded like others; in lists of the most popular items they come last.

        `popularity` is for models with this option: so many users a new item is taken to have. By default, as
        many as a trained item has (the geometric mean); more shows new items to more users.

        >>> clicks = {"user": [1, 1, 2, 2, 3, 3], "item": ["tea", "milk", "tea", "jam", "jam", "roll"]}
        >>> names = ["tea", "milk", "jam", "roll", "mate"]
        >>> kinds = {"item": names, "kind": ["drink", "drink", "food", "food", "drink"]}
        >>> model = Recommender(dim=4, epochs=5).fit(clicks).add_items(kinds)
        >>> "mate" in model.recommend([1], k=3).column("item").to_pylist()
        True
        """
        return with_model(add_items(self._fitted(), items, popularity), self.output_)

    # --- saving ----------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, updatable: bool = True) -> None:
        """Write everything that `load` needs to one file, atomically; see docs/file-format.md.

        `updatable` writes the vectors and the moments of the optimizer too, so that `update` of the loaded
        model is that of this one. Without them the file has about a quarter of the size, and updates go on
        from the vectors alone.
        """
        check_type("updatable", updatable, bool, "give True or False")
        save_model(path, self._fitted(), self.output_, updatable)

    @classmethod
    def load(cls, path: str | Path) -> Recommender:
        """A recommender from a file that `save` wrote; loading runs no code from the file."""
        return with_model(*load_model(path))


def with_model(model: Model, output: str = "arrow") -> Recommender:
    """The recommender of a fitted model; its parameters are those of the model's spec."""
    recommender = Recommender().set_params(**model.spec.parameters())
    recommender.model_, recommender.output_ = model, output
    return recommender
