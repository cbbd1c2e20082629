"""Spark's ALS in local mode with two threads; `fit` is called by contestants.py.

Spark shows no vectors between iterations, so each point of the curve is a run from the beginning. The data is
cached before the clock runs. `conf` of the settings goes to Spark, all that is not named here to its ALS.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from topic_world import Vectors, part

if TYPE_CHECKING:
    from contestants import Curve

DIM = 32
POINTS = (1, 3, 6, 10)  # iterations of the runs
LAYERS = ("blas", "lapack")


def session_of(scratch: Path, heap: str, conf: dict[str, str]) -> Any:
    """A session with two threads in this process's own JVM."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", heap)
    fixed = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.log.level": "ERROR",
    }
    for name, value in (fixed | conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def linear_algebra(session: Any) -> dict[str, str]:
    """The classes that do the linear algebra in the JVM: JNI… is a library of the system."""
    found = {}
    for layer in LAYERS:
        package = getattr(session._jvm.dev.ludovic.netlib, layer)
        for kind in (f"Native{layer.upper()}", f"Java{layer.upper()}"):
            try:
                found[kind] = getattr(package, kind).getInstance().getClass().getSimpleName()
            except Exception:  # of the JVM: there is no such library
                found[kind] = "none"
    return found


def vectors(table: Any, n: int, place: Path) -> Vectors:
    """The factors of a fitted model; rows of 0 for those without a pair in train."""
    import pyarrow.parquet as pq

    table.write.mode("overwrite").parquet(str(place))
    stored = pq.read_table(place)
    found = np.zeros((n, DIM), np.float32)
    values = stored["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found[stored["id"].to_numpy()] = values.reshape(-1, DIM)
    shutil.rmtree(place)
    return found


def fit(curve: Curve, folder: Path, settings: dict[str, Any]) -> None:
    """A run for each of the points below `iterations`, and one for `iterations`."""
    from pyspark.ml.recommendation import ALS

    given, scratch = dict(settings), folder / "spark"
    iterations, points = given.pop("iterations"), given.pop("points", POINTS)
    blocks = given.pop("blocks", None)
    if blocks is not None:
        given |= {"numUserBlocks": blocks, "numItemBlocks": blocks}
    session = session_of(scratch, given.pop("heap"), given.pop("conf", {}))
    print(json.dumps({"linear algebra": linear_algebra(session)}), flush=True)

    def model(n: int) -> Any:
        columns: Any = {"userCol": "user", "itemCol": "item", "ratingCol": "rating"}
        return ALS(rank=DIM, maxIter=n, implicitPrefs=True, seed=0, **columns, **given)

    if points:  # time counts: load and compile the code first
        rows = session.range(100_000).selectExpr("id % 997 user", "id * 7 % 503 item", "float(1) rating")
        model(3).fit(rows.selectExpr("int(user) user", "int(item) item", "rating"))
    curve.stage("reading")
    data = session.read.parquet(str(folder / "train.parquet")).selectExpr("*", "float(1) rating").cache()
    data.count()
    sizes = part(folder, "train")
    for n in [*(n for n in points if n < iterations), iterations]:
        curve.seconds = 0.0
        curve.stage("training")
        fitted = model(n).fit(data)
        curve.stage("judging")
        users = vectors(fitted.userFactors, sizes.n_users, scratch / "users")[curve.sample]
        curve.point(n, users, vectors(fitted.itemFactors, sizes.n_items, scratch / "items"))
    session.stop()
