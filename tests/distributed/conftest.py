"""Real local clusters: Ray with two workers, Spark with two threads. Tests of them are marked `long`."""

import importlib.util
import os
import shutil
import sys

import pytest


@pytest.fixture
def ray_cluster(monkeypatch):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'truepair[ray]'")
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "1")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    path = os.pathsep.join(each for each in sys.path if each)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=200_000_000,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield ray
    ray.shutdown()


@pytest.fixture
def spark_session(monkeypatch):
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'truepair[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs a Java runtime, and there is none")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(each for each in sys.path if each))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "3").getOrCreate()
    yield session
    session.stop()
