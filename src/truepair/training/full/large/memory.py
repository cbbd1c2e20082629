"""Memory: what a run on one device needs there and in main memory, said before it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from truepair.errors import InputError
from truepair.models.factor_matrices import free_bytes
from truepair.sampling import Full
from truepair.training.full.large.streaming import is_streamed
from truepair.training.job import Job

_FLOAT, _CODE = 4, 8
_STATES = {"adam": 2, "adagrad": 1, "sgd": 0}  # numbers that an optimizer keeps of each parameter
_OF_STATE = {"device": 4, "half": 2, "host": 0}  # bytes of such a number of users, on the device
_SCORES, _ANCHOR = 4, 3  # tensors of the size of a block's scores, and of its anchors' vectors, at one time
_USER = 10  # whole numbers of a user: counts, starts, order, and what sorting needs


class Needs(NamedTuple):
    """Bytes on the device, and in main memory beside what is mapped."""

    device: int
    host: int


def needs(job: Job, many: bool, streamed: bool) -> Needs:
    """What a job needs on CUDA. `many`: users that a step does not use are left alone."""
    assert isinstance(job.sampler, Full)
    data, settings, dim = job.interactions, job.settings, job.encoder.dim
    n_states = _STATES[settings.optimizer]
    users, items = (n * dim * _FLOAT for n in (data.n_users, data.n_items))
    state = data.n_users * dim * n_states * (_OF_STATE[settings.optimizer_state] if many else _FLOAT)
    tables = 2 * users + state + items * (3 + n_states)  # the second is the copy that is the result
    tables += 0 if many else users  # gradients
    block = min(settings.batch_size, data.n_users)
    anchors = block * len(data) // max(data.n_users, 1)
    columns = job.sampler.columns_of(data.n_items) or data.n_items
    working = block * columns * _SCORES * _FLOAT + anchors * dim * _ANCHOR * _FLOAT
    pairs = 0 if streamed else len(data) * _CODE
    host = 2 * (users + items)  # the first vectors, then the result
    if many and settings.optimizer_state == "host":
        host += n_states * _power_of_two(users)  # as PyTorch allocates pinned memory
    return Needs(tables + working + pairs + data.n_users * _USER * _CODE, host)


def check_memory(job: Job, many: bool) -> None:
    """Raise if a job on CUDA needs more than is free, with what would need less."""
    device = job.settings.torch_device()
    if device.type != "cuda":
        return
    streamed = is_streamed(job.interactions, device)
    found = needs(job, many, streamed)
    places = ("the device", device, found.device), ("main memory", torch.device("cpu"), found.host)
    for where, place, needed in places:
        free = free_bytes(place)
        if free is not None and needed > free:
            raise InputError(
                f"training needs about {needed / 1e9:,.1f} GB of {where}, and {free / 1e9:,.1f} GB are free; "
                f"{remedy(job, many, streamed, place, free)}."
            )


def remedy(job: Job, many: bool, streamed: bool, place: torch.device, free: int) -> str:
    """What would need less: another place of Adam's state if that is enough, else smaller settings."""
    states = ("half", "host") if place.type == "cuda" else ("half",)
    for state in states:
        if many and job.settings.optimizer_state != state:
            other = replace(job, settings=replace(job.settings, optimizer_state=state))  # type: ignore[arg-type]
            if needs(other, many, streamed)[place.type == "cpu"] <= free:
                return f"set optimizer_state={state!r}, or lower dim"
    return "lower dim or batch_size, set columns of the sampler, or use several devices (torchrun)"


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
