"""The engines by name, and the choice of one for a job."""

from __future__ import annotations

from truepair.errors import InputError, check_choice
from truepair.storage.versions import current_value
from truepair.training.distributed.engine import DISTRIBUTED
from truepair.training.full.engine import FULL
from truepair.training.job import Job
from truepair.training.reference.trainer import REFERENCE
from truepair.training.sampled.cpu.engine import CPU
from truepair.training.sampled.gpu.engine import GPU
from truepair.training.trainer import Engine

ENGINES: dict[str, Engine] = {
    "gpu": GPU,
    "cpu": CPU,
    "full": FULL,
    "reference": REFERENCE,
    "distributed": DISTRIBUTED,
}
AUTO = "auto"
_AUTO_ORDER = ("full", "gpu", "cpu", "reference")  # of those for a sampler, fastest first


def choose_engine(job: Job, engine: str = AUTO) -> str:
    """The engine for a job: the one named, if it can train the job.

    "auto" is the fastest engine that can: "full" for sampler="full", else "gpu" on CUDA, "cpu" for what it
    supports, and "reference" for the rest.
    """
    engine = check_choice("engine", current_value("engine", engine), [AUTO, *ENGINES])
    job = job.with_density()
    if job.settings.optimizer_state != "device" and (engine not in (AUTO, "full") or FULL.lacks(job)):
        raise InputError(
            f"optimizer_state = {job.settings.optimizer_state!r} is for engine 'full', with sampler='full'; "
            "leave it out."
        )
    if engine == AUTO:
        return next(name for name in _AUTO_ORDER if ENGINES[name].lacks(job) is None)
    if lack := ENGINES[engine].lacks(job):
        able = [name for name, other in ENGINES.items() if other.lacks(job) is None]
        raise InputError(f"engine = {engine!r}: {lack} Use {' or '.join(able)}, or 'auto'.")
    return engine
