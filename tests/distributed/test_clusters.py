"""Ray and Spark start the worker that torchrun starts; each test of `long` has a real local cluster."""

import sys
import types
from typing import ClassVar

import pytest

pytest.importorskip("duckdb")

import pyarrow as pa

from truepair.data.preparing.prepare import prepare_interactions
from truepair.distributed import ray as on_ray
from truepair.distributed import spark as on_spark
from truepair.distributed import worker
from truepair.distributed.worker import arguments_of, checked_arguments, train, train_or_say, worker_errors
from truepair.errors import InputError, StorageError, TrainingError
from truepair.recommender.estimator import Recommender
from worlds import two_tastes

OPTIONS = {"auto": False, "epochs": 4, "dim": 4, "batch_size": 20, "test": 0.2}


@pytest.fixture
def prepared(tmp_path):
    prepare_interactions(two_tastes().to_table(), tmp_path / "clicks")
    return tmp_path / "clicks"


def alone(source, output):
    train({"arguments": arguments_of(source, output, False, OPTIONS)})
    return Recommender.load(output)


def assert_same(found, expected):
    assert found.facts_["engine"] == "distributed"
    assert expected.facts_["engine"] == "full"
    assert found.facts_["metrics"] == pytest.approx(expected.facts_["metrics"], abs=1e-4)
    assert found.seen_ == expected.seen_


CLICKS = {"who": ["bob", "ann", "ann", "bob", "Ωz"], "what": [7, 9, 7, 7, 3], "more": [0] * 5}
NAMES = {"user": "who", "item": "what"}


def expected_clicks(folder):
    return prepare_interactions(CLICKS, folder, **NAMES)


# --- without a cluster -----------------------------------------------------------------------------------


def test_the_worker_is_the_command(prepared, tmp_path):
    model = alone(prepared, tmp_path / "m.truepair")
    assert "test ndcg@20" in model.facts_["metrics"]
    with pytest.raises(InputError, match="loss = 'bprr' is not known"):
        train({"arguments": arguments_of(prepared, tmp_path / "m.truepair", False, {"loss": "bprr"})})


def test_the_worker_can_say_what_went_wrong(prepared, tmp_path):
    config = {"arguments": arguments_of(prepared, tmp_path / "m.truepair", False, {"loss": "bprr"})}
    assert train_or_say(config).startswith("--loss = 'bprr' is not known; choose one of")


def test_options_are_those_of_the_command_line():
    given = arguments_of("a", "b", True, {"batch_size": 5, "metric": None, "set": ["x=1", "y=2"]})
    assert given[:3] == ["fit", "a", "--output=b"]
    assert given[4:] == ["--device", "cuda", "--batch-size", "5", "--set", "x=1", "--set", "y=2"]
    assert arguments_of("a", "b", False, {"device": "cuda:1"})[4:] == ["--device", "cuda:1"]


def test_what_no_cluster_can_start(prepared, tmp_path):
    for workers, source, output, message in (
        (0, prepared, "m", "workers = 0 is out of range"),
        (2, tmp_path / "nothing", "m", "there is no .*nothing; give a prepared folder"),
        (2, prepared, tmp_path / "no" / "m", "no is no folder; the model's folder must exist"),
    ):
        with pytest.raises(InputError, match=message):
            checked_arguments(source, output, workers, False, {})


def test_an_error_of_a_worker_is_shown_as_its_own():
    for text, shown in (
        ("Traceback\n  File x\ntruepair.errors.InputError: dim = 0 is bad.\nmore", "dim = 0 is bad."),
        ("first\nlast", "last"),
        ("", "RuntimeError"),
    ):
        with pytest.raises(TrainingError) as caught, worker_errors("Ray"):
            raise RuntimeError(text)
        assert str(caught.value) == f"a worker of Ray failed: {shown}"


class Started:
    """Stands for the classes of both clusters: keeps what it is given, and works in this process."""

    made: ClassVar[list] = []

    def __init__(self, *args, **given):
        self.args, self.given = args, given
        self.made.append(self)

    def fit(self):
        self.args[0](self.given["train_loop_config"])

    def run(self, function, config):
        return function(config)


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(Started, "made", [])
    names = ("ScalingConfig", "FailureConfig", "RunConfig", "TorchTrainer", "TorchDistributor")
    module = types.SimpleNamespace(**{name: type(name, (Started,), {}) for name in names})
    monkeypatch.setattr(on_ray, "_ray", lambda name: module)
    monkeypatch.setattr(on_spark, "_spark", lambda name: module)
    return lambda name: next(each for each in Started.made if type(each).__name__ == name)


def test_ray_is_given_workers_and_restarts(prepared, tmp_path, started):
    model = on_ray.fit(prepared, tmp_path / "m.truepair", workers=3, restarts=2, **OPTIONS)
    assert model.facts_["epoch"] == 4
    assert started("ScalingConfig").given == {"num_workers": 3, "use_gpu": False}
    assert started("FailureConfig").given == {"max_failures": 2}
    trainer = started("TorchTrainer").given
    assert trainer["run_config"] is started("RunConfig")
    on_ray.fit(prepared, tmp_path / "m.truepair", scaling_config=7, run_config=8, **OPTIONS)
    last = Started.made[-1].given
    assert (last["scaling_config"], last["run_config"]) == (7, 8)


def test_spark_is_given_workers_and_its_errors_are_raised(prepared, tmp_path, started):
    model = on_spark.fit(prepared, tmp_path / "m.truepair", workers=3, **OPTIONS)
    assert model.facts_["epoch"] == 4
    given = {"num_processes": 3, "local_mode": False, "use_gpu": False}
    assert started("TorchDistributor").given == given
    with pytest.raises(TrainingError, match="a worker of Spark failed: --loss = 'bprr' is not known"):
        on_spark.fit(prepared, tmp_path / "no.truepair", loss="bprr")


@pytest.mark.parametrize(
    ("module", "name", "extra"), [(on_ray, "ray", "ray"), (on_spark, "pyspark", "spark")]
)
def test_without_the_package_the_remedy_is_said(prepared, tmp_path, monkeypatch, module, name, extra):
    for loaded in [each for each in sys.modules if each.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"pip install 'truepair\[{extra}\]'"):
        module.fit(prepared, tmp_path / "m.truepair")


def test_partitions_are_in_the_order_of_their_numbers(tmp_path):
    names = ["part-100000-a.parquet", "part-99999-b.parquet", "part-00002-c.parquet"]
    paths = sorted((tmp_path / name for name in names), key=on_spark._partition)
    assert [path.name for path in paths] == names[::-1]


# --- clusters --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_ray_trains_the_model_of_one_process(prepared, tmp_path, ray_cluster):
    from ray.train import RunConfig

    settings = {"run_config": RunConfig(storage_path=str(tmp_path / "ray"))}
    found = on_ray.fit(prepared, tmp_path / "ray.truepair", workers=2, **settings, **OPTIONS)
    assert_same(found, alone(prepared, tmp_path / "alone.truepair"))
    with pytest.raises(TrainingError, match="loss = 'bprr' is not known"):
        on_ray.fit(prepared, tmp_path / "no.truepair", workers=2, **settings, loss="bprr")
    made = on_ray.write_prepared(
        ray_cluster.data.from_arrow([pa.table(CLICKS), pa.table(CLICKS)]),
        tmp_path / "made",
        **NAMES,
    )
    assert made == expected_clicks(tmp_path / "expected")


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_spark_trains_the_model_of_one_process(prepared, tmp_path, spark_session):
    found = on_spark.fit(prepared, tmp_path / "spark.truepair", workers=2, **OPTIONS)
    assert_same(found, alone(prepared, tmp_path / "alone.truepair"))
    with pytest.raises(TrainingError, match="loss = 'bprr' is not known"):
        on_spark.fit(prepared, tmp_path / "no.truepair", workers=2, local_mode=True, loss="bprr")
    rows = list(zip(*CLICKS.values(), strict=True))
    table = spark_session.createDataFrame(rows, "who string, what int, more int")
    made = on_spark.write_prepared(table, tmp_path / "made", **NAMES)
    assert made == expected_clicks(tmp_path / "expected")
    with pytest.raises(StorageError, match="exists; remove it"):
        on_spark.write_prepared(table, tmp_path / "made", **NAMES)
    with pytest.raises(
        InputError, match=r"a DataFrame of Spark has no column .* its columns are 'who', 'what'"
    ):
        on_spark.write_prepared(table, tmp_path / "other")
    assert not (tmp_path / "made.rows").exists()


def test_the_worker_is_found_by_name():
    assert worker.train.__module__ == "truepair.distributed.worker"  # as Ray and Spark pickle it
