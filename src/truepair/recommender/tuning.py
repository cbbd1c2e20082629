"""tune: a search for the parameters of a Recommender."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truepair.data.split import Split
from truepair.errors import InputError, check_choice
from truepair.models.closed_forms import ALL_ENCODERS, CLOSED, Popular
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import cut_in_time, split_for_fitting
from truepair.search.automatic import chosen_settings
from truepair.search.domains import Flat, Space
from truepair.search.runner import TrainingRunner
from truepair.search.running import SearchResult, check_space, run_search
from truepair.search.spaces import check_values, default_space, default_values
from truepair.search.trials import Trial
from truepair.spec import HOLD_OUTS, Spec
from truepair.spec.defaults import SAMPLED, with_defaults
from truepair.spec.parameters import PARAMETERS, PARTS, by_fields, same_parameters
from truepair.storage.types import Json, Source
from truepair.storage.versions import current_parameters


class Tuning(SearchResult):
    """Results of a search: the best trial, all trials, the final space, and what was extended.

    `interrupted` is the number of trials that were interrupted and run again; `trials` does not contain them.
    `default` is the trial of the default values, if the search had one.
    """

    def recommender(self) -> Recommender:
        """An unfitted `Recommender` with `parameters()`."""
        return Recommender.of(self.parameters())


def tune(
    data: Source,
    valid: Source = None,
    *,
    space: Space | None = None,
    trials: int = 30,
    storage: Path | str | None = None,
    study: str | None = None,
    together: int = 1,
    extensions: int = 2,
    prune: bool = True,
    on_trial: Callable[[Trial], None] | None = None,
    on_best: Callable[[Tuning], None] | None = None,
    progress: bool = False,
    **parameters: Any,
) -> Tuning:
    """Search for the parameters of a `Recommender` with the best score on a validation part.

    `data` is a `Split` with a validation part, or anything that `Recommender.fit` takes; then `valid`, or a
    share of the pairs (a tenth, or the parameter `validation`), is the validation part: the share is held out
    as the parameter `hold_out` says. The test part of a split is not used. Trial 0 is the default: what `fit`
    does without a search, with automatic settings (unless auto=False), but without a blend or a trend,
    which no trial has. `parameters` are fixed: names of Recommender, and with `**{"loss.tau": 0.1}` fields of
    its loss, encoder and sampler. `space` is what to search, by default what suits these three; see
    `truepair.search.domains`. With a file as `storage`, a search that was stopped continues, and several
    processes may share the work. The other options are those of `run_search`.

    `found.recommender()` has the best parameters and stops after the epoch that the validation part chose.
    It holds nothing out: given all pairs, it learns from all of them.

        found = tp.tune(clicks, loss="dpl", sampler="uniform", trials=30)
        model = found.recommender().fit(clicks)
    """
    plan = plan_search(parameters, space)
    split = split_for_fitting(data, valid, plan.validation, plan.model.seed, plan.model.hold_out)
    options: Json = {"trials": trials, "study": study, "together": together, "on_trial": on_trial}
    options |= {"on_best": on_best, "extensions": extensions, "prune": prune, "progress": progress}
    with tempfile.TemporaryDirectory() as folder:
        return plan.run(split, storage=storage or Path(folder) / "tune.journal", **options)


@dataclass(frozen=True)
class SearchPlan:
    """What a search needs besides data: all of it is checked.

    model       the recommender without a search
    fixed       flat parameters that all trials share
    space       what is searched
    validation  the share of the pairs that is held out for scoring
    keep_space  whether a study that exists keeps its own space: the default space may change
    """

    model: Recommender
    fixed: Flat
    space: Space
    validation: float
    keep_space: bool = False

    @property
    def name(self) -> str:
        """The name of the study by default: loss-encoder-sampler."""
        return "-".join(str(self.fixed[part]) for part in PARTS if part in self.fixed)

    def run(
        self,
        split: Split,
        *,
        trials: int,
        storage: Path | str,
        study: str | None = None,
        on_best: Callable[[Tuning], None] | None = None,
        **options: Any,
    ) -> Tuning:
        """Search on the train and validation parts of a split; see `run_search` for the options."""
        if split.valid is None:
            raise InputError("the split has no validation part to score trials on; make one with valid=0.1.")
        model, study = self.model, study or self.name

        def chosen(spec: Spec) -> Spec:
            """With automatic settings but for blend and trend, which trials have not; kept beside storage."""
            spec = replace(
                spec, searched=tuple(name for name in spec.searched if name not in ("blend", "trend"))
            )
            kept = Path(storage).with_name(f"{Path(storage).name}.{study}")
            return chosen_settings(spec, split, checkpoint=kept, progress=bool(options.get("progress"))).spec

        runner = TrainingRunner(self.fixed, split.train, split.valid, model.metric, model.engine)
        plain = {**_for_fit(self.fixed), "auto": model.auto, "metric": model.metric}
        default = default_values(self.space, plain, split.train, chosen)
        options = {"seed": model.seed, "default": default, "keep_space": self.keep_space, **options}
        if on_best is not None:
            options["on_best"] = lambda found: on_best(Tuning(**vars(found)))
        found = run_search(self.space, runner, trials=trials, storage=storage, study=study, **options)
        lately = None
        if cut_in_time(split) is not None:
            facts = Recommender(encoder=Popular("auto"), metric=model.metric).fit(split).facts_
            lately = facts["metrics"][f"validation {model.metric}"]
        return Tuning(**{**vars(found), "lately": lately})


def plan_search(parameters: Flat, space: Space | None = None) -> SearchPlan:
    """The plan of a search with these fixed parameters, flat; raise if something in it is invalid."""
    fixed = by_fields(parameters)
    named: Json = {part: fixed[part] for part in ("loss", "encoder", "sampler") if part in fixed}
    keep_space = space is None
    if space is None and fixed.get("sampler", "full") != "full" and fixed.get("encoder") not in CLOSED:
        # a search means one optimizer, on whatever device it continues
        fixed["optimizer"] = with_defaults({**PARAMETERS, **fixed})["optimizer"]
        named["optimizer"] = fixed["optimizer"]
    space = default_space(**named) if space is None else current_parameters(space)
    taken = {*fixed, *same_parameters(fixed)}
    space = {name: entry for name, entry in space.items() if name not in taken}
    _check_names([*fixed], [*space])
    known = {**PARAMETERS, **fixed}
    check_space(space, {name: value for name, value in known.items() if name not in space})
    check_values(space, _for_fit(fixed))
    model = Recommender.of({name: value for name, value in fixed.items() if "." not in name})
    kind = ALL_ENCODERS.get(model.encoder) if isinstance(model.encoder, str) else model.encoder
    if getattr(kind, "learns_from_features", False):
        raise InputError(f"encoder = {model.encoder!r} cannot be searched: it needs features; use 'mf'.")
    check_choice("hold_out", model.hold_out, HOLD_OUTS)
    for name in ("hold_out", "auto"):  # of the parts of the search and of trial 0, and not of every trial
        fixed.pop(name, None)
    share = SAMPLED["validation"] if model.validation is None else model.validation
    if not 0 < share < 1:
        raise InputError(f"validation = {share} leaves no pairs to score trials on; use a share such as 0.1.")
    fixed = {"loss": model.loss, "encoder": model.encoder, "sampler": model.sampler, **fixed}
    if not (model.encoder in CLOSED if isinstance(model.encoder, str) else not model.spec.is_trained):
        fixed["validation"] = share  # a part of what trials mean; `Tuning.parameters` takes it out
    return SearchPlan(model, fixed, space, share, keep_space)


def _for_fit(fixed: Flat) -> Json:
    """The parameters without those of the hold-out: here it scores trials, also those of closed forms."""
    return {name: value for name, value in fixed.items() if name not in ("validation", "hold_out")}


def _check_names(fixed: list[str], space: list[str]) -> None:
    for name in [*fixed, *space]:
        if name.partition(".")[0] in ("blend", "blend_weight", "trend"):
            raise InputError(
                f"{name} has no effect here: trials score no blend and no trend. Set it for the fit."
            )
        if name == "stop_after":
            raise InputError("stop_after has no effect here: a search chooses it. Leave it out.")
    for name in space:
        if name in ("auto", "hold_out"):  # what trial 0 is; trials on different parts do not compare
            raise InputError(f"{name} cannot be searched: a study has one. Fix it.")
        if name in PARTS:
            raise InputError(f"the space contains {name}, but a study has one {name}. Run tune for each.")
