"""Training on a cluster of Ray, and prepared data from Ray Data.

from truepair.distributed.ray import fit, write_prepared

write_prepared(ray.data.read_parquet("s3://shop/clicks"), "/shared/clicks.prepared")
model = fit("/shared/clicks.prepared", "/shared/model.truepair", workers=8, use_gpu=True, test=0.1)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truepair.distributed.worker import (
    arguments_of,
    check_start,
    cluster_module,
    fitted,
    train,
    worker_errors,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.data.interactions import Interactions

_ROWS = 1 << 20  # of a table


def fit(
    source: str | Path,
    output: str | Path,
    *,
    workers: int = 2,
    use_gpu: bool = False,
    restarts: int = 0,
    scaling_config: Any = None,
    run_config: Any = None,
    **options: Any,
) -> Any:
    """Train one model on `workers` workers of Ray, write it to `output`, and return it, a `Recommender`.

    Each worker runs `truepair fit source -o output`, as under torchrun; `options` are those of this command
    with underscores, such as `epochs=20, batch_size=2048, auto=False, test=0.1`. All machines must have
    truepair installed, read `source` and reach the folder of `output`. After a failure, the workers are
    started again up to `restarts` times, and go on from the checkpoint beside `output`. `scaling_config` and
    `run_config` are Ray's own; the first replaces `workers` and `use_gpu`, the second `restarts`.
    """
    check_start(source, output, workers)
    api, torch_api = _ray("ray.train"), _ray("ray.train.torch")
    if scaling_config is None:
        scaling_config = api.ScalingConfig(num_workers=workers, use_gpu=use_gpu)
    if run_config is None:
        run_config = api.RunConfig(failure_config=api.FailureConfig(max_failures=restarts))
    given = arguments_of(Path(source).absolute(), Path(output).absolute(), use_gpu, options)
    trainer = torch_api.TorchTrainer(
        train,
        train_loop_config={"arguments": given},
        scaling_config=scaling_config,
        run_config=run_config,
    )
    with worker_errors("Ray"):
        trainer.fit()
    return fitted(output)


def write_prepared(
    dataset: Any, folder: str | Path, *, user: str = "user", item: str = "item"
) -> Interactions:
    """Write a prepared folder from a dataset of Ray Data, which is then opened.

    The cluster sorts the pairs; this process streams them into the arrays, and has only the ids in memory.
    The folder equals what `truepair prepare` makes of the same two columns: repeated pairs are one, and
    missing ids are an error.
    """
    from truepair.data.preparing.sorted_pairs import id_columns, write_sorted_pairs

    context = _ray("ray.data").DataContext.get_current()
    before, context.execution_options.preserve_order = context.execution_options.preserve_order, True
    try:
        pairs = dataset.map_batches(id_columns, fn_args=(user, item), batch_format="pyarrow")
        ordered = pairs.sort(["user", "item"]).materialize()

        def tables() -> Iterator[pa.Table]:
            return iter(ordered.iter_batches(batch_size=_ROWS, batch_format="pyarrow"))

        return write_sorted_pairs(tables, folder, "a dataset of Ray")
    finally:
        context.execution_options.preserve_order = before


_ray = partial(cluster_module, "Ray")
