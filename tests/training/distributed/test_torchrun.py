"""`torchrun … -m truepair fit`: one model, one output; ranks that are killed go on from the checkpoint."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.csv
import pytest
import torch
from typer.testing import CliRunner

from ranks import on_ranks, values
from truepair.cli.console import Console, Ranks
from truepair.cli.main import app
from truepair.errors import InputError, TruepairError
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.recommender.estimator import Recommender
from truepair.sampling import Full
from truepair.training import Job, Settings, fit
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.processes import rank_of_process
from worlds import two_tastes

OPTIONS = [
    "--no-auto",
    "--epochs",
    "4",
    "--dim",
    "4",
    "--batch-size",
    "20",
    "--device",
    "cpu",
    "--test",
    "0.2",
]


@pytest.fixture
def clicks(tmp_path):
    path = tmp_path / "clicks.csv"
    pyarrow.csv.write_csv(two_tastes().to_table(), path)
    return path


def command(*args):
    found = CliRunner().invoke(app, [str(arg) for arg in args])
    return found.exit_code, found.stdout, found.stderr


def test_two_ranks_write_one_model_and_print_once(clicks, tmp_path):
    both, alone = tmp_path / "both.truepair", tmp_path / "alone.truepair"
    first, second = values(2, command, "fit", clicks, "-o", both, "--json", *OPTIONS)
    assert first[0] == second[0] == 0, first + second
    assert second[1:] == ("", "")
    assert json.loads(first[1])["model"] == str(both)
    assert command("fit", clicks, "-o", alone, "--json", *OPTIONS)[0] == 0
    found, expected = (Recommender.load(path) for path in (both, alone))
    assert found.facts_["engine"] == "distributed"
    assert found.facts_["metrics"] == pytest.approx(expected.facts_["metrics"], abs=1e-4)
    for a, b in zip(found.matrices(), expected.matrices(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "alone.truepair",
        "both.truepair",
        "clicks.csv",
    ]


def test_one_process_may_use_the_engine_too(clicks, tmp_path):
    code, _, said = command("fit", clicks, "-o", tmp_path / "m.truepair", "--engine", "distributed", *OPTIONS)
    assert code == 0, said
    assert "engine: distributed" in said
    assert not (tmp_path / "m.truepair.checkpoint").exists()


def test_an_error_names_the_rank(clicks, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    code, _, said = command("fit", clicks, "-o", tmp_path / "m.truepair", "--engine", "full", *OPTIONS)
    assert code == 1
    assert said.startswith(
        "truepair (rank 1): --engine = 'full' trains in one process, and 2 were started; use"
    )


@pytest.mark.parametrize(
    ("model", "budget", "message"),
    [
        (Recommender(encoder="ease"), None, "is not trained by 2 processes"),
        (Recommender(engine="reference"), None, "engine = 'reference' trains in one process"),
        (Recommender(), "2min", "--budget 2min has no effect with 2 processes"),
    ],
)
def test_what_processes_cannot_do_together_is_an_error(model, budget, message):
    Ranks().prepare(model, budget)
    with pytest.raises(InputError, match=message):
        Ranks(0, 2).prepare(model, budget)


def test_only_the_first_rank_prints(monkeypatch):
    assert Ranks.here() == Ranks(0, 1)
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "2")
    assert Ranks.here() == Ranks(2, 3)
    console = Console(quiet=False, json=True)
    assert Ranks.here().console(console) == Console(quiet=True, json=False)
    assert Ranks(0, 3).console(console) == console


# --- kills -----------------------------------------------------------------------------------------------

SETTINGS = Settings(epochs=60, batch_size=20, learning_rate=0.02, device="cpu")
JOB = Job(MF(dim=4), InfoNCE(), Full(), two_tastes(), SETTINGS)


def trained(path, engine="distributed"):
    result = fit(JOB, engine=engine, checkpoint=path)
    return result.users, result.items


MOMENTS = {
    "in a collective": (ProcessGroup, "_run", 80),
    "while tensors are flushed": (os, "fsync", 6),
    "while files are put in place": (os, "replace", 4),
    "while the old folder is removed": (shutil, "rmtree", 4),
}


def trained_until_killed(path, victim, moment, count):
    """The rank `victim` kills itself, as SIGKILL does, at the named moment."""
    if rank_of_process() == victim:
        owner, name, _ = MOMENTS[moment]
        original, left = getattr(owner, name), itertools.count(count, -1)

        def counted(*args, **kwargs):
            if not next(left):
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(owner, name, counted)
    return trained(path)


@pytest.mark.long
def test_ranks_killed_at_twenty_moments_go_on(tmp_path):
    """As torchrun does it: when a rank is killed, all are started anew."""
    chance, path = random.Random(0), tmp_path / "run.checkpoint"
    reached = [0]
    for _ in range(20):
        moment, victim = chance.choice(list(MOMENTS)), chance.randrange(2)
        victim = victim if moment in list(MOMENTS)[:2] else 0  # the others are rank 0's
        count = chance.randrange(MOMENTS[moment][2])
        found = on_ranks(2, trained_until_killed, path, victim, moment, count, TRUEPAIR_TIMEOUT="5")
        assert str(found[victim]) == f"rank {victim} ended with -9", found
        assert isinstance(found[1 - victim], TruepairError), found
        facts = path / "run.json"
        reached.append(len(json.loads(facts.read_text())["history"]) if facts.exists() else 0)
    assert reached == sorted(reached)
    assert 5 < reached[-1] < SETTINGS.epochs, reached
    expected = trained(None, "full")
    for found in values(2, trained, path):
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=5e-4)


@pytest.mark.long
def test_torchrun_restarts_a_killed_rank(clicks, tmp_path):
    model, checkpoint = tmp_path / "m.truepair", tmp_path / "m.truepair.checkpoint"
    options = [*OPTIONS, "--epochs", "400", "--set", "schedule=constant"]
    args = [
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "2",
        "-m",
        "truepair",
        "fit",
        clicks,
        "-o",
        model,
        *options,
    ]
    torchrun = [sys.executable, "-m", "torch.distributed.run", *map(str, args)]
    with subprocess.Popen(torchrun, stderr=subprocess.PIPE, text=True, env=os.environ) as started:
        end = time.monotonic() + 240
        while not (checkpoint / "run.json").exists():
            assert time.monotonic() < end
            assert started.poll() is None
            time.sleep(0.1)
        os.kill(worker_of(started.pid), signal.SIGKILL)
        said = started.stderr.read()
        assert started.wait() == 0, said
    assert f"continuing from {checkpoint}" in said
    assert Recommender.load(model).facts_["epoch"] == 400
    assert not checkpoint.exists()


def worker_of(pid):
    """A child process of torchrun that trains."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(child) for child in children if "truepair" in Path(f"/proc/{child}/cmdline").read_text())
