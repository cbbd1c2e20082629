"""A short, deterministic part of `make fuzz`, and all inputs that it has found."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzzing.inputs import feed
from fuzzing.targets import TARGETS
from truepair.errors import TruepairError

FOUND = sorted((Path(__file__).parent / "found").glob("*.input"))
TOOLS = Path(__file__).parents[2] / "tools"


FEWER = {
    "command lines": 6,
    "journal bytes": 6,
    "journal facts": 6,
    "model bytes": 10,
    "model facts": 10,
    "living model bytes": 6,
    "living model facts": 10,
    "backtest bytes": 10,
    "backtest facts": 10,
}
NEEDED = {"database": "adbc_driver_sqlite", "journal": "optuna", "prepared": "duckdb"}
"""First word of a target -> the package without which it refuses everything."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_some_inputs_of_each_target(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEPAIR_DATA", str(tmp_path))
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path))
    if needed := NEEDED.get(name.split()[0]):
        pytest.importorskip(needed)
    target, refused = TARGETS[name], []

    def attempt(data):
        try:
            target.run(data, tmp_path)
        except TruepairError as error:
            refused.append(error)

    count = FEWER.get(name, 25)
    feed(target, attempt, count, seed=0, folder=tmp_path)
    assert refused or name == "result lines"  # a line that cannot be read is named, and the others are read


SOUND = {
    "item table columns": [{}, []],
    "conditions": {"where": "price < 2", "quota": {"kind": 1}},
    **{
        f"living model facts {place}": {"file": place, "tensors": [], "facts": [], "depth": 0}
        for place in range(5)
    },
    "backtest facts": [],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SOUND)
def test_what_is_changed_is_sound_before(name, tmp_path):
    """Else every change would be refused for the wrong reason."""
    refused = None
    try:
        TARGETS[name.rstrip(" 01234")].run(json.dumps(SOUND[name]).encode(), tmp_path)
    except TruepairError as error:
        refused = error
    assert refused is None


def target_of(path):
    return next(target for name, target in TARGETS.items() if path.name.startswith(name.replace(" ", "-")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_inputs_that_were_found_do_no_harm(path, tmp_path):
    """Many times, because a crash among threads does not happen every time."""
    runs = 0
    for _ in range(20):
        with contextlib.suppress(TruepairError):
            target_of(path).run(path.read_bytes(), tmp_path)
        runs += 1
    assert runs == 20


BAD_TARGET = """
import os, sys, time
from pathlib import Path
from fuzzing import __main__ as fuzzing
from fuzzing.target import Target
from truepair.errors import InputError

def run(data, folder):
    if data.startswith(b"c"): os.abort()
    if data.startswith(b"h"): time.sleep(60)
    if data.startswith(b"e"): raise KeyError("an error of another kind")
    if data.startswith(b"m"): bytearray(1 << 40)
    if data.startswith(b"r"): raise InputError("refused")
    if data.startswith(b"f"): raise InputError("refused", Slow())

class Slow:  # what an input leaves behind, and what its error holds, belongs to the input
    def __del__(self): time.sleep(60)

if sys.argv[1] == "s":  # the fuzzer itself stalls after each input
    from fuzzing import child
    child.feed = lambda target, attempt, *rest: (attempt(b"s"), time.sleep(60))

fuzzing.HANG = 0.5
target = Target("bad target", run, lambda folder: [sys.argv[1].encode() * 9], 1)
row = fuzzing.attack(target, int(sys.argv[2]), 0, time.monotonic() + 60, Path(sys.argv[3]), guided=False)
print(row.inputs, row.accepted, row.refused, row.other, row.crashes, row.hangs, sep=",")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("letter", "of_interest"),
    [
        *(("c", "crashes"), ("h", "hangs"), ("f", "hangs"), ("e", "other"), ("m", "other"), ("r", "refused")),
        ("s", "accepted"),
    ],
)
def test_crashes_hangs_and_errors_are_told_apart_and_kept(letter, of_interest, tmp_path):
    count = 3 if letter in "hfs" else 20
    run = subprocess.run(
        [sys.executable, "-c", BAD_TARGET, letter, str(count), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{TOOLS}:{TOOLS.parent / 'src'}", "PATH": ""},
    )
    names = ("inputs", "accepted", "refused", "other", "crashes", "hangs")
    row = dict(zip(names, map(int, run.stdout.split(",")), strict=True))
    assert row["inputs"] == count
    assert row[of_interest] > 0
    assert sum(row[name] for name in names[1:]) == count
    assert not {"other", "crashes", "hangs"} - {of_interest} & {name for name in names if row[name]}
    kept = list(tmp_path.glob("bad-target-*.input"))
    assert bool(kept) == (of_interest not in ("refused", "accepted"))
    assert all(path.read_bytes().startswith(letter.encode()) for path in kept)
