"""The fused GPU engine: exact Adam, whole epochs as captured graphs. What it can do, and where it starts."""

from __future__ import annotations

import importlib.util

import torch

from truepair.training.job import Engine, Job, Trainer
from truepair.training.sampled.plan import lacking, lacking_data, next_power_of_two, plan_of

_MOST_NUMBERS = 32_768  # of a row's items, items x dimensions: they lie in registers
_WIDEST_POOL = 128  # slots of a row that is chosen from by score: slots x slots are compared


def _lacks(job: Job) -> str | None:
    device = job.settings.torch_device()
    if device.type != "cuda":
        return "it needs a CUDA device, and this run is on the CPU."
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < (7, 0):
        return "it needs an NVIDIA GPU of compute capability 7.0 or later."
    if importlib.util.find_spec("triton") is None:
        return "it needs Triton, which comes with PyTorch's CUDA builds: pip install triton."
    if lack := lacking(job.encoder, job.loss, job.sampler) or lacking_data(job):
        return lack
    if job.settings.optimizer != "adam":
        return f"it has no optimizer {job.settings.optimizer!r}; it has 'adam'."
    return too_wide(job)


def too_wide(job: Job) -> str | None:
    """Why a data entry does not fit, if it does not."""
    plan = plan_of(job)
    slots = next_power_of_two(plan.width)
    numbers = slots * next_power_of_two(job.encoder.dim)
    if numbers > _MOST_NUMBERS:
        return (
            f"a row of 1 + M + N = {plan.width} items of {job.encoder.dim} dimensions is too wide for it; "
            f"items x dimensions, each rounded up to a power of two, go up to {_MOST_NUMBERS:,}."
        )
    rows = job.interactions.n_users + job.interactions.n_items
    if rows * job.encoder.dim > 2**31 - 2**10:
        return f"{rows:,} users and items of {job.encoder.dim} dimensions are too many for it (below 2^31)."
    if plan.pool > plan.n and slots > _WIDEST_POOL:
        return f"1 + M + pool = {plan.width} items to choose from are too many for it (up to {_WIDEST_POOL})."
    return None


def _start(job: Job) -> Trainer:
    from truepair.training.sampled.gpu.runs import GpuRuns

    return GpuRuns([job]).trainers[0]


GPU = Engine(start=_start, lacks=_lacks)
