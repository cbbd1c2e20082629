"""The search itself, with a runner whose optimum is known: it finds, extends, prunes, fails, and goes on."""

import json
import math
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from processes import start
from trial_runners import SPACE, Runner, height, search
from truepair.errors import InputError, StorageError, TrainingError
from truepair.search.domains import Powers, Range, When
from truepair.search.journal import Process, locked
from truepair.search.running import SHAPES, best_of
from truepair.search.trials import Trial, is_behind

pytest.importorskip("optuna")


def chosen(tuning):
    """What was asked; trials that were interrupted are not among the trials."""
    return [trial.parameters for trial in tuning.trials]


def test_of_equal_trials_the_earliest_is_the_best():
    trials = [Trial(number, {}, score, None, "complete") for number, score in enumerate((0.1, 0.4, 0.4, 0.2))]
    assert best_of(trials).number == best_of(trials[::-1]).number == 1
    assert best_of([replace(one, state="pruned") for one in trials]) is None


def test_finds_the_optimum(tmp_path):
    found = search(tmp_path, trials=40, extensions=0, prune=False)
    assert len(found.trials) == 40
    assert found.best.parameters["encoder.dim"] == 16
    assert found.best.parameters["kind"] == "b"
    assert found.best.parameters["x"] == pytest.approx(1e-2, rel=0.6)
    assert found.best.parameters["loss"] == "dpl"  # the fixed ones too
    assert found.best == max(found.trials, key=lambda trial: trial.score)
    assert (found.best.epoch, found.best.seconds, found.best.engine) == (5, 0.5, "none")
    assert found.best.history[0] == (1, pytest.approx(found.best.score + 0.2 - 1))
    assert found.extended == ()
    assert "40 complete" in repr(found)


def test_the_first_trial_is_the_middle_or_what_is_given(tmp_path):
    first = search(tmp_path, trials=1).trials[0].parameters
    assert (first["x"], first["encoder.dim"], first["kind"]) == (pytest.approx(1e-2), 16, "a")
    given = search(tmp_path, trials=1, study="t", first={"encoder.dim": 8, "x": 0.002}).trials[0].parameters
    assert (given["x"], given["encoder.dim"], given["kind"]) == (0.002, 8, "a")
    with pytest.raises(InputError, match=r"first has encoder\.dim = 9, which is outside Powers"):
        search(tmp_path, study="u", first={"encoder.dim": 9})


def test_extends_at_an_edge_and_tells(tmp_path):
    runner = Runner(at=256, centre=-2)
    found = search(tmp_path, runner, trials=20)
    assert found.extended == ("encoder.dim",)
    assert found.space["encoder.dim"] == Powers(4, 256)
    assert found.best.parameters["encoder.dim"] > 64
    dims = [batch[0]["encoder.dim"] for batch in runner.batches]
    assert max(dims[:12]) == 64  # three fifths of the trials are over before the first extension
    assert max(dims[:16]) <= 128
    bounded = {**SPACE, "encoder.dim": Powers(4, 64, most=64)}
    assert search(tmp_path, Runner(at=256), bounded, study="bounded").extended == ()
    assert search(tmp_path, Runner(at=256), study="none", extensions=0).extended == ()


def test_the_number_of_trials_is_a_promise(tmp_path):
    """With ranges that grow, after a restart, and after a trial that was interrupted."""

    class Broken(Runner):
        def one(self, asked):
            if len(self.batches) == 3:
                raise RuntimeError("out of memory")
            super().one(asked)

    whole = search(tmp_path, Runner(at=256), study="whole", trials=10)
    assert whole.extended == ("encoder.dim",)
    assert len(whole.trials) == 10
    with pytest.raises(RuntimeError):
        search(tmp_path, Broken(at=256), trials=10)
    found = search(tmp_path, Runner(at=256), trials=10)
    assert (len(found.trials), found.interrupted) == (10, 1)
    assert chosen(found) == chosen(whole)
    again = Runner(at=256)
    assert len(search(tmp_path, again, trials=10).trials) == 10
    assert again.batches == []
    assert search(tmp_path, Runner(at=256), study="one", trials=1).extended == ()


def test_the_default_is_trial_0(tmp_path):
    default = {"x": 5e-3, "encoder.dim": 3, "kind": "b"}  # no search would ask for dim = 3
    runner = Runner()
    found = search(tmp_path, runner, default=default, trials=9, together=4)
    assert len(found.trials) == 9
    assert found.default.parameters == {"loss": "dpl", **default}
    assert found.default == found.trials[0]
    assert found.best.score >= found.default.score
    assert [len(batch) for batch in runner.batches] == [1, 4, 4]  # it runs alone
    middle = runner.batches[1][0]
    assert (middle["x"], middle["encoder.dim"], middle["kind"]) == (pytest.approx(1e-2), 16, "a")
    assert search(tmp_path, study="none", trials=1).default is None


def test_a_default_that_was_interrupted_is_run_again(tmp_path):
    class Broken(Runner):
        def one(self, asked):
            raise RuntimeError("out of memory")

    default = {"x": 5e-3, "encoder.dim": 8, "kind": "b"}
    with pytest.raises(RuntimeError):
        search(tmp_path, Broken(), default=default)
    found = search(tmp_path, default=default, trials=4)
    assert found.default.parameters["x"] == 5e-3
    assert (found.default.number, len(found.trials)) == (1, 4)


def test_the_best_so_far_is_given_whenever_it_changes(tmp_path):
    heights = []
    found = search(tmp_path, trials=12, on_best=lambda tuning: heights.append(tuning.best.score))
    scores = [trial.score for trial in found.trials if trial.state == "complete"]
    assert heights == sorted(set(heights))
    assert heights[0] == scores[0]
    assert heights[-1] == found.best.score
    search(tmp_path, trials=12, on_best=lambda tuning: heights.append(None))
    assert heights[-1] is not None  # nothing was left to run


def test_a_study_may_keep_the_space_that_it_began_with(tmp_path):
    search(tmp_path, trials=1)
    other = {**SPACE, "x": Range(1e-3, 1.0, log=True)}
    with pytest.raises(InputError, match="differs in its space"):
        search(tmp_path, space=other)
    assert search(tmp_path, space=other, trials=2, keep_space=True).space == SPACE


def test_a_condition(tmp_path):
    space = {**SPACE, "t": When("kind", "b", Range(0, 1)), "m": When("loss", "dpl", Range(0, 1))}
    space["n"] = When("loss", "bpr", Range(0, 1))
    for parameters in chosen(search(tmp_path, space=space)):
        assert ("t" in parameters) == (parameters["kind"] == "b")
        assert "m" in parameters
        assert "n" not in parameters


def test_trials_of_a_round_share_their_shapes(tmp_path):
    runner = Runner()
    found = search(tmp_path, runner, trials=14, together=4, extensions=0)
    assert [len(batch) for batch in runner.batches] == [4, 4, 4, 2]
    assert "encoder.dim" in SHAPES
    assert all(len({p["encoder.dim"] for p in batch}) == 1 for batch in runner.batches)
    assert all(len({p["x"] for p in batch}) == len(batch) for batch in runner.batches)
    assert len({p["encoder.dim"] for p in chosen(found)}) > 1


# --- pruning and failing -------------------------------------------------------------------------------


def test_who_is_behind():
    others = [[(1, 0.1), (2, 0.3), (3, 0.2)], [(1, 0.2), (3, 0.5)], [(2, 0.4)], [(9, 0.9)]]
    assert is_behind([(1, 0.0), (2, 0.3), (3, 0.39)], others)  # the median of 0.3, 0.5, 0.4
    assert not is_behind([(1, 0.4), (2, 0.3), (3, 0.1)], others)
    assert not is_behind([(1, 0.0), (3, 0.0)], others)  # two reports
    assert not is_behind([(1, 0.0), (2, 0.0), (3, 0.0)], others[1:])  # two others by then


def test_prunes_after_a_third_and_counts_the_pruned(tmp_path):
    found = search(tmp_path, trials=30, extensions=0)
    states = [trial.state for trial in found.trials]
    assert len(states) == 30
    assert states[:10] == ["complete"] * 10
    assert "pruned" in states[10:]
    pruned = next(trial for trial in found.trials if trial.state == "pruned")
    assert 3 <= len(pruned.history) < 5
    assert pruned.score == pruned.history[-1][1]
    assert found.best.state == "complete"
    assert {t.state for t in search(tmp_path, trials=30, study="all", prune=False).trials} == {"complete"}


def test_a_runner_need_not_end_what_is_pruned(tmp_path):
    class Careless(Runner):
        def one(self, asked):
            top = height(asked.parameters)
            if not sum(asked.report(epoch, top - 1 / epoch) for epoch in range(1, 6)):
                asked.finish(top)

    found = search(tmp_path, Careless(), trials=30, extensions=0)
    pruned = [trial for trial in found.trials if trial.state == "pruned"]
    assert pruned
    assert all(trial.score == max(score for _, score in trial.history) for trial in pruned)


def test_failures_are_told_and_counted(tmp_path):
    class Fragile(Runner):
        def one(self, asked):
            if asked.parameters["kind"] == "b":
                asked.fail("kind b diverges")
            elif asked.parameters["encoder.dim"] > 16:
                asked.finish(math.nan)
            elif asked.parameters["encoder.dim"] == 16:
                super().one(asked)

    found = search(tmp_path, Fragile(), trials=20, extensions=0)
    assert len(found.trials) == 20
    why = {trial.why for trial in found.trials if trial.state == "failed"}
    assert why <= {"kind b diverges", "the score is nan", "the runner gave neither a score nor a reason"}
    assert len(why) >= 2
    assert found.best.parameters["kind"] == "a"


def test_where_trials_fail_fewer_are_asked(tmp_path):
    class Fragile(Runner):
        def one(self, asked):
            asked.fail("diverged") if asked.parameters["x"] > 0.05 else super().one(asked)

    states = [trial.state for trial in search(tmp_path, Fragile(at=64), trials=40, extensions=0).trials]
    assert "failed" in states
    assert states.count("failed") < 10


def test_nothing_but_failures_is_an_error(tmp_path):
    with pytest.raises(TrainingError, match="none of 3 trials has a score; the first failed because: no"):
        search(tmp_path, lambda batch: [asked.fail("no") for asked in batch], trials=3)


def test_what_is_told_as_it_goes(tmp_path, capsys):
    seen = []
    found = search(tmp_path, trials=3, extensions=0, on_trial=seen.append, progress=True)
    assert tuple(seen) == found.trials
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("trial 0, 1 of 3 done: complete ")
    assert "best" in told[2]


# --- stop and go on ------------------------------------------------------------------------------------


def test_goes_on_to_the_number_asked_for_as_if_never_stopped(tmp_path):
    whole = search(tmp_path, study="whole", trials=12, extensions=0)
    search(tmp_path, trials=5, extensions=0)
    assert chosen(search(tmp_path, trials=12, extensions=0)) == chosen(whole)
    again = Runner()
    assert len(search(tmp_path, again, trials=12, extensions=0).trials) == 12
    assert again.batches == []


def test_an_error_in_the_runner_interrupts_and_the_search_goes_on(tmp_path):
    class Broken(Runner):
        def one(self, asked):
            if len(self.batches) == 4:
                raise RuntimeError("out of memory")
            super().one(asked)

    with pytest.raises(RuntimeError, match="out of memory"):
        search(tmp_path, Broken(), trials=8, extensions=0)
    found = search(tmp_path, trials=8, extensions=0)
    assert (found.interrupted, len(found.trials)) == (1, 8)
    assert chosen(found) == chosen(search(tmp_path, study="whole", trials=8, extensions=0))


class Slow(Runner):
    """Takes a while for each trial, and waits to be killed when `stop` batches are done."""

    def __init__(self, folder, stop, nap):
        super().__init__()
        self.folder, self.stop, self.nap = folder, stop, nap

    def one(self, asked):
        if self.stop is not None and len(self.batches) > self.stop:
            (self.folder / "ready").touch()
            time.sleep(600)
        time.sleep(self.nap)
        super().one(asked)


def search_slowly(folder, name, stop, nap, trials):
    runner = Slow(folder, stop, nap)
    search(folder, runner, trials=trials, extensions=0, prune=False)
    (folder / f"{name}.asked").write_text(str(sum(map(len, runner.batches))))


@pytest.mark.long
def test_killed_at_any_moment_it_goes_on(tmp_path):
    process = start(search_slowly, tmp_path, "a", 3, 0, 8)
    while not (tmp_path / "ready").exists():
        assert process.is_alive()
        time.sleep(0.05)
    process.kill()
    process.join()
    with open(tmp_path / "trials.journal", "ab") as file:
        file.write(b'{"op_code": 8, "worker')  # a line that was never written to its end
    found = search(tmp_path, trials=8, extensions=0, prune=False)
    assert (found.interrupted, len(found.trials)) == (1, 8)
    whole = search(tmp_path, study="whole", trials=8, extensions=0, prune=False)
    assert chosen(found) == chosen(whole)


@pytest.mark.long
def test_two_processes_share_one_storage(tmp_path):
    processes = [start(search_slowly, tmp_path, name, None, 0.1, 40) for name in "ab"]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    shares = [int((tmp_path / f"{name}.asked").read_text()) for name in "ab"]
    found = search(tmp_path, trials=40, extensions=0, prune=False)
    assert sum(shares) == 40 == len(found.trials)
    assert {trial.state for trial in found.trials} == {"complete"}
    assert len({json.dumps(parameters) for parameters in chosen(found)}) == 40


def test_a_running_trial_of_a_living_process_is_left_alone(tmp_path):
    inside = []

    class Nested(Runner):
        def one(self, asked):
            if not inside:
                inside.append(search(tmp_path, trials=3, extensions=0))  # another "process" on this storage
            super().one(asked)

    with pytest.raises(RecursionError):  # it would wait for us for ever: stop it after its own trials
        _limited(lambda: search(tmp_path, Nested(), trials=3, extensions=0))
    found = search(tmp_path, trials=3, extensions=0)
    assert [trial.state for trial in found.trials].count("complete") == 3


def _limited(run):
    """Waiting, in this test, is an error."""
    from truepair.search import running as tuning_search

    before, tuning_search.time = tuning_search.time, _NoSleep
    try:
        run()
    finally:
        tuning_search.time = before


class _NoSleep:
    @staticmethod
    def sleep(seconds):
        raise RecursionError("it waits")


def test_processes_are_told_apart():
    me = Process.this()
    assert not me.is_dead()
    assert replace(me, started="0").is_dead()  # the number was used again
    assert not replace(me, host="elsewhere", pid=2**22 + 1).is_dead()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert replace(me, pid=child.pid).is_dead()


def test_the_lock_mends_the_journal(tmp_path):
    journal = tmp_path / "j"
    whole = b'{"op_code":0}\n{"op_code":4}\n'
    for torn in (b"", b"{", b'{"op_code":8,"wor'):
        journal.write_bytes(whole + torn)
        with locked(journal):
            assert journal.read_bytes() == whole
    journal.write_bytes(whole[:12])  # killed in the first line
    with locked(journal):
        assert journal.read_bytes() == b""


FOREIGN = {
    "a table": b"user,item\n1,2\n3,4\n",
    "a text without a last line end": b"a note\nof two lines",
    "bytes": bytes(range(256)) * 20,
    "bytes without a line end": b"\x00\x01\x02",
    "a model": b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"__metadata__":{}}\n\xff\xfe',
    "JSON": b'{"loss": "dpl"}\n{"a',
    "a number": b"3\n",
    "a list": b'["op_code"]\n',
    "deep JSON": b"[" * 100_000 + b"\n",
    "a journal with something at its end": b'{"op_code":0}\nand then\x00',
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_left_as_it_is_byte_for_byte(name, tmp_path):
    storage = tmp_path / "mine"
    storage.write_bytes(FOREIGN[name])
    with pytest.raises(InputError, match=r"mine is not a journal of trials .* use another file"):
        search(tmp_path, storage=storage)
    assert storage.read_bytes() == FOREIGN[name]
    if name != "a journal with something at its end":
        assert list(tmp_path.iterdir()) == [storage]  # not even a lock beside it
    with pytest.raises(InputError), locked(storage):  # and the lock is free again
        pass


def test_an_empty_file_becomes_a_journal(tmp_path):
    (tmp_path / "trials.journal").touch()
    assert len(search(tmp_path, trials=1, extensions=0).trials) == 1


@pytest.mark.parametrize(
    "line", [b'{"op_code": 99}', b'{"op_code": 8, "trial_id": 7}', b'{"op_code": "x"}', b"[1]", b"no JSON"]
)
def test_a_journal_that_optuna_cannot_read_is_told(line, tmp_path):
    storage = tmp_path / "trials.journal"
    search(tmp_path, trials=1, extensions=0)
    storage.write_bytes(content := storage.read_bytes() + line + b"\n" + b'{"op_code": 99}\n')
    with pytest.raises(StorageError, match="is not a journal of trials"):
        search(tmp_path, trials=2)
    assert storage.read_bytes() == content


# --- another study -------------------------------------------------------------------------------------


def test_a_storage_of_something_else_is_refused(tmp_path):
    search(tmp_path, trials=1)
    other = Runner()
    other.identity = "depth"
    with pytest.raises(InputError, match=r"study 's' in .* differs in its measure: height there, depth now"):
        search(tmp_path, other)
    other = Runner()
    other.fixed = {"loss": "bpr"}
    with pytest.raises(InputError, match="differs in its fixed parameters"):
        search(tmp_path, other)
    with pytest.raises(InputError, match="differs in its space"):
        search(tmp_path, space={"x": Range(0, 1)})
    other.fixed = {"loss": object()}
    with pytest.raises(InputError, match="fixed parameters are plain values"):
        search(tmp_path, other, study="t")
    elsewhere = Runner()
    elsewhere.fixed = {"loss": "dpl", "device": "cuda"}  # where it is computed does not matter
    assert len(search(tmp_path, elsewhere, trials=2, extensions=0).trials) == 2


def test_a_storage_that_is_none(tmp_path):
    with pytest.raises(InputError, match="must be a file in a folder that exists"):
        search(tmp_path, storage=tmp_path / "no" / "j")
    with pytest.raises(InputError, match="trials = 0 is out of range"):
        search(tmp_path, trials=0)


def test_without_optuna_the_names_are_there_and_the_remedy_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'truepair\[tune\]'"):
        search(tmp_path)
