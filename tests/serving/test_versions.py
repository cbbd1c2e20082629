"""Which model is served is on the disk, whole, at every moment."""

import errno
import json
import os

import pytest

from services import clicks, model
from truepair.errors import InputError, StorageError
from truepair.serving.retraining import decisions as decisions_module
from truepair.serving.retraining.decisions import Decision, DecisionLog
from truepair.serving.retraining.versions import KEPT, State, Versions
from truepair.storage import atomic


@pytest.fixture
def versions(tmp_path, model):
    model.save(tmp_path / "m.truepair")
    return Versions(tmp_path / "m.truepair")


def promote(versions, until=10, judged=20, is_best=False):
    """Promote a copy of the model."""
    state = versions.state()
    number = state.next
    versions.folder.mkdir(exist_ok=True)
    versions.path(number).write_bytes(versions.model.read_bytes())
    decision = Decision("promoted", "it is new", number)
    assert versions.promote(number, until, judged, decision, state, is_best)
    return number


def files(versions):
    return sorted(path.name for path in versions.folder.iterdir() if path.suffix == ".truepair")


def test_without_versions_the_model_file_is_served(versions):
    assert versions.open() == State("")
    assert versions.path(versions.state().current) == versions.model
    assert not versions.folder.exists()
    assert not versions.is_training()


def test_a_promotion_is_served_after_a_restart_and_older_versions_are_removed(versions):
    for n in range(1, 6):
        assert promote(versions, until=10 * n, judged=10 * n + 5) == n
    state = Versions(versions.model).open()
    assert state.stack == (0, *range(5 - KEPT, 6))
    assert files(versions) == [f"{n}.truepair" for n in range(5 - KEPT, 6)]
    assert (state.until[5], state.judged) == (50, 55)
    assert [one["version"] for one in versions.log.newest(9)] == [5, 4, 3, 2, 1]


def test_the_best_version_is_kept_until_another_one_is_better(versions):
    for n in range(1, 6):
        promote(versions, is_best=n == 1)
    state = Versions(versions.model).open()
    assert (state.best, state.stack) == (1, (0, 1, 3, 4, 5))
    assert files(versions) == [f"{n}.truepair" for n in (1, 3, 4, 5)]
    promote(versions, is_best=True)
    assert (versions.state().best, versions.state().stack) == (6, (0, 4, 5, 6))
    assert versions.roll_back().best == 5  # the one that is served now


def test_a_rollback_returns_step_by_step_to_the_model_file(versions):
    for _ in range(KEPT + 2):
        promote(versions)
    before = versions.state()
    served = []
    while versions.state().current:
        served.append(versions.roll_back().current)
    assert served == [*reversed(before.stack[1:-1]), 0]
    with pytest.raises(InputError, match=r"there is no former model of .*m.truepair; nothing was changed"):
        versions.roll_back()
    assert versions.log.newest(1)[0]["decision"] == "rolled back"
    assert promote(versions) == before.next  # a number is never used twice
    assert versions.state().stack == (0, before.next)
    assert files(versions) == [f"{before.next}.truepair"]


def test_a_rollback_starts_the_clock_anew_and_keeps_who_has_judged(versions):
    promote(versions, judged=77)
    attempted = versions.state().attempted
    state = versions.roll_back()
    assert state.attempted > attempted
    assert (state.judged, state.until) == (77, {0: 0})


def test_a_candidate_that_was_judged_against_another_model_is_not_promoted(versions):
    promote(versions)
    judged_against = versions.state()
    versions.roll_back()
    late = Decision("promoted", "late", 2)
    assert not versions.promote(2, 5, 6, late, judged_against, False)
    assert versions.state().current == 0
    versions.attempt(5)  # an attempt changes nothing that is served
    assert versions.promote(2, 5, 6, late, versions.state(), False)


def test_another_model_file_is_served_instead_of_its_versions(versions, model):
    promote(versions, judged=30)
    other = model.fold_in({"user": ["x"], "item": ["i1"]})
    other.save(versions.model)
    state = versions.open()
    assert (state.stack, state.judged, state.next) == ((0,), 30, 2)
    assert versions.log.newest(1)[0]["decision"] == "replaced"
    assert versions.open() == state
    assert len(versions.log.newest(9)) == 2


def test_a_kill_before_the_log_is_made_good_at_the_next_start(versions, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(DecisionLog, "append", lambda self, line: (_ for _ in ()).throw(StorageError("full")))
        promote(versions)
    assert versions.log.newest(9) == []
    versions.open()
    versions.open()
    assert [one["decision"] for one in versions.log.newest(9)] == ["promoted"]


def test_a_full_disk_leaves_the_served_model_as_it_was(versions, monkeypatch):
    promote(versions)
    before = versions.state()

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic, "flush_to_disk", full)
    for change in (versions.roll_back, lambda: versions.attempt(9), lambda: promote(versions)):
        with pytest.raises(StorageError, match="No space left"):
            change()
    assert versions.state() == before
    assert versions.open() == before
    assert [path.name for path in versions.folder.iterdir() if "writing" in path.name] == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"stack": [0]}', "\ufffd", "[" * 100_000],
)
def test_a_damaged_current_is_a_clear_error(versions, text):
    promote(versions)
    (versions.folder / "current").write_text(text)
    with pytest.raises(StorageError, match=r"does not say which model is served: .*; remove it to serve"):
        versions.open()


@pytest.mark.parametrize(
    "change",
    [{"stack": []}, {"stack": [0, 7]}, {"until": {}}, {"next": 1}, {"judged": -1}, {"next": 2.5},
     {"stack": ["1"]}, {"decision": {}}, {"attempted": "x"}, {"best": 7}],
    ids=str,
)  # fmt: skip
def test_a_current_that_contradicts_itself_is_a_clear_error(versions, change):
    promote(versions)
    good = json.loads((versions.folder / "current").read_text())
    (versions.folder / "current").write_text(json.dumps({**good, **change}))
    with pytest.raises(StorageError, match="does not say which model is served"):
        versions.state()


def test_one_process_trains_at_a_time(versions):
    with versions.training() as first:
        assert first
        assert versions.is_training()
        with Versions(versions.model).training() as second:
            assert not second
    assert not versions.is_training()


def test_a_torn_last_line_is_left_out_and_the_next_one_is_whole(tmp_path):
    log = DecisionLog(tmp_path / "decisions.jsonl")
    assert log.newest(5) == []
    log.append(Decision("waited", "few").as_json())
    log.append(Decision("refused", "bad").as_json())
    content = log.path.read_bytes()
    log.path.write_bytes(content[:-30])  # as a kill leaves it
    assert [one["decision"] for one in log.newest(5)] == ["waited"]
    log.append(Decision("promoted", "good").as_json())
    assert [one["decision"] for one in log.newest(5)] == ["promoted", "waited"]
    assert len(log.newest(1)) == 1


def test_lines_of_others_and_half_of_a_line_are_left_out(tmp_path, monkeypatch):
    log = DecisionLog(tmp_path / "decisions.jsonl")
    log.path.write_bytes(
        b'\xff\n[]\n{"decision": "x"}\n{"decision": "waited", "p": NaN}\n' + b"[" * 99999 + b"\n"
    )
    assert log.newest(5) == []
    log.append({"decision": "waited", "reason": "few"})
    found = log.newest(5)
    assert [one["reason"] for one in found] == ["few"]
    assert list(found[0]) == [*Decision("waited", "").as_json()]  # all fields, whatever the line has
    monkeypatch.setattr(decisions_module, "_TAIL", 50)
    assert log.newest(5) == [] or len(log.newest(5)) == 1
