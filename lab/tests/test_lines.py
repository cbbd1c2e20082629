"""Lines: written one by one, read whatever happened to the file meanwhile."""

from __future__ import annotations

import gzip
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from truepair.errors import StorageError
from truepair_lab.lines import (
    Contrast,
    RunLine,
    Session,
    Timing,
    TrialLine,
    append_line,
    digest,
    read_lines,
)

RUN = RunLine(
    "paper", "ml-100k", "mf", "dpl", "", 0, {"loss": "dpl", "loss.tau": 0.07}, "abc", "cpu", "CPU, 1 threads",
    {"truepair": "0.1.0"}, 0, [[5, 0.1], [10, 0.2]], {"ndcg@20": 0.2}, {"ndcg@20": 0.1}, 0.01, 1.5,
)  # fmt: skip
TRIAL = TrialLine(
    "ml-100k", "mf", "dpl", 3, "complete", {"loss": "dpl"}, 0.2, 40, [[5, 0.1]], "abc", "cpu", "CPU", 2.0
)
CONTRAST = Contrast(
    "ml-100k", "mf dpl", "ease", "ndcg@20", 5, 943, -0.01, -0.02, -0.001, 0.01, 0.1, "abc", "a", "b"
)
TIMING = Timing("ml-100k", "mf", "bns", "CPU", "cpu", 1024, [0.1, 0.2], 2.5)
SESSION = Session("2026-01-01T00:00:00+00:00", "CPU", "paper run", 12, 300.0)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for line in (RUN, TRIAL, CONTRAST, TIMING, SESSION):
        append_line(tmp_path / "new" / "x.jsonl", line)
    found = read_lines(tmp_path / "new")
    assert (found.runs, found.trials, found.contrasts) == ((RUN,), (TRIAL,), (CONTRAST,))
    assert (found.timings, found.sessions, found.broken) == ((TIMING,), (SESSION,), ())


def test_of_two_lines_with_one_key_the_later_counts(tmp_path: Path) -> None:
    later = replace(RUN, seconds=9.0)
    for line in (RUN, replace(RUN, seed=1), later):
        append_line(tmp_path / "x.jsonl", line)
    assert sorted(read_lines(tmp_path).runs, key=lambda line: line.seed) == [later, replace(RUN, seed=1)]


def compress(path: Path) -> Path:
    """Replace x.jsonl by x.jsonl.gz."""
    compressed = path.with_name(f"{path.name}.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return compressed


def test_compressed_lines_are_read_and_lines_added_later_count(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for line in (RUN, TRIAL):
        append_line(path, line)
    compress(path)
    assert (read_lines(tmp_path).runs, read_lines(tmp_path).trials) == ((RUN,), (TRIAL,))
    later = replace(RUN, seconds=9.0)
    append_line(path, later)
    found = read_lines(tmp_path)
    assert (found.runs, found.trials, found.broken) == ((later,), (TRIAL,), ())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[:-20], "ended before the end-of-stream marker"),
        (lambda content: content[:5], "ended before the end-of-stream marker"),
        (lambda content: b"no gzip" + content, "Not a gzipped file"),
        (lambda content: content[:10] + b"\xff" * 20 + content[30:], "invalid block type"),
        (lambda content: content[:-8] + bytes(4) + content[-4:], "CRC check failed"),
    ],
    ids=["truncated", "half a head", "no gzip", "corrupt", "another checksum"],
)
def test_a_damaged_compressed_file_is_an_error_that_names_it(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    append_line(tmp_path / "x.jsonl", RUN)
    path = compress(tmp_path / "x.jsonl")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StorageError, match=rf"x\.jsonl\.gz is damaged: .*{reason}"):
        read_lines(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"study": "clean"},
        {"seed": 1},
        {"variant": "M=1"},
        {"split": "other"},
        {"parameters": {"loss": "dpl", "loss.tau": 0.1}},
    ],
)
def test_another_run_has_another_key(change: dict[str, object]) -> None:
    assert replace(RUN, **change).key != RUN.key  # type: ignore[arg-type]


def test_the_order_of_parameters_does_not_count() -> None:
    assert digest({"a": 1, "b": 2.0}) == digest({"b": 2.0, "a": 1}) != digest({"a": 1, "b": 2.5})


def test_half_a_line_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append_line(path, RUN)
    path.write_text(path.read_text() + path.read_text()[:50])  # a process was killed while it wrote
    append_line(path, TRIAL)
    path.write_text(path.read_text() + '{"kind": "nothing we know"}\n[1]\n\n')
    found = read_lines(tmp_path)
    assert (found.runs, found.trials) == ((RUN,), (TRIAL,))
    assert [text.split(":")[0] for text in found.broken] == [f"x.jsonl, line {k}" for k in (2, 4, 5)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", [1]),
        ("seed", "1"),
        ("parameters", [1]),
        ("metrics", None),
        ("metrics", {"ndcg@20": "x"}),
        ("curve", 3),
        ("study", None),
        ("clamped", "no"),
    ],
)
def test_a_field_of_another_kind_is_told(tmp_path: Path, field: str, value: object) -> None:
    append_line(tmp_path / "x.jsonl", replace(RUN, **{field: value}))  # type: ignore[arg-type]
    found = read_lines(tmp_path)
    assert (found.runs, len(found.broken)) == ((), 1)
    assert field in found.broken[0]


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"\xff\xfe\n5\n")
    assert len(read_lines(tmp_path).broken) == 2


def test_a_figure_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_line(tmp_path / "x.jsonl", replace(RUN, seconds=float("nan")))


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write to"):
        append_line(tmp_path / "file" / "x.jsonl", RUN)


def _append_many(path: Path, seed: int) -> None:
    for variant in range(50):
        append_line(path, replace(RUN, seed=seed, variant=str(variant)))


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append_many, args=(tmp_path / "x.jsonl", seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = read_lines(tmp_path)
    assert (len(found.runs), found.broken) == (150, ())
