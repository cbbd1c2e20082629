"""Training on a cluster of Ray, and prepared data from Ray Data.

from truepair.distributed.ray import fit, write_prepared

write_prepared(ray.data.read_parquet("s3://shop/clicks"), "/shared/clicks.prepared")
model = fit("/shared/clicks.prepared", "/shared/model.truepair", workers=8, use_gpu=True, test=0.1)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from truepair.distributed.worker import (
    checked_arguments,
    cluster_module,
    fitted,
    train,
    worker_errors,
)
from truepair.storage.types import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.data.interactions import Interactions
    from truepair.data.split import Split

_ROWS = 1 << 20  # of a table
_PAIR = ["user", "item"]


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
    config = checked_arguments(source, output, workers, use_gpu, options)
    api, torch_api = _ray("ray.train"), _ray("ray.train.torch")
    if scaling_config is None:
        scaling_config = api.ScalingConfig(num_workers=workers, use_gpu=use_gpu)
    if run_config is None:
        run_config = api.RunConfig(failure_config=api.FailureConfig(max_failures=restarts))
    trainer = torch_api.TorchTrainer(
        train, train_loop_config=config, scaling_config=scaling_config, run_config=run_config
    )
    with worker_errors("Ray"):
        trainer.fit()
    return fitted(output)


def write_prepared(dataset: Table, folder: str | Path, **options: object) -> Interactions | Split:
    """Write a prepared folder from a dataset of Ray Data, which is then opened.

    The cluster sorts the rows; this process streams them into the arrays, and has only the ids in memory. The
    arrays are those of `prepare_interactions` for the same options and for the rows in the order of the
    dataset, without the log of events. Missing values are an error. The options are:

    - `user`, `item`, `rating`, `weight`, `time`: a column's name or position; None finds it by its name,
      False ignores it.
    - `min_rating`: rows with a lower rating are removed.
    - `duplicates`: which row of a repeated pair is kept, by default the last by time, then by row.
    - `test`, `valid`, `seed`: the shares of `split_random`. The folder then holds the parts of the split.
    """
    from truepair.distributed.tables import plan_writing, role_columns

    data = _ray("ray.data")
    names = dataset.columns() or []
    asked = plan_writing(names, folder, "a dataset of Ray", options)
    with _preserved_order(dataset.context, data.DataContext.get_current()):
        columns = {role: names[at] for role, at in asked.columns.items()}
        rows, by = dataset.map_batches(role_columns, fn_args=(columns,), batch_format="pyarrow"), _PAIR
        if asked.in_order:
            rows, by = _with_numbers(rows, data), [*_PAIR, "row"]
        ordered = rows.sort(by).materialize()

        def tables() -> Iterator[pa.Table]:
            return iter(ordered.iter_batches(batch_size=_ROWS, batch_format="pyarrow"))

        return asked.write(tables)


def _with_numbers(rows: Table, data: ModuleType) -> Table:
    """The dataset with the column `row`, which rises in its order."""
    from truepair.distributed.tables import numbered

    number = _ray("ray").remote(numbered)
    blocks = rows.to_arrow_refs()
    return data.from_arrow_refs([number.remote(block, at) for at, block in enumerate(blocks)])


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


_ray = partial(cluster_module, "Ray")
