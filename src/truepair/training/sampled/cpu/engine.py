"""The fast mode on the CPU: every data entry is a step of its own, on all threads at once, without locks.

It is its own algorithm, not the reference's: there are no batches, and a thread may read a vector that
another one is changing (Hogwild). With one thread a run depends on the seed alone, and a resumed run ends
with the same bits, as long as the machine code is the same: another processor, or another version of Numba
or truepair, may round the last digits in another way. With more threads two runs differ as two seeds do. The
number of threads is PyTorch's.
"""

from __future__ import annotations

from truepair.losses import Loss
from truepair.models.encoders import MF, Encoder
from truepair.sampling import Sampler
from truepair.training.job import Engine, Job, Trainer
from truepair.training.sampled.plan import FUSED_SAMPLERS, lacking, lacking_data


def _lacks(job: Job) -> str | None:
    settings = job.settings
    if settings.device not in ("auto", "cpu"):
        return f"it trains on the CPU, not on device = {settings.device!r}; it has 'cpu' and 'auto'."
    if lack := lacking_part(job.encoder, job.loss, job.sampler) or lacking_data(job):
        return lack
    if settings.optimizer == "adam" or settings.weight_decay:
        return (
            f"optimizer = {settings.optimizer!r} with weight_decay = {settings.weight_decay:g} moves every "
            "row in every step, and its steps touch their own rows only. Set optimizer='adagrad' (or 'sgd'), "
            "weight_decay=0, l2_users=0.1, schedule='linear' and a learning_rate near 0.1 (0.3 for 'sgd')."
        )
    return None


def lacking_part(encoder: Encoder, loss: Loss, sampler: Sampler) -> str | None:
    """Which of these the engine cannot train, and what it has."""
    return lacking(encoder, loss, sampler, (MF,), FUSED_SAMPLERS)  # there is no batch to rank among


def _start(job: Job) -> Trainer:
    from truepair.training.sampled.cpu.trainer import CpuTrainer  # with Numba, which takes a second to load

    return CpuTrainer(job)


CPU = Engine(start=_start, lacks=_lacks)
