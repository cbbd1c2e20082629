"""A model file checked against the parameters that it states."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from truepair.errors import InputError, check_choice, check_number
from truepair.models.blend import check_vectors
from truepair.recommender.model_file import Model
from truepair.recommender.parts import Parameters, blend_of, closed_form_of, parts_of

_KINDS = {True: "sparse", False: "dense"}


def check_model(parameters: Parameters, model: Model) -> None:
    """Raise if the matrices or the facts are not such as these parameters give."""
    _check_rows(parameters, model)
    _check_popularity(model)
    _check_start(parameters, model)
    _check_prior(model)
    check_choice("output", model.facts["output"], ["arrow", "pandas", "polars"])


def _check_rows(parameters: Parameters, model: Model) -> None:
    n, closed, blended = model.seen.n_items, closed_form_of(parameters), blend_of(parameters) is not None
    if closed is not None:
        what, kinds, width = str(closed), (closed.sparse_users, closed.sparse_items), closed.width(n)
    else:
        encoder = parts_of(parameters).encoder
        what, kinds = f"{encoder}{' with EASE' if blended else ''}", (blended, False)
        width = encoder.dim + bool(encoder.popularity) + n * blended
    for name, rows, sparse in (("users", model.users, kinds[0]), ("items", model.items, kinds[1])):
        if sp.issparse(rows) != sparse or rows.shape[1] != width:
            raise InputError(
                f"{name} of {what} are {_KINDS[sparse]} rows of {width} numbers, and these are "
                f"{_KINDS[sp.issparse(rows)]}, of shape {tuple(rows.shape)}."
            )
    if blended:
        check_vectors(model.users, n)


def _check_start(parameters: Parameters, model: Model) -> None:
    if model.start is None:
        return
    if (closed := closed_form_of(parameters)) is not None:
        raise InputError(f"{closed} is not trained, and the file has a state of training.")
    parts = parts_of(parameters)
    dims = parts.encoder.dim, model.start.users.vectors.shape[1]
    if dims[0] != dims[1]:
        raise InputError(
            f"{parts.encoder} has vectors of {dims[0]} numbers, and its training state {dims[1]}."
        )
    if model.start.has_moments and parts.settings.optimizer != "adam":
        raise InputError(f"the training state has moments of Adam, not of {parts.settings.optimizer}.")


def _check_popularity(model: Model) -> None:
    """Fold-in divides by the sum of the counts, and they are added as 64-bit integers."""
    total = float(model.popularity.sum(dtype=np.float64))
    if not 0 < total < 2**53:
        raise InputError(f"popularity adds up to {total:g} pairs; it must be from 1 to 2^53.")


def _check_prior(model: Model) -> None:
    """None, a number, or a number for each user of the training; guests were not among them."""
    tau: Any = model.facts["tau"]
    if isinstance(tau, list) and "folded in" not in model.facts and len(tau) != model.seen.n_users:
        raise InputError(f"tau has {len(tau)} numbers for {model.seen.n_users} users.")
    numbers = tau if isinstance(tau, list) else [] if tau is None else [tau]
    if tau == []:
        raise InputError("tau is an empty list.")
    kinds = {type(number) for number in numbers}
    for number in numbers if kinds - {int, float} else (min(numbers), max(numbers)) if numbers else ():
        check_number("tau", number, 0, 1, open_high=True)
