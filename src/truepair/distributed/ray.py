"""Training on a cluster of Ray, and prepared data from Ray Data.

from truepair.distributed.ray import fit, write_prepared

write_prepared(ray.data.read_parquet("s3://shop/clicks"), "/shared/clicks.prepared")
model = fit("/shared/clicks.prepared", "/shared/model.truepair", workers=8, use_gpu=True, test=0.1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truepair.distributed import worker
from truepair.storage.types import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.data.interactions import Interactions
    from truepair.data.split import Split


def fit(
    source: str | Path,
    output: str | Path,
    *,
    workers: int = 2,
    use_gpu: bool = False,
    restarts: int = 0,
    scaling_config: object = None,
    run_config: object = None,
    **options: object,
) -> Any:
    """Train one model on `workers` workers of Ray, write it to `output`, and return it, a `Recommender`.

    Each worker runs `truepair fit source -o output`, as under torchrun; `options` are those of this command
    with underscores, such as `epochs=20, batch_size=2048, auto=False, test=0.1`. All machines must have
    truepair installed, read `source` and reach the folder of `output`. After a failure, the workers are
    started again up to `restarts` times, and go on from the checkpoint beside `output`. `scaling_config` and
    `run_config` are Ray's own; the first replaces `workers` and `use_gpu`, the second `restarts`.
    """
    config = worker.checked_arguments(source, output, workers, use_gpu, options)
    api, torch_api = _ray("ray.train"), _ray("ray.train.torch")
    if scaling_config is None:
        scaling_config = api.ScalingConfig(num_workers=workers, use_gpu=use_gpu)
    if run_config is None:
        run_config = api.RunConfig(failure_config=api.FailureConfig(max_failures=restarts))
    trainer = torch_api.TorchTrainer(
        worker.train, train_loop_config=config, scaling_config=scaling_config, run_config=run_config
    )
    with worker.worker_errors("Ray"):
        trainer.fit()
    return worker.fitted(output)


def write_prepared(dataset: Table, folder: str | Path, **options: Any) -> Interactions | Split:
    """Prepare a dataset of Ray Data: `prepare_interactions`, which has the options, with this source.

    This process streams the rows in the order of the dataset, and sorts and merges them within `memory`.
    """
    from truepair.data.columns import Raw
    from truepair.data.preparing.prepare import prepare_interactions

    names = dataset.columns() or []

    def batches(at: Sequence[int]) -> Iterator[Sequence[pa.Array]]:
        for table in dataset.iter_batches(batch_size=worker.ROWS, batch_format="pyarrow"):
            for batch in table.to_batches():
                yield [batch[names[each]] for each in at]

    source = Raw("a dataset of Ray", names, lambda at: (), batches=batches)
    with _preserved_order(dataset.context, _ray("ray.data").DataContext.get_current()):
        return prepare_interactions(source, folder, **options)


@contextmanager
def _preserved_order(*contexts: Any) -> Iterator[None]:
    """Blocks stay in order; a dataset has a context of its own, a copy of the one when it was made."""
    options = [context.execution_options for context in contexts]
    before = [each.preserve_order for each in options]
    try:
        for each in options:
            each.preserve_order = True
        yield
    finally:
        for each, value in zip(options, before, strict=True):
            each.preserve_order = value


_ray = partial(worker.cluster_module, "Ray")
