"""Training on a cluster of Spark, and prepared data from its tables.

from truepair.distributed.spark import fit, write_prepared

write_prepared(spark.table("shop.clicks"), "/shared/clicks.prepared", weight="plays", time="played_at")
model = fit("/shared/clicks.prepared", "/shared/model.truepair", workers=8, use_gpu=True, test=0.1)
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truepair.distributed.worker import (
    checked_arguments,
    cluster_module,
    fitted,
    train_or_say,
    worker_errors,
)
from truepair.errors import TrainingError
from truepair.storage.types import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.data.interactions import Interactions
    from truepair.data.split import Split
    from truepair.distributed.tables import Writing

_ROWS = 1 << 20  # of a table


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
    config = checked_arguments(source, output, workers, use_gpu, options)
    distributor = _spark("pyspark.ml.torch.distributor").TorchDistributor(
        num_processes=workers, local_mode=local_mode, use_gpu=use_gpu
    )
    with worker_errors("Spark"):
        problem = distributor.run(train_or_say, config)
    if problem:
        raise TrainingError(f"a worker of Spark failed: {problem}")
    return fitted(output)


def write_prepared(table: Table, folder: str | Path, **options: object) -> Interactions | Split:
    """Write a prepared folder from a DataFrame of Spark, which is then opened.

    The cluster sorts the rows and writes them as Parquet beside `folder`, which all machines must reach; this
    process streams them into the arrays, and has only the ids in memory. The arrays are those of
    `prepare_interactions` for the same options and for the rows in the order of `table.collect()`, without
    the log of events. Missing values are an error. The options are:

    - `user`, `item`, `rating`, `weight`, `time`: a column's name or position; None finds it by its name,
      False ignores it.
    - `min_rating`: rows with a lower rating are removed.
    - `duplicates`: which row of a repeated pair is kept, by default the last by time, then by row.
    - `test`, `valid`, `seed`: the shares of `split_random`. The folder then holds the parts of the split.
    """
    from truepair.data.preparing.publishing import check_new
    from truepair.distributed.tables import plan_writing

    asked = plan_writing(table.columns, folder, "a DataFrame of Spark", options)
    staged = asked.target.with_name(f"{asked.target.name}.pairs")
    check_new(staged)
    try:
        _sorted(table, asked).write.parquet(_address(staged))
        return asked.write(lambda: _tables(staged))
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _address(path: Path) -> str:
    """The path as Hadoop takes it: not quoted, for a quoted space would be a part of the name."""
    return f"file:///{path.as_posix().lstrip('/')}"


def _sorted(table: Table, asked: Writing) -> Table:
    """The columns under the names of their roles, sorted by pair, then in the order of the table."""
    functions = _spark("pyspark.sql.functions")
    by_position = table.toDF(*map(str, range(len(table.columns))))  # names may have dots, or occur twice
    rows = by_position.select(*(functions.col(str(at)).alias(role) for role, at in asked.columns.items()))
    if asked.in_order:
        numbered = rows.withColumn("row", functions.monotonically_increasing_id())
        return numbered.orderBy("user", "item", "row").drop("row")
    return (rows.dropDuplicates() if asked.may_drop_repeats else rows).orderBy("user", "item")


def _tables(folder: Path) -> Iterator[pa.Table]:
    """The rows of the files of a sorted table, in the order of its partitions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("part-*.parquet"), key=_partition):
        # Spark writes times in 96 bits, of which Arrow would make nanoseconds, until the year 2262
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches(_ROWS):
                yield pa.Table.from_batches([batch])


def _partition(path: Path) -> int:
    """Of a file such as part-00012-….parquet; beyond 99,999 the number has more digits."""
    found = re.match(r"part-(\d+)", path.name)
    assert found is not None
    return int(found[1])


_spark = partial(cluster_module, "Spark")
