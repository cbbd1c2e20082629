"""Cold items: a tenth of the items has no interaction in training; how well do features rank them?

    python benchmarks/cold_items.py ml-100k --data-dir DIR --out results/cold/ml-100k.jsonl
    python benchmarks/cold_items.py --table results/cold/ml-100k.jsonl
    python benchmarks/cold_items.py --quick              # a small simulated world, one epoch, one seed

Positives are ratings of at least 4. For each of three seeds, a tenth of the items is cold in the test,
another tenth in validation, and a tenth of all pairs (another one in validation) comes after training. Each
method has a few settings. The one with the best NDCG@20 of cold items among cold items, in the validation of
the first seed, is tested once with every seed. Metrics:

cold        NDCG@20 and recall@20 of the pairs of cold items among cold items, for users who have some
all         the same, among all items that the user does not have in training or later
mixed       NDCG@20 of the pairs that come after training, of cold and warm items, among all items
warm        NDCG@20 of those of warm items among warm items: what features do to the others
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses

from truepair.data.datasets.loading import load
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.data.tables.features import Features
from truepair.losses import BPR, InfoNCE
from truepair.models.encoders import MF, Hybrid
from truepair.models.feature_map import FeatureMap
from truepair.randomness import random_order, stream_key
from truepair.sampling import DNS, Full, Uniform
from truepair.spec.defaults import default_batch_size
from truepair.training import ENGINES, Job, Settings

SEEDS = (0, 1, 2)
DIM, K = 64, 20
EPOCHS = {
    "ml-100k": {"full": 20, "sampled": 30},
    "ml-1m": {"full": 10, "sampled": 10},
    "quick": {"full": 1, "sampled": 1},
}
SMALL = {"ml-1m"}  # it takes the settings of ML-100k
LEVELS = (0.0, 0.5, 0.75, 0.9, 0.97)  # quantiles of the counts that cold items are taken to have


# --- data ----------------------------------------------------------------------------------------------


def movies(name: str, folder: Path) -> dict[str, list[Any]]:
    """The feature table: genres; on ML-100k also the year, as a number and as a category."""
    if name == "ml-1m":
        rows = [
            line.rstrip("\n").split("::") for line in (folder / name / "movies.dat").open(encoding="latin-1")
        ]
        return {"item": [int(row[0]) for row in rows], "genres": [row[2].split("|") for row in rows]}
    genres = [line.split("|")[0] for line in (folder / name / "u.genre").open() if "|" in line]
    rows = [line.rstrip("\n").split("|") for line in (folder / name / "u.item").open(encoding="latin-1")]
    years = [int(row[2][-4:]) if row[2] else None for row in rows]
    flags = [[genre for genre, flag in zip(genres, row[5:], strict=True) if flag == "1"] for row in rows]
    periods = [None if year is None else str(year if year >= 1990 else year // 5 * 5) for year in years]
    return {"item": [int(row[0]) for row in rows], "genres": flags, "year": years, "period": periods}


@dataclass(frozen=True)
class Part:
    """Training pairs without cold items, and what comes after."""

    data: Interactions  # all pairs: the codes of users and items
    train: Interactions  # with codes of warm items only
    warm: np.ndarray[Any, Any]  # their codes in `data`
    cold: np.ndarray[Any, Any]
    known: Interactions  # the training pairs, by the codes of `data`
    later: Interactions  # pairs that come after training
    target: Interactions  # all pairs of cold items
    gone: np.ndarray[Any, Any]  # items without a vector, such as those of the other part: not listed


def part_of(data: Interactions, seed: int, *, test: bool) -> Part:
    """The test part, or the part that settings are chosen by."""
    order, n = random_order(stream_key(seed, 1), data.n_items), round(0.1 * data.n_items)
    shuffled = random_order(stream_key(seed, 2), len(data))
    tenth = np.empty(len(data), np.int64)
    tenth[shuffled] = np.arange(len(data)) * 10 // len(data)
    is_cold = np.zeros((2, data.n_items), dtype=bool)
    is_cold[0, order[:n]], is_cold[1, order[n : 2 * n]] = True, True
    if test:
        cold, gone, later, out = is_cold[0], np.zeros(data.n_items, dtype=bool), tenth == 0, tenth == 0
    else:
        cold, gone, later, out = is_cold[1], is_cold[0], tenth == 1, tenth <= 1
    known = data.take(~out & ~cold[data.items] & ~gone[data.items])
    warm = np.flatnonzero(known.item_counts > 0)
    place = np.full(data.n_items, -1)
    place[warm] = np.arange(len(warm))
    train = Interactions(known.users, place[known.items], data.user_ids, IdMap(data.item_ids.outside(warm)))
    codes = np.flatnonzero(cold)
    return Part(
        data, train, warm, codes, known, data.take(later & ~gone[data.items]),
        data.take(cold[data.items]), np.flatnonzero(~cold & (known.item_counts == 0)),
    )  # fmt: skip


# --- metrics -------------------------------------------------------------------------------------------


def lists(scores: torch.Tensor, target: torch.Tensor) -> tuple[float, float]:
    """Mean NDCG@K and recall@K; ties are broken by chance, as the order of items follows popularity."""
    order = torch.from_numpy(random_order(stream_key(0, 3), scores.shape[1]))
    scores, target = scores[:, order], target[:, order]
    best = scores.topk(K, dim=1)
    hits, n = (target.gather(1, best.indices) & best.values.isfinite()).double(), target.sum(1).double()
    discount = 1 / torch.log2(torch.arange(K) + 2.0).double()
    ideal = discount.cumsum(0)[n.clamp(max=K).long() - 1]
    return float(((hits * discount).sum(1) / ideal).mean()), float((hits.sum(1) / n).mean())


def measured(part: Part, users: torch.Tensor, items: torch.Tensor) -> dict[str, float]:
    """All metrics of these matrices, over all items of the data."""
    is_cold = torch.zeros(part.data.n_items, dtype=torch.bool)
    is_cold[part.cold] = True
    found: dict[str, float] = {}
    for what, target in (("cold", part.target), ("mixed", part.later)):
        rows = np.flatnonzero(target.user_counts > 0)
        scores = users[rows] @ items.T
        wanted, known, later = (
            torch.from_numpy(sp.csr_array(some.csr()[rows]).toarray() > 0)
            for some in (target, part.known, part.later)
        )
        scores[known] = -torch.inf
        scores[:, part.gone] = -torch.inf
        if what == "cold":
            scores[later & ~wanted] = -torch.inf
            found["all ndcg"], found["all recall"] = lists(scores, wanted)
            scores[:, ~is_cold] = -torch.inf
            found["cold ndcg"], found["cold recall"] = lists(scores, wanted)
        else:
            found["mixed ndcg"] = lists(scores, wanted)[0]
            scores[:, is_cold] = -torch.inf
            wanted[:, is_cold] = False
            some = wanted.any(1)
            found["warm ndcg"] = lists(scores[some], wanted[some])[0]
    return found


# --- methods -------------------------------------------------------------------------------------------


def settings_of(name: str, method: str) -> list[dict[str, Any]]:
    """What is tried in validation; for a dataset of SMALL, what was chosen on ML-100k."""
    small = name in SMALL
    if method in ("mf", "hybrid"):
        grid = {
            "temperature": (0.2,),
            "popularity": (0.0,) if small else (0.0, 0.4),
            "l2_items": (0.0,) if method == "mf" else (1e-3,) if small else (0.0, 1e-3),
        }
    else:
        grid = {
            "weight_decay": (1e-5,) if small or method == "dns" else (1e-5, 1e-3),
            "learning_rate": (0.01,),
        }
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def trained(name: str, part: Part, features: Features, method: str, chosen: dict[str, Any]) -> Any:
    """(encoder, users, items of warm items, vectors of features or None)."""
    own: dict[str, Any] = {} if method == "mf" else {"item_features": features.take(part.warm)}
    kind: Any = MF if method == "mf" else Hybrid
    parts: tuple[Any, Any]
    n, n_users = len(part.train), part.train.n_users
    if method in ("mf", "hybrid"):
        encoder = kind(
            dim=DIM,
            scoring="cosine",
            temperature=chosen["temperature"],
            popularity=chosen["popularity"],
            **own,
        )
        parts, engine = (InfoNCE(), Full()), "full"
        settings = Settings(
            epochs=EPOCHS[name]["full"], learning_rate=0.01, schedule="cosine", weight_decay=0.0,
            batch_size=default_batch_size(Full(), n, n_users), l2_items=chosen["l2_items"],
        )  # fmt: skip
    else:
        encoder, engine = kind(dim=DIM, **own), "reference"
        parts = BPR(), Uniform() if method == "bpr" else DNS()
        size = 4096 if name in SMALL else 1024
        settings = Settings(epochs=EPOCHS[name]["sampled"], batch_size=size, n_unlabelled=1, **chosen)
    trainer: Any = ENGINES[engine].start(Job(encoder, parts[0], parts[1], part.train, settings))
    for epoch in range(settings.epochs):
        trainer.train(epoch, settings.learning_rate_at(epoch), lambda steps: None)
    vectors = trainer.model.get_parameter("item_features").detach().cpu() if own else None
    users, items = (matrix.cpu() for matrix in trainer.matrices())
    return encoder, users, items, vectors


def cold_rows(
    part: Part, features: Features, encoder: Any, items: torch.Tensor, vectors: torch.Tensor | None, how: str
) -> torch.Tensor:
    """Vectors of cold items: by the map, as the sum of their features' vectors, or the mean of all items."""
    if how == "map":
        found = FeatureMap.fitted(features.take(part.warm), items[:, :DIM], slice(0, DIM))
        rows = found.rows(features.take(part.cold).matrix)
    elif vectors is not None and how == "sum":
        rows = torch.from_numpy(features.take(part.cold).matrix @ vectors.numpy())
    else:
        rows = items[:, :DIM].mean(0).expand(len(part.cold), -1)
    return F.normalize(rows) if encoder.scoring == "cosine" else rows


def whole(part: Part, encoder: Any, items: torch.Tensor, rows: torch.Tensor, count: float) -> torch.Tensor:
    """The rows of all items; cold ones as if `count` users had them."""
    found = torch.zeros(part.data.n_items, items.shape[1])
    found[part.warm] = items
    if encoder.popularity:
        rows = torch.cat([rows, torch.full((len(rows), 1), encoder.popularity * float(np.log1p(count)))], 1)
    found[part.cold] = rows
    return found


def baselines(part: Part) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Random scores; popularity, where cold items have 0 and are in random order."""
    rng, ones = np.random.default_rng(0), torch.ones(part.data.n_users, 1)
    noise = torch.from_numpy(rng.random((part.data.n_users, part.data.n_items))).float()
    popular = torch.zeros(part.data.n_items, 1)
    popular[:, 0] = torch.from_numpy(part.known.item_counts + rng.random(part.data.n_items) * 0.5)
    return {"random": (noise, torch.eye(part.data.n_items)), "popular": (ones, popular)}


METHODS = {  # how the vectors of cold items are made, for each training
    "mf": ("mean", "map"),
    "hybrid": ("sum", "map"),
    "bpr": ("sum", "map"),
    "dns": ("sum", "map"),
}


def simulated() -> tuple[Interactions, dict[str, list[Any]]]:
    """A small world, and the two main genres of its items."""
    world = simulate_world(60, 250, density=0.15, seed=1)
    genres = [[f"genre {at}" for at in np.argsort(-row)[:2]] for row in world.traits]
    return world.observed, {"item": world.observed.item_ids.ids.to_pylist(), "genres": genres}


def run(
    name: str, data: Interactions, table: dict[str, list[Any]], out: Path, seeds: tuple[int, ...] = SEEDS
) -> None:
    """All methods on a dataset: choose in validation, test once; a line for each result."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    seen = {json.dumps([one[key] for key in ("phase", "seed", "method", "settings")]) for one in done}

    def write(phase: str, seed: int, method: str, chosen: dict[str, Any], results: dict[str, Any]) -> None:
        done.append(
            {"data": name, "phase": phase, "seed": seed, "method": method, "settings": chosen, **results}
        )
        with out.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        print(done[-1], flush=True)

    def go(phase: str, seed: int, method: str, chosen: dict[str, Any], extra: bool) -> None:
        if json.dumps([phase, seed, method, chosen]) in seen:
            return
        part = part_of(data, seed, test=phase == "test")
        features = Features.of(table, data.item_ids, part.known.item_counts > 0)
        encoder, users, items, vectors = trained(name, part, features, method, chosen)
        counts = part.train.item_counts
        middle = float(np.expm1(np.log1p(counts).mean()))
        results: dict[str, Any] = {}
        for how in METHODS[method]:
            rows = cold_rows(part, features, encoder, items, vectors, how)
            results[how] = measured(part, users, whole(part, encoder, items, rows, middle))
            if extra and encoder.popularity and how == "map":
                results["levels"] = {
                    f"{level:g}": measured(
                        part, users, whole(part, encoder, items, rows, float(np.quantile(counts, level)))
                    )
                    for level in LEVELS
                }
        write(phase, seed, method, chosen, results)

    methods = [method for method in METHODS if not (name in SMALL and method == "dns")]
    for method in methods:
        for seed in seeds[:1]:
            tried = settings_of(name, method)
            for chosen in tried if len(tried) > 1 else []:
                go("valid", seed, method, chosen, extra=False)
    if name not in SMALL:  # how many users cold items are taken to have, in validation
        go("levels", seeds[0], "hybrid", {**settings_of(name, "hybrid")[-1]}, extra=True)
    for seed in seeds:
        part = part_of(data, seed, test=True)
        for method, (users, items) in baselines(part).items():
            if json.dumps(["test", seed, method, {}]) not in seen:
                write("test", seed, method, {}, {"given": measured(part, users, items)})
        for method in methods:
            wanted = [how for how in METHODS[method] if how != "mean"]
            settings = {json.dumps(chosen_by(done, name, method, how)) for how in wanted}
            for text in sorted(settings):
                go("test", seed, method, json.loads(text), extra=False)
                seen.add(json.dumps(["test", seed, method, json.loads(text)]))


def chosen_by(lines: list[dict[str, Any]], name: str, method: str, how: str) -> dict[str, Any]:
    """The settings with the best NDCG of cold items among cold items in validation."""
    tried = settings_of(name, method)
    if len(tried) == 1:
        return tried[0]
    scores: dict[str, list[float]] = {}
    for line in lines:
        if line["phase"] == "valid" and line["method"] == method:
            scores.setdefault(json.dumps(line["settings"]), []).append(line[how]["cold ndcg"])
    best: dict[str, Any] = json.loads(max(scores, key=lambda text: float(np.mean(scores[text]))))
    return best


def show(path: Path) -> None:
    """The test results of the chosen settings: mean over the seeds, ± their standard deviation."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    tried = {line["method"] for line in lines}
    rows = [("random", "given"), ("popular", "given")]
    rows += [(method, how) for method, hows in METHODS.items() if method in tried for how in hows]
    names = ("cold ndcg", "cold recall", "all ndcg", "all recall", "mixed ndcg", "warm ndcg")
    print(f"{'':16}" + "".join(f"{name:>17}" for name in names))
    for method, how in rows:
        chosen = (
            {}
            if how == "given"
            else chosen_by(lines, lines[0]["data"], method, "map" if how == "mean" else how)
        )
        found = [
            one[how]
            for one in lines
            if one["phase"] == "test" and one["method"] == method and one["settings"] == chosen
        ]
        if found:
            cells = [np.array([one[name] for one in found]) for name in names]
            text = "".join(f"{cell.mean():10.4f} ±{cell.std():.4f}"[:17].rjust(17) for cell in cells)
            print(f"{method + ' ' + how:16}{text}  {chosen}")
    for line in lines:
        if "levels" in line:
            print(line["method"], line["settings"])
            for level, one in line["levels"].items():
                print("   level", level, {name: round(one[name], 4) for name in names})


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="?", choices=list(EPOCHS))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.table:
        show(given.table)
    elif given.quick:
        with tempfile.TemporaryDirectory() as temporary:
            lines = Path(temporary) / "lines.jsonl"
            run("quick", *simulated(), lines, seeds=SEEDS[:1])
            show(lines)
    else:
        ratings = load(given.dataset, given.data_dir).with_min_rating(4)
        run(given.dataset, ratings, movies(given.dataset, given.data_dir), given.out)
