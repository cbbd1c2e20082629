"""Trainers are processes: however they end, the service goes on."""

import json
import os
import signal
import sys
import time

import pytest

from retraining_worlds import Shop
from truepair.errors import InputError, StorageError
from truepair.serving.retraining import trainer
from truepair.serving.retraining.schedule import Schedule
from truepair.serving.retraining.trainer import Child
from truepair.serving.retraining.versions import State


def child(program, plan=None):
    return Child(plan or {}, [sys.executable, "-c", program])


def test_the_last_line_of_a_trainer_is_its_decision():
    program = "import json; x = json.loads(input())['x']; print('noise'); print(json.dumps({'decision': x}))"
    found = child(program, {"x": "promoted"}).outcome()
    assert found == {"decision": "promoted"}


@pytest.mark.parametrize(
    ("program", "reason", "trace"),
    [
        ("import os; os.kill(os.getpid(), 9)", "the trainer was killed by SIGKILL", ""),
        ("raise MemoryError('all of it')", "the trainer ended with code 1", "MemoryError: all of it"),
        ("print('{\"decision\"')", "the trainer ended with code 0", ""),
        ("print('[1]')", "the trainer ended with code 0", ""),
        (
            "import sys; sys.stderr.write('x' * 10**6); sys.exit(3)",
            "the trainer ended with code 3",
            "x" * 4000,
        ),
    ],
)
def test_a_trainer_that_fails_has_a_reason(program, reason, trace):
    found = child(program).outcome()
    assert (found["decision"], found["reason"]) == ("failed", reason)
    assert trace in found["trace"]
    assert len(found["trace"]) <= 4000


def test_a_trainer_is_stopped():
    one = child("import time; time.sleep(60)")
    assert one.is_running
    one.stop()
    assert not one.is_running
    stubborn = child(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('x', flush=True); time.sleep(60)"
    )
    while not os.pread(stubborn._output.fileno(), 1, 0):
        time.sleep(0.01)
    stubborn._patience = 0.1
    stubborn.stop()
    assert stubborn._process.returncode == -signal.SIGKILL


@pytest.mark.skipif(os.name != "posix", reason="priorities of POSIX")
def test_a_trainer_has_a_low_priority_and_ends_with_its_service():
    program = (
        "import os, time; from truepair.serving.retraining import trainer; "
        "shown = lambda: print(os.nice(0), open('/proc/self/oom_score_adj').read(), flush=True); "
        "trainer.outcome = lambda plan: shown() or time.sleep(60); trainer.main()"
    )
    one = child(program, {"model": "x"})
    while b"\n" not in (written := os.pread(one._output.fileno(), 99, 0)):
        assert one.is_running
        time.sleep(0.01)
    niceness = os.nice(0)
    assert written.decode().split() == [str(min(niceness + trainer.NICENESS, 19)), "800"]
    one._process.stdin.close()  # as the system does when the service is killed
    assert one._process.wait(10) == 2
    assert one.outcome()["reason"] == "the trainer ended with code 2"


def test_a_round_of_the_trainer(tmp_path):
    shop = Shop(tmp_path)
    plan = json.loads(json.dumps(vars(shop.plan())))
    assert trainer.outcome(plan)["decision"] == "waited"
    failed = trainer.outcome({**plan, "store": str(tmp_path / "no" / "store")})
    assert failed["decision"] == "failed"
    assert failed["reason"].startswith("InputError: there is no store")
    assert "rounds.py" in failed["trace"]
    from truepair.serving.retraining.versions import Versions

    with Versions(shop.path).training():
        assert trainer.outcome(plan) == trainer.BUSY


# --- when ------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def schedule(**options):
    clock = Clock()
    return Schedule(clock=clock, **options), clock


def never():
    raise AssertionError("the events were counted")


def test_a_trainer_starts_after_the_time():
    plan, clock = schedule(seconds=60.0)
    state = State("x")
    clock.now += 59
    assert not plan.is_due(state, never)
    clock.now += 1
    assert plan.is_due(state, never)
    plan.restart(never)
    assert not plan.is_due(state, never)
    assert plan.next_time(state) == 1120
    clock.now += 60
    assert not plan.is_due(State("x", attempted=1100.0), never)  # another process has tried


def test_a_trainer_starts_after_so_many_events():
    plan, clock = schedule(events=10)
    assert not plan.is_due(State("x"), lambda: 9)
    assert not plan.is_due(State("x"), lambda: 10)  # it was counted a moment ago
    clock.now += 1
    assert plan.is_due(State("x"), lambda: 10)
    plan.restart(lambda: 10)
    clock.now += 1
    assert not plan.is_due(State("x"), lambda: 19)
    clock.now += 1
    assert plan.is_due(State("x"), lambda: 20)
    clock.now += 1
    assert not plan.is_due(State("x", counted=15), lambda: 24)


def test_a_slow_count_is_made_seldom():
    plan, clock = schedule(events=10)

    def slow():
        clock.now += 2
        return 0

    plan.is_due(State("x"), slow)
    clock.now += 99
    assert not plan.is_due(State("x"), never)


def test_without_the_store_nothing_is_due_by_events():
    def broken():
        raise StorageError("no store")

    plan, clock = schedule(events=1)
    assert not plan.is_due(State("x"), broken)
    clock.now += 2
    plan.restart(broken)
    assert not plan.is_due(State("x"), never)


def test_without_options_nothing_is_due():
    plan, clock = schedule()
    clock.now += 1e9
    assert not plan.is_due(State("x"), never)
    assert plan.next_time(State("x")) is None


def test_options_are_checked():
    assert Schedule.of("6h", None).seconds == 21600
    assert Schedule.of("30min", 5).events == 5
    with pytest.raises(InputError, match="--retrain 'soon' is no time; give '6h'"):
        Schedule.of("soon", None)
    with pytest.raises(InputError, match="--retrain-events = 0 is out of range"):
        Schedule.of(None, 0)
