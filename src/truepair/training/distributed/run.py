"""The run of all ranks: they validate, stop and write checkpoints together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.checkpoint.api import CheckpointException

from truepair.errors import StorageError
from truepair.training.checkpoints import check_same_job, checked_contents, describe_job
from truepair.training.distributed import checkpoints
from truepair.training.distributed.engine import check_agreement
from truepair.training.distributed.shards import Shard, ShardedMatrices
from truepair.training.distributed.trainer import ShardTrainer
from truepair.training.job import Job, Trainer
from truepair.training.loop import Run
from truepair.training.result import EpochState, FitResult, OnEpoch


@dataclass(eq=False)
class ShardedState(EpochState):
    """What `on_epoch` sees on every rank; whoever can rank by shards need not gather the matrices."""

    shards: ShardedMatrices


class DistributedRun(Run):
    """A `Run` on one of the ranks. `best` holds the rank's own rows; a result holds the whole matrices."""

    trainer: ShardTrainer

    def __init__(
        self, job: Job, engine: str, trainer: Trainer, on_epoch: OnEpoch | None, checkpoint: Path | None
    ) -> None:
        assert isinstance(trainer, ShardTrainer)
        self.group = trainer.group
        described = describe_job(job, on_epoch)
        more = {"checkpoint": str(checkpoint), "epochs": job.settings.epochs}
        check_agreement(self.group, described | more)
        super().__init__(job, engine, trainer, on_epoch, checkpoint)
        self.kept = trainer.parts

    def ask(self, on_epoch: OnEpoch, state: EpochState) -> float | None:
        """Rank 0's score: a rounding elsewhere must not make one rank stop before the others."""
        trainer = self.trainer
        parts = ShardedMatrices(self.group, *trainer.parts(), trainer.user_shard, trainer.item_shard)
        score = super().ask(on_epoch, ShardedState(state.epoch, state.loss, trainer.matrices, parts))
        said = json.dumps([None if score is None else float(score), self.stopped])
        of_first, self.stopped = json.loads(self.group.texts(said)[0])
        return None if of_first is None else float(of_first)

    def result(self, keep_start: bool = False) -> FitResult:
        """The result with the rows of all ranks."""
        epoch, score, kept = self.best or (self.epoch, 0.0, self.kept())
        self.best = epoch, score, self.trainer.whole(kept)
        return super().result(keep_start)

    # --- checkpoints -------------------------------------------------------------------------------

    def shard_of(self, name: str) -> Shard:
        """The rows of a tensor of the checkpoint that this rank has."""
        of_users = name.endswith((".user", ".users")) or ".optimizer.0." in name
        return self.trainer.user_shard if of_users else self.trainer.item_shard

    def continue_from(self, path: Path) -> None:
        """Go on from a checkpoint, of any number of ranks, where there is one."""
        facts = checkpoints.read_facts(path, self.group)
        if facts is None:
            return
        check_same_job(path, facts, self.described, self.job.settings.epochs)
        problem = ""
        try:
            tensors = checkpoints.read_rows(path, facts, self.shard_of)
            n_rows = len(self.trainer.user_shard), len(self.trainer.item_shard)
            self.restore(checked_contents(tensors, facts, self.job, self.trainer, n_rows))
        except (Exception, CheckpointException) as error:  # PyTorch has no one type for files
            problem = checkpoints.reason(error)
        for rank, text in enumerate(self.group.texts(problem)):
            if text:
                raise StorageError(
                    f"{path} is not a whole checkpoint (rank {rank}): {text:.300}. Delete it to start anew."
                )

    def save(self) -> None:
        """Write the checkpoint: each rank its own rows."""
        assert self.checkpoint is not None
        checkpoints.save(self.checkpoint, self.tensors(), self.shard_of, self.facts(), self.epoch, self.group)
        self.saved = self.epoch
