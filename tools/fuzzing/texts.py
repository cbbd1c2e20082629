"""Targets: configurations, `--set`, command lines and result lines."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzing.mutations import ALPHABET
from fuzzing.target import Target
from truepair.cli.configuration import Training
from truepair.errors import InputError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_ROOT = Path(__file__).parents[2]
_FILES = _ROOT / "tests" / "compatibility" / "files"

# --- configurations ------------------------------------------------------------------------------------


def _configurations(folder: Path) -> list[bytes]:
    spaces = [
        b'"loss.tau" = {low = 0.01, high = 0.1, log = true}\ndim = {low = 16, high = 64, powers = true}\n'
    ]
    return [path.read_bytes() for path in sorted((_FILES / "configs").glob("*.toml"))] + spaces


def _configure(data: bytes, folder: Path) -> None:
    from truepair.cli.commands.tune import read_space_file

    path = folder / "a.toml"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        read_space_file(path)
    Training(config=path).recommender()


_NAMES = (
    *("loss", "encoder", "sampler", "blend", "dim", "tau", "epochs", "patience", "batch_size", "validation"),
    *("loss.tau", "encoder.dim", "encoder.hops", "encoder.l2", "sampler.pool", "sampler.columns", "blend.l2"),
    *(
        "learning_rate",
        "metric",
        "engine",
        "device",
        "seed",
        "plus",
        "popularity",
        "n_unlabelled",
        "kind",
        "",
    ),
)
_VALUES = (
    *("dpl", "mf", "lightgcn", "ease", "full", "exact", "dns", "none", "None", "auto", "per-user", "ndcg@5"),
    *("1", "0", "-1", "0.5", "1e999", "nan", "-inf", "true", "[1, 2]", "{}", "{a = 1}", "1979-05-27", "0x1f"),
    *(
        "9" * 5000,
        "0x" + "f" * 5000,
        "[" * 3000,
        "{a=" * 3000,
        "a." * 3000 + "b=1",
        "{" + "a." * 3000 + "b=1}",
    ),
    *(
        "'",
        '"',
        '"""',
        "\n[x]",
        "1\nvalue = 2",
        "\0",
        "\\ud800",
        "{kind = {kind = 1}}",
        "[[[[1]]]]",
        "07:32:00",
    ),
)


def _assignments() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    name = st.sampled_from(_NAMES) | st.text(ALPHABET, max_size=6)
    value = (
        st.sampled_from(_VALUES)
        | st.text(ALPHABET, max_size=12)
        | st.floats().map(str)
        | st.integers().map(str)
    )
    one = st.tuples(name, st.sampled_from(["=", " = ", "==", ""]), value).map("".join)
    return st.lists(one, min_size=1, max_size=3)


def _assign(data: bytes, folder: Path) -> None:
    Training(set=json.loads(data)).recommender()


# --- command lines -------------------------------------------------------------------------------------

_COMMANDS = (
    *("fit", "fit", "evaluate", "recommend", "recommend", "similar", "compare", "tune", "doctor"),
    *("update", "update", "add-items", "backtest", "backtest"),
    *("data list", "data info", "data", "", "paper", "nothing"),
)
_OPTIONS = (
    *(
        "-o",
        "--output",
        "--loss",
        "--test",
        "--checkpoint",
        "--encoder",
        "--sampler",
        "--dim",
        "--tau",
        "--set",
    ),
    *(
        "--config",
        "--user",
        "--item",
        "--rating",
        "--time",
        "--format",
        "--encoding",
        "--header",
        "--missing",
    ),
    *("--min-rating", "--core", "--duplicates", "--users", "--users-file", "-k", "--only-items", "--unknown"),
    *("--exclude-items", "--include-seen", "--seed", "--engine", "--device", "--json", "--quiet", "--losses"),
    *(
        "--storage",
        "--study",
        "--space",
        "--seeds",
        "--metric",
        "--validation",
        "--patience",
        "--help",
        "--x",
    ),
    *("--forget", "--forget-users", "--exclude-pairs", "--epochs", "--every", "--train", "--periods"),
    *("--strategies", "--settings", "--out", "--no-optimizer", "--popularity", "--item-features", "--items"),
    *("--kind", "--feedback", "--half-life", "--now", "--counts", "--dislikes", "--max-disliked-rating"),
    *("--where", "--quota", "--diversify", "--explain", "--cold", "--hold-out", "--chronological"),
)
_WORDS = (
    *(
        "clicks.csv",
        "model.truepair",
        "a.toml",
        "a.journal",
        "ids.txt",
        "none.csv",
        ".",
        "",
        "-",
        "out",
        "out.csv",
    ),
    *(
        "out.parquet",
        "out.jsonl",
        "user",
        "item",
        "0",
        "1",
        "2",
        "-1",
        "99999999999999999999",
        "9" * 5000,
        "1,2",
    ),
    *("1,x", "nan", "0.5", "given", "dpl", "bpr,dpl", "mf", "ease", "popular", "full", "dns", "loss.tau=0.1"),
    *(
        "dim=4",
        "dim",
        "a={a={",
        "[" * 3000,
        "u1",
        "u1,u2",
        "i1",
        "\0",
        "a\0.csv",
        "~nobody/x",
        "\udcff",
        "~\0",
    ),
    *(
        "utf-16",
        "punycode",
        "csv",
        "npz",
        "error",
        "popular",
        "drop",
        "true",
        "ndcg@3",
        "ndcg@",
        "cpu",
        "x" * 300,
    ),
    *("7d", "1w", "0d", "9" * 12 + "w", "retrain,update", "first", "each", "view=1,buy=3", "view=", "=1,=2"),
    *("log", "cap:3", "2024-06-01", "items.csv", "kind", "size < 2", "kind=1", "=3", "a.jsonl", "time"),
)
_LAST = {
    "fit": ["--epochs", "1", "-o", "out.truepair"],
    "compare": ["--epochs", "1", "--seeds", "1"],
    "tune": ["--epochs", "1", "--trials", "1"],
    "update": ["-o", "out.truepair"],
    "add-items": ["-o", "out.truepair"],
    "backtest": ["--encoder", "popular"],
}


_USUAL = {
    **{command: ["model.truepair"] for command in ("recommend", "similar", "evaluate")},
    "update": ["model.truepair", "clicks.csv"],
    "add-items": ["model.truepair", "items.csv"],
}


def _joined(parts: list[list[str]]) -> list[str]:
    return [word for part in parts for word in part]


def _command_lines() -> SearchStrategy[Any]:
    from hypothesis import strategies as st

    def of(command: str) -> SearchStrategy[Any]:
        usual = _USUAL.get(command, ["clicks.csv"])
        first = st.just(usual) | st.just(usual) | st.lists(st.sampled_from(_WORDS), max_size=2)
        pair = st.tuples(st.sampled_from(_OPTIONS), st.sampled_from(_WORDS)).map(list)
        word = st.sampled_from([*_OPTIONS, *_WORDS]).map(lambda one: [one])
        more = st.lists(pair | word, max_size=3).map(_joined)
        return st.tuples(st.just(command), first, more)

    return st.sampled_from(_COMMANDS).flatmap(of)


@functools.cache
def _item_names() -> list[str]:
    """Those of the clicks, of the model, and one more."""
    rows = list(csv.reader((_FILES / "clicks.csv").read_text(encoding="utf-8").splitlines()))[1:]
    return [*(f"i{n}" for n in range(7)), *sorted({row[1] for row in rows}), "new"]


def _command(data: bytes, folder: Path) -> None:
    """Run a command in a folder; a refusal is an exit code that is not 0."""
    from truepair.cli.main import app

    command, first, more = json.loads(data)
    args = [*command.split(), *first, *more, *_LAST.get(command, [])]
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    rows = (f"u{n % 5},i{n % 7},{'buy' if n % 3 else 'view'},2024-06-{n + 1:02}\n" for n in range(20))
    (work / "clicks.csv").write_text("user,item,kind,time\n" + "".join(rows))
    items = (f"{item},{'ab'[n % 2]},{n % 3}\n" for n, item in enumerate(_item_names()))
    (work / "items.csv").write_text("item,kind,size\n" + "".join(items))
    (work / "ids.txt").write_text("u1\nu2\n")
    shutil.copy(_FILES / "models" / "default.truepair", work / "model.truepair")
    shutil.copy(_FILES / "configs" / "ease.toml", work / "a.toml")
    shutil.copy(_FILES / "tuning" / "exact-rows.journal", work / "a.journal")
    os.environ["TRUEPAIR_DATA"] = os.environ["TRUEPAIR_CACHE"] = str(folder)
    before = Path.cwd()
    os.chdir(work)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            app(args, prog_name="truepair")
    except SystemExit as end:
        if end.code:
            raise InputError(f"exit code {end.code}") from None
    finally:
        os.chdir(before)


# --- result lines --------------------------------------------------------------------------------------


def _lines(folder: Path) -> list[bytes]:
    files = sorted((_ROOT / "lab" / "results" / "quality").glob("*.jsonl"))
    return [b"".join(path.read_bytes().splitlines(keepends=True)[:2]) for path in files]


def _read_lines(data: bytes, folder: Path) -> None:
    from truepair_lab import lines, store

    place = folder / "lines"
    place.mkdir(exist_ok=True)
    (place / "a.jsonl").write_bytes(data)
    kinds: tuple[Any, ...] = (lines.RunLine, lines.TrialLine, lines.Contrast, lines.Timing, lines.Session)
    store.read(place, *kinds)


TEXTS = [
    Target("configuration", _configure, _configurations, 60),
    Target("set values", _assign, lambda folder: [], 35, _assignments),
    Target("command lines", _command, lambda folder: [], 10, _command_lines),
    Target("result lines", _read_lines, _lines, 30),
]
