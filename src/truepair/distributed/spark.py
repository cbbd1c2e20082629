"""Training on a cluster of Spark, and prepared data from its tables.

from truepair.distributed.spark import fit, write_prepared

write_prepared(spark.table("shop.clicks"), "/shared/clicks.prepared", weight="plays", time="played_at")
model = fit("/shared/clicks.prepared", "/shared/model.truepair", workers=8, use_gpu=True, test=0.1)
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truepair.distributed import worker
from truepair.errors import TrainingError
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
    local_mode: bool = False,
    **options: object,
) -> Any:
    """Train one model on `workers` tasks of Spark, write it to `output`, and return it, a `Recommender`.

    There must be a session of Spark. Each task runs `truepair fit source -o output`, as under torchrun;
    `options` are those of this command with underscores, such as `epochs=20, batch_size=2048, auto=False,
    test=0.1`. All machines must have truepair installed, read `source` and reach the folder of `output`. If
    a task fails, the same call goes on from the checkpoint beside `output`. `local_mode` starts the workers
    on the driver's machine.
    """
    config = worker.checked_arguments(source, output, workers, use_gpu, options)
    distributor = _spark("pyspark.ml.torch.distributor").TorchDistributor(
        num_processes=workers, local_mode=local_mode, use_gpu=use_gpu
    )
    with worker.worker_errors("Spark"):
        problem = distributor.run(worker.train_or_say, config)
    if problem:
        raise TrainingError(f"a worker of Spark failed: {problem}")
    return worker.fitted(output)


def write_prepared(table: Table, folder: str | Path, **options: Any) -> Interactions | Split:
    """Prepare a DataFrame of Spark: `prepare_interactions`, which has the options, with this source.

    The cluster writes the columns as Parquet beside `folder`, which all machines must reach. This process
    reads them in the order of `table.collect()`, and sorts and merges them within `memory`.
    """
    from truepair.data.columns import Raw
    from truepair.data.preparing.prepare import check_new, prepare_interactions
    from truepair.data.sources.file_opening import expanded

    target = expanded(folder).absolute()
    staged = target.with_name(f"{target.name}.rows")

    def batches(at: Sequence[int]) -> Iterator[Sequence[pa.Array]]:
        check_new(staged)
        try:
            by_position = table.toDF(*map(str, range(len(table.columns))))  # names may occur twice
            by_position.select(*map(str, at)).write.parquet(_address(staged))
            yield from _columns(staged)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    source = Raw("a DataFrame of Spark", table.columns, lambda at: (), batches=batches)
    return prepare_interactions(source, target, **options)


def _address(path: Path) -> str:
    """The path as Hadoop takes it: not quoted, for a quoted space would be a part of the name."""
    return f"file:///{path.as_posix().lstrip('/')}"


def _columns(folder: Path) -> Iterator[Sequence[pa.Array]]:
    """The columns of a table's files, in the order of its partitions."""
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("part-*.parquet"), key=_partition):
        # Spark writes times in 96 bits, of which Arrow would make nanoseconds, until the year 2262
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches(worker.ROWS):
                yield batch.columns


def _partition(path: Path) -> tuple[int, str]:
    """Of a file such as part-00012-…-c000.parquet; beyond 99,999 the number has more digits."""
    return int(path.name.split("-")[1]), path.name


_spark = partial(worker.cluster_module, "Spark")
