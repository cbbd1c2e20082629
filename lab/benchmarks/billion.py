"""One device, large data: a world with planted structure is made, prepared, trained on, and recovered.

    python benchmarks/billion.py --folder work --out billion.json     # 10^9 pairs, on a GPU
    python benchmarks/billion.py --users 1e4 --items 2e3 --groups 40 --batch 16 --columns 500   # on a CPU
    python benchmarks/billion.py --folder work --phases train lists   # a part, with the files of a run

Items belong to groups. A user likes four groups: four fifths of the user's rows are items of these, the first
of a group most often; the others are items that all people take. Every number is a function of (seed, draw,
user), so the truth is known. Phases: `source` writes rows as a folder of Parquet files, all users in each;
`prepare` runs `prepare_interactions` on it, or with `--writer blocks` writes the documented layout user by
user; `train` trains MF by InfoNCE with drawn columns and measures recall@20 of coming items after every
epoch, beside the best possible list, popular items and chance; `lists` ranks the catalogue for some users and
writes the lists to Parquet, a piece at a time. `fit` and `recommend` do it as a user would, by the commands
of these names, automatic settings included, and compare the lists with the truth. Each phase is timed; what
was measured is written after each.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.data.prepared.array_files import ArrayWriter, write_array
from truepair.data.prepared.manifest import Manifest, Part, write_manifest
from truepair.data.prepared.opening import open_prepared
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.randomness import random_words, stream_key
from truepair.ranking.selection import top_k
from truepair.sampling import Full
from truepair.training import EpochState, Job, Settings, fit

LIKED, OWN = 4, 0.8  # groups of a user; the share of rows in them
SKEW, POPULAR = 2.0, 4.0  # of items in a group, and of items that all take
K = 20
_GROUPS, _COMING = 1 << 20, 1 << 21  # numbers of draws that stand for a user's groups, and for coming items
_USERS = 250_000  # users whose pairs are made at a time


@dataclass(frozen=True)
class World:
    """Users x items with groups; a draw of a user is an item."""

    users: int
    items: int
    groups: int
    seed: int
    device: torch.device

    @property
    def size(self) -> int:
        """Items of a group."""
        return self.items // self.groups

    def words(self, number: int, first: int, n: int) -> Tensor:
        """A random number of each of n users, from `first` on."""
        return random_words(stream_key(self.seed, number), (n,), self.device, first)

    def liked(self, first: int, n: int) -> Tensor:
        """The groups that users like. [n, LIKED]"""
        return torch.stack([self.words(_GROUPS + j, first, n) % self.groups for j in range(LIKED)], dim=1)

    def drawn(self, number: int, first: int, liked: Tensor, own: bool = False) -> Tensor:
        """The item of a draw, for users from `first` on; `own`: always one of their groups."""
        words = self.words(number, first, len(liked))
        share = (words & 0xFFFFFF).double() / (1 << 24)
        place = (words >> 24).double() * 2.0**-39
        group = liked.gather(1, (words % LIKED)[:, None])[:, 0]
        in_group = group + self.groups * (self.size * place**SKEW).long()
        anywhere = (self.items * place**POPULAR).long().clamp(max=self.items - 1)
        return in_group if own else torch.where(share < OWN, in_group, anywhere)

    def chances(self, liked: Tensor) -> Tensor:
        """The chance that a draw in the user's groups is each item. [n, items]"""
        edges = (torch.arange(self.size + 1, device=self.device, dtype=torch.float64) / self.size) ** (
            1 / SKEW
        )
        found = torch.zeros(len(liked), self.size, self.groups, device=self.device)
        ones = torch.ones(len(liked), 1, device=self.device)
        times = torch.zeros(len(liked), self.groups, device=self.device)
        for j in range(LIKED):
            times.scatter_add_(1, liked[:, j : j + 1], ones)
        found += edges.diff().float()[None, :, None] * times[:, None, :] / LIKED
        flat = torch.zeros(len(liked), self.items, device=self.device)
        flat[:, : self.size * self.groups] = found.view(len(liked), -1)
        return flat


# --- the source --------------------------------------------------------------------------------------------


def write_source(world: World, draws: int, files: int, folder: Path) -> dict[str, Any]:
    """A folder of Parquet files: each has some draws of all users, in a random order."""
    folder.mkdir(parents=True)
    liked = world.liked(0, world.users)
    rows = 0
    with ThreadPoolExecutor(8) as pool:
        waiting = []
        for file, numbers in enumerate(np.array_split(np.arange(draws), files)):
            items = torch.cat([world.drawn(int(k), 0, liked).int() for k in numbers])
            users = torch.arange(world.users, device=world.device, dtype=torch.int32).repeat(len(numbers))
            order = torch.randperm(len(items), device=world.device)
            columns = {"user_id": users[order].cpu().numpy(), "item_id": items[order].cpu().numpy()}
            rows += len(order)
            del items, users, order
            waiting.append(pool.submit(_write_rows, columns, folder / f"{file:04}.parquet"))
            if len(waiting) > 8:
                waiting.pop(0).result()
        for each in waiting:
            each.result()
    return {"rows": rows, "files": files, "bytes": size_of(folder)}


def _write_rows(columns: dict[str, npt.NDArray[np.int32]], path: Path) -> None:
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False, write_statistics=False)


def size_of(folder: Path) -> int:
    """The bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- the prepared folder -----------------------------------------------------------------------------------


def prepare(source: Path, folder: Path, memory: str) -> dict[str, Any]:
    """The library's own preparation, through DuckDB."""
    from truepair import prepare_interactions

    made = prepare_interactions(source, folder, memory=memory)
    assert isinstance(made, Interactions)
    return {"users": made.n_users, "items": made.n_items, "pairs": len(made), "bytes": size_of(folder)}


def write_blocks(world: World, draws: int, folder: Path) -> dict[str, Any]:
    """The documented layout, written by blocks of users; ids are the codes themselves."""
    folder.mkdir(parents=True)
    popularity = torch.zeros(world.items, dtype=torch.int64, device=world.device)
    counts = []
    with (
        ArrayWriter(folder, "all/users.npy", np.int32) as users,
        ArrayWriter(folder, "all/items.npy", np.int32) as items,
    ):
        for first in range(0, world.users, _USERS):
            liked = world.liked(first, min(_USERS, world.users - first))
            own = torch.arange(len(liked), device=world.device) * world.items
            keys = torch.cat([own + world.drawn(k, first, liked) for k in range(draws)])
            keys = torch.unique(keys)
            rows, codes = keys // world.items, keys % world.items
            counts.append(torch.bincount(rows, minlength=len(liked)).cpu())
            popularity += torch.bincount(codes, minlength=world.items)
            users.write((rows + first).int().cpu().numpy())
            items.write(codes.int().cpu().numpy())
        files = [users.close(), items.close()]
    starts = np.concatenate([[0], torch.cat(counts).numpy().cumsum()]).astype(np.int64)
    files += [write_array(folder, "all/starts.npy", starts)]
    files += [write_array(folder, "all/popularity.npy", popularity.cpu().numpy())]
    for name, n in (("user_ids", world.users), ("item_ids", world.items)):
        files.append(write_array(folder, f"{name}/values.npy", np.arange(n, dtype=np.int64)))
    arrays = {each.file.removesuffix(".npy"): each for each in files}
    parts = {"all": Part(int(starts[-1]))}
    write_manifest(folder, Manifest(world.users, world.items, "int64", "int64", parts, arrays))
    return {"users": world.users, "items": world.items, "pairs": int(starts[-1]), "bytes": size_of(folder)}


# --- the truth ---------------------------------------------------------------------------------------------


class Truth:
    """Coming items of a sample of users, and lists of the best items that could be known."""

    def __init__(self, world: World, data: Interactions, n: int) -> None:
        self.data, self.world = data, world
        self.first = max((world.users - n) // 2, 0)  # users with consecutive numbers: a sample like any other
        n = min(n, world.users)
        self.liked = world.liked(self.first, n)
        ids = np.arange(self.first, self.first + n)
        self.rows = data.user_ids.find(pa.array(ids), "user")
        number_of = data.item_ids.ids.to_numpy()  # code -> the world's number
        self.code_of = np.full(world.items, -1)
        self.code_of[number_of] = np.arange(len(number_of))
        self.group_of = number_of % world.groups
        drawn = [world.drawn(_COMING + j, self.first, self.liked, own=True) for j in range(K)]
        self.coming = self.code_of[torch.stack(drawn, dim=1).cpu().numpy()]  # [n, K], -1: nobody has it

    def recall(self, lists: npt.NDArray[np.int64]) -> float:
        """The mean share of a user's coming items, those not known yet, that are in the list."""
        shares = []
        for row, (listed, coming) in enumerate(zip(lists, self.coming, strict=True)):
            new = np.setdiff1d(coming[coming >= 0], self.data.items_of(int(self.rows[row])))
            if len(new):
                shares.append(np.isin(new, listed).mean())
        return float(np.mean(shares))

    def in_groups(self, lists: npt.NDArray[np.int64]) -> float:
        """The share of the lists' items that are of a group that the user likes."""
        groups = self.group_of[lists]  # [n, K]
        return float((groups[:, :, None] == self.liked.cpu().numpy()[:, None, :]).any(axis=2).mean())

    def best(self, at_once: int = 64) -> npt.NDArray[np.int64]:
        """Lists of the items with the highest true chance that the user does not have."""
        found, codes = [], torch.as_tensor(self.code_of, device=self.world.device)
        for start in range(0, len(self.rows), at_once):
            chances = self.world.chances(self.liked[start : start + at_once])
            chances[:, codes < 0] = -1.0
            for place, row in enumerate(self.rows[start : start + at_once]):
                known = self.data.item_ids.ids.to_numpy()[self.data.items_of(int(row))]
                chances[place, torch.as_tensor(known, device=chances.device)] = -1.0
            found.append(codes[chances.topk(K).indices].cpu())
        return np.asarray(torch.cat(found).numpy())

    def popular(self) -> npt.NDArray[np.int64]:
        """Lists of the items that most users have."""
        order = np.argsort(-self.data.item_counts, kind="stable")[:1000]
        lists = [
            np.setdiff1d(order, self.data.items_of(int(row)), assume_unique=True)[:K] for row in self.rows
        ]
        return np.asarray(lists)

    def bounds(self) -> dict[str, float]:
        """What lists without a model reach."""
        found = {"best possible": self.best(), "popular": self.popular()}
        shares = {f"recall@{K}, {name}": self.recall(lists) for name, lists in found.items()}
        in_groups = LIKED / self.world.groups
        return {**shares, f"recall@{K}, chance": K / self.world.items, "in liked groups, chance": in_groups}

    def measured(self, users: Tensor, items: Tensor) -> dict[str, float]:
        """What the lists of a model reach."""
        lists = top_k(
            users[torch.as_tensor(self.rows, device=users.device)], items, K, exclude=self.known
        ).items
        return {f"recall@{K}": self.recall(lists), "in liked groups": self.in_groups(lists)}

    @property
    def known(self) -> Interactions:
        """The pairs of the sample alone, whose users are counted from 0."""
        from truepair.data.ids import IdMap

        each = [np.asarray(self.data.items_of(int(row)), np.int64) for row in self.rows]
        users = np.repeat(np.arange(len(each)), [len(some) for some in each])
        return Interactions(users, np.concatenate(each), IdMap.range(len(each)), self.data.item_ids)


# --- training and lists ------------------------------------------------------------------------------------


def train(world: World, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Epochs, each timed without its evaluation."""
    began = time.perf_counter()
    data = open_prepared(folder)
    assert isinstance(data, Interactions)
    opened = time.perf_counter() - began
    truth = Truth(world, data, args.sample)
    bounds = truth.bounds()
    say(f"{data}; opened in {opened:.2f} s; {bounds}")
    settings = Settings(
        epochs=args.epochs, batch_size=args.batch, learning_rate=args.rate, seed=args.seed, schedule="linear",
        optimizer_state=args.state, device=str(world.device),
    )  # fmt: skip
    encoder = MF(dim=args.dim, scoring="cosine", temperature=args.temperature, popularity=args.popularity)
    job = Job(encoder, InfoNCE(), Full(columns=args.columns), data, settings)
    epochs: list[dict[str, float]] = []

    def on_epoch(state: EpochState) -> None:
        began = time.perf_counter()
        found = truth.measured(*state.matrices())
        epochs.append({"loss": state.loss, **found, "seconds of evaluation": time.perf_counter() - began})
        say(f"epoch {state.epoch}, {began - at_start:.1f} s after the start: {epochs[-1]}")

    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    at_start = time.perf_counter()
    result = fit(job, on_epoch)
    whole = time.perf_counter() - at_start
    for found, record in zip(epochs, result.history, strict=True):
        found["seconds"] = record.seconds - found["seconds of evaluation"]
    torch.save({"users": result.users, "items": result.items}, folder.parent / "model.pt")
    device = torch.cuda.max_memory_allocated() if world.device.type == "cuda" else 0
    return {
        "pairs": len(data), "seconds to open": opened, "seconds of fit": whole, "epochs": epochs,
        "peak device bytes": device, **bounds,
    }  # fmt: skip


def lists(world: World, folder: Path, n: int) -> dict[str, Any]:
    """Lists of n users, ranked on the device, in a Parquet file."""
    data = open_prepared(folder)
    assert isinstance(data, Interactions)
    model = torch.load(folder.parent / "model.pt")
    users, items = (model[side].to(world.device) for side in ("users", "items"))
    n, at_once, path = min(n, len(users)), 8192, folder.parent / "lists.parquet"
    began = time.perf_counter()
    with pq.ParquetWriter(
        path, pa.schema([("user", pa.int64()), ("item", pa.int64()), ("score", pa.float32())])
    ) as file:
        for start in range(0, n, at_once):
            rows = np.arange(start, min(start + at_once, n))
            found = top_k(users, items, K, rows=rows, exclude=data)
            columns = [
                data.user_ids.outside(np.repeat(rows, K)),
                data.item_ids.outside(found.items.reshape(-1)),
            ]
            file.write_table(pa.table([*columns, found.scores.reshape(-1)], schema=file.schema))
    seconds = time.perf_counter() - began
    return {"users": n, "rows": n * K, "users a second": n / seconds, "bytes": path.stat().st_size}


# --- the command line --------------------------------------------------------------------------------------


def fit_command(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """`truepair fit` on the folder, with its own settings but for the dimension and the epochs."""
    options = [
        f"--set={name}={value}" for name, value in (("dim", args.dim), ("epochs", args.command_epochs))
    ]
    model = folder.parent / "model.truepair"
    given = [*options, "--device", args.device, "--json"]
    found, memory = command("fit", str(folder), "-o", str(model), *given)
    automatic = json.loads(found)["automatic"]
    shown = {name: automatic[name] for name in ("chosen", "hold out", "seconds", "trials")}
    return {"bytes": model.stat().st_size, **memory, "automatic": shown}


def recommend_command(world: World, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """`truepair recommend` for some users, those of the sample first, and how good its lists are."""
    data = open_prepared(folder)
    assert isinstance(data, Interactions)
    truth, path = Truth(world, data, args.sample), folder.parent / "lists.parquet"
    others = np.setdiff1d(np.arange(min(args.lists, data.n_users)), truth.rows)
    asked = data.user_ids.outside(np.concatenate([truth.rows, others]))
    (folder.parent / "users.txt").write_text("\n".join(map(str, asked.to_pylist())))
    options = ["--users-file", str(folder.parent / "users.txt"), "-k", str(K), "-o", str(path)]
    _, memory = command("recommend", str(folder.parent / "model.truepair"), *options)
    written = pq.read_table(path, columns=["item"])["item"].combine_chunks()
    codes = data.item_ids.find(written[: K * len(truth.rows)], "item").reshape(-1, K)
    quality = {f"recall@{K}": truth.recall(codes), "in liked groups": truth.in_groups(codes)}
    return {"users": len(asked), "bytes": path.stat().st_size, **memory, **quality, **truth.bounds()}


def command(*words: str) -> tuple[str, dict[str, Any]]:
    """The output of a command of truepair, its remarks with their times, and the peaks of its memory."""
    began, remarks = time.perf_counter(), list[str]()
    asked = [sys.executable, "-m", "truepair", *words]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        errors = process.stderr

        def show() -> None:
            for line in errors:
                remarks.append(f"[{time.perf_counter() - began:.1f} s] {line.strip()}")
                say(remarks[-1])

        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        with peak_memory(process.pid) as memory:
            found = process.stdout.read()
            process.wait()
        thread.join()
    if process.returncode:
        raise SystemExit(f"truepair {words[0]} ended with {process.returncode}")
    peaks = {f"{name} of the command": value for name, value in memory.items()}
    return found, {"seconds of the command": time.perf_counter() - began, **peaks, "remarks": remarks}


# --- measuring ---------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


@contextmanager
def peak_memory(process: int | str = "self") -> Iterator[dict[str, int]]:
    """The peak of a process's own memory, without mapped files, and of all that is taken of the device beside
    what was before, looked at ten times a second. Linux."""
    found, over = {"peak host bytes": 0, "peak device bytes": 0}, threading.Event()
    before = _free_on_device()

    def look() -> None:
        while not over.wait(0.1):
            with suppress(OSError):  # it may have ended
                status = Path(f"/proc/{process}/status").read_text()
                now = sum(int(n) for n in re.findall(r"Rss(?:Anon|Shmem):\s+(\d+)", status)) * 1024
                found["peak host bytes"] = max(found["peak host bytes"], now)
            found["peak device bytes"] = max(found["peak device bytes"], before - _free_on_device())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _free_on_device() -> int:
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0


def timed(name: str, work: Callable[[], dict[str, Any]], facts: dict[str, Any], out: Path | None) -> None:
    """Run a phase, print and keep what it found."""
    say(f"{name} …")
    began = time.perf_counter()
    with peak_memory() as memory:
        found = work()
    facts[name] = {"seconds": time.perf_counter() - began, **memory, **found}
    say(f"{name}: {json.dumps(facts[name])}")
    if out is not None:
        out.write_text(json.dumps(facts, indent=1))


PHASES = ("source", "prepare", "train", "lists", "fit", "recommend")


def main() -> None:
    """Run the phases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("users", 1e7),
        ("items", 1e6),
        ("groups", 2000),
        ("batch", 8192),
        ("columns", 8192),
    ):
        parser.add_argument(f"--{name}", type=lambda text: int(float(text)), default=int(default))
    parser.add_argument("--draws", type=int, default=110, help="rows of a user; some repeat a pair")
    parser.add_argument("--files", type=int, default=22, help="files of the source")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--command-epochs", type=int, default=20, help="of `truepair fit`")
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--temperature", type=float, default=0.1)
    parser.add_argument("--popularity", type=float, default=0.0)
    parser.add_argument("--state", choices=["device", "half", "host"], default="device")
    parser.add_argument(
        "--sample", type=int, default=2000, help="users whose lists are compared with the truth"
    )
    parser.add_argument("--lists", type=int, default=100_000, help="users whose lists are written")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", default="90GB", help="the limit that `prepare_interactions` gets")
    parser.add_argument("--writer", choices=["duckdb", "blocks"], default="duckdb")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--keep-source", action="store_true", help="do not delete the rows once prepared")
    parser.add_argument(
        "--folder", type=Path, help="where all files are; by default a folder that is removed"
    )
    parser.add_argument("--out", type=Path, help="a JSON file")
    args = parser.parse_args()
    if args.folder is not None:
        run(args, args.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        run(args, Path(name))


def run(args: argparse.Namespace, folder: Path) -> None:
    """The phases, in a folder."""
    world = World(args.users, args.items, args.groups, args.seed, torch.device(args.device))
    source, prepared = folder / "rows", folder / "prepared"
    facts: dict[str, Any] = {"arguments": {name: str(value) for name, value in vars(args).items()}}
    if args.device != "cpu":
        facts["device"] = torch.cuda.get_device_name()
    blocks = args.writer == "blocks"
    if "source" in args.phases and not blocks:
        timed("source", lambda: write_source(world, args.draws, args.files, source), facts, args.out)
    if "prepare" in args.phases:
        torch.cuda.empty_cache()

        def make() -> dict[str, Any]:
            return (
                write_blocks(world, args.draws, prepared)
                if blocks
                else prepare(source, prepared, args.memory)
            )

        timed("prepare", make, facts, args.out)
        if not args.keep_source and not blocks:
            shutil.rmtree(source)
    if "train" in args.phases:
        timed("train", lambda: train(world, prepared, args), facts, args.out)
    if "lists" in args.phases:
        timed("lists", lambda: lists(world, prepared, args.lists), facts, args.out)
    torch.cuda.empty_cache()
    if "fit" in args.phases:
        timed("fit", lambda: fit_command(prepared, args), facts, args.out)
    if "recommend" in args.phases:
        timed("recommend", lambda: recommend_command(world, prepared, args), facts, args.out)


if __name__ == "__main__":
    main()
