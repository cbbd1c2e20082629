"""Sources: a file, a database or the name of a dataset -> Interactions or Split."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import truepair as tp
from truepair.cli.console import Console
from truepair.cli.options import DataDir, option, option_name, refuse
from truepair.data.sources.sql_urls import is_url, without_password
from truepair.errors import InputError, did_you_mean
from truepair.storage.types import Json

if TYPE_CHECKING:
    from truepair.data.columns import Column
    from truepair.data.datasets.dataset import Dataset
    from truepair.recommender.estimator import Recommender


def _column(role: str) -> Any:
    how = "a name, or a position from 0; `-` for none. By default it is found by name."
    return option(f"The {role} column: {how}", metavar="COLUMN")


@dataclass(frozen=True)
class Reading:
    """How to read a source; the fields are options. All but the last four are not for datasets."""

    panel: ClassVar = "Reading data"
    user: str | None = _column("user")
    item: str | None = _column("item")
    rating: str | None = _column("rating")
    weight: str | None = _column("weight")
    time: str | None = _column("time")
    chronological: bool | None = option("The order of rows is their time.", "--chronological")
    query: str | None = option("Rows of a database: 'select user_id, item_id from clicks'.", metavar="SQL")
    format: str | None = option("The format, if not recognised: {truepair.data.sources.formats.FORMATS}.")
    header: bool | None = option("Whether the first line names the columns.")
    encoding: str | None = option("The encoding of the file. [default: UTF-8]")
    duplicates: str | None = option("The kept row of repeats: {truepair.data.rows.pairs.DUPLICATES}.")
    missing: str | None = option("Rows that miss a value: {truepair.data.rows.options.MISSING}.")
    items: str | None = option("All item ids, one a line: also those without interactions.", metavar="FILE")
    kind: str | None = option("The column with the kinds of --feedback.", metavar="COLUMN")
    feedback: str | None = option(
        "Weights of kinds of rows: view=1,cart=3,buy=10. 0 removes rows, -1 is a dislike.", metavar="KIND=N,…"
    )
    half_life: str | None = option("Halve weights for each such age: 90d, 12h, 2w.", metavar="TIME")
    now: str | None = option("The time of --half-life. [default: the newest time]", metavar="TIME")
    counts: str | None = option("Weights from counts: 1 + log(count), or N at most.", metavar="log|cap:N")
    dislikes: bool | None = option("Weights below 0 are dislikes.", "--dislikes")
    max_disliked_rating: float | None = option("Interactions with this rating or a lower one are dislikes.")
    min_rating: float | None = option("Drop interactions with a lower rating.")
    core: str | None = option("The least items of a user (N), users of an item (M).", metavar="N|N,M")
    data_dir: DataDir = None

    def interactions(self, source: str, progress: bool = False) -> tp.Interactions:
        """The interactions of a file, a database or a dataset."""
        if (dataset := find_source(source)) is None:
            return tp.read_interactions(source, **self.for_files())
        self._refuse_for(dataset)
        from truepair.data.datasets.loading import load

        found = load(source, self.data_dir, progress)
        if self.max_disliked_rating is not None:
            found = found.with_dislikes(self.max_disliked_rating, self.min_rating)
        elif self.min_rating is not None:
            found = found.with_min_rating(self.min_rating)
        return found if self.core is None else found.k_core(*_cores(self.core))

    def read(self, source: str, console: Console, known: tp.Interactions | None = None) -> tp.Interactions:
        """`interactions`; says what was read. Files are read as known data were, but for what is given."""
        if known is None or find_source(source) is not None:
            found = self.interactions(source, not console.quiet)
        else:
            from truepair.recommender.holdout import read_alike

            found = read_alike(source, known, self.for_files())
        console.say(described(found))
        return found

    def split(
        self,
        source: str,
        test: str | None,
        after: str | None,
        model: Recommender,
        console: Console,
        valid: float | None = None,
    ) -> tp.Split:
        """The parts that `fit` makes: a test part if `test` says which, a validation part, and the rest.

        `test` is a random share, or "given", the test part that comes with the source; `after` is the time
        that begins it. `valid` is the share
        of the validation part, by default the model's; a prepared folder may have its own.
        """
        from truepair.recommender.holdout import split_for_fitting, with_validation

        share = model.spec.validation if valid is None else valid
        if after is not None:
            refuse({"--test": test}, f"with --test-after {after}", "give one or the other")
        if test is None and after is None:
            found = self.interactions(source, not console.quiet)
            split = split_for_fitting(found, None, share, model.seed, model.hold_out)
        else:
            split = self._with_test(source, test, after, model.seed, not console.quiet)
            if split.valid is None:
                split = with_validation(split, share, model.seed, model.hold_out)
        console.say(described(split))
        return split

    def test_of(self, source: str) -> str | None:
        """ "given" where the source comes with a test part that no option changes."""
        dataset, filters = find_source(source), (self.min_rating, self.core, self.max_disliked_rating)
        whole = dataset is not None and dataset.has("split") and filters == (None, None, None)
        return "given" if whole or self.prepared_split(source) is not None else None

    def prepared_split(self, source: str) -> tp.Split | None:
        """The split of a prepared folder; None if it has none, and for every other source."""
        from truepair.data.prepared.opening import is_prepared

        if not is_prepared(source) or not isinstance(found := tp.open_prepared(source), tp.Split):
            return None
        given = {option_name(name): value for name, value in self.for_files().items()}
        refuse(given, f"on {source}, which is prepared", "give it to `truepair prepare`")
        return found

    def _with_test(
        self, source: str, test: str | None, after: str | None, seed: int, progress: bool
    ) -> tp.Split:
        if (prepared := self.prepared_split(source)) is not None:
            if test != "given":
                raise InputError(f"{source} has a test part; use --test given.")
            return prepared
        if test is None:
            from truepair.data.durations import moment_in
            from truepair.data.split_recipes import clock_times

            found, at = self.interactions(source, progress), number_or_text(after)
            clock_times(found, "--test-after")
            moment_in("--test-after", at, found)  # an error names the option
            return tp.split_temporal(found, at=at)
        if test != "given":
            share = number_or_text(test)
            if not isinstance(share, float):
                raise InputError(f"test = {test!r} is neither a share such as 0.2 nor 'given'.")
            return tp.split_random(self.interactions(source, progress), share, seed=seed)
        if (dataset := find_source(source)) is None:
            raise InputError(f"test = 'given': {without_password(source)} has no test part; use --test 0.2.")
        self._refuse_for(dataset)
        filters = {"--core": self.core, "--max-disliked-rating": self.max_disliked_rating}
        refuse(filters, "on the published split", "leave it out, or use a share, --test 0.2")
        from truepair.data.datasets.loading import load_split

        given = load_split(source, self.data_dir, progress)
        return tp.split_given(self._rated(given.train, source), self._rated(given.test, source))

    def _rated(self, part: tp.Interactions, source: str) -> tp.Interactions:
        """The interactions of a published part with the minimum rating; users and items stay the same."""
        if self.min_rating is None:
            return part
        if part.rating is None:
            raise InputError(f"min_rating = {self.min_rating:g}: {source} has no ratings; leave it out.")
        return part.take(part.rating >= self.min_rating)

    def for_files(self) -> Json:
        """The options of `read_interactions` that are given; `none` undoes what a model was fitted with."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "data_dir"}
        return {n: _PARSERS[n](v) if n in _PARSERS else v for n, v in given.items() if v is not None}

    def _refuse_for(self, dataset: Dataset) -> None:
        given = {option_name(each.name): getattr(self, each.name) for each in fields(self)[:-4]}
        where = f"on {dataset.name!r}, which is the name of a dataset"
        refuse(given, where, f"leave it out, or give a path such as ./{dataset.name}")


def described(data: tp.Interactions | tp.Split) -> str:
    """What was read and removed, the split, and a note if ratings of different values all count as likes."""
    parts = list(data.parts.values()) if isinstance(data, tp.Split) else [data]
    from truepair.data.rows.options import KINDS_REMEDY

    remedy = "give --feedback view=1,buy=10,return=-1, or --kind - if that is meant"
    split = repr(data).replace("hold_out=", "--hold-out ")  # of its notes
    lines = [
        parts[0].report().replace(KINDS_REMEDY, remedy),
        *([split] if isinstance(data, tp.Split) else []),
    ]
    rated = [part.rating for part in parts if part.rating is not None and len(part)]
    low, high = min((r.min() for r in rated), default=0), max((r.max() for r in rated), default=0)
    if low < high:
        test = " (in the test part too)" if isinstance(data, tp.Split) and len(data.test) else ""
        lines.append(
            f"note: every rating from {low:g} to {high:g} counts as a like{test}; --min-rating drops low ones"
        )
    return "\n".join(lines)


def find_source(source: str) -> Dataset | None:
    """The dataset of this name, or None for a path or a URL; an error where it is none of them."""
    from truepair.data.datasets.registry import DATASETS
    from truepair.data.sources.file_opening import expanded

    if source in DATASETS:
        return DATASETS[source]
    if is_url(source):
        return None
    path = expanded(source)
    if os.path.exists(path) or os.path.splitext(path)[1] or os.path.dirname(path):
        return None  # the reader reports what is wrong with a path
    raise InputError(
        f"{source!r} is neither a file or folder here nor a dataset; the datasets are {', '.join(DATASETS)}."
        + did_you_mean(source, DATASETS)
    )


def place_of(dataset: Dataset, data_dir: Path | None) -> Path | None:
    """The folder on this machine that has the dataset's files, by their names alone."""
    folders = [folder / dataset.folder for _, folder in data_places(data_dir)]
    return next((folder for folder in folders if not dataset.missing(folder)), None)


def data_places(data_dir: Path | None) -> list[tuple[str, Path]]:
    """The folders that are searched for datasets, in order, with the option or variable that named them."""
    from truepair.data.datasets.loading import cache_dir

    named = os.environ.get("TRUEPAIR_DATA")
    places = [("--data-dir", data_dir)] if data_dir else [("TRUEPAIR_DATA", Path(named))] if named else []
    return [*places, ("cache", cache_dir())]


def as_column(text: str) -> Column:
    """A column as users write it: a name, a position, or `-` for none."""
    if text == "-":
        return False
    return int(text) if text.isdecimal() and len(text) < 20 else text


def number_or_text(text: str | None) -> str | float | None:
    """A time or a duration: a number without a unit, else the text itself."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def whole_numbers(what: str, text: str) -> tuple[int, ...]:
    """The numbers in a text such as "5,10,20"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{what} = {text!r} is not a list of whole numbers, such as 5,10,20.") from None


def _rule(text: str) -> str | None:
    """The text of a rule; `none` for none."""
    return None if text == "none" else text


def _feedback(text: str) -> dict[str, float] | None:
    return None if text == "none" else kind_numbers(text)


def kind_numbers(text: str) -> dict[str, float]:
    """The numbers of kinds in a text such as "view=1,buy=10"."""
    found: dict[str, float] = {}
    for part in text.split(","):
        kind, _, right = part.rpartition("=")
        number = number_or_text(right)
        if not kind.strip() or not isinstance(number, float):
            raise InputError(f"feedback = {text!r:.60}: {part!r:.60} is not KIND=NUMBER, such as view=1.")
        found[kind.strip()] = number
    return found


def _cores(text: str) -> tuple[int, int]:
    cores = whole_numbers("core", text)
    return cores[0], cores[-1]


_PARSERS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(("user", "item", "rating", "weight", "time", "kind"), as_column),
    **dict.fromkeys(("duplicates", "half_life", "counts"), _rule),
    "feedback": _feedback,
    "now": number_or_text,
    "core": _cores,
}
