"""Journals that another program wrote, or damaged: refused when they are opened."""

import json
import math
from pathlib import Path

import pytest

from truepair.errors import StorageError, TruepairError

pytest.importorskip("optuna")

from truepair.search.study import KeptStudy

JOURNAL = Path(__file__).parents[1] / "compatibility" / "files" / "tuning" / "exact-rows.journal"
LINES = [json.loads(line) for line in JOURNAL.read_text(encoding="utf-8").splitlines()]
MEANING = next(line["user_attr"]["meaning"] for line in LINES if "meaning" in line.get("user_attr", {}))


def opened(folder, lines):
    path = folder / "a.journal"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    kept = KeptStudy(path, "exact-rows", MEANING)
    kept.presence.leave()
    return kept


def test_a_sound_journal_is_opened(tmp_path):
    kept = opened(tmp_path, LINES)
    assert kept.trials()
    assert kept.space()


def with_attribute(name, value):
    """The lines with another value of an attribute of the study or of its first trial that has it."""
    found = [json.loads(json.dumps(line)) for line in LINES]
    line = next(line for line in found if name in line.get("user_attr", {}))
    line["user_attr"][name] = value
    return found


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


NUMBERS = {"state": "complete", "score": 0.1, "epoch": 1}
OTHER = [
    *[("meaning", value) for value in ("x", 3, ["a"], {"space": "x"}, {"space": {"dim": 3}}, deep(50))],
    *[("meaning", {**MEANING, "fixed parameters": value}) for value in ("x", [1])],
    *[
        ("owner", value)
        for value in ("x", 7, {"host": "x"}, {"host": 1, "pid": 1}, {"host": "x", "pid": "y"})
    ],
    *[("owner", {"host": "x", "pid": value}) for value in (-1, 0, 2**40, True)],
    *[("parameters", value) for value in ("x", [1], 3, {"a": deep(50)})],
    *[("owner", None), ("outcome", None)],
    *[("outcome", value) for value in ("x", [], {"state": "complete"}, {**NUMBERS, "state": "odd"})],
    *[("outcome", {**NUMBERS, "score": value}) for value in (None, "x", True, [1], math.nan)],
    *[("outcome", {**NUMBERS, "history": value}) for value in ("x", [1], [[1]], [[1, "x"]], [[1, 2, 3]])],
    *[
        ("outcome", {**NUMBERS, **more})
        for more in ({"more": 1}, {"seconds": "x"}, {"seconds": math.inf}, {"why": 3}, {"epoch": "x"})
    ],
]


@pytest.mark.parametrize(("name", "value"), OTHER, ids=lambda one: str(one)[:40])
def test_attributes_of_other_types(name, value, tmp_path):
    with pytest.raises(TruepairError):
        opened(tmp_path, with_attribute(name, value))


@pytest.mark.parametrize("value", ["x", [1], [{"names": "x"}], [{"names": ["a"], "space": 3}], {"a": 1}])
def test_extensions_of_other_types(value, tmp_path):
    lines = [*LINES, {**LINES[1], "user_attr": {"extensions": value}}]
    with pytest.raises(TruepairError):
        opened(tmp_path, lines)


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000 + "]" * 100_000,
        '"op_code"',
        '{"op_code": 4}',
        '{"op_code": 5, "trial_id": "x"}',
        "7",
        "null",
    ],
    ids=lambda line: line[:20],
)
def test_lines_that_optuna_cannot_read(line, tmp_path):
    with pytest.raises(StorageError, match=r"a\.journal is not a journal of trials"):
        opened(tmp_path, [*LINES, line])


def changed(op_code, **changes):
    """The lines with another first line of this kind of entry."""
    found = [dict(line) for line in LINES]
    at = min(place for place, line in enumerate(found) if line["op_code"] == op_code)
    found[at] |= changes
    return found


@pytest.mark.parametrize(
    "lines",
    [
        changed(6, values=[]),
        changed(6, values=["x"]),
        changed(6, values=[[1]]),
        changed(7, intermediate_value="x"),
        changed(7, step=None),
        changed(5, param_value_internal=[[1]]),
        changed(5, param_value_internal="x"),
        changed(0, directions=[]),
        changed(0, directions=[1]),
    ],
    ids=range(9),
)
def test_numbers_that_optuna_cannot_learn_from(lines, tmp_path):
    with pytest.raises(StorageError, match="is not a journal of trials"):
        opened(tmp_path, lines)


def distribution(name, **attributes):
    return json.dumps({"name": name, "attributes": attributes})


@pytest.mark.parametrize(
    ("range_", "value"),
    [
        (distribution("IntDistribution", log=False, step=1, low=0, high=3), 1),
        (distribution("FloatDistribution", step=None, low=0.001, high=0.03, log=False), 0.01),
        (distribution("CategoricalDistribution", choices=[0.001, 0.03]), 1),
    ],
    ids=["whole numbers", "not logarithmic", "choices"],
)
def test_a_range_of_another_kind_than_the_space_has(range_, value, tmp_path):
    """The learning rate of a trial; Optuna would refuse the next trial's."""
    lines = changed(5, distribution=range_, param_value_internal=value)
    assert next(line for line in lines if line["op_code"] == 5)["param_name"] == "learning_rate"
    with pytest.raises(StorageError, match=r"a\.journal is not a journal .*to the same parameter name"):
        opened(tmp_path, lines)


def test_a_user_attribute_that_is_no_object(tmp_path):
    lines = [{**line, "user_attr": "x"} if "user_attr" in line else line for line in LINES]
    with pytest.raises(StorageError, match="is not a journal of trials"):
        opened(tmp_path, lines)
